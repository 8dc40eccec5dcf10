//! What looks at an observation: one of four networks, chosen by the configuration and the observation's shape.

use tch::Tensor;

use super::encoder::{Encoder, EncoderShape};
use super::layers::Window;
use super::parameters::{Scope, Weights};
use super::torso_dqn::Dqn;
use super::torso_nfnet::NfNet;
use super::torso_resnet::ResNet;
use crate::config::{StemConfig, TorsoConfig, TorsoKind};
use crate::error::Result;
use crate::observation::InputShape;

/// The network that looks at an observation.
#[derive(Clone, Debug)]
pub enum Torso {
    /// Normalizer-free residual network.
    NfNet(NfNet),
    /// Residual network with layer norm.
    ResNet(ResNet),
    /// Plain convolutions.
    Dqn(Dqn),
    /// Linear layers, for flat observations.
    Mlp(Encoder),
}

impl Torso {
    /// Images get the configured kind, flat observations linear layers.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, input: InputShape) -> Self {
        match (input, config.kind) {
            (InputShape::Flat(_), _) => {
                let shape = EncoderShape { convolutions: &[], hidden: &config.hidden };
                Self::Mlp(Encoder::new(&mut scope, shape, input))
            }
            (_, TorsoKind::Nfnet) => Self::NfNet(NfNet::new(scope, config, input)),
            (_, TorsoKind::Resnet) => Self::ResNet(ResNet::new(scope, config, input)),
            (_, TorsoKind::Dqn) => Self::Dqn(Dqn::new(scope, config, input)),
        }
    }

    /// Number of values that come out.
    pub fn outputs(&self) -> i64 {
        match self {
            Self::NfNet(net) => net.outputs(),
            Self::ResNet(net) => net.outputs(),
            Self::Dqn(net) => net.outputs(),
            Self::Mlp(net) => net.outputs(),
        }
    }

    /// Number of residual blocks that stochastic depth applies to.
    pub fn droppable_blocks(&self) -> usize {
        match self {
            Self::NfNet(net) => net.blocks(),
            _ => 0,
        }
    }

    /// Operations of one forward pass of one frame.
    pub fn flops(&self) -> f64 {
        match self {
            Self::NfNet(net) => net.flops(),
            Self::ResNet(net) => net.flops(),
            Self::Dqn(net) => net.flops(),
            Self::Mlp(net) => net.flops(),
        }
    }

    /// Derives from the parameters what a pass needs.
    pub fn prepare(&self, weights: &mut Weights) -> Result<()> {
        match self {
            Self::NfNet(net) => net.prepare(weights),
            _ => Ok(()),
        }
    }

    /// `[frames, ..]` as prepared from observations to `[frames, outputs]`; `keep` is `[blocks, frames]`.
    pub fn forward(&self, weights: &Weights, input: &Tensor, keep: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::NfNet(net) => net.forward(weights, input, keep),
            Self::ResNet(net) => net.forward(weights, input),
            Self::Dqn(net) => net.forward(weights, input),
            Self::Mlp(net) => net.forward(weights, input),
        }
    }
}

impl StemConfig {
    /// Kernel, stride and padding.
    pub fn window(&self) -> Window {
        Window::same(self.kernel as i64, self.stride as i64)
    }
}
