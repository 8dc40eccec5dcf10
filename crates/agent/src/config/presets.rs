//! Ready-made network descriptions.

use serde::{Deserialize, Serialize};

use super::network::{
    Activation, ConvConfig, DropSchedule, IntrinsicNetworkConfig, NetworkConfig, Precision, StageConfig, StemConfig,
    StochasticDepthConfig, TorsoConfig, TorsoKind,
};

/// The network descriptions that come with the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPreset {
    /// The paper's: 41.6 million parameters at 18 actions.
    Paper,
    /// About a tenth of the paper's cost.
    Desktop,
    /// For the built-in tasks; trains on a CPU.
    Tiny,
}

impl NetworkPreset {
    /// The description.
    pub fn network(self) -> NetworkConfig {
        match self {
            Self::Paper => paper(),
            Self::Desktop => desktop(),
            Self::Tiny => tiny(),
        }
    }
}

fn stages(stages: &[(usize, usize, usize)]) -> Vec<StageConfig> {
    stages.iter().map(|&(blocks, channels, stride)| StageConfig { blocks, channels, stride }).collect()
}

/// Unpadded convolutions as (channels, kernel, stride).
fn convolutions(layers: &[(usize, usize, usize)]) -> Vec<ConvConfig> {
    layers.iter().map(|&(channels, kernel, stride)| ConvConfig { channels, kernel, stride, padding: 0 }).collect()
}

fn paper() -> NetworkConfig {
    let atari = convolutions(&[(32, 8, 4), (64, 4, 2), (64, 3, 1)]);
    NetworkConfig {
        precision: Precision::Auto,
        max_side: None,
        torso: TorsoConfig {
            kind: TorsoKind::Nfnet,
            activation: Activation::Relu,
            stem: StemConfig { channels: 64, kernel: 7, stride: 4 },
            stages: stages(&[(2, 64, 1), (3, 128, 2), (4, 128, 2), (4, 64, 2)]),
            alpha: 0.2,
            squeeze_excite_ratio: 0.5,
            stochastic_depth: StochasticDepthConfig { rate: 0.25, schedule: DropSchedule::Linear },
            convolutions: atari.clone(),
            linear: 512,
            hidden: vec![256, 256],
        },
        action_embedding: 32,
        features: 256,
        recurrent: true,
        core: 1024,
        head_hidden: 1024,
        intrinsic: IntrinsicNetworkConfig { convolutions: atari, embedding: 32, action_hidden: 128, rnd_output: 128 },
    }
}

fn desktop() -> NetworkConfig {
    let paper = paper();
    NetworkConfig {
        torso: TorsoConfig {
            stem: StemConfig { channels: 32, kernel: 7, stride: 4 },
            stages: stages(&[(1, 32, 1), (2, 32, 2), (3, 64, 2), (2, 32, 2)]),
            ..paper.torso
        },
        features: 64,
        core: 512,
        head_hidden: 256,
        ..paper
    }
}

fn tiny() -> NetworkConfig {
    let paper = paper();
    // Padded, so that they fit images of any size.
    let small = vec![
        ConvConfig { channels: 16, kernel: 3, stride: 2, padding: 1 },
        ConvConfig { channels: 16, kernel: 3, stride: 2, padding: 1 },
    ];
    // Every pixel has weights of its own in the layer above: a place not visited yet is not known from its neighbours.
    let fine = vec![ConvConfig { channels: 8, kernel: 3, stride: 1, padding: 1 }];
    NetworkConfig {
        max_side: Some(42),
        torso: TorsoConfig {
            stem: StemConfig { channels: 16, kernel: 3, stride: 2 },
            stages: stages(&[(1, 16, 2), (1, 16, 1)]),
            convolutions: small,
            linear: 128,
            hidden: vec![64, 64],
            ..paper.torso
        },
        action_embedding: 8,
        features: 32,
        core: 128,
        head_hidden: 64,
        intrinsic: IntrinsicNetworkConfig { convolutions: fine, embedding: 32, action_hidden: 64, rnd_output: 64 },
        ..paper
    }
}

impl Default for NetworkConfig {
    fn default() -> Self {
        paper()
    }
}

impl Default for TorsoConfig {
    fn default() -> Self {
        paper().torso
    }
}

impl Default for IntrinsicNetworkConfig {
    fn default() -> Self {
        paper().intrinsic
    }
}
