//! The whole value and policy network: torso, features, core and heads.

use std::sync::Arc;

use tch::Tensor;

use super::core::Core;
use super::features::{FeatureInput, FeatureSizes, Features};
use super::heads::{HeadOutputs, HeadSizes, Heads};
use super::parameters::{Layout, ParameterSet, Weights};
use super::torso::Torso;
use crate::config::{AgentConfig, QHeads};
use crate::error::Result;
use crate::observation::ObservationInput;

/// Description of the value and policy network; it runs with any set of its parameters.
#[derive(Clone, Debug)]
pub struct AgentNet {
    layout: Arc<Layout>,
    input: ObservationInput,
    torso: Torso,
    features: Features,
    core: Core,
    heads: Heads,
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
        Self { layout: Arc::new(layout), input, torso, features, core, heads }
    }

    /// Names, shapes and places of the parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// How observations become its input.
    pub fn input(&self) -> &ObservationInput {
        &self.input
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
        self.torso.prepare(&mut weights)?;
        Ok(weights)
    }

    /// Runs whole sequences. `keep` is `[blocks, batch]`: 0 where stochastic depth leaves a block out for a sequence.
    pub fn unroll(&self, weights: &Weights, input: &NetInput, keep: Option<&Tensor>) -> Result<NetOutput> {
        let stages = self.stages(weights, input, keep)?;
        let heads = self.heads.forward(weights, &Tensor::f_cat(&[stages.core, stages.torso, stages.features], -1)?)?;
        Ok(NetOutput { heads, state: stages.state })
    }

    /// Everything below the heads.
    pub fn stages(&self, weights: &Weights, input: &NetInput, keep: Option<&Tensor>) -> Result<NetStages> {
        let batch = input.state.size()[0];
        let frames = input.observations.size()[0];
        let steps = if batch == 0 { 0 } else { frames / batch };
        let observations = self.input.prepare(&input.observations)?;
        let keep = match keep {
            Some(keep) => Some(keep.f_repeat_interleave_self_int(steps, 1, frames)?),
            None => None,
        };
        let torso = self.torso.forward(weights, &observations, keep.as_ref())?.f_view([batch, steps, -1])?;
        let features = self.features.forward(weights, &input.features)?.f_view([batch, steps, -1])?;
        let inputs = Tensor::f_cat(&[&torso, &features], -1)?;
        let (core, state) = self.core.forward(weights, &inputs, &input.state)?;
        Ok(NetStages { torso, features, core, state })
    }
}
