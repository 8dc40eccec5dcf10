//! The returns of all policies in one kernel.

use tch::Tensor;

use crate::error::{Error, Result};
use crate::module::{Module, argument};

/// G_t = r_t + d_t (V_{t+1} + λ_{t+1} (G_{t+1} − V_{t+1})), and G = V at the last step: `[B, T, N]`.
///
/// Rewards may be `[B, T, 1]`, the same for all policies.
pub fn returns(rewards: &Tensor, discounts: &Tensor, values: &Tensor, traces: &Tensor) -> Result<Tensor> {
    let size = values.size();
    let (sequences, steps, policies) = values.size3()?;
    let reward_size = rewards.size();
    let fits = discounts.size() == size && traces.size() == size && reward_size[..2] == size[..2];
    if !fits || !(reward_size[2] == 1 || reward_size[2] == policies) || steps == 0 {
        let found = format!("{reward_size:?} with values of {size:?}");
        return Err(Error::Shape { what: "rewards", found, expected: "of the same batch, steps and policies".into() });
    }
    let inputs: [Tensor; 4] = [rewards, discounts, values, traces].map(Tensor::contiguous);
    let out = values.f_empty_like()?.f_contiguous()?;
    let pointers = [&inputs[0], &inputs[1], &inputs[2], &inputs[3], &out].map(|tensor| tensor.data_ptr() as u64);
    let numbers = [sequences, steps, policies, reward_size[2]].map(|number| number as i32);
    let arguments: Vec<_> = pointers.iter().map(argument).chain(numbers.iter().map(argument)).collect();
    let module = Module::get(include_str!("kernels/returns.cu"))?;
    let threads = (sequences * policies) as usize;
    // SAFETY: contiguous tensors of the sizes checked above.
    unsafe { module.kernel("returns", 0)?.launch(threads.div_ceil(64), 64, 0, &arguments)? };
    Ok(out)
}
