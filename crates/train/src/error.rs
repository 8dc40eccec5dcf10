//! Why training stops.

use agent::AgentError;
use agent::bandit::BanditError;
use agent::intrinsic::EpisodicMemoryError;
use envs::EnvError;
use replay::ReplayError;

use crate::roles::thread_role::ThreadRole;
use crate::run::checkpoint::CheckpointError;
use crate::run::{DirectoryError, FileError, MetricsError};

/// Why training cannot continue.
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
    /// There is not enough memory for an episodic memory.
    #[error(
        "not enough memory for {capacity} observations of an episode with {dimensions} numbers each; lower \
         intrinsic.memory_capacity or actors.environments"
    )]
    NoRoomForEpisode {
        /// Observations that the memory holds.
        capacity: usize,
        /// Length of each.
        dimensions: usize,
    },
    /// From a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The last save of the run failed.
    #[error("cannot save the end of the run, which will be trained again from {}: {error}", start(*saved))]
    LastSave {
        /// Why.
        error: Box<TrainError>,
        /// Frames of the previous checkpoint, if there is one.
        saved: Option<u64>,
    },
    /// A stop was requested before the first frame.
    #[error("stopped before anything was played")]
    NothingPlayed,
    /// An environment ended the run, which could still be saved.
    #[error("{error}; the run is saved at {frames} frames")]
    SavedAfter {
        /// What ended it.
        error: Box<TrainError>,
        /// Frames of its checkpoint.
        frames: u64,
    },
    /// A file of a checkpoint is intact but cannot be used.
    #[error("cannot use {file} of the checkpoint: {reason}")]
    CheckpointFile {
        /// The file.
        file: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start the {role} thread: {cause}")]
    Thread {
        /// Its role.
        role: ThreadRole,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A thread panicked; its message was printed.
    #[error("the {role} thread panicked")]
    Panicked {
        /// Its role.
        role: ThreadRole,
    },
    /// A thread has ended.
    #[error("the {role} thread has ended")]
    ThreadEnded {
        /// Its role.
        role: ThreadRole,
    },
    /// A remote actor has lost its learner.
    #[error("the connection to the learner is lost")]
    ConnectionLost,
    /// An update was asked for before its batch was loaded.
    #[error("internal error: the learner was given a batch that was never loaded; please report it")]
    BatchNotLoaded,
    /// The error that inference gave to other requests of the same batch.
    #[error("{0}")]
    Inference(String),
    /// From the metrics files.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// From the config.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// From the run's directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// From another file of the run.
    #[error(transparent)]
    File(#[from] FileError),
    /// The config asks for a GPU, but none can be used.
    #[error("run.device is cuda, but {reason}")]
    NoGpu {
        /// Why.
        reason: String,
    },
    /// The run has not saved anything yet.
    #[error("run {run} has no checkpoint yet: one is saved every checkpoint.every_minutes and when training stops")]
    NoCheckpoint {
        /// The run's name.
        run: String,
    },
    /// The run has no best checkpoint.
    #[error("run {run} has no best checkpoint: no evaluation has finished yet, or checkpoint.keep_best is off")]
    NoBest {
        /// The run's name.
        run: String,
    },
    /// The online parameters were requested from a best checkpoint.
    #[error("the best checkpoint has the averaged parameters only")]
    OnlyAveraged,
    /// There is no environment to act in.
    #[error("actors.environments is 0, so the run needs actors on other machines and an evaluator")]
    NoEnvironments,
    /// The checkpoint belongs to a run with another number of environments.
    #[error("the checkpoint has {saved} environments, but the run's config has {configured}")]
    OtherEnvironmentCount {
        /// In the checkpoint.
        saved: usize,
        /// In the config.
        configured: usize,
    },
    /// Inference returned fewer decisions than requested.
    #[error("inference returned fewer decisions than requested")]
    MissingDecision,
}

impl TrainError {
    /// Whether it comes from an environment, so that learner, replay and bandit are intact and worth saving.
    pub(crate) fn is_from_environment(&self) -> bool {
        matches!(self, Self::Environment(_))
    }
}

/// Where training resumes after a failed last save.
fn start(saved: Option<u64>) -> String {
    saved.map_or("the beginning".to_owned(), |frames| format!("its checkpoint at {frames} frames"))
}

/// A result whose error stops training.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;
