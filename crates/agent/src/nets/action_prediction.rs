//! The embedding f(x), trained to predict which action led from one observation to the next.

use std::sync::Arc;

use tch::Tensor;

use super::layers::{Encoder, EncoderLinear, LayerInit, Linear};
use super::parameters::{Layout, Weights};
use crate::config::NetworkConfig;
use crate::error::Result;
use crate::observation::ObservationInput;

/// Description of the action prediction network: its embedding ignores what the agent cannot influence.
#[derive(Clone, Debug)]
pub struct ActionPrediction {
    /// Names, shapes and places of the parameters.
    pub layout: Arc<Layout>,
    /// f.
    pub embedding: EncoderLinear,
    hidden: Linear,
    output: Linear,
}

impl ActionPrediction {
    /// Declares all parameters. The configuration must be valid for these observations.
    pub fn new(config: &NetworkConfig, input: &ObservationInput, actions: usize) -> Self {
        let mut layout = Layout::default();
        let mut scope = layout.scope("action_prediction");
        let intrinsic = &config.intrinsic;
        let encoders = Encoder::of_parts(&mut scope, &intrinsic.convolutions, &config.torso.hidden, input.parts());
        let (length, width) = (intrinsic.embedding as i64, intrinsic.action_hidden as i64);
        let embedding = EncoderLinear::new(&mut scope, "embedding", encoders, length);
        let hidden = Linear::new(scope.scope("hidden"), 2 * length, width, LayerInit::BeforeRelu);
        let output = Linear::new(scope.scope("output"), width, actions as i64, LayerInit::FanIn);
        Self { layout: Arc::new(layout), embedding, hidden, output }
    }

    /// f(x): `[frames, ..]` of each part as prepared from observations to `[frames, embedding]`.
    pub fn embed(&self, weights: &Weights, inputs: &[Tensor]) -> Result<Tensor> {
        self.embedding.forward(weights, inputs)
    }

    /// Logits of the action between two observations, from their embeddings.
    pub fn predict(&self, weights: &Weights, before: &Tensor, after: &Tensor) -> Result<Tensor> {
        let x = self.hidden.forward(weights, &Tensor::f_cat(&[before, after], -1)?)?.f_relu()?;
        self.output.forward(weights, &x)
    }
}
