//! Saving and restoring a learner: a restored learner continues bit for bit.

use serde::{Deserialize, Serialize};
use tch::Device;

use super::{Learner, Training};
use crate::Random;
use crate::config::AgentConfig;
use crate::error::{AgentError, Result, WeightsProblem};
use crate::loss::TdScale;
use crate::moments::Moments;
use crate::nets::parameters::ParameterSet;
use crate::observation::ObservationSpec;
use crate::tensor_file::NamedTensors;
use crate::weights::{export, import, import_fitting, import_some};

/// Prefix of the parameters that the learner updates.
pub const ONLINE: &str = "online.";
/// Prefix of the moving average, and of the other networks that evaluators play with.
pub const AVERAGED: &str = "average.";
/// Prefix of the target network's parameters.
pub const TARGET: &str = "target.";

/// Copy on the host of everything that a learner keeps between updates.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnerState {
    /// Parameters of the online networks, the target network and the average.
    pub weights: NamedTensors,
    /// The optimizers' moments.
    pub optimizer: NamedTensors,
    /// Everything that is not a tensor.
    pub scalars: LearnerScalars,
}

/// The part of a learner's state that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnerScalars {
    updates: u64,
    optimizer_steps: [u64; 3],
    td_scales: Vec<TdScale>,
    rnd_errors: Moments,
    random: Random,
}

impl Learner {
    /// Copies everything that persists to the host; no update may be pending.
    pub fn save(&self) -> Result<LearnerState> {
        self.expect_idle()?;
        let (mut weights, mut optimizer) = (NamedTensors::new(), NamedTensors::new());
        for set in self.online.sets() {
            export(&mut weights, ONLINE, set)?;
        }
        export(&mut weights, TARGET, self.target.parameters())?;
        export(&mut weights, AVERAGED, &self.averaged)?;
        let trainings = [&self.agent, &self.action_prediction, &self.rnd];
        for training in trainings {
            let [first, second] = &training.optimizer.moments;
            export(&mut optimizer, "first_moment.", first)?;
            export(&mut optimizer, "second_moment.", second)?;
        }
        let scalars = LearnerScalars {
            updates: self.finished_updates,
            optimizer_steps: trainings.map(|training| training.optimizer.steps),
            td_scales: self.td_scales.clone(),
            rnd_errors: self.rnd_errors.clone(),
            random: self.random.clone(),
        };
        Ok(LearnerState { weights, optimizer, scalars })
    }

    /// Loads the weights that fit, of the same or another agent, and returns how the others differ. Those that have
    /// only averaged parameters, as the best checkpoint does, are used for the online and target networks as well.
    pub fn load_fitting(&mut self, weights: &NamedTensors) -> Result<Vec<WeightsProblem>> {
        let has = |prefix: &str| weights.keys().any(|name| name.starts_with(prefix));
        let source = |prefix| if has(prefix) { prefix } else { AVERAGED };
        let mut problems = Vec::new();
        for set in self.online.sets_mut() {
            problems.extend(import_fitting(weights, source(ONLINE), set)?);
        }
        // They differ in the same parts.
        import_fitting(weights, source(TARGET), self.target.parameters_mut())?;
        import_fitting(weights, AVERAGED, &mut self.averaged)?;
        Ok(problems)
    }

    /// Number of parts that [`load_fitting`](Self::load_fitting) looks for.
    pub fn parts(&self) -> usize {
        self.online.sets().into_iter().map(|set| set.layout().parameters().len()).sum()
    }

    /// Restores a learner of the same networks. The weights may hold more than the learner's own.
    pub fn restore(
        config: &AgentConfig,
        observation: &ObservationSpec,
        actions: usize,
        state: &LearnerState,
        device: Device,
    ) -> Result<Self> {
        let LearnerState { weights, optimizer, scalars } = state;
        let mut learner = Self::new(config, observation, actions, 0, device)?;
        if scalars.td_scales.len() != learner.td_scales.len()
            || scalars.td_scales.iter().any(|scale| scale.running().len() != config.policies.count)
        {
            let reason = "its TD scales belong to other value heads or policies".to_owned();
            return Err(AgentError::Format { what: "learner state", reason });
        }
        let mut sets: Vec<(&str, &mut ParameterSet)> = vec![];
        sets.extend(learner.online.sets_mut().map(|set| (ONLINE, set)));
        sets.push((TARGET, learner.target.parameters_mut()));
        sets.push((AVERAGED, &mut learner.averaged));
        import_some(weights, &mut sets)?;
        let mut moments: Vec<(&str, &mut ParameterSet)> = vec![];
        let trainings: [&mut Training; 3] = [&mut learner.agent, &mut learner.action_prediction, &mut learner.rnd];
        for (training, &steps) in trainings.into_iter().zip(&scalars.optimizer_steps) {
            training.optimizer.steps = steps;
            let [first, second] = &mut training.optimizer.moments;
            moments.extend([("first_moment.", first), ("second_moment.", second)]);
        }
        import(optimizer, &mut moments)?;
        learner.finished_updates = scalars.updates;
        learner.td_scales = scalars.td_scales.clone();
        learner.rnd_errors = scalars.rnd_errors.clone();
        learner.random = scalars.random.clone();
        Ok(learner)
    }
}
