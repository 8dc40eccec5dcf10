//! Copies of many tensors at once: one by one, giving them out takes longer than they take.

use tch::Tensor;

use crate::error::Result;
use crate::shim;

/// Copies the second tensor of every pair into the first. All are on the GPU.
pub fn copy_all(pairs: &mut [(&mut Tensor, &Tensor)]) -> Result<()> {
    let to: Vec<_> = pairs.iter().map(|(to, _)| shim::raw(to)).collect();
    let from: Vec<_> = pairs.iter().map(|(_, from)| shim::raw(from)).collect();
    // SAFETY: as many live tensors as `count` says; the first of each pair is borrowed to be changed.
    shim::check(unsafe { shim::tx_copy_all(to.as_ptr(), from.as_ptr(), to.len()) })
}
