//! Inputs besides the observation: the previous action, rewards and action prediction embedding.

use tch::{Kind, Tensor};

use super::layers::{LayerInit, Linear};
use super::parameters::{Init, ParameterId, Scope, Weights};
use crate::config::NetworkConfig;
use crate::error::Result;
use crate::rescaling::rescale;

/// Number of rewards among the features.
pub const REWARDS: i64 = 4;

/// Previous action, rewards and action prediction embedding.
#[derive(Debug)]
pub struct FeatureInput {
    /// a_{t-1}, `[frames]`, i64.
    pub action: Tensor,
    /// r_e, r_NGU, its RND part and its episodic part, `[frames, 4]`, not rescaled.
    pub rewards: Tensor,
    /// f(x_{t-1}), `[frames, embedding]`.
    pub embedding: Tensor,
}

/// A linear layer over the features.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    action_embedding: ParameterId,
    linear: Linear,
    /// Number of output values.
    pub outputs: i64,
}

impl Features {
    /// Declares `action_embedding` and `linear`.
    pub fn new(mut scope: Scope<'_>, config: &NetworkConfig, actions: i64) -> Self {
        let (width, outputs) = (config.action_embedding as i64, config.features as i64);
        let inputs = width + REWARDS + config.intrinsic.embedding as i64;
        let shape = [actions, width];
        Self {
            action_embedding: scope.scope("action_embedding").declare("weight", &shape, Init::Normal { std: 1.0 }),
            linear: Linear::new(scope.scope("linear"), inputs, outputs, LayerInit::FanIn),
            outputs,
        }
    }

    /// Weight and bias over the one-hot action, the rescaled rewards and the embedding, with the action embedding folded
    /// in.
    pub fn fold(&self, weights: &Weights) -> Result<[Tensor; 2]> {
        let [weight, bias] = self.linear.parameters.map(|id| weights.get(id));
        let (columns, embedding) = (weight.size()[1], weights.get(self.action_embedding));
        let width = embedding.size()[1];
        let action = weight.f_narrow(1, 0, width)?.f_mm(&embedding.f_transpose(0, 1)?)?;
        Ok([Tensor::f_cat(&[action, weight.f_narrow(1, width, columns - width)?], 1)?, bias.shallow_clone()])
    }

    /// `[frames, outputs]`. Rewards are rescaled by h, so that large scores do not dominate.
    pub fn forward(&self, weights: &Weights, input: &FeatureInput) -> Result<Tensor> {
        let action = Tensor::f_embedding(weights.get(self.action_embedding), &input.action, -1, false, false)?;
        let embedding = input.embedding.f_to_kind(Kind::Float)?;
        let features = Tensor::f_cat(&[action, rescale(&input.rewards)?, embedding], 1)?;
        Ok(self.linear.forward(weights, &features)?.f_relu()?)
    }
}
