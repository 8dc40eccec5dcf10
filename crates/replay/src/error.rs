//! The errors of this crate, with names and values.

use std::time::Duration;

use config_schema::Problem;

use crate::shard::Key;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A field of [`ReplayConfig`](crate::ReplayConfig) has an invalid value.
    #[error("replay.{0}")]
    Config(Problem),
    /// A slice has the wrong number of elements.
    #[error("{column} has {found} elements, expected {expected}")]
    Length {
        /// Name of the column.
        column: &'static str,
        /// The number that the replay's layout asks for.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// A value of a step is not finite or out of range.
    #[error("{column} is {value} at step {step} of an episode of actor {actor}, expected {expected}")]
    Value {
        /// Name of the column.
        column: &'static str,
        /// Its value.
        value: f32,
        /// The step of the episode, from 0.
        step: u64,
        /// The writer's actor.
        actor: u32,
        /// The valid values.
        expected: &'static str,
    },
    /// The first step of a sequence came without the recurrent state.
    #[error("step {step} of an episode of actor {actor} begins a sequence, but came without a recurrent state")]
    MissingState {
        /// The step of the episode, from 0.
        step: u64,
        /// The writer's actor.
        actor: u32,
    },
    /// A writer was called out of turn.
    #[error("actor {actor}: {what}")]
    OutOfTurn {
        /// The writer's actor.
        actor: u32,
        /// The wrong call.
        what: &'static str,
    },
    /// A priority is negative or not finite.
    #[error("the new priority of {key} is {priority}, expected a finite number of at least 0")]
    Priority {
        /// The sequence.
        key: Key,
        /// Its new priority.
        priority: f32,
    },
    /// A key does not name a sequence of this replay.
    #[error("{key} is unknown to this replay, which has {shards} shards of at most {capacity} sequences")]
    ForeignKey {
        /// The key.
        key: Key,
        /// Number of shards.
        shards: usize,
        /// Slots of the largest shard.
        capacity: usize,
    },
    /// A writer belongs to a shard that does not exist.
    #[error("shard {shard} does not exist: the replay has {shards} shards")]
    NoSuchShard {
        /// The shard.
        shard: usize,
        /// Number of shards.
        shards: usize,
    },
    /// The rate limiter did not admit an insert or a sample in time.
    #[error("{what} waited {waited:?} for the rate limiter ({inserts} inserts, {samples} samples so far)")]
    Timeout {
        /// `an insert` or `a sample`.
        what: &'static str,
        /// How long it waited.
        waited: Duration,
        /// Sequences inserted so far.
        inserts: u64,
        /// Sequences sampled so far.
        samples: u64,
    },
    /// The rate limiter was stopped.
    #[error("the replay was stopped")]
    Stopped,
    /// The rate limiter could never admit a batch this large.
    #[error(
        "a batch of {batch} sequences is too large for the rate limiter: with {samples_per_insert} samples per insert \
         and a slack of {slack}, a batch has at most {most}"
    )]
    BatchTooLarge {
        /// Sequences requested.
        batch: usize,
        /// The ratio that the limiter enforces.
        samples_per_insert: f64,
        /// How far the balance may deviate.
        slack: f64,
        /// The largest batch that it can admit.
        most: f64,
    },
    /// A batch was requested from an empty replay.
    #[error("the replay is empty: no sequence has been inserted yet")]
    Empty,
    /// A chunk does not decode: memory was damaged, or a file in a way that its checksum did not show.
    #[error("a stored chunk of {steps} steps is damaged: {reason}")]
    CorruptChunk {
        /// Steps that it should contain.
        steps: usize,
        /// What is wrong.
        reason: String,
    },
    /// Observations from another machine do not decode.
    #[error("observations do not decode: {reason}")]
    DamagedFrames {
        /// What is wrong.
        reason: String,
    },
    /// An observation belongs to an environment that does not exist.
    #[error("environment {environment} does not exist: there are {environments}")]
    NoSuchEnvironment {
        /// The environment.
        environment: usize,
        /// Number of environments.
        environments: usize,
    },
    /// A chunk could not be compressed.
    #[error("{bytes} bytes could not be compressed: {reason}")]
    Compress {
        /// Uncompressed size.
        bytes: usize,
        /// The compressor's reason.
        reason: &'static str,
    },
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, ReplayError>;
