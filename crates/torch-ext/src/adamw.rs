//! AdamW and the moving average of the parameters, in one kernel over flat buffers.

use tch::{Kind, Tensor};

use crate::driver::driver;
use crate::error::Result;
use crate::module::{Module, argument};
use crate::operand::{address, expect};

/// Flat f32 buffers of equal length on the GPU, and the constants of an update.
///
/// Everything that depends on the gradients stays on the GPU, so that the host does not wait for it.
#[derive(Debug)]
pub struct AdamWStep<'a> {
    /// The parameters to update.
    pub parameters: &'a Tensor,
    /// Moving average of the gradient.
    pub first: &'a Tensor,
    /// Moving average of the squared gradient.
    pub second: &'a Tensor,
    /// The gradient.
    pub gradients: &'a Tensor,
    /// Factors of the parameters, for weight decay.
    pub keep: Option<&'a Tensor>,
    /// Moving average of the parameters, and the share of the way it moves.
    pub average: Option<(&'a Tensor, f64)>,
    /// Factor of the gradient, one f64; 1 if `None`.
    pub scale: Option<&'a Tensor>,
    /// Whether to apply the update, one bool.
    pub apply: &'a Tensor,
    /// Decay of the gradient's average.
    pub beta1: f64,
    /// Decay of the square's average.
    pub beta2: f64,
    /// Learning rate divided by the bias of the first average.
    pub rate: f64,
    /// Square root of the bias of the second average.
    pub root: f64,
    /// Added to the square root of the second average.
    pub epsilon: f64,
}

/// The arguments as the kernel declares them.
#[repr(C)]
struct AdamWArguments {
    parameters: u64,
    first: u64,
    second: u64,
    gradients: u64,
    keep: u64,
    average: u64,
    scale: u64,
    apply: u64,
    count: u64,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    rate: f32,
    root: f32,
    epsilon: f32,
    share: f32,
}

/// Updates the parameters p and then their average, if `apply` is set.
///
/// p ← keep · p − rate · m / (√v / root + ε), average ← average + share · (p − average).
pub fn adamw(step: &AdamWStep<'_>) -> Result<()> {
    let (count, device) = (step.parameters.numel() as i64, step.parameters.device());
    let flat = |what, tensor: &Tensor| expect(what, tensor, Kind::Float, count, device);
    flat("the optimizer's parameters", step.parameters)?;
    flat("the gradients", step.gradients)?;
    flat("the moving average of the gradients", step.first)?;
    flat("the moving average of their squares", step.second)?;
    step.keep.map_or(Ok(()), |keep| flat("the weight decay", keep))?;
    step.average.map_or(Ok(()), |(average, _)| flat("the moving average of the parameters", average))?;
    step.scale.map_or(Ok(()), |scale| expect("the optimizer's scale", scale, Kind::Double, 1, device))?;
    expect("the optimizer's flag", step.apply, Kind::Bool, 1, device)?;
    let arguments = AdamWArguments {
        parameters: address(step.parameters),
        first: address(step.first),
        second: address(step.second),
        gradients: address(step.gradients),
        keep: step.keep.map_or(0, address),
        average: step.average.map_or(0, |(average, _)| address(average)),
        scale: step.scale.map_or(0, address),
        apply: address(step.apply),
        count: count as u64,
        one_minus_beta1: (1.0 - step.beta1) as f32,
        one_minus_beta2: (1.0 - step.beta2) as f32,
        rate: step.rate as f32,
        root: step.root as f32,
        epsilon: step.epsilon as f32,
        share: step.average.map_or(0.0, |(_, share)| share as f32),
    };
    let module = Module::get(include_str!("kernels/adamw.cu"))?;
    let grid = 8 * driver()?.multiprocessors()? as usize;
    // SAFETY: as checked above, all buffers are as long as the parameters, and one element of the others is read.
    unsafe { module.kernel("adamw", 0)?.launch(grid, 512, 0, &[argument(&arguments)]) }
}
