//! One step of an LSTM, as acting needs it, in one kernel after the matrix products.

use tch::{Kind, Tensor};

use crate::error::{Error, Result};
use crate::module::{Module, argument};

/// What one step reads and writes, for a layer of some width.
#[derive(Debug)]
pub struct LstmCell<'a> {
    /// `[rows, 4 width]` in f16 without biases; gates in the order input, forget, cell, output.
    pub gates: &'a Tensor,
    /// Two of `[4 width]` in f32.
    pub biases: [&'a Tensor; 2],
    /// The state before, h then c, `[rows, 2 width]` in f32.
    pub before: &'a Tensor,
    /// Where in the table the state after goes to, `[rows]`, i64.
    pub places: &'a Tensor,
    /// `[.., 2 width]` in f32.
    pub table: &'a Tensor,
    /// `[rows, at least width]` in f16: h goes to the first columns.
    pub output: &'a Tensor,
}

/// The same as the kernel declares it.
#[repr(C)]
struct Arguments {
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

/// Moves the states of all rows on.
pub fn lstm_cell(cell: &LstmCell<'_>) -> Result<()> {
    let (rows, gates) = cell.gates.size2()?;
    let width = gates / 4;
    let (output_rows, stride) = cell.output.size2()?;
    let [bias_ih, bias_hh] = cell.biases;
    let tensors = [cell.gates, bias_ih, bias_hh, cell.before, cell.places, cell.table, cell.output];
    let kinds = [Kind::Half, Kind::Float, Kind::Float, Kind::Float, Kind::Int64, Kind::Float, Kind::Half];
    let fits = tensors.iter().zip(kinds).all(|(tensor, kind)| tensor.kind() == kind && tensor.is_contiguous())
        && bias_ih.size() == [gates]
        && bias_hh.size() == [gates]
        && cell.before.size() == [rows, 2 * width]
        && cell.places.size() == [rows]
        && cell.table.size().get(1) == Some(&(2 * width))
        && output_rows == rows
        && stride >= width;
    if !fits {
        let found = format!("{:?} beside gates of {rows} rows and {gates} columns", cell.before);
        return Err(Error::Shape { what: "an LSTM's state", found, expected: "of the same rows and width".into() });
    }
    let [gates, bias_ih, bias_hh, before, places, table, output] = tensors.map(|tensor| tensor.data_ptr() as u64);
    let arguments = Arguments {
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
    // SAFETY: contiguous tensors of the kinds and sizes checked above; the places are rows of the table, as the caller
    // says that filled them.
    unsafe { module.kernel("lstm_cell", 0)?.launch(elements.div_ceil(256), 256, 0, &[argument(&arguments)]) }
}
