//! The description of the networks.

use serde::{Deserialize, Serialize};

/// The networks: what looks at observations, remembers, and gives values and policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// In how many bits the value and policy network computes.
    pub precision: Precision,
    /// Images larger than this on a side are averaged down by a whole factor before every network; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_side: Option<usize>,
    /// What looks at an observation.
    pub torso: TorsoConfig,
    /// Length of the previous action's embedding.
    pub action_embedding: usize,
    /// Width of the layer over previous action, rewards and embedding.
    pub features: usize,
    /// Whether the core is an LSTM; without it the core is a linear layer and nothing is remembered.
    pub recurrent: bool,
    /// Width of the core.
    pub core: usize,
    /// Width of the two hidden layers of every head.
    pub head_hidden: usize,
    /// The networks behind the intrinsic reward.
    pub intrinsic: IntrinsicNetworkConfig,
}

/// In how many bits the value and policy network computes. Parameters, outputs, losses and returns are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// In 16 bits and with fused kernels on a GPU, in f32 elsewhere.
    #[default]
    Auto,
    /// In f32 everywhere.
    F32,
}

/// The kinds of torso for images. Flat observations always get linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TorsoKind {
    /// Normalizer-free residual network, the paper's.
    #[default]
    Nfnet,
    /// Residual network with layer norm.
    Resnet,
    /// Plain convolutions and a linear layer, as in DQN.
    Dqn,
}

/// The activation of the normalizer-free torso.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(x, 0).
    #[default]
    Relu,
    /// x Φ(x).
    Gelu,
}

/// What looks at an observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TorsoConfig {
    /// Which network.
    pub kind: TorsoKind,
    /// nfnet: the activation.
    pub activation: Activation,
    /// nfnet and resnet: the first convolution.
    pub stem: StemConfig,
    /// nfnet and resnet: the residual stages.
    pub stages: Vec<StageConfig>,
    /// nfnet: weight of the main path of every block.
    pub alpha: f64,
    /// nfnet: width of the squeeze-excite layer, as a share of the block's channels.
    pub squeeze_excite_ratio: f64,
    /// nfnet: blocks left out while training.
    pub stochastic_depth: StochasticDepthConfig,
    /// dqn: the convolutions.
    pub convolutions: Vec<ConvConfig>,
    /// dqn: width of the linear layer after them.
    pub linear: usize,
    /// Flat observations: widths of the linear layers, also of the networks behind the intrinsic reward.
    pub hidden: Vec<usize>,
}

/// The first convolution of a residual torso.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StemConfig {
    /// Number of channels.
    pub channels: usize,
    /// Kernel side, odd.
    pub kernel: usize,
    /// Stride.
    pub stride: usize,
}

/// One stage of a residual torso.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Number of blocks.
    pub blocks: usize,
    /// Number of channels.
    pub channels: usize,
    /// Stride of the first block.
    pub stride: usize,
}

/// How the drop rate goes over the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropSchedule {
    /// From 0 at the first block to the full rate at the last, as in NFNet.
    #[default]
    Linear,
    /// The same for every block.
    Flat,
}

/// Blocks left out while training, the same ones for all steps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StochasticDepthConfig {
    /// Largest share of sequences that a block is left out for.
    pub rate: f64,
    /// How the rate goes over the blocks.
    pub schedule: DropSchedule,
}

impl StochasticDepthConfig {
    /// The share of sequences that block `block` of `blocks` is left out for.
    pub fn block_rate(&self, block: usize, blocks: usize) -> f64 {
        match self.schedule {
            DropSchedule::Flat => self.rate,
            DropSchedule::Linear if blocks > 1 => self.rate * block as f64 / (blocks - 1) as f64,
            DropSchedule::Linear => 0.0,
        }
    }
}

/// One plain convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvConfig {
    /// Number of channels.
    pub channels: usize,
    /// Kernel side.
    pub kernel: usize,
    /// Stride.
    pub stride: usize,
    /// Zeros added on every side.
    #[serde(default)]
    pub padding: usize,
}

/// The action prediction network and the RND pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntrinsicNetworkConfig {
    /// Their convolutions.
    pub convolutions: Vec<ConvConfig>,
    /// Length of the embedding f(x).
    pub embedding: usize,
    /// Width of the layer that predicts the action from two embeddings.
    pub action_hidden: usize,
    /// Length of the RND networks' output.
    pub rnd_output: usize,
}
