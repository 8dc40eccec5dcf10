//! Everything about the agent that a user may set, with the paper's values as defaults.

mod network;
mod presets;
mod validation;

use serde::{Deserialize, Serialize};

pub use network::{
    Activation, ConvConfig, DropSchedule, IntrinsicNetworkConfig, NetworkConfig, Precision, StageConfig, StemConfig,
    StochasticDepthConfig, TorsoConfig, TorsoKind,
};
pub use presets::NetworkPreset;
pub use validation::ConfigProblem;

/// The agent: its family of policies, networks, returns, losses and optimizers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The family of policies.
    pub policies: PoliciesConfig,
    /// The networks.
    pub network: NetworkConfig,
    /// What the values are trained towards.
    pub returns: ReturnsConfig,
    /// How they are trained.
    pub loss: LossConfig,
    /// The optimizer of the value and policy network.
    pub optimizer: OptimizerConfig,
    /// Training of the networks behind the intrinsic reward.
    pub intrinsic: IntrinsicConfig,
    /// What follows the online parameters.
    pub copies: CopiesConfig,
}

/// The family of policies, from exploiting (0) to exploring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoliciesConfig {
    /// N, the number of policies.
    pub count: usize,
    /// β of the most exploring policy: the weight of the intrinsic reward.
    pub beta_max: f64,
    /// Discount of the most exploiting policy.
    pub gamma_max: f64,
    /// Discount of the most exploring policy.
    pub gamma_min: f64,
}

impl Default for PoliciesConfig {
    fn default() -> Self {
        Self { count: 16, beta_max: 0.1, gamma_max: 0.9997, gamma_min: 0.97 }
    }
}

/// How much of what happened after a step its return believes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnKind {
    /// Soft Watkins Q(λ), the paper's.
    #[default]
    SoftWatkins,
    /// Watkins Q(λ): cut at the first action that is not greedy.
    Watkins,
    /// Peng's Q(λ): never cut.
    Peng,
    /// Retrace: weighted by min(1, π/μ).
    Retrace,
}

/// Which network's values a return bootstraps from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bootstrap {
    /// The online network's, the paper's choice.
    #[default]
    Online,
    /// The target network's.
    Target,
}

/// What the values are trained towards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReturnsConfig {
    /// The estimator.
    pub kind: ReturnKind,
    /// λ, the decay of traces.
    pub lambda: f64,
    /// κ, the tolerance of Soft Watkins.
    pub kappa: f64,
    /// τ, the temperature of the target policy.
    pub temperature: f64,
    /// Whose values are bootstrapped from.
    pub bootstrap: Bootstrap,
}

impl Default for ReturnsConfig {
    fn default() -> Self {
        Self {
            kind: ReturnKind::SoftWatkins,
            lambda: 0.95,
            kappa: 0.01,
            temperature: 0.25,
            bootstrap: Bootstrap::Online,
        }
    }
}

/// How the extrinsic and the intrinsic value are learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QHeads {
    /// Two heads whose weighted sum is trained on the summed reward, the paper's.
    #[default]
    Combined,
    /// Two heads, each trained on its own reward, as in Agent57.
    Separate,
    /// One head for the summed reward.
    Single,
}

/// How the values of the two heads add up to Q_j.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QCombination {
    /// Qe + β_j Qi, a plain sum of rescaled values.
    #[default]
    Sum,
    /// h(h⁻¹(Qe) + β_j h⁻¹(Qi)), a sum of returns in the units of the rewards, as in Agent57.
    Returns,
}

/// Which policies learn from a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainedPolicies {
    /// All of them, weighted by the cross-mixture, the paper's.
    #[default]
    All,
    /// Only the one that acted.
    Behaviour,
}

/// How the values and the policy are trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// How the extrinsic and the intrinsic value are learned.
    pub q_heads: QHeads,
    /// How the two heads add up to Q_j.
    pub q_combination: QCombination,
    /// Which policies learn from a sequence.
    pub trained_policies: TrainedPolicies,
    /// η, the share of the loss that belongs to the policy that acted.
    pub cross_mixture: f64,
    /// Whether steps that left the trust region carry no loss.
    pub trust_region: bool,
    /// Radius of the trust region in units of σ.
    pub trust_region_radius: f64,
    /// Whether TD errors are divided by σ.
    pub td_normalisation: bool,
    /// Smallest σ.
    pub sigma_floor: f64,
    /// Decay of the running part of σ, an update.
    pub sigma_decay: f64,
    /// Whether a policy is distilled from the values; without it acting and returns use ε-greedy values.
    pub distillation: bool,
    /// Weight of the distillation loss.
    pub distillation_weight: f64,
    /// ε of the ε-greedy policy that is distilled (and that stands in for the distilled one when that is off).
    pub distillation_epsilon: f64,
    /// Steps where the policy is further from the target network's than this KL divergence carry no distillation loss.
    pub kl_bound: f64,
    /// Share of the largest TD error, against the mean, in a sequence's priority.
    pub priority_max_share: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self {
            q_heads: QHeads::Combined,
            q_combination: QCombination::Sum,
            trained_policies: TrainedPolicies::All,
            cross_mixture: 0.5,
            trust_region: true,
            trust_region_radius: 2.0,
            td_normalisation: true,
            sigma_floor: 0.01,
            sigma_decay: 0.99,
            distillation: true,
            distillation_weight: 1.0,
            distillation_epsilon: 1e-4,
            kl_bound: 0.5,
            priority_max_share: 0.9,
        }
    }
}

impl LossConfig {
    /// η as it is used: training the behaviour policy only is a mixture with all weight on it.
    pub fn eta(&self) -> f64 {
        match self.trained_policies {
            TrainedPolicies::All => self.cross_mixture,
            TrainedPolicies::Behaviour => 1.0,
        }
    }
}

/// AdamW for the value and policy network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the gradient's mean.
    pub beta1: f64,
    /// Decay of the gradient's mean square.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Decoupled weight decay, of matrices and kernels only.
    pub weight_decay: f64,
    /// Largest norm of the whole gradient; longer ones are scaled down to it.
    pub clip_norm: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self { learning_rate: 3e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.05, clip_norm: 40.0 }
    }
}

/// Training of the networks behind the intrinsic reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntrinsicConfig {
    /// Both train on this many last steps of every sampled sequence.
    pub steps: usize,
    /// The action prediction network, whose embedding the episodic memory compares.
    pub action_prediction: ActionPredictionConfig,
    /// The RND predictor.
    pub rnd: RndConfig,
}

impl Default for IntrinsicConfig {
    fn default() -> Self {
        Self { steps: 5, action_prediction: ActionPredictionConfig::default(), rnd: RndConfig::default() }
    }
}

/// AdamW for the action prediction network; its other constants are those of [`OptimizerConfig`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActionPredictionConfig {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decoupled weight decay, of matrices and kernels only.
    pub weight_decay: f64,
}

impl Default for ActionPredictionConfig {
    fn default() -> Self {
        Self { learning_rate: 6e-4, weight_decay: 0.05 }
    }
}

/// Adam for the RND predictor (its other constants are those of [`OptimizerConfig`]), and the statistics of its errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RndConfig {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the running mean and deviation of the errors, an update.
    pub moments_decay: f64,
}

impl Default for RndConfig {
    fn default() -> Self {
        Self { learning_rate: 6e-4, moments_decay: 0.99 }
    }
}

/// What follows the online parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopiesConfig {
    /// The target network is copied from the online one every so many updates at first.
    pub target_period: u64,
    /// The period doubles until it would be a larger share of all updates so far than this.
    pub target_share: f64,
    /// Decay of the moving average that evaluation uses, an update.
    pub ema_decay: f64,
}

impl Default for CopiesConfig {
    fn default() -> Self {
        Self { target_period: 100, target_share: 0.0, ema_decay: 0.995 }
    }
}

impl CopiesConfig {
    /// Whether the target network is copied after this update. It follows from the number alone, so that a learner that
    /// goes on from a checkpoint needs no memory of the last copy.
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
    fn the_target_network_is_renewed_ever_more_seldom() {
        let copies = |target_share, updates: std::ops::Range<u64>| -> Vec<u64> {
            let config = CopiesConfig { target_share, ..CopiesConfig::default() };
            updates.filter(|&update| config.renews_target(update)).collect()
        };
        assert_eq!(copies(0.0, 40_000..40_301), [40_000, 40_100, 40_200, 40_300]);
        assert_eq!(copies(0.02, 1..301), [100, 200, 300]);
        assert_eq!(copies(0.02, 9_800..10_401), [9_800, 9_900, 10_000, 10_200, 10_400]);
        assert_eq!(copies(0.02, 19_600..20_801), [19_600, 19_800, 20_000, 20_400, 20_800]);
        // A share that the first period is beyond already.
        assert_eq!(copies(1e-9, 1..301), [100, 200, 300]);
    }
}
