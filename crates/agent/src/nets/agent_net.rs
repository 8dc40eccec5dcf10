//! The value and policy network: torso, features, core and heads.

mod step;

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use torch_ext::nf_torso::{Kept, NfTorso, TorsoSpec};

use super::core::Core;
use super::features::{FeatureInput, Features};
use super::heads::{HeadNames, HeadOutputs, HeadSizes, Heads};
use super::parameters::{Layout, ParameterSet, Weights};
use super::torso::{Torso, TorsoLayers};
use crate::config::{AgentConfig, PolicyInput, Precision, QCombination};
use crate::error::Result;
use crate::observation::ObservationInput;

pub use step::{StepInput, StepOutput, StepWeights};

/// Description of the value and policy network: one network, or one for each of two values.
#[derive(Clone, Debug)]
pub struct AgentNet {
    /// Names, shapes and places of the parameters.
    pub layout: Arc<Layout>,
    /// Conversion of observations to its input.
    pub input: ObservationInput,
    /// One, or those of the extrinsic and the intrinsic value.
    networks: Vec<ValueNetwork>,
    /// How the value heads add up to Q_j.
    combination: QCombination,
    /// Whether it computes in 16 bits, with f32 master weights and f32 outputs, on a GPU.
    ///
    /// Otherwise it computes in f32 with libtorch's operations, which is the reference on any device.
    mixed: bool,
}

/// Torso, features, core and heads.
#[derive(Clone, Debug)]
struct ValueNetwork {
    torso: Torso,
    /// The torso's fused kernels, where they support its shape.
    fused: Option<NfTorso>,
    features: Features,
    /// Number of policies that enter the core one-hot; 0 where the heads have outputs for all.
    one_hot: i64,
    core: Core,
    heads: Heads,
    /// Whether the heads see the core's input.
    head_skip: bool,
    /// Numbers of its parameters in the layout, the torso's first.
    parameters: Range<usize>,
    /// Where its parameters begin in the flat buffer.
    start: i64,
}

/// Prefix of the parameters of each network.
const PREFIXES: [&str; 2] = ["", "intrinsic_network."];

impl ValueNetwork {
    /// Declares all parameters of a network.
    fn new(
        layout: &mut Layout,
        prefix: &str,
        config: &AgentConfig,
        input: &ObservationInput,
        actions: usize,
        heads: &HeadNames,
    ) -> Self {
        let network = &config.network;
        let (first, start) = (layout.parameters().len(), layout.length());
        let torso = Torso::new(layout.scope(&format!("{prefix}torso")), &network.torso, input.parts());
        let features = Features::new(layout.scope(&format!("{prefix}features")), network, actions as i64);
        let policies = config.policies.count as i64;
        let (one_hot, outputs) = match network.policy_input {
            PolicyInput::Heads => (0, policies),
            PolicyInput::OneHot => (policies, 1),
        };
        let inputs = torso.outputs + features.outputs + one_hot;
        let core = Core::new(layout, prefix, network.recurrent, inputs, network.core as i64);
        let sizes = HeadSizes {
            inputs: core.width() + if network.head_skip { inputs } else { 0 },
            hidden: network.head_hidden as i64,
            layers: network.head_layers,
            policies: outputs,
            actions: actions as i64,
        };
        let heads = Heads::new(layout.scope(&format!("{prefix}heads")), sizes, heads);
        let parameters = first..layout.parameters().len();
        Self { torso, fused: None, features, one_hot, core, heads, head_skip: network.head_skip, parameters, start }
    }

    /// The torso's fused kernels for a device, where they support its shape.
    fn fuse(&mut self, layout: &Layout, input: &ObservationInput, device: Device) -> Result<()> {
        self.fused = match self.fused_spec(layout, input) {
            Ok(spec) => Some(NfTorso::new(&spec, device)?),
            Err(_) => None,
        };
        Ok(())
    }

    /// The torso for the fused kernels, or why they do not support it.
    fn fused_spec(&self, layout: &Layout, input: &ObservationInput) -> std::result::Result<TorsoSpec, String> {
        let [layers] = &self.torso.parts[..] else { return Err("observations have several parts".to_owned()) };
        let TorsoLayers::NfNet(net) = layers else { return Err("it is not a normalizer-free torso".to_owned()) };
        let Some(image) = input.byte_image() else { return Err("images are not bytes".to_owned()) };
        let spec = net.fused_spec(&layout.parameters()[self.parameters.clone()], layout, image, self.start);
        let spec = spec.ok_or_else(|| "activation or stem has no kernel".to_owned())?;
        spec.unsupported().map_or(Ok(spec), Err)
    }

    /// The part of the flat buffer from this network's parameters on.
    fn flat(&self, weights: &Weights) -> Result<Tensor> {
        Ok(weights.flat.f_narrow(0, self.start, weights.flat.size()[0] - self.start)?)
    }

    /// Derives the torso's weights, as those of network `number`.
    fn prepare_torso(&self, weights: &mut Weights, number: usize) -> Result<()> {
        match &self.fused {
            Some(fused) => weights.packed[number].torso = Some(fused.prepare(&self.flat(weights)?)?),
            None => self.torso.prepare(weights)?,
        }
        Ok(())
    }

    /// `[frames, outputs]`, in bf16 from fused kernels.
    fn torso_of_frames(
        &self,
        weights: &Weights,
        number: usize,
        input: &ObservationInput,
        observations: &Tensor,
        mask: Option<&DepthMask>,
    ) -> Result<Tensor> {
        if let (Some(fused), Some(packed)) = (&self.fused, &weights.packed[number].torso) {
            let kept = mask.and_then(DepthMask::fused);
            let own: Vec<_> = weights.range(self.parameters.start, fused.parameters()).iter().collect();
            return Ok(fused.forward(&self.flat(weights)?, packed, &own, observations, kept)?);
        }
        self.torso.forward(weights, &input.prepare(observations)?, mask.and_then(DepthMask::plain))
    }

    /// Everything between the torso and the heads; `state` is this network's own.
    fn stages(
        &self,
        weights: &Weights,
        number: usize,
        input: &NetInput,
        torso: Tensor,
        state: &Tensor,
        burn_in: i64,
    ) -> Result<NetStages> {
        let (batch, steps, _) = torso.size3()?;
        let features = self.features.forward(weights, &input.features)?.f_view([batch, steps, -1])?;
        let features = features.f_to_kind(torso.kind())?;
        let mut parts = vec![torso.shallow_clone(), features.shallow_clone()];
        if self.one_hot > 0 {
            let policy = input.policy.f_one_hot(self.one_hot)?.f_to_kind(torso.kind())?;
            parts.push(policy.f_unsqueeze(1)?.f_expand([batch, steps, self.one_hot], false)?);
        }
        let inputs = Tensor::f_cat(&parts, -1)?;
        let (core, state) = self.core.forward_after(weights, number, &inputs, state, burn_in)?;
        Ok(NetStages { torso, features, inputs, core, state })
    }
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
    /// The policy that acts in each sequence, `[batch]`, i64.
    pub policy: Tensor,
}

/// Output of the network.
#[derive(Debug)]
pub struct NetOutput {
    /// Values and logits, each `[batch, steps, policies, actions]`; one policy where it is an input.
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
    /// Input of the core.
    pub inputs: Tensor,
    /// Output of the core.
    pub core: Tensor,
    /// Recurrent state after the last step, `[batch, state]`.
    pub state: Tensor,
}

impl AgentNet {
    /// Declares all parameters. The configuration must be valid for these observations.
    pub fn new(config: &AgentConfig, input: ObservationInput, actions: usize) -> Self {
        let mut layout = Layout::default();
        let heads = HeadNames::of(&config.loss, config.network.value_networks);
        let networks = heads.iter().zip(PREFIXES);
        let networks = networks
            .map(|(heads, prefix)| ValueNetwork::new(&mut layout, prefix, config, &input, actions, heads))
            .collect();
        Self { layout: Arc::new(layout), input, networks, combination: config.loss.q_combination, mixed: false }
    }

    /// The network set up for a device: with fused kernels and 16 bits on a GPU, unless `precision` is f32.
    pub fn on(mut self, precision: Precision, device: Device) -> Result<Self> {
        if precision == Precision::F32 || !torch_ext::serves(device) {
            return Ok(self);
        }
        torch_ext::prefer_speed()?;
        for network in &mut self.networks {
            network.fuse(&self.layout, &self.input, device)?;
        }
        self.mixed = true;
        Ok(self)
    }

    /// Returns whether it computes in 16 bits.
    pub fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Returns why each network's torso has no fused GPU kernels, or `None` if it has them.
    ///
    /// Lets machines without a GPU test this.
    #[doc(hidden)]
    pub fn unfused_torsos(&self) -> Vec<Option<String>> {
        self.networks.iter().map(|network| network.fused_spec(&self.layout, &self.input).err()).collect()
    }

    /// Places of each network's parameters in the flat buffer.
    ///
    /// Where they begin, and how many elements they take.
    pub fn parts(&self) -> Vec<(i64, i64)> {
        let ends = self.networks.iter().skip(1).map(|network| network.start).chain([self.layout.length()]);
        self.networks.iter().zip(ends).map(|(network, end)| (network.start, end - network.start)).collect()
    }

    /// Length of the recurrent state, of all networks together.
    pub fn state_length(&self) -> usize {
        self.networks.iter().map(|network| network.core.state_length() as usize).sum()
    }

    /// Number of residual blocks that stochastic depth applies to, in each network.
    pub fn droppable_blocks(&self) -> usize {
        self.networks[0].torso.droppable_blocks()
    }

    /// The parameters as a forward pass uses them. Gradients flow to trainable parameters.
    pub fn prepare(&self, parameters: &ParameterSet) -> Result<Weights> {
        let mut weights = parameters.weights();
        for (number, network) in self.networks.iter().enumerate() {
            network.prepare_torso(&mut weights, number)?;
            if self.mixed {
                network.core.pack(&mut weights, number)?;
                network.heads.convert(&mut weights, Kind::BFloat16)?;
            }
        }
        Ok(weights)
    }

    /// The stochastic-depth mask of a forward pass, for all networks.
    ///
    /// The pass is over sequences of `steps` observations.
    ///
    /// `keep` is `[blocks, batch]` on the host: 0 where a block is dropped for a sequence, else 1.
    pub fn depth_mask(&self, keep: &Tensor, steps: i64, device: Device) -> Result<DepthMask> {
        if self.networks[0].fused.is_some() {
            let rows: Vec<Vec<f32>> = Vec::try_from(keep)?;
            let rows: Vec<Vec<bool>> = rows.iter().map(|row| row.iter().map(|&kept| kept != 0.0).collect()).collect();
            return Ok(DepthMask::Fused(Kept::new(&rows, steps as usize, device)?));
        }
        let frames = keep.size()[1] * steps;
        Ok(DepthMask::Plain(keep.f_to_device(device)?.f_repeat_interleave_self_int(steps, 1, frames)?))
    }

    /// Forward pass over whole sequences.
    pub fn unroll(&self, weights: &Weights, input: &NetInput, mask: Option<&DepthMask>) -> Result<NetOutput> {
        self.unroll_from(weights, input, self.torsos(weights, input, mask)?, 0)
    }

    /// Output of each network's torso for whole sequences, `[batch, steps, outputs]`.
    pub fn torsos(&self, weights: &Weights, input: &NetInput, mask: Option<&DepthMask>) -> Result<Vec<Tensor>> {
        let batch = input.state.size()[0];
        let steps = if batch == 0 { 0 } else { input.observations.size()[0] / batch };
        let torso = |number: usize| -> Result<Tensor> {
            Ok(self.torso_of_frames(weights, number, &input.observations, mask)?.f_view([batch, steps, -1])?)
        };
        (0..self.networks.len()).map(torso).collect()
    }

    /// The rest of a forward pass, from the output of each network's torso. No gradient reaches the first `burn_in`
    /// steps through the recurrent state.
    pub fn unroll_from(
        &self,
        weights: &Weights,
        input: &NetInput,
        torsos: Vec<Tensor>,
        burn_in: i64,
    ) -> Result<NetOutput> {
        let (mut values, mut logits, mut states) = (vec![], None, vec![]);
        for (network, stages) in self.networks.iter().zip(self.stages(weights, input, torsos, burn_in)?) {
            let NetStages { inputs, core, state, .. } = stages;
            let x = if network.head_skip { Tensor::f_cat(&[core, inputs], -1)? } else { core };
            let (own, policy) = network.heads.forward(weights, &x)?;
            values.extend(own);
            logits = logits.or(policy);
            states.push(state);
        }
        let mut values = values.into_iter();
        let Some(extrinsic) = values.next() else { unreachable!("every network has a value head") };
        let heads = HeadOutputs { extrinsic, intrinsic: values.next(), policy: logits, combination: self.combination };
        Ok(NetOutput { heads, state: Tensor::f_cat(&states, 1)? })
    }

    /// Everything between the torso and the heads, of each network.
    pub fn stages(
        &self,
        weights: &Weights,
        input: &NetInput,
        torsos: Vec<Tensor>,
        burn_in: i64,
    ) -> Result<Vec<NetStages>> {
        let mut first = 0;
        let stages = |(number, torso): (usize, Tensor)| {
            let network = &self.networks[number];
            let state = input.state.f_narrow(1, first, network.core.state_length())?;
            first += network.core.state_length();
            network.stages(weights, number, input, torso, &state, burn_in)
        };
        torsos.into_iter().enumerate().map(stages).collect()
    }

    /// `[frames, outputs]` of a network's torso, in bf16 with mixed precision.
    fn torso_of_frames(
        &self,
        weights: &Weights,
        number: usize,
        observations: &Tensor,
        mask: Option<&DepthMask>,
    ) -> Result<Tensor> {
        let output = self.networks[number].torso_of_frames(weights, number, &self.input, observations, mask)?;
        Ok(if self.mixed { output.f_to_kind(Kind::BFloat16)? } else { output })
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
    pub fn empty_like(&self) -> Result<Self> {
        Ok(match self {
            Self::Fused(kept) => Self::Fused(kept.empty_like()?),
            Self::Plain(keep) => Self::Plain(keep.f_empty_like()?),
        })
    }

    /// Copies a mask of the same network in place.
    pub fn copy_from(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Fused(mine), Self::Fused(other)) => mine.copy_from(other)?,
            (Self::Plain(mine), Self::Plain(other)) => mine.f_copy_(other)?,
            (Self::Fused(_), Self::Plain(_)) | (Self::Plain(_), Self::Fused(_)) => {
                unreachable!("both are of the same network")
            }
        }
        Ok(())
    }
}
