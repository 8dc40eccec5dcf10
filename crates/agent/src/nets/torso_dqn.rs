//! The plain convolutions of DQN and one linear layer.

use tch::Tensor;

use super::encoder::{Encoder, EncoderShape};
use super::layers::Linear;
use super::parameters::{Scope, Weights};
use crate::config::TorsoConfig;
use crate::error::Result;
use crate::observation::InputShape;

/// The plain convolutional torso.
#[derive(Clone, Debug)]
pub struct Dqn {
    encoder: Encoder,
    linear: Linear,
    outputs: i64,
}

impl Dqn {
    /// Declares the convolutions and `linear`.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, input: InputShape) -> Self {
        let shape = EncoderShape { convolutions: &config.convolutions, hidden: &config.hidden };
        let encoder = Encoder::new(&mut scope, shape, input);
        let outputs = config.linear as i64;
        let linear = Linear::new(scope.scope("linear"), encoder.outputs(), outputs);
        Self { encoder, linear, outputs }
    }

    /// Number of values that come out.
    pub fn outputs(&self) -> i64 {
        self.outputs
    }

    /// Operations of one forward pass of one frame.
    pub fn flops(&self) -> f64 {
        self.encoder.flops() + 2.0 * (self.encoder.outputs() * self.outputs) as f64
    }

    /// `[frames, channels, h, w]` to `[frames, outputs]`.
    pub fn forward(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        let x = self.encoder.forward(weights, input)?;
        Ok(self.linear.forward(weights, &x)?.f_relu()?)
    }
}
