//! Random network distillation: a frozen random network and a predictor of it, trained on the agent's observations.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::layers::{Encoder, EncoderLinear};
use super::parameters::{Layout, Weights};
use crate::config::NetworkConfig;
use crate::error::Result;
use crate::observation::ObservationInput;

/// Description of one of the two networks, which have the same shape.
#[derive(Clone, Debug)]
pub struct RndNet {
    /// Names, shapes and places of the parameters.
    pub layout: Arc<Layout>,
    /// Its layers.
    pub layers: EncoderLinear,
}

impl RndNet {
    fn new(name: &str, config: &NetworkConfig, input: &ObservationInput) -> Self {
        let mut layout = Layout::default();
        let mut scope = layout.scope(name);
        let (convolutions, hidden) = (&config.intrinsic.convolutions, &config.torso.hidden);
        let encoders = Encoder::of_parts(&mut scope, convolutions, hidden, input.parts());
        let layers = EncoderLinear::new(&mut scope, "output", encoders, config.intrinsic.rnd_output as i64);
        Self { layout: Arc::new(layout), layers }
    }
}

/// Descriptions of the frozen target and the trained predictor.
#[derive(Clone, Debug)]
pub struct RndPair {
    /// g.
    pub target: RndNet,
    /// ĝ.
    pub predictor: RndNet,
}

impl RndPair {
    /// Declares the parameters of both networks. The configuration must be valid for these observations.
    pub fn new(config: &NetworkConfig, input: &ObservationInput) -> Self {
        let net = |name| RndNet::new(name, config, input);
        Self { target: net("rnd.target"), predictor: net("rnd.predictor") }
    }

    /// err = ‖ĝ(x) − g(x)‖² for each frame. Appendix "Random Network Distillation".
    ///
    /// Gradients flow only to the predictor.
    pub fn error(&self, target: &Weights, predictor: &Weights, inputs: &[Tensor]) -> Result<Tensor> {
        let expected = self.target.layers.forward(target, inputs)?.f_detach()?;
        let difference = self.predictor.layers.forward(predictor, inputs)?.f_sub(&expected)?;
        Ok(difference.f_square()?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
    }
}
