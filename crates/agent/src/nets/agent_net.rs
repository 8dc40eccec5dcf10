//! The whole value and policy network: torso, features, core and heads.

mod step;

use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use torch_ext::nf_torso::{Kept, NfTorso};

use super::core::Core;
use super::features::{FeatureInput, FeatureSizes, Features};
use super::heads::{HeadOutputs, HeadSizes, Heads};
use super::parameters::{Layout, ParameterSet, Weights};
use super::torso::Torso;
use crate::config::{AgentConfig, Precision, QHeads};
use crate::error::Result;
use crate::observation::ObservationInput;

pub use step::{StepInput, StepOutput, StepWeights};

/// Description of the value and policy network; it runs with any set of its parameters.
#[derive(Clone, Debug)]
pub struct AgentNet {
    layout: Arc<Layout>,
    input: ObservationInput,
    torso: Torso,
    features: Features,
    core: Core,
    heads: Heads,
    compute: Compute,
}

/// How the network computes.
#[derive(Clone, Debug)]
enum Compute {
    /// Everything in f32 by libtorch's own operations, on any device: the reference.
    Plain,
    /// In 16 bits with f32 master weights and f32 outputs, on a GPU.
    Mixed {
        /// The torso's kernels, where there are some for its shape.
        torso: Option<NfTorso>,
    },
}

/// What the network is fed: sequences of equal length, one after the other.
#[derive(Debug)]
pub struct NetInput {
    /// Observations as uploaded, `[batch · steps, values]`.
    pub observations: Tensor,
    /// The other features, `[batch · steps, ..]`.
    pub features: FeatureInput,
    /// Recurrent state before the first step, `[batch, state]`.
    pub state: Tensor,
}

/// What the network says.
#[derive(Debug)]
pub struct NetOutput {
    /// Values and logits, each `[batch, steps, policies, actions]`.
    pub heads: HeadOutputs,
    /// Recurrent state after the last step, `[batch, state]`.
    pub state: Tensor,
}

/// The stages of a pass, each `[batch, steps, ..]`.
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
    /// Declares all parameters. The configuration has passed validation for these observations.
    pub fn new(config: &AgentConfig, input: ObservationInput, actions: usize) -> Self {
        let network = &config.network;
        let mut layout = Layout::default();
        let torso = Torso::new(layout.scope("torso"), &network.torso, input.shape());
        let sizes = FeatureSizes {
            actions: actions as i64,
            action_embedding: network.action_embedding as i64,
            embedding: network.intrinsic.embedding as i64,
            outputs: network.features as i64,
        };
        let features = Features::new(layout.scope("features"), sizes);
        let core_inputs = torso.outputs() + features.outputs();
        let core = Core::new(&mut layout, network.recurrent, core_inputs, network.core as i64);
        let sizes = HeadSizes {
            inputs: core_inputs + core.width(),
            hidden: network.head_hidden as i64,
            policies: config.policies.count as i64,
            actions: actions as i64,
        };
        let intrinsic = config.loss.q_heads != QHeads::Single;
        let heads = Heads::new(layout.scope("heads"), sizes, intrinsic, config.loss.distillation);
        Self { layout: Arc::new(layout), input, torso, features, core, heads, compute: Compute::Plain }
    }

    /// The same network, computing as fast as the device can with this precision.
    pub fn on(mut self, precision: Precision, device: Device) -> Result<Self> {
        if precision == Precision::F32 || !device.is_cuda() || !torch_ext::available() {
            return Ok(self);
        }
        torch_ext::prefer_speed()?;
        let bytes = self.input.takes_bytes();
        let spec = match &self.torso {
            Torso::NfNet(net) if bytes => net.fused_spec(&self.layout, self.input.shape()),
            _ => None,
        };
        let torso = match spec.filter(|spec| spec.unsupported().is_none()) {
            Some(spec) => Some(NfTorso::new(&spec, device)?),
            None => None,
        };
        self.compute = Compute::Mixed { torso };
        Ok(self)
    }

    /// Names, shapes and places of the parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// How observations become its input.
    pub fn input(&self) -> &ObservationInput {
        &self.input
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

    /// Operations (multiplications and additions) of one forward pass of one frame, the small layers left out.
    pub fn flops(&self) -> f64 {
        let inputs = self.torso.outputs() + self.features.outputs();
        let width = self.core.width();
        let core = match self.core {
            Core::Lstm(_) => 8 * width * (inputs + width),
            Core::FeedForward { .. } => 2 * width * inputs,
        };
        self.torso.flops() + core as f64 + self.heads.flops()
    }

    /// The parameters as a pass uses them. Gradients flow through it to trainable parameters.
    pub fn prepare(&self, parameters: &ParameterSet) -> Result<Weights> {
        let mut weights = parameters.weights();
        match &self.compute {
            Compute::Plain => self.torso.prepare(&mut weights)?,
            Compute::Mixed { torso } => {
                match torso {
                    Some(torso) => weights.packed.torso = Some(torso.prepare(weights.flat())?),
                    None => self.torso.prepare(&mut weights)?,
                }
                self.core.pack(&mut weights)?;
                self.heads.convert(&mut weights, Kind::BFloat16)?;
            }
        }
        Ok(weights)
    }

    /// Which blocks stochastic depth leaves out, as a pass over sequences of `steps` observations takes it. `keep` is
    /// `[blocks, batch]` on the host: 0 where a block is left out for a sequence.
    pub fn keep(&self, keep: &Tensor, steps: i64, device: Device) -> Result<Keep> {
        if let Compute::Mixed { torso: Some(_) } = &self.compute {
            let rows: Vec<Vec<f32>> = Vec::try_from(keep)?;
            let rows: Vec<Vec<bool>> = rows.iter().map(|row| row.iter().map(|&kept| kept != 0.0).collect()).collect();
            return Ok(Keep::Fused(Kept::new(&rows, steps as usize, device)?));
        }
        let frames = keep.size()[1] * steps;
        Ok(Keep::Plain(keep.f_to_device(device)?.f_repeat_interleave_self_int(steps, 1, frames)?))
    }

    /// Runs whole sequences, without the blocks that are not kept.
    pub fn unroll(&self, weights: &Weights, input: &NetInput, keep: Option<&Keep>) -> Result<NetOutput> {
        self.unroll_from(weights, input, self.torso(weights, input, keep)?)
    }

    /// What the torso says of whole sequences, `[batch, steps, outputs]`: the most work of a pass.
    pub fn torso(&self, weights: &Weights, input: &NetInput, keep: Option<&Keep>) -> Result<Tensor> {
        let batch = input.state.size()[0];
        let steps = if batch == 0 { 0 } else { input.observations.size()[0] / batch };
        Ok(self.torso_of_frames(weights, &input.observations, keep)?.f_view([batch, steps, -1])?)
    }

    /// The rest of a pass, from what the torso says.
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
    fn torso_of_frames(&self, weights: &Weights, observations: &Tensor, keep: Option<&Keep>) -> Result<Tensor> {
        if let (Compute::Mixed { torso: Some(torso) }, Some(packed)) = (&self.compute, &weights.packed.torso) {
            let kept = keep.and_then(Keep::fused);
            let own: Vec<_> = weights.first(torso.parameters()).iter().collect();
            return Ok(torso.forward(weights.flat(), packed, &own, observations, kept)?);
        }
        let output = self.torso.forward(weights, &self.input.prepare(observations)?, keep.and_then(Keep::plain))?;
        match self.compute {
            Compute::Plain => Ok(output),
            Compute::Mixed { .. } => Ok(output.f_to_kind(Kind::BFloat16)?),
        }
    }
}

/// Which blocks a pass computes for which sequences; made by [`AgentNet::keep`].
#[derive(Debug)]
pub enum Keep {
    /// As the fused torso takes it.
    Fused(Kept),
    /// `[blocks, frames]` of 0 and 1.
    Plain(Tensor),
}

impl Keep {
    fn fused(&self) -> Option<&Kept> {
        if let Self::Fused(kept) = self { Some(kept) } else { None }
    }

    fn plain(&self) -> Option<&Tensor> {
        if let Self::Plain(keep) = self { Some(keep) } else { None }
    }

    /// Memory for others of the same size.
    pub fn room(&self) -> Result<Self> {
        Ok(match self {
            Self::Fused(kept) => Self::Fused(kept.room()?),
            Self::Plain(keep) => Self::Plain(keep.f_empty_like()?),
        })
    }

    /// Takes over others of the same network in the memory that these have.
    pub fn take_over(&mut self, other: &Self) -> Result<()> {
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
