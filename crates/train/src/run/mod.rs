//! A run is a directory: config, metrics, checkpoints and videos, held by one process at a time.
//!
//! Everything here is about files and signals: bytes in, bytes out. What is in a checkpoint's parts, and what the
//! metrics mean, is the business of the roles that write them. `docs/runs.md` is the user's side of it.

mod append;
pub mod checkpoint;
pub mod clock;
#[cfg(test)]
mod crash_tests;
mod directory;
mod durable;
mod files;
mod lock;
mod metrics;
mod metrics_reader;
#[cfg(test)]
pub(crate) mod scratch;
pub mod stop;
mod tensorboard;

pub use directory::{DirectoryError, Opening, RunDirectory, Start};
pub use durable::FileError;
pub use files::{RunDescription, RunFiles};
pub use lock::{LockError, Owner, RunLock};
pub use metrics::{MetricsError, MetricsWriter, Repair, Row, Value};
pub use metrics_reader::{EVALUATION_SCORE, MetricsSummary, Rows};
pub use tensorboard::EventWriter;
