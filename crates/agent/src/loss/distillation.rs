//! Policy distillation: the policy head follows the ε-greedy policy of the values, by a bounded step.

use tch::{Kind, Tensor};

use crate::config::LossConfig;
use crate::error::Result;

/// The distillation loss and its ingredients.
#[derive(Debug)]
pub struct DistillationLoss {
    /// Cross-entropy where a step carries loss, else 0; `[B, T, N]`.
    pub loss: Tensor,
    /// KL(π_T ‖ π), `[B, T, N]`.
    pub kl: Tensor,
    /// 1 where the KL divergence is within its bound, else 0; f32 `[B, T, N]`.
    pub mask: Tensor,
    /// log π, `[B, T, N, A]`, without gradient.
    pub log_policy: Tensor,
    /// log π_T, `[B, T, N, A]`.
    pub log_policy_target: Tensor,
}

/// −Σ_a p(a) log π(a) where KL(π_T ‖ π) ≤ C_KL, else 0. Section D.
///
/// π is the policy of `logits`, π_T the target network's, and p = G_ε(Q_j) with the online Q_j in `q`, without
/// gradient. A larger KL divergence means that π has moved as far from π_T as it may, until the target network is next
/// updated.
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
    let within = kl.f_le(config.kl_bound)?;
    // p is ε/A everywhere and 1 - ε more on the greedy action.
    let greedy = log_policy.f_gather(-1, &q.f_argmax(-1, true)?, false)?.f_squeeze_dim(-1)?;
    let epsilon = config.distillation_epsilon;
    let spread = log_policy.f_mean_dim(&[-1i64][..], false, Kind::Float)?;
    let loss = greedy.f_mul_scalar(epsilon - 1.0)?.f_sub(&spread.f_mul_scalar(epsilon)?)?;
    let counted = valid.f_unsqueeze(-1)?.f_gt(0.0)?.f_logical_and(&within)?;
    let loss = loss.f_where_self(&counted, &loss.f_zeros_like()?)?;
    Ok(DistillationLoss { loss, kl, mask: within.f_to_kind(Kind::Float)?, log_policy: detached, log_policy_target })
}
