//! The sections of the networks; the defaults are the paper's network.

use config_schema::{Field, above, below, choice, integer, integers, rows, switch};

/// Widths of layers.
const WIDTH: Field = integer(1, WIDEST);
const WIDEST: i64 = 65_536;

config_schema::section! {
    /// Networks: torso, recurrent core and heads.
    pub struct NetworkConfig {
        /// Arithmetic of the value and policy network. Parameters, outputs, losses and returns are always f32.
        precision: Precision = Precision::Auto, choice::<Precision>().silent();
        /// How the network knows which policy acts.
        policy_input: PolicyInput = PolicyInput::Heads, choice::<PolicyInput>().paper();
        /// Networks of the extrinsic and the intrinsic value; separate ones need `loss.q_heads` to be separate.
        value_networks: ValueNetworks = ValueNetworks::Shared, choice::<ValueNetworks>().paper();
        /// Inputs besides the observation and the previous action.
        inputs: PreviousInputs = PreviousInputs::All, choice::<PreviousInputs>().paper();
        /// Length of the embedding of the previous action.
        action_embedding: usize = 32, WIDTH.paper();
        /// Width of the layer that combines the previous action, the previous rewards and the embedding. With 0 there
        /// is none: the core sees the action one-hot, and the rest as it is.
        features: usize = 256, integer(0, WIDEST).paper();
        /// Whether the core is an LSTM. Without it the core is a linear layer and the agent has no memory.
        recurrent: bool = true, switch().paper();
        /// Width of the core.
        core: usize = 1024, WIDTH.paper();
        /// Width of the hidden layers of each head.
        head_hidden: usize = 1024, WIDTH.paper();
        /// Number of hidden layers of each head.
        head_layers: usize = 2, integer(1, 2).unit("layers").paper();
        /// Whether the heads see the core's input besides its output.
        head_skip: bool = true, switch().paper();
        table torso: TorsoConfig;
        table intrinsic: IntrinsicNetworkConfig;
    }
}

config_schema::choice! {
    /// Arithmetic of the value and policy network.
    pub enum Precision {
        /// bf16 with fused kernels on a GPU, f32 elsewhere.
        Auto = "auto",
        /// f32 everywhere.
        F32 = "f32",
    }
}

config_schema::choice! {
    /// How the network knows which policy acts.
    pub enum PolicyInput {
        /// It does not: the heads give the values of all policies at once.
        Heads = "heads",
        /// The policy enters the core one-hot, and the heads give its values alone (UVFA, as in NGU and Agent57).
        OneHot = "one_hot",
    }
}

config_schema::choice! {
    /// Networks of the extrinsic and the intrinsic value.
    pub enum ValueNetworks {
        /// One torso and one core for all heads.
        Shared = "shared",
        /// Two networks with independent weights and optimizers, as in Agent57.
        Separate = "separate",
    }
}

config_schema::choice! {
    /// Inputs besides the observation and the previous action.
    pub enum PreviousInputs {
        /// The extrinsic reward, the intrinsic one and its two parts, and the embedding.
        All = "all",
        /// The extrinsic and the intrinsic reward, as in NGU.
        Rewards = "rewards",
        /// The extrinsic reward, as in R2D2.
        Extrinsic = "extrinsic",
    }
}

config_schema::section! {
    /// Torso: the layers that see the observation.
    pub struct TorsoConfig {
        /// Network for images. Flat observations always get linear layers.
        kind: TorsoKind = TorsoKind::Nfnet, choice::<TorsoKind>().paper();
        /// nfnet: activation.
        activation: Activation = Activation::Relu, choice::<Activation>().silent();
        /// nfnet and resnet: residual stages. The stride is that of the first block of a stage.
        stages: Vec<StageConfig> = stages(&[(2, 64, 1), (3, 128, 2), (4, 128, 2), (4, 64, 2)]),
            rows::<StageConfig>(8).paper();
        /// nfnet: weight of the residual branch of each block.
        alpha: f64 = 0.2, above(0.0, 10.0).silent();
        /// nfnet: width of the squeeze-excite layer as a multiple of the block's channels.
        squeeze_excite_ratio: f64 = 0.5, above(0.0, 8.0).silent();
        /// dqn: convolutions.
        convolutions: Vec<ConvConfig> = atari_convolutions(), rows::<ConvConfig>(8);
        /// dqn: width of the linear layer after the convolutions.
        linear: usize = 512, WIDTH;
        /// Flat observations: widths of the linear layers, in the networks of the intrinsic reward too.
        hidden: Vec<usize> = vec![256, 256], integers(1, 8, 1, WIDEST);
        table stem: StemConfig;
        table stochastic_depth: StochasticDepthConfig;
    }
}

config_schema::choice! {
    /// Network for images.
    pub enum TorsoKind {
        /// Normalizer-free residual network.
        Nfnet = "nfnet",
        /// Residual network with layer norm.
        Resnet = "resnet",
        /// Plain convolutions and a linear layer, as in DQN.
        Dqn = "dqn",
    }
}

config_schema::choice! {
    /// Activation of the normalizer-free torso.
    pub enum Activation {
        /// max(x, 0).
        Relu = "relu",
        /// x Φ(x).
        Gelu = "gelu",
    }
}

config_schema::section! {
    /// nfnet and resnet: first convolution.
    #[derive(Copy, Eq)]
    pub struct StemConfig {
        /// Number of channels.
        channels: usize = 64, integer(1, 4096).silent();
        /// Side of the kernel, an odd number.
        kernel: usize = 7, integer(1, 31).unit("pixels").paper();
        /// Stride.
        stride: usize = 4, integer(1, 16).unit("pixels").paper();
    }
}

config_schema::row! {
    /// One stage of a residual torso.
    pub struct StageConfig {
        /// Number of blocks.
        blocks: usize, 1..=64;
        /// Number of channels.
        channels: usize, 1..=4096;
        /// Stride of the first block.
        stride: usize, 1..=16;
    }
}

config_schema::section! {
    /// nfnet: residual branches dropped during training, the same ones in all steps of a sequence.
    #[derive(Copy)]
    pub struct StochasticDepthConfig {
        /// Largest share of sequences for which a branch is dropped ("Residual Drop Rate").
        rate: f64 = 0.25, below(0.0, 1.0).paper();
        /// Drop rate over the blocks.
        schedule: DropSchedule = DropSchedule::Linear, choice::<DropSchedule>().silent();
        /// For how long an actor holds dropped branches when acting, which approximates Thompson sampling. The paper
        /// tried both.
        acting: HeldMask = HeldMask::Never, choice::<HeldMask>().paper();
        /// acting = steps: number of steps for which an actor holds them.
        acting_steps: usize = 100, integer(1, 1_000_000).unit("agent steps").paper();
    }
}

config_schema::choice! {
    /// For how long an actor holds dropped branches.
    pub enum HeldMask {
        /// Actors drop no branch.
        Never = "never",
        /// For an episode.
        Episode = "episode",
        /// For `acting_steps` steps.
        Steps = "steps",
    }
}

config_schema::choice! {
    /// Drop rate over the blocks.
    pub enum DropSchedule {
        /// From 0 in the first block to the full rate in the last, as in NFNet.
        Linear = "linear",
        /// The full rate in every block.
        Flat = "flat",
    }
}

impl StochasticDepthConfig {
    /// Returns the share of sequences for which block `block` of `blocks` is dropped.
    pub fn block_rate(&self, block: usize, blocks: usize) -> f64 {
        match self.schedule {
            DropSchedule::Flat => self.rate,
            DropSchedule::Linear if blocks > 1 => self.rate * block as f64 / (blocks - 1) as f64,
            DropSchedule::Linear => 0.0,
        }
    }
}

config_schema::row! {
    /// One plain convolution.
    pub struct ConvConfig {
        /// Number of channels.
        channels: usize, 1..=4096;
        /// Side of the kernel.
        kernel: usize, 1..=31;
        /// Stride.
        stride: usize, 1..=16;
        /// Zeros added on every side.
        padding: usize = 0, 0..=16;
    }
}

config_schema::section! {
    /// Networks of the intrinsic reward: action prediction and the RND pair.
    pub struct IntrinsicNetworkConfig {
        /// Convolutions of each network, as in NGU.
        convolutions: Vec<ConvConfig> = atari_convolutions(), rows::<ConvConfig>(8).silent();
        /// Length of the embedding that the episodic memory compares ("AP Embedding Size").
        embedding: usize = 32, WIDTH.paper();
        /// Width of the layer that predicts the action from two embeddings.
        action_hidden: usize = 128, WIDTH.silent();
        /// Length of the output of the RND networks.
        rnd_output: usize = 128, WIDTH.silent();
    }
}

/// Stages as (blocks, channels, stride).
fn stages(stages: &[(usize, usize, usize)]) -> Vec<StageConfig> {
    stages.iter().map(|&(blocks, channels, stride)| StageConfig { blocks, channels, stride }).collect()
}

/// The three convolutions of DQN and NGU.
fn atari_convolutions() -> Vec<ConvConfig> {
    let layers = [(32, 8, 4), (64, 4, 2), (64, 3, 1)];
    layers.map(|(channels, kernel, stride)| ConvConfig { channels, kernel, stride, padding: 0 }).into()
}
