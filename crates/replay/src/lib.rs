//! The agent's replay: overlapping sequences of its steps, compressed, sampled by priority.
//!
//! [`Writer`]s turn steps into sequences, a [`Replay`] holds them in shards behind a [`RateLimiter`], [`Sampler`]s
//! decode batches into the caller's memory, and a [`Snapshot`] saves and restores everything. The crate knows no
//! tensors. docs/replay.md describes its layout and invariants.

mod accounting;
mod batch;
mod chunk;
mod columns;
mod config;
mod error;
mod frame_codec;
mod rate_limiter;
mod replay;
mod sampler;
mod sequence;
mod shard;
mod snapshot;
mod sum_tree;
mod tiles;
mod writer;

pub use accounting::{Accounting, Forecast};
pub use batch::{SampledSequence, SequenceBatch};
pub use columns::{SCALAR_COLUMNS, ScalarColumn, Step, StepColumns};
pub use config::{Layout, RateLimiterConfig, ReplayConfig, ReplaySection};
pub use error::{ReplayError, Result};
pub use frame_codec::{EncodedFrames, FrameDecoder, FrameEncoder};
pub use rate_limiter::RateLimiter;
pub use replay::Replay;
pub use sampler::Sampler;
pub use shard::Key;
pub use snapshot::{Restored, Snapshot, SnapshotError};
pub use writer::{SequenceStart, Writer, WriterState};
