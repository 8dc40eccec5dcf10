//! The target network: a copy of the online network that is updated every few steps, and the weights derived from it.

use crate::error::Result;
use crate::nets::agent_net::AgentNet;
use crate::nets::parameters::{ParameterSet, Weights};

/// The target network's parameters.
#[derive(Debug)]
pub struct TargetNetwork {
    parameters: ParameterSet,
    /// As a forward pass uses them. They keep their memory, which CUDA graphs read.
    weights: Option<Weights>,
    /// Whether the parameters have changed since the weights were derived.
    changed: bool,
}

impl TargetNetwork {
    /// A target network with these parameters.
    pub fn new(parameters: ParameterSet) -> Self {
        Self { parameters, weights: None, changed: false }
    }

    /// The parameters.
    pub fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// The parameters, to be changed.
    pub fn parameters_mut(&mut self) -> &mut ParameterSet {
        self.changed = true;
        &mut self.parameters
    }

    /// The parameters as a forward pass of `net` uses them.
    pub fn weights(&mut self, net: &AgentNet) -> Result<&Weights> {
        let derive = || tch::no_grad(|| net.prepare(&self.parameters));
        let weights = match self.weights.take() {
            Some(mut weights) => {
                if self.changed {
                    weights.copy_from(&derive()?)?;
                }
                weights
            }
            None => derive()?,
        };
        self.changed = false;
        Ok(self.weights.insert(weights))
    }
}
