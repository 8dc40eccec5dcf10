//! One LSTM layer in f16 with f32 master weights, with cuDNN's persistent kernels.

use std::ptr;

use tch::{Kind, Tensor};

use crate::autograd::attach;
use crate::error::{Error, Result};
use crate::shim;

/// cuDNN's fast path needs an input width that is a multiple of this.
const WIDTH_STEP: i64 = 128;

/// f32 master weights of an LSTM, with gates in the order input, forget, cell, output.
///
/// `[4 width, inputs]`, `[4 width, width]`, and two biases of `[4 width]`.
pub type LstmWeights<'a> = [&'a Tensor; 4];

fn padded(inputs: i64) -> i64 {
    (inputs + WIDTH_STEP - 1) / WIDTH_STEP * WIDTH_STEP
}

/// Converts the weights to cuDNN's format: f16, one after the other, the input padded with zeros.
pub fn prepare(weights: LstmWeights<'_>) -> Result<Tensor> {
    tch::no_grad(|| {
        let [weight_ih, rest @ ..] = weights;
        let inputs = weight_ih.size()[1];
        let half = |weight: &Tensor| weight.f_detach()?.f_to_kind(Kind::Half);
        let weight_ih = half(weight_ih)?.f_constant_pad_nd([0, padded(inputs) - inputs])?;
        let mut parts = vec![weight_ih.f_reshape([-1])?];
        for weight in rest {
            parts.push(half(weight)?.f_reshape([-1])?);
        }
        Ok(Tensor::f_cat(&parts, 0)?)
    })
}

/// Maps sequences and the state before them to outputs and the state after, in f32.
///
/// `[B, T, inputs]`, with h and c of `[B, width]`, becomes `[B, T, width]`.
///
/// The output has the kind of the input. Gradients flow to the input and the weights, not to the state; in f16 they are
/// scaled so that the largest incoming one is 1.
pub fn lstm(
    input: &Tensor,
    weights: LstmWeights<'_>,
    prepared: &Tensor,
    [h, c]: [&Tensor; 2],
) -> Result<(Tensor, [Tensor; 2])> {
    let (sequences, _, inputs) = input.size3()?;
    let (rows, width) = h.size2()?;
    // cuDNN reads one row of the state per sequence.
    if rows != sequences || c.size() != [rows, width] {
        let found = format!("{:?} and {:?} beside {sequences} sequences", h.size(), c.size());
        return Err(Error::Shape { what: "an LSTM's state", found, expected: "one row per sequence".into() });
    }
    let state = |x: &Tensor| x.f_detach()?.f_to_kind(Kind::Half)?.f_unsqueeze(0)?.f_contiguous();
    let (h, c) = (state(h)?, state(c)?);
    let train = input.requires_grad() || weights.iter().any(|weight| weight.requires_grad());
    let buffer = prepared.f_detach()?;
    let x = tch::no_grad(|| {
        let x = input.f_detach()?.f_to_kind(Kind::Half)?.f_constant_pad_nd([0, padded(inputs) - inputs])?;
        x.f_transpose(0, 1)?.f_contiguous()
    })?;
    let [output, h_after, c_after, reserve] = forward(&x, &buffer, [&h, &c], width, train)?;
    let after = [h_after, c_after].map(|x| x.f_squeeze_dim(0)?.f_to_kind(Kind::Float));
    let [h_after, c_after] = after;
    let after = [h_after?, c_after?];
    // The input's kind keeps gradients from passing through f16 before they are scaled.
    let batch_major = output.f_transpose(0, 1)?.f_to_kind(input.kind())?;
    if !train {
        return Ok((batch_major, after));
    }
    let [weight_ih, weight_hh, bias_ih, bias_hh] = weights;
    let kind = input.kind();
    let attached = attach(&batch_major, &[input, weight_ih, weight_hh, bias_ih, bias_hh], move |gradient| {
        let gradient = gradient.f_to_kind(Kind::Float)?.f_transpose(0, 1)?;
        let scale = gradient.f_abs()?.f_max()?.f_clamp_min(f64::from(f32::MIN_POSITIVE))?.f_reciprocal()?;
        let scaled = gradient.f_mul(&scale)?.f_to_kind(Kind::Half)?.f_contiguous()?;
        let (dx, dw) = backward(&x, &buffer, [&h, &c], [&output, &reserve, &scaled], width)?;
        let unscaled = |x: &Tensor| x.f_to_kind(Kind::Float)?.f_div(&scale);
        let dx = unscaled(&dx.f_narrow(2, 0, inputs)?.f_transpose(0, 1)?)?.f_to_kind(kind)?;
        let [dw_ih, dw_hh, db_ih, db_hh] = dw;
        let dw_ih = unscaled(&dw_ih.f_narrow(1, 0, inputs)?)?;
        Ok(vec![Some(dx), Some(dw_ih), Some(unscaled(&dw_hh)?), Some(unscaled(&db_ih)?), Some(unscaled(&db_hh)?)])
    })?;
    Ok((attached, after))
}

/// Returns the output, h and c after it, and what the backward pass needs.
fn forward(x: &Tensor, buffer: &Tensor, [h, c]: [&Tensor; 2], width: i64, train: bool) -> Result<[Tensor; 4]> {
    let mut found = [ptr::null_mut(); 4];
    let [output, h_after, c_after, reserve] = &mut found;
    // SAFETY: live tensors; the shim writes four pointers.
    let text = unsafe {
        shim::tx_lstm(
            shim::raw(x),
            shim::raw(buffer),
            shim::raw(h),
            shim::raw(c),
            width,
            train.into(),
            output,
            h_after,
            c_after,
            reserve,
        )
    };
    shim::check(text)?;
    // SAFETY: the shim created all four for us.
    Ok(found.map(|tensor| unsafe { shim::take(tensor) }))
}

/// Returns the gradients of the input and of the four weights.
fn backward(
    x: &Tensor,
    buffer: &Tensor,
    [h, c]: [&Tensor; 2],
    [output, reserve, gradient]: [&Tensor; 3],
    width: i64,
) -> Result<(Tensor, [Tensor; 4])> {
    let mut input_gradient = ptr::null_mut();
    let mut weight_gradients = [ptr::null_mut(); 4];
    // SAFETY: live tensors; the shim writes one and four pointers.
    let text = unsafe {
        shim::tx_lstm_backward(
            shim::raw(x),
            shim::raw(buffer),
            shim::raw(h),
            shim::raw(c),
            shim::raw(output),
            shim::raw(reserve),
            shim::raw(gradient),
            width,
            &mut input_gradient,
            weight_gradients.as_mut_ptr(),
        )
    };
    shim::check(text)?;
    // SAFETY: the shim created all five for us.
    Ok(unsafe { (shim::take(input_gradient), weight_gradients.map(|tensor| shim::take(tensor))) })
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn refuses_states_of_another_number_of_sequences() {
        let zeros = |size: &[i64]| Tensor::zeros(size, (Kind::Float, Device::Cpu));
        let (input, prepared) = (zeros(&[3, 5, 2]), zeros(&[1]));
        let (weights, fits, short) = ([&prepared; 4], zeros(&[3, 4]), zeros(&[2, 4]));
        for state in [[&short, &fits], [&fits, &short], [&short, &short]] {
            let error = lstm(&input, weights, &prepared, state).unwrap_err().to_string();
            assert!(error.contains("beside 3 sequences"), "{error}");
        }
    }
}
