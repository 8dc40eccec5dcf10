//! The TD loss: errors, their scale σ_j, the trust region.

use tch::{Device, Kind, Tensor};
use torch_ext::upload::upload;

use crate::batch::BatchTensors;
use crate::config::LossConfig;
use crate::error::Result;
use crate::math::moments::BatchMoments;
use crate::math::td_scale::TdScale;
use crate::rescaling::rescale;

/// What one value head is trained with, each `[B, T, N]`.
#[derive(Debug)]
pub struct TdInput {
    /// Online Q(x_t, a_t), which carries the gradient.
    pub q: Tensor,
    /// The target network's.
    pub q_target: Tensor,
    /// G_t.
    pub returns: Tensor,
}

/// The TD loss of one value head, and what it was made of.
#[derive(Debug)]
pub struct TdLoss {
    /// ½ (δ/σ_j)² where a step carries loss, else 0; `[B, T, N]`.
    pub loss: Tensor,
    /// δ_t, `[B, T, N]`, without gradient.
    pub error: Tensor,
    /// δ_t / σ_j as priorities use it, `[B, T, N]`, without gradient.
    pub normalised: Tensor,
    /// 1 where the trust region lets a step keep its loss, f32 `[B, T, N]`.
    pub keep: Tensor,
    /// σ_j that was used, the batch's deviation, and importance-weighted mean and mean square, f64 `[4, N]`. It stays on
    /// the device until somebody asks, so that the learner need not wait in the middle of an update.
    statistics: Tensor,
}

/// The statistics of a TD loss, by policy.
#[derive(Clone, Debug, PartialEq)]
pub struct TdNumbers {
    /// σ_j that was used.
    pub sigma: Vec<f64>,
    /// Standard deviation of the batch's errors.
    pub sigma_batch: Vec<f64>,
    /// Importance-weighted moments of the batch's errors.
    pub moments: Vec<BatchMoments>,
}

impl TdLoss {
    /// What [`TdNumbers::new`] takes, still on the device.
    pub fn statistics(&self) -> &Tensor {
        &self.statistics
    }

    /// Its statistics, brought to the host.
    pub fn numbers(&self) -> Result<TdNumbers> {
        Ok(TdNumbers::new(&Vec::<f64>::try_from(self.statistics.f_reshape([-1])?)?))
    }
}

impl TdNumbers {
    /// From the values of [`TdLoss::statistics`].
    pub fn new(values: &[f64]) -> Self {
        let policies = values.len() / 4;
        let row = |i: usize| &values[i * policies..(i + 1) * policies];
        let moments = row(2).iter().zip(row(3));
        Self {
            sigma: row(0).to_vec(),
            sigma_batch: row(1).to_vec(),
            moments: moments.map(|(&mean, &mean_square)| BatchMoments { mean, mean_square }).collect(),
        }
    }
}

/// What σ_j is at least, whatever the errors of a batch: f64 `[N]` on the device.
pub fn least_scales(scale: &TdScale, device: Device) -> Result<Tensor> {
    let least: Vec<f64> = (0..scale.policies()).map(|policy| scale.sigma(policy, 0.0)).collect();
    Ok(upload(&Tensor::f_from_slice(&least)?, device)?)
}

/// δ_t = Q - h(G_t), its scale, the trust region and the loss of each step. `least` is of [`least_scales`].
pub fn td_loss(config: &LossConfig, input: &TdInput, batch: &BatchTensors, least: &Tensor) -> Result<TdLoss> {
    let target = tch::no_grad(|| rescale(&input.returns))?;
    let error = input.q.f_sub(&target)?;
    let detached = error.f_detach()?;
    let [std, mean, mean_square] = batch_moments(&detached, batch)?;
    // The same as `TdScale::sigma`: the largest of running deviation, floor and the batch's deviation, or NaN.
    let sigma = least.f_maximum(&std)?;
    let sigma_used = sigma.f_to_kind(Kind::Float)?;
    let keep = tch::no_grad(|| keeps_loss(config, input, &detached, &sigma_used))?;
    let normalised = if config.td_normalisation { error.f_div(&sigma_used)? } else { error };
    let counted = batch.valid.f_unsqueeze(-1)?.f_mul(&keep)?.f_gt(0.0)?;
    let loss = normalised.f_square()?.f_mul_scalar(0.5)?;
    // Chosen, not multiplied by 0, so that nothing a padded step holds can get through.
    let loss = loss.f_where_self(&counted, &loss.f_zeros_like()?)?;
    let statistics = Tensor::f_stack(&[sigma, std, mean, mean_square], 0)?;
    Ok(TdLoss { loss, error: detached, normalised: normalised.f_detach()?, keep, statistics })
}

/// Population standard deviation and importance-weighted mean and mean square of the errors of valid steps, each `[N]`.
fn batch_moments(error: &Tensor, batch: &BatchTensors) -> Result<[Tensor; 3]> {
    tch::no_grad(|| {
        let valid = batch.valid.f_unsqueeze(-1)?.f_to_kind(Kind::Double)?;
        let error = error.f_to_kind(Kind::Double)?;
        let error = error.f_where_self(&valid.f_gt(0.0)?, &error.f_zeros_like()?)?;
        let over_steps = |x: &Tensor| x.f_sum_dim_intlist(&[0i64, 1][..], false, Kind::Double);
        let steps = batch.steps_in_all()?;
        let mean = over_steps(&error)?.f_div(&steps)?;
        let square = error.f_sub(&mean)?.f_square()?.f_mul(&valid)?;
        let std = over_steps(&square)?.f_div(&steps)?.f_sqrt()?;
        let weight = batch.weight.f_to_kind(Kind::Double)?.f_view([-1, 1, 1])?.f_mul(&valid)?;
        let total = weight.f_sum(Kind::Double)?;
        let weighted = error.f_mul(&weight)?;
        let first = over_steps(&weighted)?.f_div(&total)?;
        let second = over_steps(&weighted.f_mul(&error)?)?.f_div(&total)?;
        Ok([std, first, second])
    })
}

/// 0 where |Q - Q_T| > α σ_j and sgn(Q - Q_T) != sgn(δ), else 1.
fn keeps_loss(config: &LossConfig, input: &TdInput, error: &Tensor, sigma: &Tensor) -> Result<Tensor> {
    if !config.trust_region {
        return Ok(error.f_ones_like()?);
    }
    let drift = input.q.f_detach()?.f_sub(&input.q_target)?;
    let inside = drift.f_abs()?.f_le_tensor(&sigma.f_mul_scalar(config.trust_region_radius)?)?;
    let returning = drift.f_sign()?.f_eq_tensor(&error.f_sign()?)?;
    Ok(inside.f_logical_or(&returning)?.f_to_kind(Kind::Float)?)
}

/// share · max_t |e_t| + (1 - share) · mean_t |e_t| over the valid steps, `[B]`, with |e_t| `[B, T]`.
pub fn priorities(config: &LossConfig, errors: &Tensor, batch: &BatchTensors) -> Result<Tensor> {
    let errors = errors.f_where_self(&batch.valid.f_gt(0.0)?, &errors.f_zeros_like()?)?;
    let largest = errors.f_amax(-1, false)?;
    let mean = errors.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?.f_div(&batch.steps)?;
    let share = config.priority_max_share;
    Ok(largest.f_mul_scalar(share)?.f_add(&mean.f_mul_scalar(1.0 - share)?)?)
}
