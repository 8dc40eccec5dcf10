//! The report of an update: gathered on the device, sent to the host in one copy, and read there.

use serde::Serialize;
use tch::{Kind, Tensor};
use torch_ext::upload::Download;

use super::intrinsic_loss::IntrinsicLoss;
use crate::batch::BatchTensors;
use crate::error::{AgentError, Result};
use crate::loss::statistics::{PolicyStatistics, policy_statistics, policy_table};
use crate::loss::{LossOutput, TdStatistics};
use crate::moments::BatchMoments;
use crate::nets::parameters::ParameterSet;

/// Losses, priorities and statistics of one update.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Number of the update, counted from 1.
    pub update: u64,
    /// Losses of the batch, before the update.
    pub losses: Losses,
    /// New priority of each sequence of the batch.
    pub priorities: Vec<f32>,
    /// Norms of the gradients, before clipping.
    pub gradient_norms: GradientNorms,
    /// Valid steps of the batch.
    pub steps: u64,
    /// Share of actions that the action prediction network predicted correctly.
    pub action_prediction_accuracy: f64,
    /// Running statistics of the RND error, after the update.
    pub rnd: RndStatistics,
    /// Statistics of each policy.
    pub policies: Vec<PolicyStatistics>,
}

/// Losses of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Losses {
    /// Loss of the value and policy network: TD loss plus weighted distillation loss.
    pub total: f64,
    /// TD loss of all value heads, mixed over the policies.
    pub td: f64,
    /// Distillation loss, mixed over the policies, before its weight.
    pub distillation: f64,
    /// Mean cross-entropy of the predicted actions.
    pub action_prediction: f64,
    /// Mean RND error.
    pub rnd: f64,
}

/// Norms of the gradients, before clipping.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GradientNorms {
    /// Value and policy network.
    pub agent: f64,
    /// Action prediction network.
    pub action_prediction: f64,
    /// RND predictor.
    pub rnd: f64,
}

/// Running statistics of the RND error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RndStatistics {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

/// Everything that a report is made of, on the device.
#[derive(Debug)]
pub(super) struct DeviceReport {
    /// All values one after the other, f64.
    values: Tensor,
    /// How many of them each part has, in the order in which [`PendingReport::receive`] reads them.
    lengths: Vec<usize>,
    distillation: bool,
}

/// A report on its way from the device.
#[derive(Debug)]
pub(super) struct PendingReport {
    download: Download,
    lengths: Vec<usize>,
    distillation: bool,
    update: u64,
    steps: u64,
}

/// A report and the batch's moments for the running statistics.
pub(super) struct ReceivedReport {
    /// Complete except for the running statistics.
    pub report: StepReport,
    pub td: Vec<TdStatistics>,
    pub rnd_errors: BatchMoments,
    /// The first value that is not finite, of all that the device looked at when it decided about the update.
    non_finite: Option<f64>,
}

impl DeviceReport {
    /// Gathers the values; `norms` are those of the agent's, f's and RND's gradients.
    pub fn gather(
        loss: &LossOutput,
        intrinsic: &IntrinsicLoss,
        norms: &[Tensor; 3],
        batch: &BatchTensors,
    ) -> Result<Self> {
        let table = policy_table(loss, batch)?;
        let mut parts = vec![
            &loss.total,
            &loss.td,
            &loss.distillation,
            &intrinsic.action_prediction,
            &intrinsic.rnd,
            &intrinsic.accuracy,
        ];
        parts.extend(norms);
        parts.extend([&intrinsic.rnd_moments, &loss.priorities, &table]);
        parts.extend(loss.heads.iter().map(|head| &head.td.statistics));
        let (values, lengths) = concatenate(&parts)?;
        Ok(Self { values, lengths, distillation: loss.policy.is_some() })
    }

    /// Whether all values are finite: one bool on the device.
    pub fn finite(&self) -> Result<Tensor> {
        Ok(self.values.f_isfinite()?.f_all()?)
    }

    /// Sends the report of an update of `steps` valid steps to the host.
    pub fn send(&self, update: u64, steps: u64) -> Result<PendingReport> {
        let (lengths, distillation) = (self.lengths.clone(), self.distillation);
        Ok(PendingReport { download: Download::begin(&self.values)?, lengths, distillation, update, steps })
    }
}

impl PendingReport {
    /// Waits for the report.
    pub fn receive(self) -> Result<ReceivedReport> {
        let values: Vec<f64> = Vec::try_from(self.download.finish()?)?;
        let mut parts = split(&values, &self.lengths);
        let mut next = || parts.next().unwrap_or_default();
        let [total, td, distillation, action_prediction, rnd, accuracy] = [(); 6].map(|()| next()[0]);
        let losses = Losses { total, td, distillation, action_prediction, rnd };
        let [agent, action_prediction, rnd] = [(); 3].map(|()| next()[0]);
        let gradient_norms = GradientNorms { agent, action_prediction, rnd };
        let rnd_errors = match next() {
            &[mean, mean_square] => BatchMoments { mean, mean_square },
            other => unreachable!("{} RND moments", other.len()),
        };
        let priorities = next().iter().map(|&priority| priority as f32).collect();
        let table = next();
        let td: Vec<_> = parts.map(TdStatistics::new).collect();
        let report = StepReport {
            update: self.update,
            losses,
            priorities,
            gradient_norms,
            steps: self.steps,
            action_prediction_accuracy: accuracy,
            rnd: RndStatistics::default(),
            policies: policy_statistics(table, &td, self.distillation),
        };
        let non_finite = values.iter().copied().find(|value| !value.is_finite());
        Ok(ReceivedReport { report, td, rnd_errors, non_finite })
    }
}

impl ReceivedReport {
    /// Fails if a value is not finite, naming the first one; the gradients are in the order of their norms.
    pub fn check_finite(&self, gradients: [(&str, &ParameterSet); 3]) -> Result<()> {
        let Some(statistic) = self.non_finite else { return Ok(()) };
        let StepReport { losses, policies, priorities, gradient_norms, update, .. } = &self.report;
        let fail = |tensor: String, value: f64| {
            if value.is_finite() { Ok(()) } else { Err(AgentError::NonFinite { tensor, value, update: *update }) }
        };
        for (j, policy) in policies.iter().enumerate() {
            fail(format!("the TD error of policy {j}"), policy.td_error)?;
            fail(format!("sigma of policy {j}"), policy.sigma)?;
            fail(format!("the intrinsic sigma of policy {j}"), policy.sigma_intrinsic.unwrap_or(0.0))?;
        }
        for (name, loss) in [
            ("TD", losses.td),
            ("distillation", losses.distillation),
            ("action prediction", losses.action_prediction),
            ("RND", losses.rnd),
        ] {
            fail(format!("the {name} loss"), loss)?;
        }
        for (i, &priority) in priorities.iter().enumerate() {
            fail(format!("the priority of sequence {i}"), f64::from(priority))?;
        }
        let GradientNorms { agent, action_prediction, rnd } = *gradient_norms;
        for (norm, (name, gradients)) in [agent, action_prediction, rnd].into_iter().zip(gradients) {
            if norm.is_finite() {
                continue;
            }
            if let Some((parameter, value)) = gradients.first_non_finite()? {
                fail(format!("the gradient of {parameter}"), value)?;
            }
            // Every element is finite, but the sum of their squares is not.
            fail(format!("the norm of the {name} gradient"), norm)?;
        }
        fail("a statistic of the batch".to_owned(), statistic)
    }
}

/// The values of many tensors one after the other in f64, and how many each has.
fn concatenate(tensors: &[&Tensor]) -> Result<(Tensor, Vec<usize>)> {
    tch::no_grad(|| {
        let flat = tensors.iter().map(|tensor| tensor.f_detach()?.f_to_kind(Kind::Double)?.f_reshape([-1]));
        let flat = flat.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok((Tensor::f_cat(&flat, 0)?, tensors.iter().map(|tensor| tensor.numel()).collect()))
    })
}

/// Takes concatenated values apart again.
fn split<'a>(mut values: &'a [f64], lengths: &'a [usize]) -> impl Iterator<Item = &'a [f64]> {
    lengths.iter().map(move |&length| {
        let (part, rest) = values.split_at(length);
        values = rest;
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tensor_gets_its_own_values_back() {
        let (a, b) = (Tensor::from_slice(&[1f32, 2.5]).view([2, 1]), Tensor::from_slice(&[0.1f64]));
        let (values, lengths) = concatenate(&[&a, &Tensor::from(3f32), &b]).unwrap();
        let values: Vec<f64> = values.try_into().unwrap();
        assert_eq!(split(&values, &lengths).collect::<Vec<_>>(), [&[1.0, 2.5][..], &[3.0], &[0.1]]);
    }

    #[test]
    fn a_value_that_is_not_finite_is_noticed() {
        let good = Tensor::from_slice(&[1f32, -2.5]);
        for (bad, expected) in [(0.0, true), (f32::NAN, false), (f32::INFINITY, false), (f32::NEG_INFINITY, false)] {
            let (values, lengths) = concatenate(&[&good, &Tensor::from(bad)]).unwrap();
            let finite = DeviceReport { values, lengths, distillation: false }.finite().unwrap();
            assert_eq!(bool::try_from(finite).unwrap(), expected, "{bad}");
        }
    }
}
