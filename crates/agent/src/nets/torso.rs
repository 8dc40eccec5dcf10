//! The torso, which processes an observation: one of four networks.

use tch::Tensor;

use super::layers::{Encoder, EncoderLinear};
use super::parameters::{Scope, Weights};
use super::torso_nfnet::NfNet;
use super::torso_resnet::ResNet;
use crate::config::{TorsoConfig, TorsoKind};
use crate::error::Result;
use crate::observation::InputShape;

/// The network that processes an observation.
#[derive(Clone, Debug)]
pub struct Torso {
    /// Its layers.
    pub layers: TorsoLayers,
    /// Number of output values.
    pub outputs: i64,
}

/// Layers of a torso.
#[derive(Clone, Debug)]
pub enum TorsoLayers {
    /// Normalizer-free residual network.
    NfNet(NfNet),
    /// Residual network with layer norm.
    ResNet(ResNet),
    /// The plain convolutions of DQN and one linear layer with a relu.
    Dqn(EncoderLinear),
    /// Linear layers, for flat observations.
    Mlp(Encoder),
}

impl Torso {
    /// Declares the configured network for images, linear layers for flat observations.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, input: InputShape) -> Self {
        let (layers, outputs) = match (input, config.kind) {
            (InputShape::Image(mut image), TorsoKind::Nfnet) => {
                (TorsoLayers::NfNet(NfNet::new(scope, config, &mut image)), image.values())
            }
            (InputShape::Image(mut image), TorsoKind::Resnet) => {
                (TorsoLayers::ResNet(ResNet::new(scope, config, &mut image)), image.values())
            }
            (InputShape::Image(_), TorsoKind::Dqn) => {
                let (encoder, outputs) =
                    (Encoder::new(&mut scope, &config.convolutions, &[], input), config.linear as i64);
                (TorsoLayers::Dqn(EncoderLinear::new(&mut scope, "linear", encoder, outputs)), outputs)
            }
            (InputShape::Flat(_), _) => {
                let encoder = Encoder::new(&mut scope, &[], &config.hidden, input);
                let outputs = encoder.outputs;
                (TorsoLayers::Mlp(encoder), outputs)
            }
        };
        Self { layers, outputs }
    }

    /// Number of residual blocks that stochastic depth applies to.
    pub fn droppable_blocks(&self) -> usize {
        if let TorsoLayers::NfNet(net) = &self.layers { net.blocks() } else { 0 }
    }

    /// Derives the weights of a forward pass.
    pub fn prepare(&self, weights: &mut Weights) -> Result<()> {
        if let TorsoLayers::NfNet(net) = &self.layers { net.prepare(weights) } else { Ok(()) }
    }

    /// `[frames, ..]` as prepared from observations to `[frames, outputs]`; `keep` is `[blocks, frames]`.
    pub fn forward(&self, weights: &Weights, input: &Tensor, keep: Option<&Tensor>) -> Result<Tensor> {
        match &self.layers {
            TorsoLayers::NfNet(net) => net.forward(weights, input, keep),
            TorsoLayers::ResNet(net) => net.forward(weights, input),
            TorsoLayers::Dqn(net) => Ok(net.forward(weights, input)?.f_relu()?),
            TorsoLayers::Mlp(net) => net.forward(weights, input),
        }
    }
}

/// A residual block of a configured torso.
pub(super) struct BlockPlan {
    /// Prefix of its parameters.
    pub name: String,
    pub channels: i64,
    pub stride: i64,
    /// Whether it is the first of its stage.
    pub first: bool,
}

/// The residual blocks of all stages, in order.
pub(super) fn block_plans(config: &TorsoConfig) -> impl Iterator<Item = BlockPlan> {
    config.stages.iter().enumerate().flat_map(|(s, stage)| {
        (0..stage.blocks).map(move |b| BlockPlan {
            name: format!("stage{s}.block{b}"),
            channels: stage.channels as i64,
            stride: if b == 0 { stage.stride as i64 } else { 1 },
            first: b == 0,
        })
    })
}
