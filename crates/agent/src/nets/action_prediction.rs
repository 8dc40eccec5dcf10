//! The embedding f(x), trained to tell which action led from one observation to the next.

use std::sync::Arc;

use tch::Tensor;

use super::encoder::{Encoder, EncoderShape};
use super::layers::Linear;
use super::parameters::{Layout, Weights};
use crate::config::NetworkConfig;
use crate::error::Result;
use crate::observation::InputShape;

/// Description of the action prediction network. What it can't tell apart, the agent can't influence.
#[derive(Clone, Debug)]
pub struct ActionPrediction {
    layout: Arc<Layout>,
    encoder: Encoder,
    embedding: Linear,
    hidden: Linear,
    output: Linear,
}

impl ActionPrediction {
    /// Declares all parameters. The configuration has passed validation for these observations.
    pub fn new(config: &NetworkConfig, input: InputShape, actions: usize) -> Self {
        let mut layout = Layout::default();
        let mut scope = layout.scope("action_prediction");
        let intrinsic = &config.intrinsic;
        let shape = EncoderShape { convolutions: &intrinsic.convolutions, hidden: &config.torso.hidden };
        let encoder = Encoder::new(&mut scope, shape, input);
        let (length, hidden) = (intrinsic.embedding as i64, intrinsic.action_hidden as i64);
        let embedding = Linear::new(scope.scope("embedding"), encoder.outputs(), length);
        let hidden_layer = Linear::before_relu(scope.scope("hidden"), 2 * length, hidden);
        let output = Linear::new(scope.scope("output"), hidden, actions as i64);
        Self { layout: Arc::new(layout), encoder, embedding, hidden: hidden_layer, output }
    }

    /// Names, shapes and places of the parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The layers that make f.
    pub fn embedding_layers(&self) -> (&Encoder, Linear) {
        (&self.encoder, self.embedding)
    }

    /// f(x): `[frames, ..]` as prepared from observations to `[frames, embedding]`.
    pub fn embed(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        self.embedding.forward(weights, &self.encoder.forward(weights, input)?)
    }

    /// Logits of the action between two observations, from their embeddings.
    pub fn predict(&self, weights: &Weights, before: &Tensor, after: &Tensor) -> Result<Tensor> {
        let x = self.hidden.forward(weights, &Tensor::f_cat(&[before, after], -1)?)?.f_relu()?;
        self.output.forward(weights, &x)
    }
}
