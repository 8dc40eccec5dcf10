//! The loss of the value and policy network, from the online and the target network's outputs for a batch.
//!
//! [`AgentLoss::evaluate`] reads from top to bottom: target policy, traces, returns, TD loss of each value head,
//! distillation, mixture over the policies, priorities. The doc comment of each function it calls holds the equation
//! and its place in "Human-level Atari 200x faster": sections are named by their titles; A1, A2, B1, B2 and D are the
//! labels that the section "MEME: Improving the data efficiency of Agent57" gives to its parts. Where the paper has a
//! misprint, the equation is the corrected one. `tests/specification` holds the loss against the same equations over
//! single steps.

mod columns;
pub(crate) mod distillation;
pub mod statistics;
pub mod targets;
pub(crate) mod td;
mod td_scale;

use tch::{Device, Kind, Tensor};

use crate::batch::BatchTensors;
use crate::config::{AgentConfig, Bootstrap, PolicyInput, QHeads, ReturnKind};
use crate::error::Result;
use crate::nets::heads::HeadOutputs;
use crate::rescaling::unscale;
use columns::PolicyColumns;
use distillation::{DistillationLoss, distillation_loss};
use targets::{Trajectories, expected_value, n_step_returns, returns, taken, target_policy, trace_coefficients};
use td::{TdInput, TdLoss, priorities, td_loss};

pub use td::{TdStatistics, running_sigmas};
pub use td_scale::TdScale;

/// The weight of L_j in L = η L_{jμ} + (1−η)/N Σ_j L_j for a sequence that policy jμ acted in. Section B2.
///
/// The weights of all policies sum to 1. η = 1 trains the behaviour policy only, η = 0 all alike.
pub fn mixture_weight(policy: usize, behaviour_policy: usize, policies: usize, eta: f64) -> f64 {
    let shared = (1.0 - eta) / policies as f64;
    if policy == behaviour_policy { eta + shared } else { shared }
}

/// The loss with its constants on a device.
#[derive(Debug)]
pub struct AgentLoss {
    config: AgentConfig,
    /// β_j, `[N]`.
    beta: Tensor,
    /// γ_j, `[N]`.
    gamma: Tensor,
    /// Row jμ holds the [`mixture_weight`] of every policy, `[N, N]`.
    mixture: Tensor,
}

/// The loss of one value head and what it was trained towards.
#[derive(Debug)]
pub struct HeadLoss {
    /// `combined`, or `extrinsic` and `intrinsic`.
    pub name: &'static str,
    /// V_t, `[B, T, N]`.
    pub value: Tensor,
    /// G_t, `[B, T, N]`.
    pub returns: Tensor,
    /// Its TD loss.
    pub td: TdLoss,
}

/// The loss of a batch and its ingredients; only `total` carries a gradient.
#[derive(Debug)]
pub struct LossOutput {
    /// The loss that is minimised.
    pub total: Tensor,
    /// Its TD part.
    pub td: Tensor,
    /// Its distillation part, before its weight.
    pub distillation: Tensor,
    /// New priority of each sequence, `[B]`.
    pub priorities: Tensor,
    /// The value heads: one, or two with separate losses.
    pub heads: Vec<HeadLoss>,
    /// The distillation, where it is on.
    pub policy: Option<DistillationLoss>,
    /// Online Q_j, `[B, T, N, A]`.
    pub q: Tensor,
    /// Target Q_j, `[B, T, N, A]`.
    pub q_target: Tensor,
    /// π', `[B, T, N, A]`.
    pub target_policy: Tensor,
    /// λ_t, `[B, T, N]`, 0 where there is no step.
    pub traces: Tensor,
    /// Which policies the N columns above belong to.
    columns: PolicyColumns,
}

impl AgentLoss {
    /// The loss of a validated configuration.
    pub fn new(config: &AgentConfig, device: Device) -> Result<Self> {
        let policies = config.policies.count;
        let n = policies as i64;
        // Where the policy is an input, there are no others to share the loss with.
        let acted = config.network.policy_input == PolicyInput::OneHot;
        let upload = |values: &[f64], size: &[i64]| -> Result<Tensor> {
            Ok(Tensor::f_from_slice(values)?.f_to_kind(Kind::Float)?.f_view(size)?.f_to_device(device)?)
        };
        let eta = if acted { 1.0 } else { config.loss.eta() };
        let mixture: Vec<f64> = (0..policies)
            .flat_map(|acted| (0..policies).map(move |j| mixture_weight(j, acted, policies, eta)))
            .collect();
        Ok(Self {
            config: config.clone(),
            beta: upload(&config.policies.betas(), &[n])?,
            gamma: upload(&config.policies.gammas(), &[n])?,
            mixture: upload(&mixture, &[n, n])?,
        })
    }

    /// Number of value heads that have a scale σ_j of their own.
    pub fn scales(&self) -> usize {
        if self.config.loss.q_heads == QHeads::Separate { 2 } else { 1 }
    }

    /// Computes the loss, L = η L_{jμ} + (1−η)/N Σ_j L_j.
    ///
    /// L_j is the TD loss of policy j plus its weighted distillation loss.
    ///
    /// `scales` holds the [`running_sigmas`] of each value head. Nothing here waits for the device or sends anything to
    /// it.
    pub fn evaluate(
        &self,
        online: &HeadOutputs,
        target: &HeadOutputs,
        batch: &BatchTensors,
        scales: &[Tensor],
    ) -> Result<LossOutput> {
        let config = &self.config;
        let acted = config.network.policy_input == PolicyInput::OneHot;
        let columns = PolicyColumns::new(batch, config.policies.count, acted)?;
        let beta = &columns.spread(&self.beta)?;
        let over_actions = &beta.f_unsqueeze(-1)?;
        let detached = online.detach()?;
        let (q, q_target) = (detached.combined(over_actions)?, target.combined(over_actions)?);

        // Whose values enter the returns, and whose preferences choose the actions they are of.
        let (bootstrap, chooses, chooses_by) = match config.returns.bootstrap {
            Bootstrap::Online => (&detached, &detached, &q),
            Bootstrap::Target => (target, target, &q_target),
            Bootstrap::Double => (target, &detached, &q),
        };
        let policy = target_policy(&config.returns, &config.loss, chooses_by, chooses.policy.as_ref())?;
        let (action, behaviour) = (&batch.action, &batch.behaviour_probability);
        let traces = trace_coefficients(&config.returns, chooses_by, &policy, action, behaviour)?;
        // No trace reaches past the last valid observation: the return is its value there.
        let traces = traces.f_where_self(&batch.valid.f_unsqueeze(-1)?.f_gt(0.0)?, &traces.f_zeros_like()?)?;
        let discounts = batch.discount.f_unsqueeze(-1)?.f_mul(&columns.spread(&self.gamma)?)?;

        let mut heads = vec![];
        for (head, scale) in self.value_heads(online, target, bootstrap, batch, beta)?.into_iter().zip(scales) {
            let value = expected_value(&head.q_bootstrap, &policy)?;
            let returns = self.head_returns(&head, batch, &value, &discounts, &traces)?;
            let input = TdInput {
                q: taken(&head.q, action)?,
                q_target: taken(&head.q_target, action)?,
                returns: returns.shallow_clone(),
            };
            let td = td_loss(&config.loss, &input, batch, &columns, scale)?;
            heads.push(HeadLoss { name: head.name, value, returns, td });
        }

        let policy_loss = match (&online.policy, &target.policy) {
            (Some(logits), Some(logits_target)) => {
                Some(distillation_loss(&config.loss, logits, logits_target, &q, &batch.valid)?)
            }
            _ => None,
        };

        let mixture = self.mixture_weights(batch, acted)?;
        let mixed = |loss: &Tensor| -> Result<Tensor> { Ok(loss.f_mul(&mixture)?.f_sum(Kind::Float)?) };
        let mut td = Tensor::f_zeros([], (Kind::Float, q.device()))?;
        for head in &heads {
            td = td.f_add(&mixed(&head.td.loss)?)?;
        }
        let (total, distillation) = match &policy_loss {
            Some(policy) => {
                let loss = mixed(&policy.loss)?;
                (td.f_add(&loss.f_mul_scalar(config.loss.distillation_weight)?)?, loss)
            }
            None => (td.shallow_clone(), td.f_zeros_like()?),
        };
        let priorities = self.priorities(&heads, batch, &columns, beta)?;
        Ok(LossOutput {
            total,
            td: td.f_detach()?,
            distillation: distillation.f_detach()?,
            priorities,
            heads,
            policy: policy_loss,
            q,
            q_target,
            target_policy: policy,
            traces,
            columns,
        })
    }

    /// G of a value head, `[B, T, N]`, from the expected values of its bootstrap `[B, T, N]`.
    fn head_returns(
        &self,
        head: &ValueHead,
        batch: &BatchTensors,
        value: &Tensor,
        discounts: &Tensor,
        traces: &Tensor,
    ) -> Result<Tensor> {
        let kind = self.config.returns.kind;
        let baselines = match kind {
            ReturnKind::Retrace => Some(unscale(&taken(&head.q_bootstrap, &batch.action)?)?),
            ReturnKind::SoftWatkins | ReturnKind::Watkins | ReturnKind::Peng | ReturnKind::NStep => None,
        };
        let (rewards, baselines) = (&head.rewards, baselines.as_ref());
        let trajectories = Trajectories { rewards, discounts, values: value, baselines, traces };
        match kind {
            ReturnKind::NStep => n_step_returns(trajectories, &batch.valid, self.config.returns.n),
            _ => returns(trajectories),
        }
    }

    /// Mixture weight times importance weight, divided by the number of valid steps, for each sequence and policy:
    /// `[B, 1, N]`.
    fn mixture_weights(&self, batch: &BatchTensors, acted: bool) -> Result<Tensor> {
        let mixture = self.mixture.f_index_select(0, &batch.policy)?;
        let mixture = if acted { mixture.f_gather(1, &batch.policy.f_unsqueeze(1)?, false)? } else { mixture };
        Ok(mixture.f_mul(&batch.weight.f_unsqueeze(-1)?)?.f_div(&batch.steps_in_all()?)?.f_unsqueeze(1)?)
    }

    /// The value heads that get a loss of their own, with their rewards.
    fn value_heads(
        &self,
        online: &HeadOutputs,
        target: &HeadOutputs,
        bootstrap: &HeadOutputs,
        batch: &BatchTensors,
        beta: &Tensor,
    ) -> Result<Vec<ValueHead>> {
        let head = |name, values: &dyn Fn(&HeadOutputs) -> Result<Tensor>, rewards: Tensor| -> Result<ValueHead> {
            Ok(ValueHead {
                name,
                q: values(online)?,
                q_target: values(target)?,
                q_bootstrap: values(bootstrap)?,
                rewards,
            })
        };
        let (extrinsic, ngu) = (batch.reward_extrinsic.f_unsqueeze(-1)?, batch.reward_ngu.f_unsqueeze(-1)?);
        if self.config.loss.q_heads != QHeads::Separate {
            let (rewards, over_actions) = (extrinsic.f_add(&ngu.f_mul(beta)?)?, beta.f_unsqueeze(-1)?);
            return Ok(vec![head("combined", &|outputs| outputs.combined(&over_actions), rewards)?]);
        }
        let intrinsic = |outputs: &HeadOutputs| match &outputs.intrinsic {
            Some(values) => Ok(values.shallow_clone()),
            None => unreachable!("separate losses have two heads"),
        };
        Ok(vec![
            head("extrinsic", &|outputs| Ok(outputs.extrinsic.shallow_clone()), extrinsic)?,
            head("intrinsic", &intrinsic, ngu)?,
        ])
    }

    /// Priorities from |δ/σ| of the policy that acted; with separate losses from |δ_e/σ_e| + β_j |δ_i/σ_i|.
    fn priorities(
        &self,
        heads: &[HeadLoss],
        batch: &BatchTensors,
        columns: &PolicyColumns,
        beta: &Tensor,
    ) -> Result<Tensor> {
        let mut errors = heads[0].td.normalised.f_abs()?;
        if let Some(intrinsic) = heads.get(1) {
            errors = errors.f_add(&intrinsic.td.normalised.f_abs()?.f_mul(beta)?)?;
        }
        priorities(&self.config.loss, &columns.acted(&errors, batch)?, batch)
    }
}

/// One value head and its rewards: action values `[B, T, N, A]`, rewards `[B, T, N]` or `[B, T, 1]`.
struct ValueHead {
    name: &'static str,
    q: Tensor,
    q_target: Tensor,
    q_bootstrap: Tensor,
    rewards: Tensor,
}

#[cfg(test)]
mod tests {
    use super::mixture_weight;

    #[test]
    fn sixteen_policies_share_half_and_the_one_that_acted_has_the_other_half() {
        let weights: Vec<f64> = (0..16).map(|policy| mixture_weight(policy, 5, 16, 0.5)).collect();
        for (policy, &weight) in weights.iter().enumerate() {
            assert_eq!(weight, if policy == 5 { 0.53125 } else { 0.03125 });
        }
        assert_eq!(weights.iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn one_policy_has_all_the_weight() {
        for eta in [0.0, 0.5, 1.0] {
            assert_eq!(mixture_weight(0, 0, 1, eta), 1.0);
        }
    }

    #[test]
    fn eta_1_trains_the_behaviour_policy_only_and_eta_0_all_alike() {
        assert_eq!((mixture_weight(2, 2, 4, 1.0), mixture_weight(1, 2, 4, 1.0)), (1.0, 0.0));
        assert_eq!((mixture_weight(2, 2, 4, 0.0), mixture_weight(1, 2, 4, 0.0)), (0.25, 0.25));
    }
}
