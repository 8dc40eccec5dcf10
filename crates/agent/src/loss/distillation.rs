//! Policy distillation: the policy head follows the ε-greedy policy of the values, a bounded distance at a time.

use tch::{Kind, Tensor};

use crate::config::LossConfig;
use crate::error::Result;

/// The distillation loss, and what it was made of.
#[derive(Debug)]
pub struct DistillationLoss {
    /// Cross-entropy where a step carries loss, else 0; `[B, T, N]`.
    pub loss: Tensor,
    /// KL(π_T ‖ π), `[B, T, N]`.
    pub kl: Tensor,
    /// 1 where the KL bound lets a step keep its loss, f32 `[B, T, N]`.
    pub keep: Tensor,
    /// log π, `[B, T, N, A]`, without gradient.
    pub log_policy: Tensor,
    /// log π_T, `[B, T, N, A]`.
    pub log_policy_target: Tensor,
}

/// Cross-entropy of π, given by `logits`, to the ε-greedy policy of Q, where KL(π_T ‖ π) is within its bound.
///
/// `q` is the online network's Q_j without gradient, `valid` `[B, T]`.
pub fn distillation_loss(
    config: &LossConfig,
    logits: &Tensor,
    logits_target: &Tensor,
    q: &Tensor,
    valid: &Tensor,
) -> Result<DistillationLoss> {
    let log_policy = logits.f_log_softmax(-1, Kind::Float)?;
    let detached = log_policy.f_detach()?;
    let log_policy_target = tch::no_grad(|| logits_target.f_log_softmax(-1, Kind::Float))?;
    let over_actions = |x: &Tensor| x.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float);
    let kl = over_actions(&log_policy_target.f_exp()?.f_mul(&log_policy_target.f_sub(&detached)?)?)?;
    let keep = kl.f_le(config.kl_bound)?;
    // -Σ_a p(a) log π(a), where p is ε/A everywhere and 1 - ε more on the greedy action.
    let greedy = log_policy.f_gather(-1, &q.f_argmax(-1, true)?, false)?.f_squeeze_dim(-1)?;
    let epsilon = config.distillation_epsilon;
    let spread = log_policy.f_mean_dim(&[-1i64][..], false, Kind::Float)?;
    let loss = greedy.f_mul_scalar(epsilon - 1.0)?.f_sub(&spread.f_mul_scalar(epsilon)?)?;
    let counted = valid.f_unsqueeze(-1)?.f_gt(0.0)?.f_logical_and(&keep)?;
    let loss = loss.f_where_self(&counted, &loss.f_zeros_like()?)?;
    Ok(DistillationLoss { loss, kl, keep: keep.f_to_kind(Kind::Float)?, log_policy: detached, log_policy_target })
}
