//! The agent's configuration; the defaults are the paper's values.

mod network;
mod rules;

use config_schema::{Field, above, below, choice, integer, number, switch};

use crate::policy_family::{agent57_gammas, beta_ladder, gamma_ladder};

pub use network::{
    Activation, ConvConfig, DropSchedule, HeldMask, IntrinsicNetworkConfig, NetworkConfig, PolicyInput, Precision,
    PreviousInputs, StageConfig, StemConfig, StochasticDepthConfig, TorsoConfig, TorsoKind, ValueNetworks,
};

/// Shares, probabilities and weights from 0 to 1.
pub(crate) const SHARE: Field = number(0.0, 1.0);
/// Discounts and decays.
const DECAY: Field = below(0.0, 1.0);
const LEARNING_RATE: Field = above(0.0, 1.0);

config_schema::section! {
    /// Agent: policies, networks, returns, losses and optimizers.
    pub struct AgentConfig {
        table policies: PoliciesConfig;
        table returns: ReturnsConfig;
        table loss: LossConfig;
        table optimizer: OptimizerConfig;
        table intrinsic: IntrinsicTrainingConfig;
        table copies: CopiesConfig;
        table network: NetworkConfig;
    }
}

config_schema::section! {
    /// Family of policies, from the most exploiting (the first) to the most exploring (the last).
    pub struct PoliciesConfig {
        /// Number of policies N ("Num Mixtures").
        count: usize = 16, integer(1, 256).unit("policies").paper();
        /// Weight β of the intrinsic reward for the most exploring policy ("IM Reward Scale").
        beta_max: f64 = 0.1, number(0.0, 1000.0).paper();
        /// Discount γ of the most exploiting policy.
        gamma_max: f64 = 0.9997, DECAY.paper();
        /// Discount γ of the most exploring policy.
        gamma_min: f64 = 0.97, DECAY.paper();
        /// Discounts between the first and the last policy.
        discounts: DiscountLadder = DiscountLadder::LogSpaced, choice::<DiscountLadder>().paper();
        /// agent57: discount γ of the eighth policy, or `gamma_max` if that is less.
        gamma_middle: f64 = 0.997, DECAY;
        /// Slope of the sigmoid that β follows over the policies. NGU and Agent57 have 10.
        beta_slope: f64 = 8.0, number(0.0, 1000.0).paper();
        /// Preferences that the greedy action of actors and evaluators maximises.
        greedy: GreedyBy = GreedyBy::Policy, choice::<GreedyBy>().paper();
        /// Whether actors sample from the target policy π' of the returns where they would take the greedy action. The
        /// paper tried it.
        sampled: bool = false, switch().paper();
    }
}

config_schema::choice! {
    /// Discounts between the first and the last policy.
    pub enum DiscountLadder {
        /// 1 - γ grows by the same factor from each policy to the next.
        LogSpaced = "log_spaced",
        /// Eight far-seeing policies down to `gamma_middle`, then log-spaced, as in Agent57.
        Agent57 = "agent57",
    }
}

impl PoliciesConfig {
    /// β_j of all policies.
    pub fn betas(&self) -> Vec<f64> {
        beta_ladder(self.count, self.beta_max, self.beta_slope)
    }

    /// γ_j of all policies.
    pub fn gammas(&self) -> Vec<f64> {
        match self.discounts {
            DiscountLadder::LogSpaced => gamma_ladder(self.count, self.gamma_max, self.gamma_min),
            DiscountLadder::Agent57 => {
                agent57_gammas(self.count, self.gamma_max, self.gamma_middle.min(self.gamma_max), self.gamma_min)
            }
        }
    }
}

config_schema::choice! {
    /// Preferences that a greedy action maximises.
    pub enum GreedyBy {
        /// The distilled policy; the values without distillation.
        Policy = "policy",
        /// The values Q_j.
        Values = "values",
    }
}

impl AgentConfig {
    /// Returns whether acting on a GPU uses CUDA graphs.
    ///
    /// Masks held by actors differ from row to row, so acting with them cannot be captured.
    pub fn captures_acting(&self) -> bool {
        self.network.torso.stochastic_depth.acting == HeldMask::Never
    }

    /// Returns whether greedy actions follow the distilled policy, and not the values.
    pub fn acts_by_policy(&self) -> bool {
        self.loss.distillation && self.policies.greedy == GreedyBy::Policy
    }
}

config_schema::section! {
    /// Returns: the targets of the values.
    pub struct ReturnsConfig {
        /// Estimator, which decides where a trace is cut.
        kind: ReturnKind = ReturnKind::SoftWatkins, choice::<ReturnKind>().paper();
        /// Decay λ of traces per step.
        lambda: f64 = 0.95, SHARE.paper();
        /// soft_watkins: tolerance κ. Actions worse than the policy's value by at most this share of it do not cut.
        kappa: f64 = 0.01, number(0.0, 1000.0).paper();
        /// n_step: number of rewards before the bootstrap value.
        n: usize = 5, integer(1, 1000).unit("agent steps");
        /// Temperature τ of the target policy. Lower is greedier; 0 is the greedy policy of π.
        temperature: f64 = 0.25, number(0.0, 1000.0).paper();
        /// Network whose values the returns bootstrap from.
        bootstrap: Bootstrap = Bootstrap::Online, choice::<Bootstrap>().paper();
    }
}

config_schema::choice! {
    /// Return estimator.
    pub enum ReturnKind {
        /// Soft Watkins Q(λ): cut at actions much worse than the policy's value.
        SoftWatkins = "soft_watkins",
        /// Watkins Q(λ): cut at the first action that is not greedy.
        Watkins = "watkins",
        /// Peng's Q(λ): never cut.
        Peng = "peng",
        /// Retrace: weighted by min(1, π/μ).
        Retrace = "retrace",
        /// n rewards, then the value, whatever the actions, as in R2D2.
        NStep = "n_step",
    }
}

config_schema::choice! {
    /// Network whose values the returns bootstrap from.
    pub enum Bootstrap {
        /// The online network.
        Online = "online",
        /// The target network.
        Target = "target",
        /// Values of the target network, for actions that the online network prefers (double Q-learning).
        Double = "double",
    }
}

config_schema::section! {
    /// Losses of the values and of the distilled policy.
    pub struct LossConfig {
        /// Heads of the extrinsic and the intrinsic value.
        q_heads: QHeads = QHeads::Combined, choice::<QHeads>().paper();
        /// Combination of the two heads' values into Q_j.
        q_combination: QCombination = QCombination::Sum, choice::<QCombination>().silent();
        /// Policies that learn from a sequence.
        trained_policies: TrainedPolicies = TrainedPolicies::All, choice::<TrainedPolicies>().paper();
        /// Share η of the loss that goes to the policy that acted. The rest is spread over all policies.
        cross_mixture: f64 = 0.5, SHARE.paper();
        /// Whether to mask the loss of steps whose value has left the trust region and keeps moving away.
        trust_region: bool = true, switch().paper();
        /// Radius of the trust region around the target network's value, probably "beta_std" in the paper's table.
        trust_region_radius: f64 = 2.0, above(0.0, 1e6).unit("standard deviations of TD errors").silent();
        /// Weight of ½ ((Q - Q_T) / σ)² in the loss, Q_T being the target network's value. The paper tried it instead
        /// of the trust region.
        functional_regularisation: f64 = 0.0, number(0.0, 1e6).paper();
        /// Whether to divide TD errors by their standard deviation σ.
        td_normalisation: bool = true, switch().paper();
        /// Smallest σ.
        sigma_floor: f64 = 0.01, above(0.0, 1e6).paper();
        /// Decay of the running σ per update.
        sigma_decay: f64 = 0.99, DECAY.silent();
        /// Whether to distill a policy from the values. Without it, acting and returns use ε-greedy values.
        distillation: bool = true, switch().paper();
        /// Weight of the distillation loss.
        distillation_weight: f64 = 1.0, number(0.0, 1e6).silent();
        /// ε of the ε-greedy policy that is distilled, or used directly without distillation.
        distillation_epsilon: f64 = 1e-4, SHARE.paper();
        /// Largest KL divergence from the target network's policy ("Max KL"). Steps beyond it have no distillation
        /// loss.
        kl_bound: f64 = 0.5, above(0.0, 1e6).unit("nats").paper();
        /// Number of steps at the start of a sequence that only bring its recurrent state up to date, without loss. A
        /// sequence that starts an episode has none.
        burn_in: usize = 0, integer(0, 65_535).unit("agent steps").paper();
        /// Weight of the largest TD error in a sequence's priority. The mean has the rest ("Max Priority Weight").
        priority_max_share: f64 = 0.9, SHARE.paper();
    }
}

config_schema::choice! {
    /// Heads of the extrinsic and the intrinsic value.
    pub enum QHeads {
        /// Two heads whose weighted sum is trained on the summed reward.
        Combined = "combined",
        /// Two heads, each trained on its own reward, as in Agent57.
        Separate = "separate",
        /// One head for the summed reward.
        Single = "single",
    }
}

config_schema::choice! {
    /// Combination of the two heads' values into Q_j.
    pub enum QCombination {
        /// Plain sum of rescaled values, Qe + β_j Qi.
        Sum = "sum",
        /// Sum of returns in the units of the rewards, h(h⁻¹(Qe) + β_j h⁻¹(Qi)). Agent57's paper (section 3.1) has both,
        /// and its experiments the plain sum.
        Returns = "returns",
    }
}

config_schema::choice! {
    /// Policies that learn from a sequence.
    pub enum TrainedPolicies {
        /// All of them, weighted by the cross-mixture.
        All = "all",
        /// Only the policy that acted.
        Behaviour = "behaviour",
    }
}

impl LossConfig {
    /// Returns the effective η: 1 if only the behaviour policy is trained.
    pub fn eta(&self) -> f64 {
        match self.trained_policies {
            TrainedPolicies::All => self.cross_mixture,
            TrainedPolicies::Behaviour => 1.0,
        }
    }
}

config_schema::section! {
    /// Optimizer of the value and policy network. The intrinsic networks share its kind, betas and epsilon.
    pub struct OptimizerConfig {
        /// Algorithm.
        kind: OptimizerKind = OptimizerKind::AdamW, choice::<OptimizerKind>().paper();
        /// Learning rate.
        learning_rate: f64 = 3e-4, LEARNING_RATE.paper().changeable();
        /// Decay of the mean of the gradient.
        beta1: f64 = 0.9, DECAY.paper().changeable();
        /// Decay of the mean of the squared gradient.
        beta2: f64 = 0.999, DECAY.paper().changeable();
        /// Constant added to the root of the mean square.
        epsilon: f64 = 1e-8, above(0.0, 1.0).paper().changeable();
        /// Weight decay of matrices and kernels; decoupled with adamw. Gains and biases have none.
        weight_decay: f64 = 0.05, SHARE.paper().changeable();
        /// Largest norm of the whole gradient, as in NGU; of each network's own with two. Longer gradients are scaled
        /// down to it.
        clip_norm: f64 = 40.0, above(0.0, 1e9).silent().changeable();
    }
}

config_schema::choice! {
    /// Optimizer.
    pub enum OptimizerKind {
        /// Adam with decoupled weight decay.
        AdamW = "adamw",
        /// Adam; weight decay is an L2 penalty, added to the gradient.
        Adam = "adam",
        /// RMSProp with `beta2` for its mean square, not centred and without momentum; weight decay as with adam.
        RmsProp = "rmsprop",
    }
}

config_schema::section! {
    /// Training of the networks of the intrinsic reward.
    pub struct IntrinsicTrainingConfig {
        /// Number of steps at the end of each sampled sequence that both networks train on, as in NGU.
        steps: usize = 5, integer(1, 65_536).unit("agent steps").silent();
        table action_prediction: ActionPredictionConfig;
        table rnd: RndConfig;
    }
}

config_schema::section! {
    /// AdamW for the action prediction network.
    pub struct ActionPredictionConfig {
        /// Learning rate.
        learning_rate: f64 = 6e-4, LEARNING_RATE.paper().changeable();
        /// Decoupled weight decay of matrices and kernels.
        weight_decay: f64 = 0.05, SHARE.paper().changeable();
    }
}

config_schema::section! {
    /// Adam for the RND predictor, and the statistics of its errors.
    pub struct RndConfig {
        /// Learning rate.
        learning_rate: f64 = 6e-4, LEARNING_RATE.paper().changeable();
        /// Decay of the running mean and deviation of the errors per update.
        moments_decay: f64 = 0.99, DECAY.silent();
    }
}

config_schema::section! {
    /// Copies of the online parameters: the target network and the evaluation average.
    pub struct CopiesConfig {
        /// Initial number of updates between two copies of the online network into the target network.
        target_period: u64 = 100, integer(1, 10_000_000).unit("updates").silent().changeable();
        /// Largest share of all updates so far that the period may grow to by doubling; 0 keeps it constant. With 0.02
        /// and a period of 100, the period is 200 from update 10 000 and 400 from update 20 000.
        target_share: f64 = 0.0, SHARE.changeable();
        /// Decay per update of the moving average of the parameters, which evaluation uses.
        ema_decay: f64 = 0.995, DECAY.paper().changeable();
    }
}

impl CopiesConfig {
    /// Returns whether the target network is copied after this update.
    ///
    /// It depends on the number of the update alone, so a resumed learner needs no memory of the last copy.
    pub fn renews_target(&self, update: u64) -> bool {
        let mut period = self.target_period;
        while 2.0 * period as f64 <= self.target_share * update as f64 {
            period *= 2;
        }
        update.is_multiple_of(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_period_doubles_with_the_number_of_updates() {
        let copies = |target_share, updates: std::ops::Range<u64>| -> Vec<u64> {
            let config = CopiesConfig { target_share, ..CopiesConfig::default() };
            updates.filter(|&update| config.renews_target(update)).collect()
        };
        assert_eq!(copies(0.0, 40_000..40_301), [40_000, 40_100, 40_200, 40_300]);
        assert_eq!(copies(0.02, 1..301), [100, 200, 300]);
        assert_eq!(copies(0.02, 9_800..10_401), [9_800, 9_900, 10_000, 10_200, 10_400]);
        assert_eq!(copies(0.02, 19_600..20_801), [19_600, 19_800, 20_000, 20_400, 20_800]);
        // A share that the initial period already exceeds.
        assert_eq!(copies(1e-9, 1..301), [100, 200, 300]);
    }
}
