//! A run is a directory with config, metrics, checkpoints and videos, locked by one process at a time.
//!
//! `docs/runs.md` describes it for users.

mod append;
pub mod checkpoint;
pub mod clock;
#[cfg(test)]
mod crash_tests;
mod directory;
mod directory_error;
mod durable;
mod files;
pub mod history;
mod lock;
mod metrics;
mod metrics_reader;
mod metrics_tail;
pub(crate) mod regular_file;
pub mod stop;
mod tensorboard;
#[cfg(test)]
mod test_support;

pub use directory::{ExistingRun, OpenedRun, RestoredFiles, RunDirectory};
pub use directory_error::DirectoryError;
pub use durable::{FileError, write_private};
pub use files::{RunDescription, RunFiles};
pub use lock::{LockError, Owner, RunLock, host};
pub use metrics::{MetricValue, MetricsError, MetricsRepair, MetricsWriter, Row};
pub use metrics_reader::{ACTOR_SCORE, EVALUATION_SCORE, MetricsSummary, Rows, SPEED};
pub use metrics_tail::MetricsTail;
pub use tensorboard::TensorBoardWriter;
