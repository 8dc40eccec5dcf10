//! A training run: its roles, how they run together, its directory and its settings.
//!
//! [`roles`] holds the parts of a run, [`runtime`] puts them together and moves them, [`run`] is the directory that a
//! run leaves behind, and [`config`] holds every setting.

pub mod config;
pub mod device;
pub mod environments;
mod error;
pub mod number_format;
pub mod roles;
pub mod run;
pub mod runtime;
pub mod suggestion;

pub use error::{Result, TrainError};
