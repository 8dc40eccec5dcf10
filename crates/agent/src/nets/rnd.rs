//! Random network distillation: a frozen random network and one that learns to predict it where it has been.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::encoder::{Encoder, EncoderShape};
use super::layers::Linear;
use super::parameters::{Layout, Weights};
use crate::config::NetworkConfig;
use crate::error::Result;
use crate::observation::InputShape;

/// Description of one of the two networks, which are of the same shape.
#[derive(Clone, Debug)]
struct RndNet {
    layout: Arc<Layout>,
    encoder: Encoder,
    output: Linear,
}

impl RndNet {
    fn new(name: &str, config: &NetworkConfig, input: InputShape) -> Self {
        let mut layout = Layout::default();
        let mut scope = layout.scope(name);
        let shape = EncoderShape { convolutions: &config.intrinsic.convolutions, hidden: &config.torso.hidden };
        let encoder = Encoder::new(&mut scope, shape, input);
        let outputs = config.intrinsic.rnd_output as i64;
        let output = Linear::new(scope.scope("output"), encoder.outputs(), outputs);
        Self { layout: Arc::new(layout), encoder, output }
    }

    fn forward(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        self.output.forward(weights, &self.encoder.forward(weights, input)?)
    }
}

/// Description of the frozen target and the trained predictor.
#[derive(Clone, Debug)]
pub struct RndPair {
    target: RndNet,
    predictor: RndNet,
}

impl RndPair {
    /// Declares both networks' parameters. The configuration has passed validation for these observations.
    pub fn new(config: &NetworkConfig, input: InputShape) -> Self {
        Self {
            target: RndNet::new("rnd.target", config, input),
            predictor: RndNet::new("rnd.predictor", config, input),
        }
    }

    /// The target's parameters.
    pub fn target_layout(&self) -> &Arc<Layout> {
        &self.target.layout
    }

    /// The predictor's parameters.
    pub fn predictor_layout(&self) -> &Arc<Layout> {
        &self.predictor.layout
    }

    /// Encoders and output layers of the target and of the predictor.
    pub fn layers(&self) -> [(&Encoder, Linear); 2] {
        [&self.target, &self.predictor].map(|net| (&net.encoder, net.output))
    }

    /// g(x), `[frames, ..]` as prepared from observations to `[frames, outputs]`.
    pub fn target(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        self.target.forward(weights, input)
    }

    /// ĝ(x), likewise.
    pub fn predictor(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        self.predictor.forward(weights, input)
    }

    /// ‖ĝ(x) - g(x)‖² for each frame. Gradients flow to the predictor alone.
    pub fn error(&self, target: &Weights, predictor: &Weights, input: &Tensor) -> Result<Tensor> {
        let expected = self.target(target, input)?.f_detach()?;
        let difference = self.predictor(predictor, input)?.f_sub(&expected)?;
        Ok(difference.f_square()?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
    }
}
