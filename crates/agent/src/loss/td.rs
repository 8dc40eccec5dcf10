//! The TD loss: errors, their scale σ_j, the trust region, and the priorities that follow from them.

use tch::{Device, Kind, Tensor};
use torch_ext::upload::upload;

use super::columns::PolicyColumns;
use super::td_scale::TdScale;
use crate::batch::BatchTensors;
use crate::config::LossConfig;
use crate::error::Result;
use crate::moments::BatchMoments;
use crate::rescaling::rescale;

/// What one value head is trained with, each `[B, T, N]`.
#[derive(Debug)]
pub struct TdInput {
    /// Online Q(x_t, a_t), which carries the gradient.
    pub q: Tensor,
    /// The target network's Q(x_t, a_t).
    pub q_target: Tensor,
    /// G_t.
    pub returns: Tensor,
}

/// The TD loss of one value head and its ingredients.
#[derive(Debug)]
pub struct TdLoss {
    /// ½ (δ/σ_j)² where a step carries loss, else 0, and the functional regularisation; `[B, T, N]`.
    pub loss: Tensor,
    /// δ_t, `[B, T, N]`, without gradient.
    pub error: Tensor,
    /// δ_t / σ_j as priorities use it, `[B, T, N]`, without gradient.
    pub normalised: Tensor,
    /// 1 where the trust region lets a step keep its loss, else 0; f32 `[B, T, N]`.
    pub mask: Tensor,
    /// f64 `[5, N]`, read by [`TdStatistics::new`]. It stays on the device, so that the learner need not wait for it in
    /// the middle of an update.
    pub statistics: Tensor,
}

/// Statistics of the TD errors of each policy.
#[derive(Clone, Debug, PartialEq)]
pub struct TdStatistics {
    /// σ_j that the errors were divided by.
    pub sigma: Vec<f64>,
    /// Standard deviation of the batch's errors.
    pub sigma_batch: Vec<f64>,
    /// Importance-weighted moments of the batch's errors; 0 for a policy without steps.
    pub moments: Vec<BatchMoments>,
    /// Number of valid steps with information about the policy.
    pub steps: Vec<f64>,
}

impl TdStatistics {
    /// Reads the values of `TdLoss::statistics`.
    pub fn new(values: &[f64]) -> Self {
        let policies = values.len() / 5;
        let row = |i: usize| &values[i * policies..(i + 1) * policies];
        let moments = row(2).iter().zip(row(3));
        Self {
            sigma: row(0).to_vec(),
            sigma_batch: row(1).to_vec(),
            moments: moments.map(|(&mean, &mean_square)| BatchMoments { mean, mean_square }).collect(),
            steps: row(4).to_vec(),
        }
    }
}

/// [`TdScale::running_sigmas`] on the device, f64 `[N]`.
pub fn running_sigmas(scale: &TdScale, device: Device) -> Result<Tensor> {
    Ok(upload(&Tensor::f_from_slice(&scale.running_sigmas())?, device)?)
}

/// ½ (δ_t/σ_j)² with δ_t = Q_j(x_t,a_t) − h(G_t), where the trust region permits. Sections A1 and B1.
///
/// σ_j = max(σ_running, σ_batch, ε); `running` holds max(σ_running, ε), from [`running_sigmas`]. A NaN among the errors
/// makes σ_j NaN. Functional regularisation adds w ½ ((Q_j − Q_j,T)/σ_j)² at every valid step; appendix "Other Things
/// we Tried". Without normalisation there is no σ_j in either.
pub fn td_loss(
    config: &LossConfig,
    input: &TdInput,
    batch: &BatchTensors,
    columns: &PolicyColumns,
    running: &Tensor,
) -> Result<TdLoss> {
    let target = tch::no_grad(|| rescale(&input.returns))?;
    let error = input.q.f_sub(&target)?;
    let detached = error.f_detach()?;
    let [std, mean, mean_square, steps] = batch_moments(&detached, batch, columns)?;
    let sigma = running.f_maximum(&std)?;
    let sigma_used = columns.spread(&sigma.f_to_kind(Kind::Float)?)?;
    let mask = tch::no_grad(|| trust_region_mask(config, input, &detached, &sigma_used))?;
    let scaled = |x: Tensor| if config.td_normalisation { x.f_div(&sigma_used) } else { Ok(x) };
    let normalised = scaled(error)?;
    let valid = batch.valid.f_unsqueeze(-1)?;
    let counted = valid.f_mul(&mask)?.f_gt(0.0)?;
    // Selected, not multiplied by 0, so that a NaN in a padded step cannot get through.
    let half_square = |x: &Tensor, counted: &Tensor| -> Result<Tensor> {
        let loss = x.f_square()?.f_mul_scalar(0.5)?;
        Ok(loss.f_where_self(counted, &loss.f_zeros_like()?)?)
    };
    let mut loss = half_square(&normalised, &counted)?;
    if config.functional_regularisation > 0.0 {
        let drift = half_square(&scaled(input.q.f_sub(&input.q_target)?)?, &valid.f_gt(0.0)?)?;
        loss = loss.f_add(&drift.f_mul_scalar(config.functional_regularisation)?)?;
    }
    let statistics = Tensor::f_stack(&[sigma, std, mean, mean_square, steps], 0)?;
    Ok(TdLoss { loss, error: detached, normalised: normalised.f_detach()?, mask, statistics })
}

/// Moments of the errors of valid steps, and the number of those steps, each `[N]`.
///
/// The moments are the population standard deviation and the importance-weighted mean and mean square.
fn batch_moments(error: &Tensor, batch: &BatchTensors, columns: &PolicyColumns) -> Result<[Tensor; 4]> {
    tch::no_grad(|| {
        let valid = batch.valid.f_unsqueeze(-1)?.f_to_kind(Kind::Double)?;
        let error = error.f_to_kind(Kind::Double)?;
        let error = error.f_where_self(&valid.f_gt(0.0)?, &error.f_zeros_like()?)?;
        let counts = valid.f_expand_as(&error)?;
        let steps = columns.sum(&counts)?;
        let divisor = steps.f_clamp_min(1.0)?;
        let mean = columns.sum(&error)?.f_div(&divisor)?;
        let square = error.f_sub(&columns.spread(&mean)?)?.f_square()?.f_mul(&valid)?;
        let std = columns.sum(&square)?.f_div(&divisor)?.f_sqrt()?;
        let weight = batch.weight.f_to_kind(Kind::Double)?.f_view([-1, 1, 1])?.f_mul(&counts)?;
        let total = columns.sum(&weight)?.f_clamp_min(f64::MIN_POSITIVE)?;
        let weighted = error.f_mul(&weight)?;
        let first = columns.sum(&weighted)?.f_div(&total)?;
        let second = columns.sum(&weighted.f_mul(&error)?)?.f_div(&total)?;
        Ok([std, first, second, steps])
    })
}

/// 0 where |Q − Q_T| > ασ_j and sgn(Q − Q_T) ≠ sgn(Q − h(G)), else 1. Section A1.
///
/// A step loses its loss only where the online value has left the region around the target network's and its TD error
/// would push it further out. sgn(0) = 0, so a TD error of exactly 0 outside the region is masked too; it has no
/// gradient anyway.
fn trust_region_mask(config: &LossConfig, input: &TdInput, error: &Tensor, sigma: &Tensor) -> Result<Tensor> {
    if !config.trust_region {
        return Ok(error.f_ones_like()?);
    }
    let drift = input.q.f_detach()?.f_sub(&input.q_target)?;
    let inside = drift.f_abs()?.f_le_tensor(&sigma.f_mul_scalar(config.trust_region_radius)?)?;
    let returning = drift.f_sign()?.f_eq_tensor(&error.f_sign()?)?;
    Ok(inside.f_logical_or(&returning)?.f_to_kind(Kind::Float)?)
}

/// Priorities `[B]` of sequences, from the errors of their valid steps.
///
/// p = η max_t |δ_t/σ| + (1−η) mean_t |δ_t/σ|, η = 0.9 ("Max Priority Weight").
///
/// R2D2's rule, with TD errors normalised as in section B1; `errors` are |δ_t/σ|, `[B, T]`. A NaN among them makes the
/// priority NaN.
pub fn priorities(config: &LossConfig, errors: &Tensor, batch: &BatchTensors) -> Result<Tensor> {
    let errors = errors.f_where_self(&batch.valid.f_gt(0.0)?, &errors.f_zeros_like()?)?;
    let largest = errors.f_amax(-1, false)?;
    let mean = errors.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?.f_div(&batch.steps)?;
    let share = config.priority_max_share;
    Ok(largest.f_mul_scalar(share)?.f_add(&mean.f_mul_scalar(1.0 - share)?)?)
}
