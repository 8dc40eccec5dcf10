//! The torso, which processes an observation: for each of its parts, one of four kinds of network.

use tch::Tensor;

use super::layers::{Encoder, EncoderLinear, side_by_side};
use super::parameters::{Scope, Weights};
use super::torso_nfnet::NfNet;
use super::torso_resnet::ResNet;
use crate::config::{TorsoConfig, TorsoKind};
use crate::error::Result;
use crate::observation::{InputPart, InputShape};

/// The networks that process an observation; their outputs follow one another.
#[derive(Clone, Debug)]
pub struct Torso {
    /// The network of each part.
    pub parts: Vec<TorsoLayers>,
    /// Number of output values.
    pub outputs: i64,
}

/// The network that processes one part of an observation.
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
    /// Declares the configured network for each image, linear layers for each vector.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, parts: &[InputPart]) -> Self {
        let part = |part: &InputPart| TorsoLayers::new(scope.part(&part.name), config, part.shape);
        let (parts, outputs): (Vec<_>, Vec<_>) = parts.iter().map(part).unzip();
        Self { parts, outputs: outputs.iter().sum() }
    }

    /// Number of residual blocks that stochastic depth applies to.
    ///
    /// The networks of several images drop the same ones together.
    pub fn droppable_blocks(&self) -> usize {
        let blocks = |layers: &TorsoLayers| if let TorsoLayers::NfNet(net) = layers { net.blocks() } else { 0 };
        self.parts.iter().map(blocks).max().unwrap_or(0)
    }

    /// Derives the weights of a forward pass.
    pub fn prepare(&self, weights: &mut Weights) -> Result<()> {
        for layers in &self.parts {
            if let TorsoLayers::NfNet(net) = layers {
                net.prepare(weights)?;
            }
        }
        Ok(())
    }

    /// Maps each part, `[frames, ..]` as prepared from observations, to `[frames, outputs]`.
    ///
    /// `keep` is `[blocks, frames]`.
    pub fn forward(&self, weights: &Weights, inputs: &[Tensor], keep: Option<&Tensor>) -> Result<Tensor> {
        let outputs = self.parts.iter().zip(inputs).map(|(layers, input)| layers.forward(weights, input, keep));
        side_by_side(outputs.collect::<Result<_>>()?)
    }
}

impl TorsoLayers {
    /// Declares the network for a part of this shape; also returns the number of its outputs.
    fn new(mut scope: Scope<'_>, config: &TorsoConfig, input: InputShape) -> (Self, i64) {
        match (input, config.kind) {
            (InputShape::Image(mut image), TorsoKind::Nfnet) => {
                (Self::NfNet(NfNet::new(scope, config, &mut image)), image.values())
            }
            (InputShape::Image(mut image), TorsoKind::Resnet) => {
                (Self::ResNet(ResNet::new(scope, config, &mut image)), image.values())
            }
            (InputShape::Image(_), TorsoKind::Dqn) => {
                let encoder = Encoder::new(&mut scope, &config.convolutions, &[], input);
                let outputs = config.linear as i64;
                (Self::Dqn(EncoderLinear::new(&mut scope, "linear", vec![encoder], outputs)), outputs)
            }
            (InputShape::Flat(_), _) => {
                let encoder = Encoder::new(&mut scope, &[], &config.hidden, input);
                let outputs = encoder.outputs;
                (Self::Mlp(encoder), outputs)
            }
        }
    }

    fn forward(&self, weights: &Weights, input: &Tensor, keep: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::NfNet(net) => net.forward(weights, input, keep),
            Self::ResNet(net) => net.forward(weights, input),
            Self::Dqn(net) => Ok(net.forward(weights, std::slice::from_ref(input))?.f_relu()?),
            Self::Mlp(net) => net.forward(weights, input),
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
