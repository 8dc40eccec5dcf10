//! Losses of the networks behind the intrinsic reward, on the last steps of every sequence.

use tch::{Kind, Tensor};

use crate::batch::BatchTensors;
use crate::error::Result;
use crate::nets::intrinsic_form::IntrinsicForm;
use crate::nets::parameters::ParameterSet;
use crate::networks::{NetworkParameters, Networks};

/// f and RND as a GPU computes them fast.
#[derive(Debug)]
pub struct IntrinsicForms {
    learning: IntrinsicForm,
    acting: IntrinsicForm,
}

impl IntrinsicForms {
    /// Those of networks that have such forms.
    pub fn of(networks: &Networks) -> Option<Self> {
        Some(Self { learning: networks.learned_intrinsic()?, acting: networks.acting_intrinsic()? })
    }
}

/// What both are trained on, of B sequences of K+1 observations.
#[derive(Debug)]
pub struct IntrinsicInput {
    /// As uploaded, `[B · (K+1), values]`, oldest first.
    observations: Tensor,
    /// As in [`RecentSteps`](crate::batch::RecentSteps).
    transitions: Tensor,
    seen: Tensor,
    actions: Tensor,
}

impl IntrinsicInput {
    /// The last steps of a batch.
    pub fn of(batch: &BatchTensors) -> Result<Self> {
        let recent = &batch.recent;
        Ok(Self {
            observations: batch.input.observations.f_index_select(0, &recent.frames)?,
            transitions: recent.transitions.shallow_clone(),
            seen: recent.observations.shallow_clone(),
            actions: recent.actions.shallow_clone(),
        })
    }

    /// Memory for inputs of the same size.
    pub fn room(&self) -> Result<Self> {
        let Self { observations, transitions, seen, actions } = self;
        Ok(Self {
            observations: observations.f_empty_like()?,
            transitions: transitions.f_empty_like()?,
            seen: seen.f_empty_like()?,
            actions: actions.f_empty_like()?,
        })
    }

    /// Takes over another input of the same size in the memory that this one has.
    pub fn take_over(&mut self, other: &Self) -> Result<()> {
        self.observations.f_copy_(&other.observations)?;
        self.transitions.f_copy_(&other.transitions)?;
        self.seen.f_copy_(&other.seen)?;
        Ok(self.actions.f_copy_(&other.actions)?)
    }

    /// B · (K+1) and K.
    pub fn size(&self) -> [i64; 2] {
        [self.observations.size()[0], self.transitions.size()[1]]
    }
}

/// Losses of action prediction and RND.
#[derive(Debug)]
pub struct IntrinsicLoss {
    /// Mean cross-entropy of the actions.
    pub action_prediction: Tensor,
    /// Share of actions that were predicted right.
    pub accuracy: Tensor,
    /// Mean prediction error.
    pub rnd: Tensor,
    /// Mean and mean square of the prediction errors as actors find them, `[2]`.
    rnd_moments: Tensor,
}

impl IntrinsicLoss {
    /// Both losses; gradients flow to the action prediction network and to the RND predictor. With `forms`, computed
    /// in those.
    pub fn evaluate(
        networks: &Networks,
        forms: Option<&IntrinsicForms>,
        parameters: &NetworkParameters,
        input: &IntrinsicInput,
    ) -> Result<Self> {
        let IntrinsicInput { observations, transitions, seen, actions } = input;
        let (sequences, steps) = transitions.size2()?;
        // The first of them only tells what the first action began from.
        let all_but_first = |frames: &Tensor| -> Result<Tensor> {
            let mut each = frames.size();
            each.splice(0..1, [sequences, steps + 1]);
            Ok(frames.f_view(&each[..])?.f_narrow(1, 1, steps)?.f_flatten(0, 1)?)
        };
        let NetworkParameters { action_prediction, rnd_target, rnd_predictor, .. } = parameters;
        let [f_weights, target, predictor] = [action_prediction, rnd_target, rnd_predictor].map(ParameterSet::weights);
        let f = &networks.action_prediction;
        // Novelty is an actor's error by the learner's mean. Errors become so small that they differ from one precision
        // to another, so the mean is of errors as actors find them.
        let (embedding, error, acting_error) = match forms {
            Some(IntrinsicForms { learning, acting }) => {
                let weights = learning.fold([&f_weights, &target, &predictor])?;
                let frames = learning.frames(observations)?;
                let acting_error = tch::no_grad(|| {
                    let frames = all_but_first(&acting.frames(observations)?)?;
                    acting.fold_rnd([&target, &predictor])?.error(&frames)
                })?;
                (weights.f.embed(&frames)?, weights.rnd.error(&all_but_first(&frames)?)?, acting_error)
            }
            None => {
                let frames = networks.input().prepare(observations)?;
                let error = networks.rnd.error(&target, &predictor, &all_but_first(&frames)?)?;
                (f.embed(&f_weights, &frames)?, error.shallow_clone(), error.f_detach()?)
            }
        };

        let embedding = embedding.f_view([sequences, steps + 1, -1])?;
        let (before, after) = (embedding.f_narrow(1, 0, steps)?, embedding.f_narrow(1, 1, steps)?);
        let log_policy = f.predict(&f_weights, &before, &after)?.f_log_softmax(-1, Kind::Float)?;
        let actions = actions.f_view([sequences, steps])?;
        let taken = log_policy.f_gather(-1, &actions.f_unsqueeze(-1)?, false)?.f_squeeze_dim(-1)?;
        let right = log_policy.f_argmax(-1, false)?.f_eq_tensor(&actions)?.f_to_kind(Kind::Float)?;

        let mean = |errors: &Tensor| masked_mean(&errors.f_view([sequences, steps])?, seen);
        Ok(Self {
            action_prediction: masked_mean(&taken, transitions)?.f_neg()?,
            accuracy: masked_mean(&right, transitions)?,
            rnd: mean(&error)?,
            rnd_moments: Tensor::f_stack(&[mean(&acting_error)?, mean(&acting_error.f_square()?)?], 0)?,
        })
    }

    /// Mean and mean square of the prediction errors as actors find them, `[2]`.
    pub fn moments(&self) -> &Tensor {
        &self.rnd_moments
    }

    /// The same numbers, through which no gradients flow any more.
    pub fn detach(&self) -> Result<Self> {
        let (action_prediction, rnd) = (self.action_prediction.f_detach()?, self.rnd.f_detach()?);
        Ok(Self { action_prediction, rnd, ..self.shallow_clone() })
    }

    /// The same tensors.
    pub fn shallow_clone(&self) -> Self {
        let Self { action_prediction, accuracy, rnd, rnd_moments } = self;
        Self {
            action_prediction: action_prediction.shallow_clone(),
            accuracy: accuracy.shallow_clone(),
            rnd: rnd.shallow_clone(),
            rnd_moments: rnd_moments.shallow_clone(),
        }
    }
}

/// Mean of the values whose mask is 1.
fn masked_mean(values: &Tensor, mask: &Tensor) -> Result<Tensor> {
    Ok(values.f_mul(mask)?.f_sum(Kind::Float)?.f_div(&mask.f_sum(Kind::Float)?)?)
}
