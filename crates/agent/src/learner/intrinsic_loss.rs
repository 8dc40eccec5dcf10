//! Losses of the networks behind the intrinsic reward, on the last steps of every sequence.

use tch::{Kind, Tensor};

use crate::batch::BatchTensors;
use crate::error::Result;
use crate::nets::folded_intrinsic::FoldedIntrinsic;
use crate::nets::parameters::ParameterSet;
use crate::networks::{NetworkParameters, Networks};

/// f and RND with folded weights, as a GPU learns them and as it acts with them.
#[derive(Debug)]
pub struct LearnerIntrinsic {
    learning: FoldedIntrinsic,
    acting: FoldedIntrinsic,
}

impl LearnerIntrinsic {
    /// `None` for networks that compute in plain f32, or whose observations are not exactly one byte image.
    pub fn of(networks: &Networks) -> Option<Self> {
        Some(Self { learning: networks.learning_intrinsic()?, acting: networks.acting_intrinsic()? })
    }
}

/// Losses of action prediction and RND.
#[derive(Debug)]
pub struct IntrinsicLoss {
    /// Mean cross-entropy of the actions.
    pub action_prediction: Tensor,
    /// Share of actions that were predicted correctly.
    pub accuracy: Tensor,
    /// Mean prediction error.
    pub rnd: Tensor,
    /// Mean and mean square of the prediction errors as actors compute them, `[2]`.
    pub rnd_moments: Tensor,
}

impl IntrinsicLoss {
    /// Both losses; gradients flow to the action prediction network and to the RND predictor.
    pub fn evaluate(
        networks: &Networks,
        folded: Option<&LearnerIntrinsic>,
        parameters: &NetworkParameters,
        batch: &BatchTensors,
    ) -> Result<Self> {
        let recent = &batch.recent;
        let (sequences, steps) = recent.transitions.size2()?;
        let observations = batch.input.observations.f_index_select(0, &recent.frames)?;
        // The first observation is only where the first action began.
        let all_but_first = |frames: &Tensor| -> Result<Tensor> {
            let mut each = frames.size();
            each.splice(0..1, [sequences, steps + 1]);
            Ok(frames.f_view(&each[..])?.f_narrow(1, 1, steps)?.f_flatten(0, 1)?)
        };
        let NetworkParameters { action_prediction, rnd_target, rnd_predictor, .. } = parameters;
        let [f_weights, target, predictor] = [action_prediction, rnd_target, rnd_predictor].map(ParameterSet::weights);
        let f = &networks.action_prediction;
        // Actors divide their errors by these moments. Errors become so small that they differ between precisions, so the
        // moments are of errors as actors compute them.
        let (embedding, error, acting_error) = match folded {
            Some(LearnerIntrinsic { learning, acting }) => {
                let weights = learning.fold([&f_weights, &target, &predictor])?;
                let frames = learning.frames(&observations)?;
                let acting_error = tch::no_grad(|| {
                    let frames = all_but_first(&acting.frames(&observations)?)?;
                    acting.fold_rnd([&target, &predictor])?.error(&frames)
                })?;
                (weights.f.forward(&frames)?, weights.rnd.error(&all_but_first(&frames)?)?, acting_error)
            }
            None => {
                let frames = networks.input().prepare(&observations)?;
                let later = frames.iter().map(all_but_first).collect::<Result<Vec<_>>>()?;
                let error = networks.rnd.error(&target, &predictor, &later)?;
                (f.embed(&f_weights, &frames)?, error.shallow_clone(), error.f_detach()?)
            }
        };

        let embedding = embedding.f_view([sequences, steps + 1, -1])?;
        let (before, after) = (embedding.f_narrow(1, 0, steps)?, embedding.f_narrow(1, 1, steps)?);
        let log_policy = f.predict(&f_weights, &before, &after)?.f_log_softmax(-1, Kind::Float)?;
        let actions = recent.actions.f_view([sequences, steps])?;
        let taken = log_policy.f_gather(-1, &actions.f_unsqueeze(-1)?, false)?.f_squeeze_dim(-1)?;
        let right = log_policy.f_argmax(-1, false)?.f_eq_tensor(&actions)?.f_to_kind(Kind::Float)?;

        let mean = |errors: &Tensor| masked_mean(&errors.f_view([sequences, steps])?, &recent.observations);
        Ok(Self {
            action_prediction: masked_mean(&taken, &recent.transitions)?.f_neg()?,
            accuracy: masked_mean(&right, &recent.transitions)?,
            rnd: mean(&error)?,
            rnd_moments: Tensor::f_stack(&[mean(&acting_error)?, mean(&acting_error.f_square()?)?], 0)?,
        })
    }
}

/// Mean of the values whose mask is 1.
fn masked_mean(values: &Tensor, mask: &Tensor) -> Result<Tensor> {
    Ok(values.f_mul(mask)?.f_sum(Kind::Float)?.f_div(&mask.f_sum(Kind::Float)?)?)
}
