//! The value and policy network: torso, features, core and heads.

mod step;

use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use torch_ext::nf_torso::{Kept, NfTorso};

use super::core::Core;
use super::features::{FeatureInput, Features};
use super::heads::{HeadOutputs, HeadSizes, Heads};
use super::parameters::{Layout, ParameterSet, Weights};
use super::torso::{Torso, TorsoLayers};
use crate::config::{AgentConfig, Precision};
use crate::error::Result;
use crate::observation::{InputShape, ObservationInput};

pub use step::{StepInput, StepOutput, StepWeights};

/// Description of the value and policy network.
#[derive(Clone, Debug)]
pub struct AgentNet {
    /// Names, shapes and places of the parameters.
    pub layout: Arc<Layout>,
    /// Conversion of observations to its input.
    pub input: ObservationInput,
    torso: Torso,
    features: Features,
    core: Core,
    heads: Heads,
    compute: Compute,
}

/// How the network computes.
#[derive(Clone, Debug)]
enum Compute {
    /// In f32 with libtorch's operations, on any device: the reference.
    Plain,
    /// In 16 bits with f32 master weights and f32 outputs, on a GPU.
    Mixed {
        /// The torso's fused kernels, where they support its shape.
        torso: Option<NfTorso>,
    },
}

/// Input of the network: concatenated sequences of equal length.
#[derive(Debug)]
pub struct NetInput {
    /// Observations as uploaded, `[batch · steps, values]`.
    pub observations: Tensor,
    /// The other features, `[batch · steps, ..]`.
    pub features: FeatureInput,
    /// Recurrent state before the first step, `[batch, state]`.
    pub state: Tensor,
}

/// Output of the network.
#[derive(Debug)]
pub struct NetOutput {
    /// Values and logits, each `[batch, steps, policies, actions]`.
    pub heads: HeadOutputs,
    /// Recurrent state after the last step, `[batch, state]`.
    pub state: Tensor,
}

/// Intermediate outputs of a forward pass, each `[batch, steps, ..]`.
#[derive(Debug)]
pub struct NetStages {
    /// Output of the torso.
    pub torso: Tensor,
    /// Output of the features' layer.
    pub features: Tensor,
    /// Output of the core.
    pub core: Tensor,
    /// Recurrent state after the last step, `[batch, state]`.
    pub state: Tensor,
}

impl AgentNet {
    /// Declares all parameters. The configuration must be valid for these observations.
    pub fn new(config: &AgentConfig, input: ObservationInput, actions: usize) -> Self {
        let network = &config.network;
        let mut layout = Layout::default();
        let torso = Torso::new(layout.scope("torso"), &network.torso, input.shape());
        let features = Features::new(layout.scope("features"), network, actions as i64);
        let core_inputs = torso.outputs + features.outputs;
        let core = Core::new(&mut layout, network.recurrent, core_inputs, network.core as i64);
        let sizes = HeadSizes {
            inputs: core_inputs + core.width(),
            hidden: network.head_hidden as i64,
            policies: config.policies.count as i64,
            actions: actions as i64,
        };
        let heads = Heads::new(layout.scope("heads"), sizes, &config.loss);
        Self { layout: Arc::new(layout), input, torso, features, core, heads, compute: Compute::Plain }
    }

    /// The network set up for a device: with fused kernels and 16 bits on a GPU, unless `precision` is f32.
    pub fn on(mut self, precision: Precision, device: Device) -> Result<Self> {
        if precision == Precision::F32 || !device.is_cuda() || !torch_ext::available() {
            return Ok(self);
        }
        torch_ext::prefer_speed()?;
        let spec = match (&self.torso.layers, self.input.shape()) {
            (TorsoLayers::NfNet(net), InputShape::Image(image)) if self.input.takes_bytes() => {
                net.fused_spec(&self.layout, image)
            }
            _ => None,
        };
        let spec = spec.filter(|spec| spec.unsupported().is_none());
        let torso = spec.map(|spec| NfTorso::new(&spec, device)).transpose()?;
        self.compute = Compute::Mixed { torso };
        Ok(self)
    }

    /// Whether it computes in 16 bits.
    pub fn is_mixed(&self) -> bool {
        matches!(self.compute, Compute::Mixed { .. })
    }

    /// Length of the recurrent state.
    pub fn state_length(&self) -> usize {
        self.core.state_length() as usize
    }

    /// Number of residual blocks that stochastic depth applies to.
    pub fn droppable_blocks(&self) -> usize {
        self.torso.droppable_blocks()
    }

    /// The parameters as a forward pass uses them. Gradients flow to trainable parameters.
    pub fn prepare(&self, parameters: &ParameterSet) -> Result<Weights> {
        let mut weights = parameters.weights();
        match &self.compute {
            Compute::Plain => self.torso.prepare(&mut weights)?,
            Compute::Mixed { torso } => {
                match torso {
                    Some(torso) => weights.packed.torso = Some(torso.prepare(&weights.flat)?),
                    None => self.torso.prepare(&mut weights)?,
                }
                self.core.pack(&mut weights)?;
                self.heads.convert(&mut weights, Kind::BFloat16)?;
            }
        }
        Ok(weights)
    }

    /// The stochastic-depth mask of a forward pass over sequences of `steps` observations.
    ///
    /// `keep` is `[blocks, batch]` on the host: 0 where a block is dropped for a sequence, else 1.
    pub fn depth_mask(&self, keep: &Tensor, steps: i64, device: Device) -> Result<DepthMask> {
        if let Compute::Mixed { torso: Some(_) } = &self.compute {
            let rows: Vec<Vec<f32>> = Vec::try_from(keep)?;
            let rows: Vec<Vec<bool>> = rows.iter().map(|row| row.iter().map(|&kept| kept != 0.0).collect()).collect();
            return Ok(DepthMask::Fused(Kept::new(&rows, steps as usize, device)?));
        }
        let frames = keep.size()[1] * steps;
        Ok(DepthMask::Plain(keep.f_to_device(device)?.f_repeat_interleave_self_int(steps, 1, frames)?))
    }

    /// Forward pass over whole sequences.
    pub fn unroll(&self, weights: &Weights, input: &NetInput, mask: Option<&DepthMask>) -> Result<NetOutput> {
        self.unroll_from(weights, input, self.torso(weights, input, mask)?)
    }

    /// Output of the torso for whole sequences, `[batch, steps, outputs]`.
    pub fn torso(&self, weights: &Weights, input: &NetInput, mask: Option<&DepthMask>) -> Result<Tensor> {
        let batch = input.state.size()[0];
        let steps = if batch == 0 { 0 } else { input.observations.size()[0] / batch };
        Ok(self.torso_of_frames(weights, &input.observations, mask)?.f_view([batch, steps, -1])?)
    }

    /// The rest of a forward pass, from the output of the torso.
    pub fn unroll_from(&self, weights: &Weights, input: &NetInput, torso: Tensor) -> Result<NetOutput> {
        let stages = self.stages(weights, input, torso)?;
        let heads = self.heads.forward(weights, &Tensor::f_cat(&[stages.core, stages.torso, stages.features], -1)?)?;
        Ok(NetOutput { heads, state: stages.state })
    }

    /// Everything between the torso and the heads.
    pub fn stages(&self, weights: &Weights, input: &NetInput, torso: Tensor) -> Result<NetStages> {
        let (batch, steps, _) = torso.size3()?;
        let features = self.features.forward(weights, &input.features)?.f_view([batch, steps, -1])?;
        let features = features.f_to_kind(torso.kind())?;
        let inputs = Tensor::f_cat(&[&torso, &features], -1)?;
        let (core, state) = self.core.forward(weights, &inputs, &input.state)?;
        Ok(NetStages { torso, features, core, state })
    }

    /// `[frames, outputs]`, in bf16 with mixed precision.
    fn torso_of_frames(&self, weights: &Weights, observations: &Tensor, mask: Option<&DepthMask>) -> Result<Tensor> {
        if let (Compute::Mixed { torso: Some(torso) }, Some(packed)) = (&self.compute, &weights.packed.torso) {
            let kept = mask.and_then(DepthMask::fused);
            let own: Vec<_> = weights.first(torso.parameters()).iter().collect();
            return Ok(torso.forward(&weights.flat, packed, &own, observations, kept)?);
        }
        let output =
            self.torso.forward(weights, &self.input.prepare(observations)?, mask.and_then(DepthMask::plain))?;
        match self.compute {
            Compute::Plain => Ok(output),
            Compute::Mixed { .. } => Ok(output.f_to_kind(Kind::BFloat16)?),
        }
    }
}

/// Stochastic-depth mask of [`AgentNet::depth_mask`]: the blocks to compute for each sequence.
#[derive(Debug)]
pub enum DepthMask {
    /// For the fused torso.
    Fused(Kept),
    /// `[blocks, frames]` of 0 and 1.
    Plain(Tensor),
}

impl DepthMask {
    fn fused(&self) -> Option<&Kept> {
        if let Self::Fused(kept) = self { Some(kept) } else { None }
    }

    fn plain(&self) -> Option<&Tensor> {
        if let Self::Plain(keep) = self { Some(keep) } else { None }
    }

    /// Uninitialised memory of the same size.
    pub fn room(&self) -> Result<Self> {
        Ok(match self {
            Self::Fused(kept) => Self::Fused(kept.room()?),
            Self::Plain(keep) => Self::Plain(keep.f_empty_like()?),
        })
    }

    /// Copies a mask of the same network in place.
    pub fn copy_from(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Fused(mine), Self::Fused(other)) => mine.take_over(other)?,
            (Self::Plain(mine), Self::Plain(other)) => mine.f_copy_(other)?,
            (Self::Fused(_), Self::Plain(_)) | (Self::Plain(_), Self::Fused(_)) => {
                unreachable!("both are of the same network")
            }
        }
        Ok(())
    }
}
