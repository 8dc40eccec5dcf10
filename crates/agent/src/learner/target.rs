//! The target network: a copy that changes seldom, and what is derived from it.

use crate::error::Result;
use crate::nets::agent_net::AgentNet;
use crate::nets::parameters::{ParameterSet, Weights};

/// Parameters of the target network.
#[derive(Debug)]
pub struct TargetNetwork {
    parameters: ParameterSet,
    /// As a pass uses them; derived anew when they have changed.
    weights: Option<Weights>,
}

impl TargetNetwork {
    /// A target network of these parameters.
    pub fn new(parameters: ParameterSet) -> Self {
        Self { parameters, weights: None }
    }

    /// The parameters.
    pub fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// The parameters, to be changed.
    pub fn parameters_mut(&mut self) -> &mut ParameterSet {
        self.weights = None;
        &mut self.parameters
    }

    /// The parameters as a pass of `net` uses them.
    pub fn weights(&mut self, net: &AgentNet) -> Result<&Weights> {
        let weights = match self.weights.take() {
            Some(weights) => weights,
            None => tch::no_grad(|| net.prepare(&self.parameters))?,
        };
        Ok(self.weights.insert(weights))
    }
}
