//! Checks of tensors before kernels, which check nothing, read and write them.

use std::fmt;

use tch::{Device, Kind, Tensor};

use crate::error::{Error, Result};

/// Returns the address of a tensor's first element.
pub(crate) fn address(tensor: &Tensor) -> u64 {
    tensor.data_ptr() as u64
}

/// Refuses a tensor without exactly `length` contiguous elements of this kind on this GPU.
pub(crate) fn expect(what: &'static str, tensor: &Tensor, kind: Kind, length: i64, device: Device) -> Result<()> {
    let fits = tensor.numel() as i64 == length;
    expect_of(what, tensor, kind, fits, format_args!("{length} elements"), device)
}

/// Like [`expect`], with at least `length` elements.
pub(crate) fn expect_at_least(
    what: &'static str,
    tensor: &Tensor,
    kind: Kind,
    length: i64,
    device: Device,
) -> Result<()> {
    let fits = tensor.numel() as i64 >= length;
    expect_of(what, tensor, kind, fits, format_args!("at least {length} elements"), device)
}

/// Like [`expect`], with this size.
pub(crate) fn expect_size(what: &'static str, tensor: &Tensor, kind: Kind, size: &[i64], device: Device) -> Result<()> {
    expect_of(what, tensor, kind, tensor.size() == size, format_args!("{size:?}"), device)
}

fn expect_of(
    what: &'static str,
    tensor: &Tensor,
    kind: Kind,
    fits: bool,
    expected: fmt::Arguments<'_>,
    device: Device,
) -> Result<()> {
    if fits && tensor.kind() == kind && tensor.device() == device && device.is_cuda() && tensor.is_contiguous() {
        return Ok(());
    }
    let place = if device.is_cuda() { format!("{device:?}") } else { "a GPU".to_owned() };
    let layout = if tensor.is_contiguous() { "" } else { ", not contiguous" };
    let found = format!("{:?} {:?} on {:?}{layout}", tensor.kind(), tensor.size(), tensor.device());
    Err(Error::Shape { what, found, expected: format!("{kind:?}, {expected}, contiguous on {place}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_unfit_tensors_and_what_was_expected() {
        let tensor = Tensor::zeros([2, 3], (Kind::Float, Device::Cpu));
        let error = expect("the gradients", &tensor, Kind::Float, 6, Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("the gradients") && error.contains("a GPU"), "{error}");
        let error = expect("the gradients", &tensor, Kind::Half, 7, Device::Cuda(0)).unwrap_err().to_string();
        assert!(error.contains("Float [2, 3] on Cpu") && error.contains("Half, 7 elements"), "{error}");
        let error = expect_at_least("x", &tensor.transpose(0, 1), Kind::Float, 7, Device::Cuda(0)).unwrap_err();
        assert!(error.to_string().contains("not contiguous"), "{error}");
        let error = expect_size("x", &tensor, Kind::Float, &[3, 2], Device::Cuda(0)).unwrap_err().to_string();
        assert!(error.contains("x is Float [2, 3] on Cpu, expected Float, [3, 2], contiguous on Cuda(0)"), "{error}");
    }
}
