//! What an update tells.

use serde::Serialize;

use crate::loss::statistics::PolicyStatistics;

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
