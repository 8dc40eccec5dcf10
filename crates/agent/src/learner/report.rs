//! What an update tells.

use serde::Serialize;

use super::numbers::SentNumbers;
use crate::error::{AgentError, Result};
use crate::loss::statistics::{PolicyStatistics, policy_statistics};
use crate::loss::td::TdNumbers;
use crate::math::moments::BatchMoments;
use crate::nets::parameters::ParameterSet;

/// Everything one update tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Number of the update, counted from 1.
    pub update: u64,
    /// Losses of the batch, before the update.
    pub losses: Losses,
    /// New priority of each sequence of the batch.
    pub priorities: Vec<f32>,
    /// Norm of the value and policy network's gradient, before clipping.
    pub gradient_norm: f64,
    /// Valid steps of the batch.
    pub steps: u64,
    /// Of the networks behind the intrinsic reward, if they were trained.
    pub intrinsic: Option<IntrinsicReport>,
    /// Running statistics of the RND error, after the update.
    pub rnd: RndStatistics,
    /// Statistics of each policy.
    pub policies: Vec<PolicyStatistics>,
}

/// Losses of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Losses {
    /// What the value and policy network minimises: TD loss plus weighted distillation loss.
    pub total: f64,
    /// TD loss of all value heads, mixed over the policies.
    pub td: f64,
    /// Distillation loss, mixed over the policies, before its weight.
    pub distillation: f64,
}

/// What an update tells of the networks behind the intrinsic reward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IntrinsicReport {
    /// Mean cross-entropy of the predicted actions.
    pub action_prediction_loss: f64,
    /// Share of actions that were predicted right.
    pub accuracy: f64,
    /// Norm of the action prediction network's gradient.
    pub action_prediction_norm: f64,
    /// Mean RND error.
    pub rnd_loss: f64,
    /// Norm of the RND predictor's gradient.
    pub rnd_norm: f64,
}

/// Running statistics of the RND error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RndStatistics {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

/// A report whose numbers are on their way from the device.
#[derive(Debug)]
pub(super) struct SentReport {
    /// In the order in which [`receive`](Self::receive) reads them,
    pub numbers: SentNumbers,
    /// and of the networks behind the intrinsic reward.
    pub intrinsic: Option<SentNumbers>,
    pub update: u64,
    pub steps: u64,
    /// Number of value heads.
    pub heads: usize,
    /// Whether there is a distillation loss.
    pub distillation: bool,
}

/// A report, and what running statistics are made of.
pub(super) struct Received {
    /// Whole but for the running statistics.
    pub report: StepReport,
    pub heads: Vec<TdNumbers>,
    /// If the RND predictor was trained.
    pub rnd_errors: Option<BatchMoments>,
    /// The first number that is not finite, of all that the device looked at when it decided about the update.
    not_finite: Option<f64>,
}

impl SentReport {
    /// Waits for it.
    pub fn receive(self) -> Result<Received> {
        let values = self.numbers.receive()?;
        let intrinsic = self.intrinsic.map(SentNumbers::receive).transpose()?;
        let all = values.iter().chain(intrinsic.iter().flatten()).flatten();
        let not_finite = all.copied().find(|value| !value.is_finite());
        let intrinsic = intrinsic.map(|values| {
            let of = |tensor: usize| values[tensor][0];
            let report = IntrinsicReport {
                action_prediction_loss: of(0),
                accuracy: of(1),
                action_prediction_norm: of(2),
                rnd_loss: of(3),
                rnd_norm: of(4),
            };
            (report, BatchMoments { mean: values[5][0], mean_square: values[5][1] })
        });
        let mut values = values.into_iter();
        let mut next = || values.next().unwrap_or_default();
        let [total, td, distillation, gradient_norm] = [(); 4].map(|()| next()[0]);
        let priorities = next().iter().map(|&priority| priority as f32).collect();
        let table = next();
        let heads: Vec<_> = (0..self.heads).map(|_| TdNumbers::new(&next())).collect();
        let report = StepReport {
            update: self.update,
            losses: Losses { total, td, distillation },
            priorities,
            gradient_norm,
            steps: self.steps,
            intrinsic: intrinsic.map(|(report, _)| report),
            rnd: RndStatistics::default(),
            policies: policy_statistics(&table, &heads, self.distillation),
        };
        let rnd_errors = intrinsic.map(|(_, errors)| errors);
        Ok(Received { report, heads, rnd_errors, not_finite })
    }
}

impl Received {
    /// Whether all numbers are finite; else names the first that is not, with the help of the gradients in the order of
    /// their norms.
    pub fn check_finite(&self, gradients: [(&str, &ParameterSet); 3]) -> Result<()> {
        let Some(value) = self.not_finite else { return Ok(()) };
        let report = &self.report;
        let fail = |tensor: String, value: f64| {
            if value.is_finite() { Ok(()) } else { Err(AgentError::NonFinite { tensor, value, update: report.update }) }
        };
        for (j, policy) in report.policies.iter().enumerate() {
            fail(format!("the TD error of policy {j}"), policy.td_error)?;
            fail(format!("sigma of policy {j}"), policy.sigma)?;
            fail(format!("the intrinsic sigma of policy {j}"), policy.sigma_intrinsic.unwrap_or(0.0))?;
        }
        fail("the TD loss".to_owned(), report.losses.td)?;
        fail("the distillation loss".to_owned(), report.losses.distillation)?;
        if let Some(intrinsic) = &report.intrinsic {
            fail("the action prediction loss".to_owned(), intrinsic.action_prediction_loss)?;
            fail("the RND loss".to_owned(), intrinsic.rnd_loss)?;
        }
        for (i, &priority) in report.priorities.iter().enumerate() {
            fail(format!("the priority of sequence {i}"), f64::from(priority))?;
        }
        let intrinsic = report.intrinsic.map(|intrinsic| [intrinsic.action_prediction_norm, intrinsic.rnd_norm]);
        let norms = [report.gradient_norm].into_iter().chain(intrinsic.into_iter().flatten());
        for (norm, (name, gradients)) in norms.zip(gradients) {
            if norm.is_finite() {
                continue;
            }
            if let Some((parameter, value)) = gradients.first_non_finite()? {
                fail(format!("the gradient of {parameter}"), value)?;
            }
            // Every element is finite, but the sum of their squares is not.
            fail(format!("the norm of the {name} gradient"), norm)?;
        }
        fail("a statistic of the batch".to_owned(), value)
    }
}
