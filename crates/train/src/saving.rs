//! What a checkpoint holds: everything, so that a run goes on as if it had never stopped.

use std::io::{Read, Write};
use std::sync::Arc;

use agent::TensorFile;
use replay::Snapshot;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::assembly::SavedParts;
use crate::bandit::BanditState;
use crate::error::{Result, TrainError};
use crate::inference::SavedStates;
use crate::player::SavedPlayer;
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointWriter};

const LEARNER: &str = "learner";
const REPLAY: &str = "replay";
const PLAY: &str = "play";

/// A copy of everything that continues, taken while all parts are at rest; writing it need not hold them up.
pub struct Copied {
    learner: TensorFile,
    replay: Snapshot,
    play: Play,
}

/// All that is neither learner nor replay.
#[derive(Serialize, Deserialize)]
pub struct Play {
    /// Every environment's recurrent state.
    pub states: SavedStates,
    /// The bandit.
    pub bandit: BanditState,
    /// The actors.
    pub actors: Vec<SavedPlayer>,
    /// The evaluators.
    pub evaluators: Vec<SavedPlayer>,
}

impl Copied {
    /// A copy of these parts, all of the same moment.
    pub fn new(learner: TensorFile, replay: Snapshot, play: Play) -> Self {
        Self { learner, replay, play }
    }

    /// Writes the copy as the parts of a checkpoint.
    pub fn write(self, checkpoint: &mut CheckpointWriter) -> std::result::Result<(), CheckpointError> {
        let Self { learner, replay, play } = self;
        checkpoint.part(LEARNER, |mut out: &mut dyn Write| learner.write_to(&mut out))?;
        checkpoint.part(PLAY, |out| postcard::to_io(&play, out).map(drop))?;
        checkpoint.part(REPLAY, |mut out: &mut dyn Write| replay.write_to(&mut out).map(drop))
    }
}

/// Reads everything back; nothing is handed out unless all of it is whole and fits `replay`.
pub fn read(checkpoint: &Checkpoint, replay: &replay::ReplayConfig) -> Result<SavedParts> {
    let learner = TensorFile::read_from(&mut checkpoint.part(LEARNER)?)?;
    let Play { states, bandit, actors, evaluators } = decode(checkpoint, PLAY)?;
    let restored = Snapshot::restore_from(checkpoint.part(REPLAY)?, replay)
        .map_err(|reason| TrainError::Part { part: REPLAY, reason })?;
    let replay::Restored { replay, writers } = restored;
    Ok(SavedParts { learner, replay: Arc::clone(&replay), writers, states, bandit, actors, evaluators })
}

fn decode<T: DeserializeOwned>(checkpoint: &Checkpoint, part: &'static str) -> Result<T> {
    let mut bytes = Vec::new();
    let broken = |reason: String| TrainError::Part { part, reason };
    checkpoint.part(part)?.read_to_end(&mut bytes).map_err(|error| broken(error.to_string()))?;
    postcard::from_bytes(&bytes).map_err(|error| broken(error.to_string()))
}
