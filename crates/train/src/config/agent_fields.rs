//! What is known of the fields that the `agent` crate declares.

use super::field::Kind::{self, Choice, Switch, Tables, Whole, WholeOrNone, Wholes};
use super::field::Paper::{self, Ours, Says, Silent};
use super::field::{Column, Field, Section};

const fn field(path: &'static str, kind: Kind, unit: &'static str, paper: Paper, meaning: &'static str) -> Field {
    Field { path, kind, unit, paper, meaning }
}

const fn column(key: &'static str, low: i64, high: i64) -> Column {
    Column { key, low, high, default: None }
}

/// Widths and channels.
const WIDTH: Kind = Whole(1, 16_384);
const CHANNELS: Column = column("channels", 1, 4096);
const STRIDE: Column = column("stride", 1, 16);
const CONVOLUTIONS: Kind = Tables(
    8,
    &[CHANNELS, column("kernel", 1, 31), STRIDE, Column { key: "padding", low: 0, high: 16, default: Some(0) }],
);
const LEARNING_RATE: Kind = Kind::above(0.0, 1.0);
const DECAY: Kind = Kind::below(0.0, 1.0);

/// The bandit's constants, `agent::bandit::BanditParameters`.
pub const BANDIT: Section = Section {
    path: "bandit",
    about: "Which policy plays the next episode: discounted UCB-Tuned over the returns so far.",
    fields: &[
        field("bandit.discount", Kind::above(0.0, 1.0), "", Says("0.999"), "How much of the past is kept, an episode."),
        field(
            "bandit.bonus",
            Kind::number(0.0, 1e6),
            "",
            Says("1.0"),
            "Weight of the bonus for policies seldom played.",
        ),
        field("bandit.epsilon", Kind::SHARE, "", Says("0.5"), "Probability of a policy drawn evenly instead."),
    ],
};

/// The constants of the episodic reward, `agent::intrinsic::Kernel`.
pub const KERNEL: Section = Section {
    path: "intrinsic.kernel",
    about: "How familiar an observation is, from its distances to the nearest ones of the episode.",
    fields: &[
        field(
            "intrinsic.kernel.neighbours",
            Whole(1, 1000),
            "observations",
            Silent,
            "Nearest neighbours looked at (k).",
        ),
        field(
            "intrinsic.kernel.epsilon",
            Kind::above(0.0, 1.0),
            "",
            Silent,
            "Constant of the kernel: a normalised distance of this size counts half.",
        ),
        field(
            "intrinsic.kernel.cluster_distance",
            Kind::number(0.0, 1000.0),
            "",
            Silent,
            "Normalised squared distances below it count as none.",
        ),
        field(
            "intrinsic.kernel.pseudo_count",
            Kind::above(0.0, 1000.0),
            "",
            Silent,
            "Added to the similarity, so that the reward stays bounded (c).",
        ),
        field(
            "intrinsic.kernel.max_similarity",
            Kind::above(0.0, 1e6),
            "",
            Silent,
            "Above this similarity there is no reward.",
        ),
        field(
            "intrinsic.kernel.mean_span",
            Whole(1, 100_000_000),
            "distances",
            Silent,
            "The mean that distances are divided by is over all until there are so many, then over the last quarter.",
        ),
    ],
};

/// `agent::config::PoliciesConfig`.
pub const POLICIES: Section = Section {
    path: "agent.policies",
    about: "The family of policies, from exploiting (the first) to exploring (the last).",
    fields: &[
        field(
            "agent.policies.count",
            Whole(1, 256),
            "policies",
            Says("16"),
            "Policies in the family (\"Num Mixtures\").",
        ),
        field(
            "agent.policies.beta_max",
            Kind::number(0.0, 1000.0),
            "",
            Says("0.1"),
            "Weight of the intrinsic reward for the most exploring policy (\"IM Reward Scale\").",
        ),
        field("agent.policies.gamma_max", DECAY, "", Says("0.9997"), "Discount of the most exploiting policy."),
        field("agent.policies.gamma_min", DECAY, "", Says("0.97"), "Discount of the most exploring policy."),
    ],
};

/// `agent::config::NetworkConfig` without its sub-tables.
pub const NETWORK: Section = Section {
    path: "agent.network",
    about: "The networks.",
    fields: &[
        field(
            "agent.network.precision",
            Choice(&["auto", "f32"]),
            "",
            Silent,
            "In how many bits the value and policy network computes; auto: 16 on a GPU, with f32 parameters and outputs.",
        ),
        field(
            "agent.network.max_side",
            WholeOrNone(8, 4096),
            "pixels",
            Says("0"),
            "Images larger than this on a side are averaged down by a whole factor before every network.",
        ),
        field("agent.network.action_embedding", WIDTH, "", Says("32"), "Length of the previous action's embedding."),
        field(
            "agent.network.features",
            WIDTH,
            "",
            Says("256"),
            "Width of the layer over previous action, rewards and embedding.",
        ),
        field(
            "agent.network.recurrent",
            Switch,
            "",
            Says("true"),
            "Whether the core is an LSTM; without it nothing is remembered.",
        ),
        field("agent.network.core", WIDTH, "", Says("1024"), "Width of the core."),
        field("agent.network.head_hidden", WIDTH, "", Says("1024"), "Width of the two hidden layers of every head."),
    ],
};

/// `agent::config::TorsoConfig` without its sub-tables.
pub const TORSO: Section = Section {
    path: "agent.network.torso",
    about: "What looks at an observation.",
    fields: &[
        field(
            "agent.network.torso.kind",
            Choice(&["nfnet", "resnet", "dqn"]),
            "",
            Says("\"nfnet\""),
            "Normalizer-free residual network, residual network with layer norm, or plain convolutions; flat \
             observations always get linear layers.",
        ),
        field("agent.network.torso.activation", Choice(&["relu", "gelu"]), "", Silent, "nfnet: the activation."),
        field(
            "agent.network.torso.stages",
            Tables(8, &[column("blocks", 1, 64), CHANNELS, STRIDE]),
            "",
            Says(
                "[{ blocks = 2, channels = 64, stride = 1 }, { blocks = 3, channels = 128, stride = 2 }, \
                 { blocks = 4, channels = 128, stride = 2 }, { blocks = 4, channels = 64, stride = 2 }]",
            ),
            "nfnet and resnet: the residual stages; the stride is that of a stage's first block.",
        ),
        field(
            "agent.network.torso.alpha",
            Kind::above(0.0, 10.0),
            "",
            Silent,
            "nfnet: weight of the main path of every block.",
        ),
        field(
            "agent.network.torso.squeeze_excite_ratio",
            Kind::above(0.0, 8.0),
            "",
            Silent,
            "nfnet: width of the squeeze-excite layer, as a share of the block's channels.",
        ),
        field("agent.network.torso.convolutions", CONVOLUTIONS, "", Ours, "dqn: the convolutions."),
        field("agent.network.torso.linear", WIDTH, "", Ours, "dqn: width of the linear layer after them."),
        field(
            "agent.network.torso.hidden",
            Wholes(8, 1, 16_384),
            "",
            Ours,
            "Flat observations: widths of the linear layers, also of the networks behind the intrinsic reward.",
        ),
    ],
};

/// `agent::config::StemConfig`.
pub const STEM: Section = Section {
    path: "agent.network.torso.stem",
    about: "The first convolution of nfnet and resnet.",
    fields: &[
        field("agent.network.torso.stem.channels", Whole(1, 4096), "", Silent, "Number of channels."),
        field("agent.network.torso.stem.kernel", Whole(1, 31), "pixels", Says("7"), "Side of the kernel, odd."),
        field("agent.network.torso.stem.stride", Whole(1, 16), "pixels", Says("4"), "Stride."),
    ],
};

/// `agent::config::StochasticDepthConfig`.
pub const STOCHASTIC_DEPTH: Section = Section {
    path: "agent.network.torso.stochastic_depth",
    about: "nfnet: blocks left out while training, the same ones for all steps of a sequence.",
    fields: &[
        field(
            "agent.network.torso.stochastic_depth.rate",
            DECAY,
            "",
            Says("0.25"),
            "Largest share of sequences that a block is left out for (\"Residual Drop Rate\").",
        ),
        field(
            "agent.network.torso.stochastic_depth.schedule",
            Choice(&["linear", "flat"]),
            "",
            Silent,
            "From 0 at the first block to the full rate at the last, as in NFNet, or the same for all.",
        ),
    ],
};

/// `agent::config::IntrinsicNetworkConfig`.
pub const INTRINSIC_NETWORK: Section = Section {
    path: "agent.network.intrinsic",
    about: "The action prediction network and the RND pair.",
    fields: &[
        field("agent.network.intrinsic.convolutions", CONVOLUTIONS, "", Silent, "Their convolutions, as in NGU."),
        field(
            "agent.network.intrinsic.embedding",
            WIDTH,
            "",
            Says("32"),
            "Length of the embedding that the episodic memory compares (\"AP Embedding Size\").",
        ),
        field(
            "agent.network.intrinsic.action_hidden",
            WIDTH,
            "",
            Silent,
            "Width of the layer that predicts the action from two embeddings.",
        ),
        field("agent.network.intrinsic.rnd_output", WIDTH, "", Silent, "Length of the RND networks' output."),
    ],
};

/// `agent::config::ReturnsConfig`.
pub const RETURNS: Section = Section {
    path: "agent.returns",
    about: "What the values are trained towards.",
    fields: &[
        field(
            "agent.returns.kind",
            Choice(&["soft_watkins", "watkins", "peng", "retrace"]),
            "",
            Says("\"soft_watkins\""),
            "When a trace is cut: little by little, at the first action that is not greedy, never, or by how likely \
             the action is.",
        ),
        field("agent.returns.lambda", Kind::SHARE, "", Says("0.95"), "Decay of traces, a step."),
        field(
            "agent.returns.kappa",
            Kind::number(0.0, 1000.0),
            "",
            Says("0.01"),
            "soft_watkins: actions that are worse by at most this share of their value cut nothing.",
        ),
        field(
            "agent.returns.temperature",
            Kind::above(0.0, 1000.0),
            "",
            Says("0.25"),
            "Temperature of the target policy; lower is greedier.",
        ),
        field(
            "agent.returns.bootstrap",
            Choice(&["online", "target"]),
            "",
            Says("\"online\""),
            "Whose values stand for what comes after: the online or the target network's.",
        ),
    ],
};

/// `agent::config::LossConfig`.
pub const LOSS: Section = Section {
    path: "agent.loss",
    about: "How values and policies are trained.",
    fields: &[
        field(
            "agent.loss.q_heads",
            Choice(&["combined", "separate", "single"]),
            "",
            Says("\"combined\""),
            "Two heads trained on the summed reward, two heads with a reward each, or one head for the sum.",
        ),
        field(
            "agent.loss.q_combination",
            Choice(&["sum", "returns"]),
            "",
            Silent,
            "How two heads add up to Q_j: as rescaled values, Qe + β Qi, or as returns, h(h⁻¹(Qe) + β h⁻¹(Qi)).",
        ),
        field(
            "agent.loss.trained_policies",
            Choice(&["all", "behaviour"]),
            "",
            Says("\"all\""),
            "Which policies learn from a sequence: all, or the one that acted.",
        ),
        field(
            "agent.loss.cross_mixture",
            Kind::SHARE,
            "",
            Says("0.5"),
            "Share of the loss that belongs to the policy that acted; the rest is spread over all.",
        ),
        field(
            "agent.loss.trust_region",
            Switch,
            "",
            Says("true"),
            "Whether steps whose value moves ever further from the target network's carry no loss.",
        ),
        field(
            "agent.loss.trust_region_radius",
            Kind::above(0.0, 1e6),
            "standard deviations of TD errors",
            Silent,
            "How far that is; probably what the paper's table calls \"beta_std\".",
        ),
        field(
            "agent.loss.td_normalisation",
            Switch,
            "",
            Says("true"),
            "Whether TD errors are divided by their standard deviation.",
        ),
        field("agent.loss.sigma_floor", Kind::above(0.0, 1e6), "", Says("0.01"), "Least standard deviation."),
        field("agent.loss.sigma_decay", DECAY, "", Silent, "Decay of the running standard deviation, an update."),
        field(
            "agent.loss.distillation",
            Switch,
            "",
            Says("true"),
            "Whether a policy is distilled from the values; without it acting and returns use the values themselves.",
        ),
        field("agent.loss.distillation_weight", Kind::number(0.0, 1e6), "", Silent, "Weight of that loss."),
        field(
            "agent.loss.distillation_epsilon",
            Kind::SHARE,
            "",
            Says("0.0001"),
            "Share of random actions in the policy that is distilled.",
        ),
        field(
            "agent.loss.kl_bound",
            Kind::above(0.0, 1e6),
            "nats",
            Says("0.5"),
            "Steps where the policy is further from the target network's than this carry no distillation loss \
             (\"Max KL\").",
        ),
        field(
            "agent.loss.priority_max_share",
            Kind::SHARE,
            "",
            Says("0.9"),
            "Share of the largest TD error, against the mean, in a sequence's priority (\"Max Priority Weight\").",
        ),
    ],
};

/// `agent::config::OptimizerConfig`.
pub const OPTIMIZER: Section = Section {
    path: "agent.optimizer",
    about: "AdamW for values and policies.",
    fields: &[
        field("agent.optimizer.learning_rate", LEARNING_RATE, "", Says("0.0003"), "Learning rate."),
        field("agent.optimizer.beta1", DECAY, "", Says("0.9"), "Decay of the gradient's mean."),
        field("agent.optimizer.beta2", DECAY, "", Says("0.999"), "Decay of the gradient's mean square."),
        field("agent.optimizer.epsilon", Kind::above(0.0, 1.0), "", Says("1e-8"), "Added to the root of that."),
        field(
            "agent.optimizer.weight_decay",
            Kind::SHARE,
            "",
            Says("0.05"),
            "Weight decay of matrices and kernels; gains and biases have none.",
        ),
        field(
            "agent.optimizer.clip_norm",
            Kind::above(0.0, 1e9),
            "",
            Silent,
            "Largest norm of the whole gradient, as in NGU; longer ones are scaled down to it.",
        ),
    ],
};

/// `agent::config::IntrinsicConfig` without its sub-tables.
pub const INTRINSIC: Section = Section {
    path: "agent.intrinsic",
    about: "Training of the networks behind the intrinsic reward.",
    fields: &[field(
        "agent.intrinsic.steps",
        Whole(1, 65_536),
        "agent steps",
        Silent,
        "Both train on so many last steps of every sampled sequence, as in NGU.",
    )],
};

/// `agent::config::ActionPredictionConfig`.
pub const ACTION_PREDICTION: Section = Section {
    path: "agent.intrinsic.action_prediction",
    about: "AdamW for the action prediction network.",
    fields: &[
        field("agent.intrinsic.action_prediction.learning_rate", LEARNING_RATE, "", Says("0.0006"), "Learning rate."),
        field("agent.intrinsic.action_prediction.weight_decay", Kind::SHARE, "", Says("0.05"), "Weight decay."),
    ],
};

/// `agent::config::RndConfig`.
pub const RND: Section = Section {
    path: "agent.intrinsic.rnd",
    about: "Adam for the RND predictor, and the statistics of its errors.",
    fields: &[
        field("agent.intrinsic.rnd.learning_rate", LEARNING_RATE, "", Says("0.0006"), "Learning rate."),
        field(
            "agent.intrinsic.rnd.moments_decay",
            DECAY,
            "",
            Silent,
            "Decay of the errors' running mean and deviation, an update.",
        ),
    ],
};

/// `agent::config::CopiesConfig`.
pub const COPIES: Section = Section {
    path: "agent.copies",
    about: "What follows the online parameters.",
    fields: &[
        field(
            "agent.copies.target_period",
            Whole(1, 10_000_000),
            "updates",
            Silent,
            "The target network is copied from the online one every so many, at first.",
        ),
        field(
            "agent.copies.target_share",
            Kind::number(0.0, 1.0),
            "",
            Ours,
            "Then the period doubles, and again, as long as it stays below this share of all updates so far: with 0.02 and \
             a period of 100, it is 200 from 10 000 updates on, 400 from 20 000. 0 is never.",
        ),
        field(
            "agent.copies.ema_decay",
            DECAY,
            "",
            Says("0.995"),
            "Decay of the average parameters that evaluation uses, an update.",
        ),
    ],
};
