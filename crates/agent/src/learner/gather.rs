//! Numbers of many tensors, brought to the host at once: each trip would make the learner wait for the device.

use tch::{Device, Kind, Tensor};

use crate::error::Result;

/// The values of every tensor, in their order.
pub fn gather(tensors: &[&Tensor]) -> Result<Vec<Vec<f64>>> {
    tch::no_grad(|| {
        let flat = tensors.iter().map(|tensor| tensor.f_detach()?.f_to_kind(Kind::Double)?.f_reshape([-1]));
        let flat = flat.collect::<std::result::Result<Vec<_>, _>>()?;
        let together: Vec<f64> = Vec::try_from(Tensor::f_cat(&flat, 0)?.f_to_device(Device::Cpu)?)?;
        let mut rest = &together[..];
        let mut split = |tensor: &&Tensor| {
            let (own, others) = rest.split_at(tensor.numel());
            rest = others;
            own.to_vec()
        };
        Ok(tensors.iter().map(&mut split).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tensor_gets_its_own_values_back() {
        let (a, b) = (Tensor::from_slice(&[1f32, 2.5]).view([2, 1]), Tensor::from_slice(&[0.1f64]));
        assert_eq!(gather(&[&a, &Tensor::from(3f32), &b]).unwrap(), [vec![1.0, 2.5], vec![3.0], vec![0.1]]);
    }
}
