//! Statistics of a loss for each policy, as the metrics report them.

use serde::Serialize;
use tch::{Kind, Tensor};

use super::LossOutput;
use super::td::TdStatistics;
use crate::batch::BatchTensors;
use crate::error::Result;

/// Statistics of one policy on a batch. Means are over the batch's valid steps with information about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyStatistics {
    /// Number of those steps: all, or where the policy is an input of the network, those it acted in. Without any, all
    /// else but σ_j is 0.
    pub steps: f64,
    /// Mean |δ|, of the extrinsic head with separate losses.
    pub td_error: f64,
    /// Mean δ: above 0 where values are larger than the returns they are trained towards.
    pub td_bias: f64,
    /// σ_j that TD errors were divided by.
    pub sigma: f64,
    /// σ_j of the intrinsic head, with separate losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sigma_intrinsic: Option<f64>,
    /// Share of steps that the trust region masks.
    pub trust_region_share: f64,
    /// Share of steps whose distillation loss the KL bound masks.
    pub kl_share: f64,
    /// Mean KL(π_T ‖ π) of the distilled policy from the target network's, in nats; absent without distillation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// Mean trace coefficient λ_t.
    pub trace_coefficient: f64,
    /// Mean Q_j over steps and actions, rescaled.
    pub q_mean: f64,
    /// Smallest Q_j.
    pub q_min: f64,
    /// Largest Q_j.
    pub q_max: f64,
    /// Mean difference between the largest and the smallest Q_j of a step, rescaled.
    pub q_spread: f64,
    /// Mean entropy of the distilled policy, in nats; absent without distillation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy: Option<f64>,
}

/// Rows of the table that is copied to the host at once.
const ROWS: usize = 11;

/// The values of [`policy_statistics`] on the device, `[ROWS, N]`.
pub fn policy_table(loss: &LossOutput, batch: &BatchTensors) -> Result<Tensor> {
    let (td, valid) = (&loss.heads[0].td, batch.valid.f_unsqueeze(-1)?);
    let steps = td.statistics.f_get(4)?.f_clamp_min(1.0)?;
    let mean = |x: &Tensor| -> Result<Tensor> {
        Ok(loss.columns.sum(&x.f_mul(&valid)?)?.f_div(&steps)?.f_to_kind(Kind::Float)?)
    };
    let masked = |mask: &Tensor| mask.f_rsub_scalar(1.0);
    let padding = valid.f_unsqueeze(-1)?.f_eq(0.0)?;
    let largest = |x: &Tensor| loss.columns.largest(&x.f_masked_fill(&padding, f64::NEG_INFINITY)?);
    let (q_max, q_min) = (largest(&loss.q)?, largest(&loss.q.f_neg()?)?.f_neg()?);
    let (kl_share, kl, entropy) = match &loss.policy {
        Some(policy) => {
            let each = policy.log_policy.f_exp()?.f_mul(&policy.log_policy)?;
            let entropy = each.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?.f_neg()?;
            (mean(&masked(&policy.mask)?)?, mean(&policy.kl)?, mean(&entropy)?)
        }
        None => (q_max.f_zeros_like()?, q_max.f_zeros_like()?, q_max.f_zeros_like()?),
    };
    let q_spread = loss.q.f_amax([-1i64], false)?.f_sub(&loss.q.f_amin([-1i64], false)?)?;
    let rows: [Tensor; ROWS] = [
        mean(&td.error.f_abs()?)?,
        mean(&td.error)?,
        mean(&masked(&td.mask)?)?,
        kl_share,
        kl,
        mean(&loss.traces)?,
        mean(&loss.q.f_mean_dim(&[-1i64][..], false, Kind::Float)?)?,
        q_min,
        q_max,
        mean(&q_spread)?,
        entropy,
    ];
    Ok(Tensor::f_stack(&rows, 0)?)
}

/// Statistics of every policy, from the values of [`policy_table`] and of each value head.
pub fn policy_statistics(table: &[f64], td: &[TdStatistics], distillation: bool) -> Vec<PolicyStatistics> {
    let policies = table.len() / ROWS;
    let statistics = |j: usize| {
        let row = |r: usize| table[r * policies + j];
        PolicyStatistics {
            steps: td[0].steps[j],
            td_error: row(0),
            td_bias: row(1),
            sigma: td[0].sigma[j],
            sigma_intrinsic: td.get(1).map(|intrinsic| intrinsic.sigma[j]),
            trust_region_share: row(2),
            kl_share: row(3),
            kl: distillation.then(|| row(4)),
            trace_coefficient: row(5),
            q_mean: row(6),
            q_min: row(7),
            q_max: row(8),
            q_spread: row(9),
            entropy: distillation.then(|| row(10)),
        }
    };
    (0..policies).map(statistics).collect()
}
