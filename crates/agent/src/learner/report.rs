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
    /// Norms of the gradients, before clipping.
    pub gradient_norms: GradientNorms,
    /// Valid steps of the batch.
    pub steps: u64,
    /// Share of actions that the action prediction network got right.
    pub action_prediction_accuracy: f64,
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

/// A report whose numbers are on their way from the device.
#[derive(Debug)]
pub(super) struct SentReport {
    /// In the order in which [`receive`](Self::receive) reads them.
    pub numbers: SentNumbers,
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
    pub rnd_errors: BatchMoments,
    /// The first number that is not finite, of all that the device looked at when it decided about the update.
    not_finite: Option<f64>,
}

impl SentReport {
    /// Waits for it.
    pub fn receive(self) -> Result<Received> {
        let values = self.numbers.receive()?;
        let not_finite = values.iter().flatten().copied().find(|value| !value.is_finite());
        let mut values = values.into_iter();
        let mut next = || values.next().unwrap_or_default();
        let [total, td, distillation, action_prediction, rnd, accuracy] = [(); 6].map(|()| next()[0]);
        let losses = Losses { total, td, distillation, action_prediction, rnd };
        let [agent, action_prediction, rnd] = [(); 3].map(|()| next()[0]);
        let gradient_norms = GradientNorms { agent, action_prediction, rnd };
        let moments = next();
        let rnd_errors = BatchMoments { mean: moments[0], mean_square: moments[1] };
        let priorities = next().iter().map(|&priority| priority as f32).collect();
        let table = next();
        let heads: Vec<_> = (0..self.heads).map(|_| TdNumbers::new(&next())).collect();
        let report = StepReport {
            update: self.update,
            losses,
            priorities,
            gradient_norms,
            steps: self.steps,
            action_prediction_accuracy: accuracy,
            rnd: RndStatistics::default(),
            policies: policy_statistics(&table, &heads, self.distillation),
        };
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
        fail("the action prediction loss".to_owned(), report.losses.action_prediction)?;
        fail("the RND loss".to_owned(), report.losses.rnd)?;
        for (i, &priority) in report.priorities.iter().enumerate() {
            fail(format!("the priority of sequence {i}"), f64::from(priority))?;
        }
        let GradientNorms { agent, action_prediction, rnd } = report.gradient_norms;
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
        fail("a statistic of the batch".to_owned(), value)
    }
}
