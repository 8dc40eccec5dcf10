//! Numbers of many tensors, brought to the host at once: each trip would make the learner wait for the device.

use tch::{Kind, Tensor};
use torch_ext::upload::Download;

use crate::error::Result;

/// The values of many tensors, one after the other, on their device in f64.
#[derive(Debug)]
pub struct Numbers {
    together: Tensor,
    lengths: Vec<usize>,
}

/// The same on their way to the host.
#[derive(Debug)]
pub struct SentNumbers {
    download: Download,
    lengths: Vec<usize>,
}

impl Numbers {
    /// Of these tensors.
    pub fn gather(tensors: &[&Tensor]) -> Result<Self> {
        tch::no_grad(|| {
            let flat = tensors.iter().map(|tensor| tensor.f_detach()?.f_to_kind(Kind::Double)?.f_reshape([-1]));
            let flat = flat.collect::<std::result::Result<Vec<_>, _>>()?;
            let lengths = tensors.iter().map(|tensor| tensor.numel()).collect();
            Ok(Self { together: Tensor::f_cat(&flat, 0)?, lengths })
        })
    }

    /// Whether all are finite: one bool on the device.
    pub fn finite(&self) -> Result<Tensor> {
        Ok(self.together.f_isfinite()?.f_all()?)
    }

    /// Sends them to the host.
    pub fn send(&self) -> Result<SentNumbers> {
        Ok(SentNumbers { download: Download::begin(&self.together)?, lengths: self.lengths.clone() })
    }
}

impl SentNumbers {
    /// Waits for them: the values of every tensor, in their order.
    pub fn receive(self) -> Result<Vec<Vec<f64>>> {
        let together: Vec<f64> = Vec::try_from(self.download.finish()?)?;
        let mut rest = &together[..];
        let mut split = |length: usize| {
            let (own, others) = rest.split_at(length);
            rest = others;
            own.to_vec()
        };
        Ok(self.lengths.into_iter().map(&mut split).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tensor_gets_its_own_values_back() {
        let (a, b) = (Tensor::from_slice(&[1f32, 2.5]).view([2, 1]), Tensor::from_slice(&[0.1f64]));
        let numbers = Numbers::gather(&[&a, &Tensor::from(3f32), &b]).unwrap();
        assert_eq!(numbers.send().unwrap().receive().unwrap(), [vec![1.0, 2.5], vec![3.0], vec![0.1]]);
    }

    #[test]
    fn one_that_is_not_finite_is_noticed() {
        let good = Tensor::from_slice(&[1f32, -2.5]);
        for (bad, expected) in [(0.0, true), (f32::NAN, false), (f32::INFINITY, false), (f32::NEG_INFINITY, false)] {
            let finite = Numbers::gather(&[&good, &Tensor::from(bad)]).unwrap().finite().unwrap();
            assert_eq!(bool::try_from(finite).unwrap(), expected, "{bad}");
        }
    }
}
