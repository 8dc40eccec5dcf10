//! What the values are trained towards: target policy, trace coefficients and returns, for all policies at once.
//!
//! Everything is `[B, T, N]` or `[B, T, N, A]`: sequences, steps, policies, actions. Nothing here carries a gradient.
//! `tests/specification` holds these functions against the same equations over single sequences.

use tch::{Kind, Tensor};

use crate::config::{LossConfig, ReturnKind, ReturnsConfig};
use crate::error::Result;
use crate::rescaling::unscale;

/// π' = softmax(log π / τ), the target policy of the returns. Section D.
///
/// `q` is Q_j and `logits` are those of π, both of the network that is bootstrapped from, or of the online network in
/// double Q-learning. τ = 1 gives π itself, τ = 0 its greedy policy. Watkins' Q(λ) has the greedy policy of Q_j
/// instead; without distillation there is no π, and π' is the ε-greedy policy of Q_j.
pub fn target_policy(
    returns: &ReturnsConfig,
    loss: &LossConfig,
    q: &Tensor,
    logits: Option<&Tensor>,
) -> Result<Tensor> {
    match (returns.kind, logits) {
        (ReturnKind::Watkins, _) => epsilon_greedy(q, 0.0),
        (_, Some(logits)) if returns.temperature == 0.0 => epsilon_greedy(logits, 0.0),
        (_, Some(logits)) => Ok(logits.f_div_scalar(returns.temperature)?.f_softmax(-1, Kind::Float)?),
        (_, None) => epsilon_greedy(q, loss.distillation_epsilon),
    }
}

/// G_ε(Q): 1 − ε + ε/A on the first greedy action, ε/A on the others. Section D.
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

/// λ_t, how much of what happened after step t enters the return. Section A2.
///
/// - Soft Watkins: λ_t = λ Σ_a π'(a|x_t) 1[Q(x_t,a_t) ≥ Q(x_t,a) − κ|Q(x_t,a)|]. The paper's indices
///   mix two steps here; everything belongs to one.
/// - Watkins' Q(λ): λ_t = λ 1[a_t ∈ argmax_a Q(x_t,a)], which is Soft Watkins with κ = 0 and greedy π'. Every maximal
///   action counts as greedy.
/// - Peng's Q(λ): λ_t = λ; traces are never cut.
/// - Retrace: λ_t = λ min(1, π'(a_t|x_t) / μ(a_t|x_t)), with the stored behaviour probability μ.
/// - n-step returns have no traces: λ_t = 1, and [`n_step_returns`] does not use it.
///
/// With λ = 0 every other estimator gives the one-step return. `q` is Q_j as the network gives it, in rescaled space.
pub fn trace_coefficients(
    returns: &ReturnsConfig,
    q: &Tensor,
    policy: &Tensor,
    action: &Tensor,
    behaviour_probability: &Tensor,
) -> Result<Tensor> {
    let share = match returns.kind {
        ReturnKind::NStep => return Ok(taken(q, action)?.f_ones_like()?),
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

/// V_t = Σ_a π'(a|x_t) h⁻¹(Q(x_t,a)), the value of x_t in real (not rescaled) units. Section A2.
///
/// With the greedy π' of Watkins' Q(λ) this is max_a h⁻¹(Q(x_t,a)).
pub fn expected_value(q: &Tensor, policy: &Tensor) -> Result<Tensor> {
    Ok(policy.f_mul(&unscale(q)?)?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
}

/// What the recursion of the returns needs, each `[B, T, N]`.
///
/// Rewards that all policies share may be `[B, T, 1]`.
#[derive(Clone, Copy, Debug)]
pub struct Trajectories<'a> {
    /// r_t, the reward that a_t led to.
    pub rewards: &'a Tensor,
    /// γ_j d_t, where d_t is 0 if a_t ended the game, else 1.
    pub discounts: &'a Tensor,
    /// V_t: see [`expected_value`].
    pub values: &'a Tensor,
    /// B_t = h⁻¹(Q(x_t,a_t)) for Retrace; V_t for the others.
    pub baselines: Option<&'a Tensor>,
    /// λ_t: see [`trace_coefficients`]. 0 from the last valid observation on, where G = V.
    pub traces: &'a Tensor,
}

/// G_t = r_t + γ_j d_t [V_{t+1} + λ_{t+1} (G_{t+1} − B_{t+1})], and G = V at the last step of the trace. Section A2.
///
/// λ = 0 gives the one-step target r_t + γ_j d_t V_{t+1}; λ = 1 at every step gives the discounted sum of rewards with
/// one bootstrap at the end of the sequence.
///
/// The baseline B is V, and G unrolls to r_t + γd_t V_{t+1} + Σ_{k≥1} c_k (r_{t+k} + γd_{t+k} V_{t+k+1} − V_{t+k}),
/// where c_k is the product of γd_{t+i−1} λ_{t+i} over i = 1..k. (The paper's product starts at i = 0, the step whose
/// action is being evaluated; that is a misprint.) Retrace's B is the value of the action taken, so that what a_{t+1}
/// is worth cancels out and no behaviour policy biases G_t where the values are right.
pub fn returns(trajectories: Trajectories<'_>) -> Result<Tensor> {
    let Trajectories { discounts, values, traces, .. } = trajectories;
    let rewards = &against_values(trajectories)?;
    if torch_ext::serves(values.device()) {
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

/// N-step returns, as in R2D2, section 2.3.
///
/// G_t = Σ_{k<m} (Π_{i<k} γd_{t+i}) r_{t+k} + (Π_{i<m} γd_{t+i}) V_{t+m}, m = n or as many steps as follow t.
///
/// `valid` is 1 where a step follows, `[B, T]`. Baselines and traces take no part.
pub fn n_step_returns(trajectories: Trajectories<'_>, valid: &Tensor, n: usize) -> Result<Tensor> {
    let Trajectories { rewards, discounts, values, .. } = trajectories;
    let (steps, follows) = (values.size()[1], valid.f_unsqueeze(-1)?.f_gt(0.0)?);
    let mut returns = values.shallow_clone();
    for _ in 0..n {
        // The last step is valid nowhere, so what follows it does not matter.
        let following = Tensor::f_cat(&[returns.f_narrow(1, 1, steps - 1)?, returns.f_narrow(1, 0, 1)?], 1)?;
        returns = rewards.f_addcmul(discounts, &following)?.f_where_self(&follows, values)?;
    }
    Ok(returns)
}

/// r_t + γ_j d_t λ_{t+1} (V_{t+1} − B_{t+1}): rewards with which the recursion over V gives that over the baselines.
fn against_values(trajectories: Trajectories<'_>) -> Result<Tensor> {
    let Trajectories { rewards, discounts, values, baselines, traces } = trajectories;
    let Some(baselines) = baselines else { return Ok(rewards.shallow_clone()) };
    let differences = values.f_sub(baselines)?.f_mul(traces)?;
    let steps = differences.size()[1];
    let after_the_last = differences.f_narrow(1, 0, 1)?.f_zeros_like()?;
    let following = Tensor::f_cat(&[differences.f_narrow(1, 1, steps - 1)?, after_the_last], 1)?;
    Ok(rewards.f_addcmul(discounts, &following)?)
}
