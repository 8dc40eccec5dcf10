//! Copies many tensors at once: issuing single copies takes longer than the copies themselves.

use tch::Tensor;

use crate::error::Result;
use crate::shim;

/// Copies the second tensor of each pair into the first; all are on the same device.
pub fn copy_all(mut pairs: Vec<(&mut Tensor, &Tensor)>) -> Result<()> {
    if !pairs.iter().any(|(to, _)| to.device().is_cuda()) {
        return Ok(pairs.iter_mut().try_for_each(|(to, from)| to.f_copy_(from))?);
    }
    let to: Vec<_> = pairs.iter().map(|(to, _)| shim::raw(to)).collect();
    let from: Vec<_> = pairs.iter().map(|(_, from)| shim::raw(from)).collect();
    // SAFETY: `count` live tensors each; the first of each pair is borrowed mutably.
    shim::check(unsafe { shim::tx_copy_all(to.as_ptr(), from.as_ptr(), to.len()) })
}
