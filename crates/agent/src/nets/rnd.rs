//! Random network distillation: a frozen random network and a predictor of it, trained on the agent's observations.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::layers::{Encoder, EncoderLinear};
use super::parameters::{Layout, Weights};
use crate::config::NetworkConfig;
use crate::error::Result;
use crate::observation::InputShape;

/// Description of one of the two networks, which have the same shape.
#[derive(Clone, Debug)]
pub struct RndNet {
    /// Names, shapes and places of the parameters.
    pub layout: Arc<Layout>,
    /// Its layers.
    pub layers: EncoderLinear,
}

impl RndNet {
    fn new(name: &str, config: &NetworkConfig, input: InputShape) -> Self {
        let mut layout = Layout::default();
        let mut scope = layout.scope(name);
        let encoder = Encoder::new(&mut scope, &config.intrinsic.convolutions, &config.torso.hidden, input);
        let layers = EncoderLinear::new(&mut scope, "output", encoder, config.intrinsic.rnd_output as i64);
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
    pub fn new(config: &NetworkConfig, input: InputShape) -> Self {
        let net = |name| RndNet::new(name, config, input);
        Self { target: net("rnd.target"), predictor: net("rnd.predictor") }
    }

    /// err = ‖ĝ(x) − g(x)‖² for each frame. Appendix "Random Network Distillation".
    ///
    /// Gradients flow only to the predictor.
    pub fn error(&self, target: &Weights, predictor: &Weights, input: &Tensor) -> Result<Tensor> {
        let expected = self.target.layers.forward(target, input)?.f_detach()?;
        let difference = self.predictor.layers.forward(predictor, input)?.f_sub(&expected)?;
        Ok(difference.f_square()?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
    }
}
