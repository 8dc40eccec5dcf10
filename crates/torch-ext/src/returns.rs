//! The returns of all policies, in one kernel.

use tch::{Kind, Tensor};

use crate::error::{Error, Result};
use crate::module::{Module, argument};
use crate::operand::{address, expect};

/// Computes λ-returns `[B, T, N]`, with G = V at the last step.
///
/// G_t = r_t + d_t (V_{t+1} + λ_{t+1} (G_{t+1} − V_{t+1}))
///
/// Rewards that are the same for all policies may be `[B, T, 1]`.
pub fn returns(rewards: &Tensor, discounts: &Tensor, values: &Tensor, traces: &Tensor) -> Result<Tensor> {
    let (sequences, steps, policies) = values.size3()?;
    let size = [sequences, steps, policies];
    let reward_size = rewards.size();
    let shared = reward_size == [sequences, steps, 1];
    let fits = discounts.size() == size && traces.size() == size && (shared || reward_size == size);
    if !fits || steps == 0 {
        let found = format!("{reward_size:?} with values of {size:?}");
        return Err(Error::Shape { what: "rewards", found, expected: "the same batch, steps and policies".into() });
    }
    let contiguous = |what, tensor: &Tensor| -> Result<Tensor> {
        let tensor = tensor.f_contiguous()?;
        expect(what, &tensor, Kind::Float, tensor.numel() as i64, values.device())?;
        Ok(tensor)
    };
    let (rewards, discounts) = (contiguous("rewards", rewards)?, contiguous("discounts", discounts)?);
    let (values, traces) = (contiguous("values", values)?, contiguous("traces", traces)?);
    let out = values.f_empty_like()?;
    let pointers = [&rewards, &discounts, &values, &traces, &out].map(address);
    let numbers = [sequences, steps, policies, if shared { 1 } else { policies }].map(|number| number as i32);
    let arguments: Vec<_> = pointers.iter().map(argument).chain(numbers.iter().map(argument)).collect();
    let module = Module::get(include_str!("kernels/returns.cu"))?;
    let threads = (sequences * policies) as usize;
    // SAFETY: contiguous tensors of the kinds and sizes checked above.
    unsafe { module.kernel("returns", 0)?.launch(threads.div_ceil(64), 64, 0, &arguments)? };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn refuses_rewards_without_policies_and_tensors_on_the_host() {
        let zeros = |size: &[i64]| Tensor::zeros(size, (Kind::Float, Device::Cpu));
        let values = zeros(&[2, 3, 4]);
        let error = returns(&zeros(&[2, 3]), &values, &values, &values).unwrap_err().to_string();
        assert!(error.contains("[2, 3] with values of [2, 3, 4]"), "{error}");
        let error = returns(&zeros(&[2, 3, 1]), &values, &values, &values).unwrap_err().to_string();
        assert!(error.contains("rewards") && error.contains("a GPU"), "{error}");
    }
}
