//! What is kept of the best evaluation: the averaged parameters, as a safetensors file in a checkpoint of their own, and
//! the bandit that chose who plays with them.

use std::io::Write;

use agent::intrinsic::DistanceMean;
use agent::moments::Moments;
use agent::weights::import;
use agent::{AgentConfig, AgentError, NetworkParameters, Networks, ObservationSpec, TensorFile};
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::error::{Result, TrainError};
use crate::roles::bandit::BanditState;
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointWriter};
use crate::runtime::published_parameters::PublishedParameters;
use crate::saving;

const WEIGHTS: &str = "weights";
const BANDIT: &str = "bandit";

/// Under which the numbers are kept in the file's metadata.
const METADATA: &str = "acting";

/// What acting needs besides the parameters.
#[derive(Serialize, Deserialize)]
struct Numbers {
    updates: u64,
    rnd_errors: Moments,
    distances: DistanceMean,
}

/// A copy of the averaged parameters, the bandit, and the f and d²_m that were played with; writing it need not hold
/// anybody up.
pub struct Copied {
    weights: TensorFile,
    bandit: BanditState,
}

impl Copied {
    /// A copy of these parts, all of the same moment.
    pub fn new(agent: &TrainingAgent) -> Result<Self> {
        let (learner_loop, distances) = (&agent.learner_loop, agent.distances.mean());
        let learner = learner_loop.learner();
        let numbers = Numbers { updates: learner.updates(), rnd_errors: learner.rnd_errors().clone(), distances };
        let mut weights = learner_loop.averaged_weights()?;
        let numbers = serde_json::to_string(&numbers).map_err(|error| broken(error.to_string()))?;
        weights.metadata.insert(METADATA.to_owned(), numbers);
        Ok(Self { weights, bandit: agent.bandit.state() })
    }

    /// Writes the copy as the parts of a checkpoint.
    pub fn write(self, checkpoint: &mut CheckpointWriter) -> Result<(), CheckpointError> {
        let Self { weights, bandit } = self;
        checkpoint.part(WEIGHTS, |mut out: &mut dyn Write| weights.write_to(&mut out))?;
        checkpoint.part(BANDIT, |out| postcard::to_io(&bandit, out).map(drop))
    }
}

/// Whether a checkpoint holds averaged parameters instead of a whole learner.
pub fn are_in(checkpoint: &Checkpoint) -> bool {
    checkpoint.part_names().any(|name| name == WEIGHTS)
}

/// The averaged parameters of a checkpoint, which stand for the online ones too: those were not kept; and d²_m.
pub fn read(
    checkpoint: &Checkpoint,
    config: &AgentConfig,
    observation: &ObservationSpec,
    actions: usize,
    device: Device,
) -> Result<(PublishedParameters, DistanceMean)> {
    let file = TensorFile::read_from(&mut checkpoint.part(WEIGHTS)?)?;
    let numbers = file.metadata.get(METADATA).ok_or_else(|| TrainError::Part {
        part: WEIGHTS,
        reason: "its metadata says nothing about acting".to_owned(),
    })?;
    let Numbers { updates, rnd_errors, distances } =
        serde_json::from_str(numbers).map_err(|error| broken(error.to_string()))?;
    let networks = Networks::new(config, observation, actions)?;
    let parameters = || -> Result<NetworkParameters> {
        let mut parameters = NetworkParameters::zeros(&networks, device)?;
        import(&file, &mut parameters.sets_mut().map(|set| ("", set)))?;
        Ok(parameters)
    };
    Ok((PublishedParameters::new(updates, parameters()?, parameters()?, rnd_errors)?, distances))
}

/// The bandit beside them.
pub fn bandit(checkpoint: &Checkpoint) -> Result<BanditState> {
    saving::decode(checkpoint, BANDIT)
}

fn broken(reason: String) -> AgentError {
    AgentError::Format { what: "numbers beside the weights", reason }
}
