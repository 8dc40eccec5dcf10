//! One step of an LSTM for acting: one kernel after the matrix products.

use tch::{Kind, Tensor};

use crate::error::Result;
use crate::module::{Module, argument};
use crate::operand::{address, expect_size};

/// Operands of one step.
#[derive(Debug)]
pub struct LstmCell<'a> {
    /// `[rows, 4 width]` in f16 without biases; gates in the order input, forget, cell, output.
    pub gates: &'a Tensor,
    /// Two of `[4 width]` in f32.
    pub biases: [&'a Tensor; 2],
    /// The state before, h then c, `[rows, 2 width]` in f32.
    pub before: &'a Tensor,
    /// Rows of the table for the states after the step, `[rows]`, i64.
    pub places: &'a Tensor,
    /// The table of states, `[.., 2 width]` in f32.
    pub table: &'a Tensor,
    /// `[rows, at least width]` in f16; h is written to the first columns.
    pub output: &'a Tensor,
}

/// The arguments as the kernel declares them.
#[repr(C)]
struct LstmCellArguments {
    gates: u64,
    bias_ih: u64,
    bias_hh: u64,
    before: u64,
    places: u64,
    table: u64,
    output: u64,
    rows: i32,
    width: i32,
    stride: i32,
}

/// Advances the states of all rows by one step.
pub fn lstm_cell(cell: &LstmCell<'_>) -> Result<()> {
    let LstmCell { gates, biases: [bias_ih, bias_hh], before, places, table, output } = *cell;
    let device = gates.device();
    let (rows, columns) = gates.size2()?;
    let width = columns / 4;
    let (states, stride) = (table.size2()?.0, output.size2()?.1);
    expect_size("the gates of an LSTM", gates, Kind::Half, &[rows, 4 * width], device)?;
    expect_size("a bias of an LSTM", bias_ih, Kind::Float, &[4 * width], device)?;
    expect_size("a bias of an LSTM", bias_hh, Kind::Float, &[4 * width], device)?;
    expect_size("an LSTM's state", before, Kind::Float, &[rows, 2 * width], device)?;
    expect_size("the places of an LSTM's states", places, Kind::Int64, &[rows], device)?;
    expect_size("the table of an LSTM's states", table, Kind::Float, &[states, 2 * width], device)?;
    expect_size("the output of an LSTM", output, Kind::Half, &[rows, stride.max(width)], device)?;
    let tensors = [gates, bias_ih, bias_hh, before, places, table, output];
    let [gates, bias_ih, bias_hh, before, places, table, output] = tensors.map(address);
    let arguments = LstmCellArguments {
        gates,
        bias_ih,
        bias_hh,
        before,
        places,
        table,
        output,
        rows: rows as i32,
        width: width as i32,
        stride: stride as i32,
    };
    let module = Module::get(include_str!("kernels/lstm_cell.cu"))?;
    let elements = (rows * width) as usize;
    // SAFETY: contiguous tensors on one GPU of the kinds and sizes checked above. The caller guarantees that the places
    // are rows of the table; checking them here would mean waiting for the GPU.
    unsafe { module.kernel("lstm_cell", 0)?.launch(elements.div_ceil(256), 256, 0, &[argument(&arguments)]) }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn refuses_tensors_on_the_host_or_of_the_wrong_size() {
        let zeros = |size: &[i64], kind| Tensor::zeros(size, (kind, Device::Cpu));
        let (gates, bias, state) = (zeros(&[3, 8], Kind::Half), zeros(&[8], Kind::Float), zeros(&[3, 4], Kind::Float));
        let (places, output) = (zeros(&[3], Kind::Int64), zeros(&[3, 5], Kind::Half));
        let biases = [&bias, &bias];
        let cell = LstmCell { gates: &gates, biases, before: &state, places: &places, table: &state, output: &output };
        let error = lstm_cell(&cell).unwrap_err().to_string();
        assert!(error.contains("the gates of an LSTM is Half [3, 8] on Cpu") && error.contains("a GPU"), "{error}");
        assert!(lstm_cell(&LstmCell { table: &bias, ..cell }).is_err());
    }
}
