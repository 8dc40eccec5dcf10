//! What a checkpoint holds: everything that a run needs to resume as if it had never stopped.
//!
//! | file | contents |
//! |---|---|
//! | `weights.safetensors` | parameters: `online.`, `target.`, and `average.` with all that evaluators play with |
//! | `agent.json` | the other numbers that playing needs: bandit, RND statistics, d²_m |
//! | `learner.safetensors` | the optimizers' moments |
//! | `acting.safetensors` | in lockstep, the parameters that actors and evaluators act with |
//! | `state.bin` | the rest of the learner, recurrent states, environments and episodes |
//! | `remote.bin` | remote environments and their episodes, if there are any |
//! | `metrics.bin` | counters and means behind the metrics |
//! | `replay.bin` | replay |
//! | `final_status.json` | in the last checkpoint of a run, its status |
//!
//! The best checkpoint has `average.` and `agent.json` only.

use std::io::Write;

use agent::learner::{LearnerScalars, LearnerState};
use agent::moments::Moments;
use agent::{NamedTensors, tensor_file};
use envs::EnvSpec;
use replay::{ReplayConfig, Restored, Snapshot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Checkpoint, CheckpointError, CheckpointWriter, Checkpoints};
use crate::error::{Result, TrainError};
use crate::roles::actor::ActorSnapshot;
use crate::roles::bandit::BanditState;
use crate::roles::inference::RecurrentSnapshot;
use crate::roles::published_parameters::{PublishedParameters, PublishedScalars};
use crate::roles::remote_actors::RemoteActorsSnapshot;
use crate::roles::training_agent::{NeighbourDistances, TrainingAgent};
use crate::run::RunFiles;
use crate::runtime::metrics_accumulator::MetricsAccumulator;
use crate::runtime::status::RunStatus;

const WEIGHTS: &str = "weights.safetensors";
const AGENT: &str = "agent.json";
const LEARNER: &str = "learner.safetensors";
const ACTING: &str = "acting.safetensors";
const STATE: &str = "state.bin";
const REMOTE: &str = "remote.bin";
const METRICS: &str = "metrics.bin";
const REPLAY: &str = "replay.bin";
const FINAL_STATUS: &str = "final_status.json";

/// The files that playing does not need.
pub(super) const FOR_TRAINING: [&str; 6] = [LEARNER, ACTING, STATE, REMOTE, METRICS, REPLAY];

/// The numbers that an agent plays with, besides its weights.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentScalars {
    /// Updates that made the weights.
    pub updates: u64,
    /// Updates that made the f of the averaged weights, which is older.
    pub embedding_version: u64,
    /// Running mean and deviation of the RND error.
    pub rnd_errors: Moments,
    /// d²_m of the f that acts.
    pub distances: NeighbourDistances,
    /// The bandit, which chooses the policy.
    pub bandit: BanditState,
    /// What the agent observes and does, for programs that play it outside `meme`.
    #[serde(default)]
    pub environment: Option<EnvSpec>,
}

impl AgentScalars {
    fn of(agent: &TrainingAgent, bandit: BanditState) -> Self {
        let learner = &agent.learner_loop.learner;
        Self {
            updates: learner.updates(),
            embedding_version: agent.learner_loop.embedding_network.version,
            rnd_errors: learner.rnd_errors.clone(),
            distances: agent.distances,
            bandit,
            environment: Some(agent.environment.clone()),
        }
    }
}

/// State of actors, evaluators and inference.
#[derive(Serialize, Deserialize)]
pub struct RoleStates {
    /// The recurrent state of every actor environment.
    pub recurrent: RecurrentSnapshot,
    /// The actors.
    pub actors: Vec<ActorSnapshot>,
    /// The evaluators.
    pub evaluators: EvaluatorStates,
}

/// What a checkpoint keeps of evaluators. An evaluation that is cut off begins again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EvaluatorStates {
    /// Number of episodes that each environment has begun; none of them is played again.
    pub episodes: Vec<u64>,
    /// In lockstep, the steps of all evaluators so far.
    pub steps: u64,
    /// In lockstep, the steps of all roles at which the next evaluation begins.
    pub due: f64,
}

/// The contents of `state.bin`.
#[derive(Serialize, Deserialize)]
pub struct TrainingState {
    learner: LearnerScalars,
    acting: Option<PublishedScalars>,
    /// State of the roles.
    pub roles: RoleStates,
}

/// Copy of everything that a run resumes from, made while all roles pause.
///
/// Writing it does not hold them up.
pub struct TrainingSnapshot {
    /// Emulator frames that the actors had played.
    pub frames: u64,
    weights: NamedTensors,
    agent: AgentScalars,
    optimizer: NamedTensors,
    acting: Option<NamedTensors>,
    state: TrainingState,
    remote: Option<RemoteActorsSnapshot>,
    replay: Snapshot,
    final_status: Option<RunStatus>,
}

impl TrainingSnapshot {
    /// A snapshot of these parts, all of the same moment.
    pub fn new(
        frames: u64,
        agent: &TrainingAgent,
        bandit: BanditState,
        roles: RoleStates,
        replay: Snapshot,
    ) -> Result<Self> {
        let LearnerState { weights, optimizer, scalars } = agent.learner_loop.snapshot()?;
        let state = TrainingState { learner: scalars, acting: None, roles };
        let agent = AgentScalars::of(agent, bandit);
        Ok(Self { frames, weights, agent, optimizer, acting: None, state, remote: None, replay, final_status: None })
    }

    /// Adds the parameters that act, which may be older than the learner's.
    ///
    /// Without them, a resumed run acts with the learner's own and the held f: as good, but not bit for bit the same,
    /// and at full size hundreds of megabytes smaller.
    pub fn with_acting(mut self, published: &PublishedParameters) -> Result<Self> {
        let (tensors, scalars) = published.snapshot()?;
        (self.acting, self.state.acting) = (Some(tensors), Some(scalars));
        Ok(self)
    }

    /// Adds the remote actors, whose writers come after the others in replay.
    pub fn with_remote(self, remote: Option<RemoteActorsSnapshot>) -> Self {
        Self { remote, ..self }
    }

    /// Marks the snapshot as the end of a run with this status. A run at rest has no speed.
    pub fn ending(self, status: &RunStatus) -> Self {
        let (frames_per_second, updates_per_second, seconds_left) = (0.0, 0.0, None);
        let status = RunStatus { frames_per_second, updates_per_second, seconds_left, ..status.clone() };
        Self { final_status: Some(status), ..self }
    }

    /// Writes the snapshot as a checkpoint, with the metrics of the same moment.
    pub fn write(
        &self,
        metrics: &MetricsAccumulator,
        checkpoint: &mut CheckpointWriter,
    ) -> Result<(), CheckpointError> {
        checkpoint.tensors(WEIGHTS, &self.weights)?;
        checkpoint.file(AGENT, |out| serde_json::to_writer_pretty(out, &self.agent))?;
        checkpoint.tensors(LEARNER, &self.optimizer)?;
        if let Some(acting) = &self.acting {
            checkpoint.tensors(ACTING, acting)?;
        }
        if let Some(status) = &self.final_status {
            checkpoint.file(FINAL_STATUS, |out| serde_json::to_writer_pretty(out, status))?;
        }
        checkpoint.file(METRICS, |out| postcard::to_io(metrics, out).map(drop))?;
        checkpoint.file(STATE, |out| postcard::to_io(&self.state, out).map(drop))?;
        if let Some(remote) = &self.remote {
            checkpoint.file(REMOTE, |out| postcard::to_io(remote, out).map(drop))?;
        }
        checkpoint.file(REPLAY, |mut out: &mut dyn Write| self.replay.write_to(&mut out))
    }
}

/// Copy of what the best checkpoint keeps.
///
/// These are the averaged parameters, and the other numbers that playing needs.
pub struct BestSnapshot {
    weights: NamedTensors,
    agent: AgentScalars,
}

impl BestSnapshot {
    /// A snapshot of the agent as evaluators play it.
    pub fn new(agent: &TrainingAgent) -> Result<Self> {
        let weights = agent.learner_loop.averaged_weights()?;
        Ok(Self { weights, agent: AgentScalars::of(agent, agent.bandit.state()) })
    }

    /// Writes the snapshot as a checkpoint.
    pub fn write(&self, checkpoint: &mut CheckpointWriter) -> Result<(), CheckpointError> {
        checkpoint.tensors(WEIGHTS, &self.weights)?;
        checkpoint.file(AGENT, |out| serde_json::to_writer_pretty(out, &self.agent))
    }
}

/// Reads the weights.
pub fn weights(checkpoint: &Checkpoint) -> Result<NamedTensors> {
    tensors(checkpoint, WEIGHTS)
}

/// Reads the numbers that playing needs besides the weights.
pub fn agent(checkpoint: &Checkpoint) -> Result<AgentScalars> {
    decode_json(checkpoint, AGENT)
}

/// Reads what a learner resumes from; the state was read already.
pub fn learner(checkpoint: &Checkpoint, state: &TrainingState) -> Result<LearnerState> {
    let (weights, optimizer) = (weights(checkpoint)?, tensors(checkpoint, LEARNER)?);
    Ok(LearnerState { weights, optimizer, scalars: state.learner.clone() })
}

/// Restores the parameters that acted, if they were saved.
pub fn restore_acting(
    checkpoint: &Checkpoint,
    state: &TrainingState,
    published: &mut PublishedParameters,
) -> Result<()> {
    match &state.acting {
        Some(scalars) => published.restore(&tensors(checkpoint, ACTING)?, scalars.clone()),
        None => Ok(()),
    }
}

/// Reads the state of the roles and of the learner.
pub fn state(checkpoint: &Checkpoint) -> Result<TrainingState> {
    decode(checkpoint, STATE)
}

/// Restores replay and its writers, in the order of the actors' environments.
pub fn replay(checkpoint: &Checkpoint, config: &ReplayConfig) -> Result<Restored> {
    let restored = Snapshot::restore_from(checkpoint.file(REPLAY)?, config);
    restored.map_err(|error| invalid(REPLAY, error.to_string()))
}

/// Reads the remote actors; none if the run had none.
pub fn remote(checkpoint: &Checkpoint) -> Result<RemoteActorsSnapshot> {
    if checkpoint.has_file(REMOTE) { decode(checkpoint, REMOTE) } else { Ok(RemoteActorsSnapshot::default()) }
}

/// Reads the metrics accumulator.
pub fn metrics(checkpoint: &Checkpoint) -> Result<MetricsAccumulator> {
    decode(checkpoint, METRICS)
}

/// Reads the status of a run at its end; `None` for a checkpoint from the midst of training.
pub fn final_status(checkpoint: &Checkpoint) -> Result<Option<RunStatus>> {
    checkpoint.has_file(FINAL_STATUS).then(|| decode_json(checkpoint, FINAL_STATUS)).transpose()
}

/// Whether an idle run ended in an orderly way, `played` being the frames of its last row of metrics.
///
/// Its newest checkpoint is then that of an end, with nothing played after it. A run that was killed or failed has
/// newer rows, or a checkpoint from the midst of training, or none.
pub fn end_is_saved(run: &RunFiles, played: u64) -> Result<bool> {
    let checkpoints = Checkpoints::in_directory(&run.checkpoints_directory());
    let newest = checkpoints.list()?.pop();
    Ok(newest.is_some_and(|frames| frames >= played && checkpoints.has_file(frames, FINAL_STATUS).unwrap_or(false)))
}

fn tensors(checkpoint: &Checkpoint, name: &str) -> Result<NamedTensors> {
    Ok(tensor_file::parse(&checkpoint.file_bytes(name)?)?)
}

fn decode_json<T: DeserializeOwned>(checkpoint: &Checkpoint, name: &'static str) -> Result<T> {
    serde_json::from_slice(&checkpoint.file_bytes(name)?).map_err(|error| invalid(name, error.to_string()))
}

/// Reads a file that `postcard` wrote.
fn decode<T: DeserializeOwned>(checkpoint: &Checkpoint, name: &'static str) -> Result<T> {
    // Its hash is right, so these are the bytes that were written.
    let reason = |error| match error {
        // Postcard does not pass on why a type refused its value. An episodic memory does so without enough memory.
        postcard::Error::SerdeDeCustom => "there is not enough memory, or another version of meme wrote it",
        _ => "another version of meme wrote it",
    };
    postcard::from_bytes(&checkpoint.file_bytes(name)?).map_err(|error| invalid(name, reason(error).to_owned()))
}

fn invalid(file: &'static str, reason: String) -> TrainError {
    TrainError::CheckpointFile { file, reason }
}

#[cfg(test)]
mod tests {
    use agent::intrinsic::EpisodicMemory;

    use super::*;
    use crate::run::checkpoint::CheckpointStore;
    use tempfile::tempdir;

    #[test]
    fn lack_of_memory_is_distinguished_from_another_version() {
        let scratch = tempdir().unwrap();
        let store = CheckpointStore::open(scratch.path(), 1).unwrap();
        let refused = |bytes: &[u8]| {
            store.save(1, &mut |_| {}, |checkpoint| checkpoint.file(STATE, |out| out.write_all(bytes))).unwrap();
            decode::<EpisodicMemory>(&store.checkpoints.at(1).unwrap(), STATE).unwrap_err().to_string()
        };
        let memory = postcard::to_stdvec(&EpisodicMemory::new(16, 2).unwrap()).unwrap();
        // Capacity for more entries than any machine has room for, of two dimensions, none of them filled.
        let large = postcard::to_stdvec(&(1_usize << 58, 2_usize, Vec::<f32>::new())).unwrap();
        let version = "another version of meme wrote it";
        let start = "cannot use state.bin of the checkpoint:";
        assert_eq!(refused(&large), format!("{start} there is not enough memory, or {version}"));
        assert_eq!(refused(&memory[..memory.len() - 1]), format!("{start} {version}"));
    }
}
