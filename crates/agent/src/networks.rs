//! All networks of the agent, and one set of their parameters.

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::Random;
use crate::config::{AgentConfig, PolicyInput, Precision};
use crate::error::Result;
use crate::nets::action_prediction::ActionPrediction;
use crate::nets::agent_net::AgentNet;
use crate::nets::folded_intrinsic::FoldedIntrinsic;
use crate::nets::parameters::{Layout, ParameterSet};
use crate::nets::rnd::RndPair;
use crate::observation::{ObservationInput, ObservationSpec};
use crate::tensor_file::NamedTensors;
use crate::weights::export;

/// Descriptions of all networks of the agent.
#[derive(Clone, Debug)]
pub struct Networks {
    /// Values and policy.
    pub agent: AgentNet,
    /// Embedding of observations.
    pub action_prediction: ActionPrediction,
    /// Novelty of observations.
    pub rnd: RndPair,
    /// Number of actions.
    pub actions: usize,
    /// Number of policies.
    pub policies: usize,
    /// Whether the policy is an input of the network, and not an axis of its outputs.
    pub policy_is_input: bool,
    /// Length of f(x).
    pub embedding_length: usize,
}

impl Networks {
    /// The networks of a configuration for an environment's observations and actions.
    pub fn new(config: &AgentConfig, observation: &ObservationSpec, actions: usize) -> Result<Self> {
        config.validate_for(observation, actions)?;
        let input = ObservationInput::new(observation.clone());
        Ok(Self {
            action_prediction: ActionPrediction::new(&config.network, &input, actions),
            rnd: RndPair::new(&config.network, &input),
            agent: AgentNet::new(config, input, actions),
            actions,
            policies: config.policies.count,
            policy_is_input: config.network.policy_input == PolicyInput::OneHot,
            embedding_length: config.network.intrinsic.embedding,
        })
    }

    /// The same networks, computing as fast as the device can with the configured precision.
    pub fn on(mut self, precision: Precision, device: Device) -> Result<Self> {
        self.agent = self.agent.on(precision, device)?;
        Ok(self)
    }

    /// f and RND for acting on a GPU; `None` in plain f32, or unless observations are one byte image.
    pub fn acting_intrinsic(&self) -> Option<FoldedIntrinsic> {
        self.folded_intrinsic(Kind::Half)
    }

    /// f and RND for learning on a GPU, likewise. Gradients need the range of f32, of which tensor cores read the first
    /// 10 mantissa bits.
    pub fn learning_intrinsic(&self) -> Option<FoldedIntrinsic> {
        self.folded_intrinsic(Kind::Float)
    }

    fn folded_intrinsic(&self, kind: Kind) -> Option<FoldedIntrinsic> {
        let form = || FoldedIntrinsic::new(&self.action_prediction, &self.rnd, self.input(), kind);
        self.agent.is_mixed().then(form).flatten()
    }

    /// Conversion of observations to the networks' input.
    pub fn input(&self) -> &ObservationInput {
        &self.agent.input
    }

    /// Number of policies that the heads have outputs for: all, or one where the policy is an input.
    pub fn head_policies(&self) -> usize {
        if self.policy_is_input { 1 } else { self.policies }
    }

    /// β in a shape that multiplies the heads' outputs `[rows, steps, policies, actions]`.
    ///
    /// β_j `[policies, 1]`, or where the policy is an input, that of each row's policy, `[rows, 1, 1, 1]`.
    pub fn beta_of_heads(&self, beta: &Tensor, policy: &Tensor) -> Result<Tensor> {
        if !self.policy_is_input {
            return Ok(beta.shallow_clone());
        }
        Ok(beta.f_index_select(0, policy)?.f_view([-1, 1, 1, 1])?)
    }

    /// Length of the recurrent state.
    pub fn state_length(&self) -> usize {
        self.agent.state_length()
    }
}

/// One set of parameters of all networks.
#[derive(Debug)]
pub struct NetworkParameters {
    /// Values and policy.
    pub agent: ParameterSet,
    /// Embedding of observations.
    pub action_prediction: ParameterSet,
    /// RND's frozen network.
    pub rnd_target: ParameterSet,
    /// RND's predictor.
    pub rnd_predictor: ParameterSet,
}

impl NetworkParameters {
    /// Fresh parameters.
    pub fn initialised(networks: &Networks, random: &mut Random, device: Device) -> Result<Self> {
        Self::for_each(networks, |layout| ParameterSet::initialised(layout, random, device))
    }

    /// All zero.
    pub fn zeros(networks: &Networks, device: Device) -> Result<Self> {
        Self::for_each(networks, |layout| ParameterSet::zeros(layout, device))
    }

    fn for_each(networks: &Networks, mut set: impl FnMut(&Arc<Layout>) -> Result<ParameterSet>) -> Result<Self> {
        Ok(Self {
            agent: set(&networks.agent.layout)?,
            action_prediction: set(&networks.action_prediction.layout)?,
            rnd_target: set(&networks.rnd.target.layout)?,
            rnd_predictor: set(&networks.rnd.predictor.layout)?,
        })
    }

    /// Copies the values of another set.
    pub fn copy_from(&mut self, other: &Self) -> Result<()> {
        for (mine, theirs) in self.sets_mut().into_iter().zip(other.sets()) {
            mine.copy_from(theirs)?;
        }
        Ok(())
    }

    /// The parameters of the four networks.
    pub fn sets(&self) -> [&ParameterSet; 4] {
        [&self.agent, &self.action_prediction, &self.rnd_target, &self.rnd_predictor]
    }

    /// Adds copies of all parameters, with a prefix before their names.
    pub fn export(&self, tensors: &mut NamedTensors, prefix: &str) -> Result<()> {
        self.sets().into_iter().try_for_each(|set| export(tensors, prefix, set))
    }

    /// The parameters of the four networks, mutable.
    pub fn sets_mut(&mut self) -> [&mut ParameterSet; 4] {
        [&mut self.agent, &mut self.action_prediction, &mut self.rnd_target, &mut self.rnd_predictor]
    }
}
