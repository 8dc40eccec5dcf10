//! Who does what: actors, inference, learner, evaluators, bandit; run directory, checkpoints, metrics.
//!
//! [`roles`] holds the parts of a run, [`runtime`] puts them together and moves them, [`run`] is the directory that a run
//! leaves behind, and [`config`] holds every setting.

pub mod beginning;
pub mod config;
mod error;
pub mod numbers;
mod plain_file;
pub mod roles;
pub mod run;
pub mod runtime;
pub mod saving;
mod suggestion;
pub mod trained;
mod weights;

pub use error::{Result, TrainError};
