//! What the values are trained towards: target policy, trace coefficients and returns, for all policies at once.
//!
//! Tensor forms of `math::policy`, `math::traces` and `math::returns`; nothing here carries a gradient.

use tch::{Kind, Tensor};

use crate::config::{LossConfig, ReturnKind, ReturnsConfig};
use crate::error::Result;
use crate::rescaling::unscale;

/// π' `[B, T, N, A]` of the returns, from Q_j and the policy's logits, both of the network that is bootstrapped from.
pub fn target_policy(
    returns: &ReturnsConfig,
    loss: &LossConfig,
    q: &Tensor,
    logits: Option<&Tensor>,
) -> Result<Tensor> {
    match (returns.kind, logits) {
        (ReturnKind::Watkins, _) => epsilon_greedy(q, 0.0),
        (_, Some(logits)) => Ok(logits.f_div_scalar(returns.temperature)?.f_softmax(-1, Kind::Float)?),
        (_, None) => epsilon_greedy(q, loss.distillation_epsilon),
    }
}

/// 1 - ε + ε/A on the first greedy action, ε/A on the others.
pub fn epsilon_greedy(q: &Tensor, epsilon: f64) -> Result<Tensor> {
    let actions = q.size().last().copied().unwrap_or(1) as f64;
    let others = q.f_full_like(epsilon / actions)?;
    Ok(others.f_scatter_value(-1, &q.f_argmax(-1, true)?, 1.0 - epsilon + epsilon / actions)?)
}

/// x(x_t, a_t) `[B, T, N]` of x `[B, T, N, A]`, with a `[B, T]`.
pub fn taken(x: &Tensor, action: &Tensor) -> Result<Tensor> {
    let (b, t, n, _) = x.size4()?;
    let index = action.f_view([b, t, 1, 1])?.f_expand([b, t, n, 1], false)?;
    Ok(x.f_gather(-1, &index, false)?.f_squeeze_dim(-1)?)
}

/// λ_t `[B, T, N]` of the configured estimator.
pub fn trace_coefficients(
    returns: &ReturnsConfig,
    q: &Tensor,
    policy: &Tensor,
    action: &Tensor,
    behaviour_probability: &Tensor,
) -> Result<Tensor> {
    let share = match returns.kind {
        ReturnKind::SoftWatkins => {
            let bar = q.f_sub(&q.f_abs()?.f_mul_scalar(returns.kappa)?)?;
            let accepted = taken(q, action)?.f_unsqueeze(-1)?.f_ge_tensor(&bar)?;
            policy.f_mul(&accepted.f_to_kind(Kind::Float)?)?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?
        }
        ReturnKind::Watkins => taken(q, action)?.f_ge_tensor(&q.f_amax(-1, false)?)?.f_to_kind(Kind::Float)?,
        ReturnKind::Peng => taken(q, action)?.f_ones_like()?,
        ReturnKind::Retrace => {
            taken(policy, action)?.f_div(&behaviour_probability.f_unsqueeze(-1)?)?.f_clamp_max(1.0)?
        }
    };
    Ok(share.f_mul_scalar(returns.lambda)?)
}

/// V_t = Σ_a π'(a|x_t) h⁻¹(Q(x_t, a)), `[B, T, N]`.
pub fn expected_value(q: &Tensor, policy: &Tensor) -> Result<Tensor> {
    Ok(policy.f_mul(&unscale(q)?)?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
}

/// What the recursion of the returns needs, each `[B, T, N]`; rewards that all policies share may be `[B, T, 1]`.
#[derive(Clone, Copy, Debug)]
pub struct Trajectories<'a> {
    /// r_t.
    pub rewards: &'a Tensor,
    /// γ_j d_t.
    pub discounts: &'a Tensor,
    /// V_t.
    pub values: &'a Tensor,
    /// h⁻¹(Q(x_t, a_t)), which Retrace measures G_t against; the others take V_t.
    pub baselines: Option<&'a Tensor>,
    /// λ_t, 0 from the last valid observation on: there G = V.
    pub traces: &'a Tensor,
}

/// G_t = r_t + γ_j d_t [V_{t+1} + λ_{t+1} (G_{t+1} - B_{t+1})], `[B, T, N]`; V at the last step of the trace. B is V or
/// the baseline.
pub fn returns(trajectories: Trajectories<'_>) -> Result<Tensor> {
    let Trajectories { discounts, values, traces, .. } = trajectories;
    let rewards = &against_values(trajectories)?;
    if values.device().is_cuda() && torch_ext::available() {
        return Ok(torch_ext::returns::returns(rewards, discounts, values, traces)?);
    }
    let [rewards, discounts, values, traces] = [rewards, discounts, values, traces].map(|x| x.f_unbind(1));
    let (rewards, discounts, values, traces) = (rewards?, discounts?, values?, traces?);
    let mut following = values.last().map(Tensor::shallow_clone).unwrap_or_default();
    let mut backwards = vec![following.shallow_clone()];
    for t in (0..values.len().saturating_sub(1)).rev() {
        let beyond = values[t + 1].f_addcmul(&traces[t + 1], &following.f_sub(&values[t + 1])?)?;
        following = rewards[t].f_addcmul(&discounts[t], &beyond)?;
        backwards.push(following.shallow_clone());
    }
    backwards.reverse();
    Ok(Tensor::f_stack(&backwards, 1)?)
}

/// Rewards with which the recursion over V comes to what it is over the baselines: r_t + γ_j d_t λ_{t+1} (V_{t+1} -
/// B_{t+1}).
fn against_values(trajectories: Trajectories<'_>) -> Result<Tensor> {
    let Trajectories { rewards, discounts, values, baselines, traces } = trajectories;
    let Some(baselines) = baselines else { return Ok(rewards.shallow_clone()) };
    let differences = values.f_sub(baselines)?.f_mul(traces)?;
    let steps = differences.size()[1];
    let after_the_last = differences.f_narrow(1, 0, 1)?.f_zeros_like()?;
    let following = Tensor::f_cat(&[differences.f_narrow(1, 1, steps - 1)?, after_the_last], 1)?;
    Ok(rewards.f_addcmul(discounts, &following)?)
}
