//! Who does what: actors, inference, learner, evaluators, bandit; run directory, checkpoints, metrics.
//!
//! [`assembly`] puts the parts of a run together. A [`session`] moves them: [`lockstep`] on one thread in a fixed order,
//! [`threads`] with a thread for every role. What a run has [`trained`] is played in an [`evaluation`] or a
//! [`demonstration`].

pub mod assembly;
pub mod bandit;
pub mod beginning;
pub mod books;
pub mod config;
mod crew;
pub mod demonstration;
mod drawing;
mod error;
pub mod evaluation;
pub mod inference;
pub mod learning;
pub mod lockstep;
pub mod messages;
mod nearest;
pub mod numbers;
mod plain_file;
pub mod player;
mod player_thread;
pub mod published;
pub mod run;
pub mod saving;
pub mod seat;
mod service;
pub mod session;
pub mod status;
pub mod threads;
pub mod timesheet;
pub mod trained;
pub mod trainer;
pub mod usage;
mod weights;

pub use error::{Result, TrainError};
