//! What an agent remembers: overlapping sequences of its steps, compressed, drawn by priority.
//!
//! [`Writer`]s turn steps into sequences, a [`Replay`] holds them in shards behind a [`RateLimiter`], [`Sampler`]s
//! decode batches of them into the caller's memory, a [`Snapshot`] takes everything to a checkpoint and back. There is
//! no tensor in here. docs/replay.md describes layout and invariants.

mod accounting;
mod batch;
mod chunk;
mod config;
mod error;
mod rate_limiter;
mod replay;
mod rng;
mod sampler;
mod sequence;
mod shard;
mod snapshot;
mod step;
mod sum_tree;
mod tiles;
mod writer;

pub use accounting::{Accounting, Forecast};
pub use batch::{Batch, BatchMut};
pub use config::{Layout, RateLimiterConfig, ReplayConfig};
pub use error::{ReplayError, Result};
pub use rate_limiter::RateLimiter;
pub use replay::{PrioritiesUpdated, Replay};
pub use sampler::Sampler;
pub use shard::Key;
pub use snapshot::{Restored, Snapshot};
pub use step::{LastStep, Step};
pub use writer::{SequenceStart, Writer, WriterState};
