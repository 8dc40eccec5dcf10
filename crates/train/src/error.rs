//! What can stop training.

use agent::AgentError;
use agent::bandit::BanditError;
use agent::intrinsic::EpisodicMemoryError;
use envs::EnvError;
use replay::ReplayError;

use crate::run::checkpoint::CheckpointError;
use crate::run::{DirectoryError, FileError, MetricsError};

/// Why training can't go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// From an environment.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// From replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// From the networks or the learner.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// From the bandit.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// From an episodic memory.
    #[error(transparent)]
    EpisodicMemory(#[from] EpisodicMemoryError),
    /// There is no room for what is remembered of an environment's episode.
    #[error(
        "there is not enough memory to remember {capacity} observations of an episode, {dimensions} numbers each; a \
         smaller `--set intrinsic.memory_capacity=..` or actors.environments needs less"
    )]
    NoRoomForEpisode {
        /// Observations that are remembered.
        capacity: usize,
        /// Numbers of each.
        dimensions: usize,
    },
    /// From a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The end of the run could not be saved.
    #[error("the end of the run could not be saved, and will be trained again from {}: {error}", start(*saved))]
    LastSave {
        /// Why.
        error: Box<TrainError>,
        /// Frames of the checkpoint before, if there is one.
        saved: Option<u64>,
    },
    /// A stop that was asked for before the first frame.
    #[error("stopped before anything was played")]
    NothingPlayed,
    /// An environment ended a run, which was saved all the same.
    #[error("{error}; the run is saved at {frames} frames, and the same command goes on")]
    SavedAfter {
        /// What ended it.
        error: Box<TrainError>,
        /// Frames of its checkpoint.
        frames: u64,
    },
    /// A part of a checkpoint that is whole but makes no sense.
    #[error("the checkpoint's part `{part}` can't be used: {reason}")]
    Part {
        /// The part.
        part: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A thread could not be started.
    #[error("the thread for {role} could not be started: {cause}")]
    Thread {
        /// What it was for.
        role: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A thread ended by a panic, whose message is above.
    #[error("the thread for {role} ended unexpectedly")]
    Panicked {
        /// What it was for.
        role: &'static str,
    },
    /// A thread is not there any more.
    #[error("the thread for {role} is gone")]
    Gone {
        /// What it was for.
        role: &'static str,
    },
    /// What inference answered to others of the same batch.
    #[error("{0}")]
    Inference(String),
    /// From the files of metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The run's folder.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// From another file of the run.
    #[error(transparent)]
    File(#[from] FileError),
    /// The config asks for a GPU that is not there.
    #[error("run.device is cuda, but {reason}")]
    NoGpu {
        /// Why.
        reason: String,
    },
    /// A run that has not saved anything yet.
    #[error(
        "run {run} has no checkpoint yet; one is written every checkpoint.every_minutes, and when training stops; \
         `--checkpoint best` plays the best so far, once an evaluation has finished"
    )]
    NoCheckpoint {
        /// The run's name.
        run: String,
    },
    /// A run whose evaluators have not finished an evaluation yet, or that keeps no best checkpoint.
    #[error(
        "run {run} has kept no best checkpoint yet: no evaluation has finished, or checkpoint.keep_best is off; \
         `--checkpoint last` plays the newest one"
    )]
    NoBest {
        /// The run's name.
        run: String,
    },
    /// A best checkpoint, of which other parameters than those it keeps are asked.
    #[error(
        "the best checkpoint keeps the averaged parameters only; the online ones are in those that training goes on \
         from, such as `last`"
    )]
    OnlyAveraged,
    /// There is nothing to play.
    #[error("a run needs at least one environment for actors")]
    NoEnvironments,
    /// A checkpoint of a run with other environments.
    #[error("the checkpoint has {saved} environments where this run's config has {configured}")]
    OtherEnvironmentCount {
        /// In the checkpoint.
        saved: usize,
        /// In the config.
        configured: usize,
    },
    /// A role answered fewer turns than it was asked.
    #[error("inference answered fewer turns than it was asked")]
    MissingDecision,
}

impl TrainError {
    /// Whether it comes from an environment, so that learner, replay and bandit are what they were and worth saving.
    pub(crate) fn is_of_an_environment(&self) -> bool {
        matches!(self, Self::Environment(_))
    }
}

/// Where training goes on with so many frames saved.
fn start(saved: Option<u64>) -> String {
    saved
        .map_or("the beginning, as nothing was saved".to_owned(), |frames| format!("its checkpoint at {frames} frames"))
}

/// A result whose error stops training.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;
