//! Saving and restoring a learner: what continues from a saved state continues bit for bit.

use serde::{Deserialize, Serialize};
use tch::Device;

use super::{Learner, Training};
use crate::Random;
use crate::config::AgentConfig;
use crate::error::{AgentError, Result};
use crate::loss::TdScale;
use crate::moments::Moments;
use crate::nets::parameters::ParameterSet;
use crate::observation::ObservationSpec;
use crate::tensor_file::TensorFile;
use crate::weights::{export, import};

/// Under which the numbers beside the tensors are kept.
const METADATA: &str = "learner";

/// Of the layout of the numbers and of the names of the tensors.
const VERSION: u32 = 1;

/// What is not a tensor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    version: u32,
    updates: u64,
    optimizer_steps: [u64; 3],
    td_scales: Vec<TdScale>,
    rnd_errors: Moments,
    random: Random,
}

impl Learner {
    /// A copy of everything that persists, on the host; no update may be under way.
    pub fn save(&self) -> Result<TensorFile> {
        self.expect_idle()?;
        let mut file = TensorFile::default();
        for set in self.online.sets() {
            export(&mut file, "online.", set)?;
        }
        export(&mut file, "target.", self.target.parameters())?;
        export(&mut file, "ema.", &self.ema)?;
        let trainings = [&self.agent, &self.action_prediction, &self.rnd];
        for training in trainings {
            let [first, second] = training.optimizer.moments();
            export(&mut file, "first_moment.", first)?;
            export(&mut file, "second_moment.", second)?;
        }
        let numbers = Numbers {
            version: VERSION,
            updates: self.updates,
            optimizer_steps: trainings.map(|training| training.optimizer.steps()),
            td_scales: self.td_scales.clone(),
            rnd_errors: self.rnd_errors.clone(),
            random: self.random.clone(),
        };
        let numbers = serde_json::to_string(&numbers).map_err(|e| invalid(e.to_string()))?;
        file.metadata.insert(METADATA.to_owned(), numbers);
        Ok(file)
    }

    /// A learner that goes on from a saved one of the same networks.
    pub fn restore(
        config: &AgentConfig,
        observation: &ObservationSpec,
        actions: usize,
        file: &TensorFile,
        device: Device,
    ) -> Result<Self> {
        let numbers = file.metadata.get(METADATA).ok_or_else(|| invalid("it holds no learner".to_owned()))?;
        let numbers: Numbers = serde_json::from_str(numbers).map_err(|e| invalid(e.to_string()))?;
        let mut learner = Self::new(config, observation, actions, 0, device)?;
        if numbers.version != VERSION {
            return Err(invalid(format!("it is of version {}, not {VERSION}", numbers.version)));
        }
        let policies = config.policies.count;
        if numbers.td_scales.len() != learner.td_scales.len()
            || numbers.td_scales.iter().any(|scale| scale.running().len() != policies)
        {
            return Err(invalid("its TD scales are those of other value heads or policies".to_owned()));
        }
        let mut sets: Vec<(&str, &mut ParameterSet)> = vec![];
        sets.extend(learner.online.sets_mut().map(|set| ("online.", set)));
        sets.push(("target.", learner.target.parameters_mut()));
        sets.push(("ema.", &mut learner.ema));
        let trainings: [&mut Training; 3] = [&mut learner.agent, &mut learner.action_prediction, &mut learner.rnd];
        for (training, steps) in trainings.into_iter().zip(numbers.optimizer_steps) {
            training.optimizer.set_steps(steps);
            let [first, second] = training.optimizer.moments_mut();
            sets.extend([("first_moment.", first), ("second_moment.", second)]);
        }
        import(file, &mut sets)?;
        learner.updates = numbers.updates;
        learner.td_scales = numbers.td_scales;
        learner.rnd_errors = numbers.rnd_errors;
        learner.random = numbers.random;
        Ok(learner)
    }
}

fn invalid(reason: String) -> AgentError {
    AgentError::Format { what: "learner state", reason }
}
