//! Inputs besides the observation: the previous action, rewards and action prediction embedding.

use tch::{Kind, Tensor};

use super::layers::{LayerInit, Linear, linear_relu};
use super::parameters::{Init, ParameterId, Scope, Weights};
use crate::config::{NetworkConfig, PreviousInputs};
use crate::error::Result;
use crate::rescaling::rescale;

/// Number of rewards that come with an observation.
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

/// The inputs as the core sees them: through a linear layer, or as they are.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    layer: Option<FeatureLayer>,
    actions: i64,
    /// The first so many rewards are inputs.
    rewards: i64,
    /// Length of the embedding, or 0 where it is no input.
    embedding: i64,
    /// Number of output values.
    pub outputs: i64,
}

#[derive(Clone, Copy, Debug)]
struct FeatureLayer {
    action_embedding: ParameterId,
    linear: Linear,
}

impl Features {
    /// Declares `action_embedding` and `linear`, if there is a layer.
    pub fn new(mut scope: Scope<'_>, config: &NetworkConfig, actions: i64) -> Self {
        let (rewards, embedding) = match config.inputs {
            PreviousInputs::All => (REWARDS, config.intrinsic.embedding as i64),
            PreviousInputs::Rewards => (2, 0),
            PreviousInputs::Extrinsic => (1, 0),
        };
        let (width, outputs) = (config.action_embedding as i64, config.features as i64);
        if outputs == 0 {
            return Self { layer: None, actions, rewards, embedding, outputs: actions + rewards + embedding };
        }
        let layer = FeatureLayer {
            action_embedding: scope.scope("action_embedding").declare(
                "weight",
                &[actions, width],
                Init::Normal { std: 1.0 },
            ),
            linear: Linear::new(scope.scope("linear"), width + rewards + embedding, outputs, LayerInit::FanIn),
        };
        Self { layer: Some(layer), actions, rewards, embedding, outputs }
    }

    /// `[frames, outputs]`. Rewards are rescaled by h, so that large scores do not dominate.
    pub fn forward(&self, weights: &Weights, input: &FeatureInput) -> Result<Tensor> {
        let mut parts = vec![rescale(&input.rewards.f_narrow(1, 0, self.rewards)?)?];
        if self.embedding > 0 {
            parts.push(input.embedding.f_to_kind(Kind::Float)?);
        }
        match &self.layer {
            Some(layer) => {
                let embedding = weights.get(layer.action_embedding);
                parts.insert(0, Tensor::f_embedding(embedding, &input.action, -1, false, false)?);
                Ok(layer.linear.forward(weights, &Tensor::f_cat(&parts, 1)?)?.f_relu()?)
            }
            None => {
                parts.insert(0, input.action.f_one_hot(self.actions)?.f_to_kind(Kind::Float)?);
                Ok(Tensor::f_cat(&parts, 1)?)
            }
        }
    }

    /// Weights for [`step`](Self::step), over the one-hot action, all rescaled rewards and the embedding.
    pub fn fold(&self, weights: &Weights) -> Result<FoldedFeatures> {
        let Some(layer) = &self.layer else { return Ok(FoldedFeatures(None)) };
        let [weight, bias] = layer.linear.parameters.map(|id| weights.get(id));
        let (columns, embedding) = (weight.size()[1], weights.get(layer.action_embedding));
        let width = embedding.size()[1];
        let action = weight.f_narrow(1, 0, width)?.f_mm(&embedding.f_transpose(0, 1)?)?;
        Ok(FoldedFeatures(Some([
            Tensor::f_cat(&[action, weight.f_narrow(1, width, columns - width)?], 1)?,
            bias.shallow_clone(),
        ])))
    }

    /// `[rows, outputs]` of packed inputs: the one-hot action, all rescaled rewards and the embedding.
    pub fn step(&self, folded: &FoldedFeatures, packed: &Tensor) -> Result<Tensor> {
        // The inputs in use are the first columns, unless some rewards are not among them; then there is no embedding.
        let inputs = packed.f_narrow(1, 0, self.actions + self.rewards + self.embedding)?;
        match &folded.0 {
            Some([weight, bias]) => linear_relu(&inputs, weight, bias),
            None => Ok(inputs),
        }
    }
}

/// Weights of the layer with the action embedding folded in, if there is a layer.
#[derive(Debug)]
pub struct FoldedFeatures(Option<[Tensor; 2]>);

impl FoldedFeatures {
    /// All tensors.
    pub fn tensors(&self) -> Vec<&Tensor> {
        self.0.iter().flatten().collect()
    }
}
