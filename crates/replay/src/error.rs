//! Why the replay refuses something, each in one sentence with the names and values of the case.

use std::time::Duration;

use crate::shard::Key;

/// Everything that can go wrong in this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A field of [`ReplayConfig`](crate::ReplayConfig) has a value it can't have.
    #[error("replay: {field} is {value}, but {rule}")]
    Config {
        /// The field.
        field: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be, and why.
        rule: String,
    },
    /// A slice handed to the replay has the wrong number of elements.
    #[error("{what} has {got} elements, expected {expected}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// What the sizes given at creation ask for.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A number of a step is not finite or outside its range.
    #[error("{what} is {value} at step {step} of an episode of actor {actor}: {rule}")]
    Value {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f32,
        /// The step of the episode, from 0.
        step: u64,
        /// The writer's actor.
        actor: u32,
        /// What it may be.
        rule: &'static str,
    },
    /// The recurrent state was not handed over with the first step of a sequence.
    #[error("step {step} of an episode of actor {actor} begins a sequence, but came without its recurrent state")]
    MissingState {
        /// The step of the episode, from 0.
        step: u64,
        /// The writer's actor.
        actor: u32,
    },
    /// A step or an end came while no episode was open, or a beginning while one was.
    #[error("actor {actor}: {what}")]
    Episode {
        /// The writer's actor.
        actor: u32,
        /// What was called out of turn.
        what: &'static str,
    },
    /// A priority that can't be stored.
    #[error("the new priority of {key} is {priority}, but a priority is finite and not negative")]
    Priority {
        /// The item.
        key: Key,
        /// What came for it.
        priority: f32,
    },
    /// A key that belongs to no slot of this replay.
    #[error("{key} is not of this replay, which has {shards} shards of at most {capacity} sequences")]
    ForeignKey {
        /// The key.
        key: Key,
        /// Number of shards.
        shards: usize,
        /// Slots of the largest shard.
        capacity: usize,
    },
    /// A writer for a shard that does not exist.
    #[error("there is no shard {shard}: the replay has {shards}")]
    NoSuchShard {
        /// What was asked for.
        shard: usize,
        /// Number of shards.
        shards: usize,
    },
    /// The rate limiter did not let an insert or a sample through in time.
    #[error("{what} waited {waited:?} for the rate limiter: {inserts} inserts and {samples} samples so far")]
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
    /// The rate limiter was stopped; nobody waits any more.
    #[error("the replay was stopped")]
    Stopped,
    /// A batch that the rate limiter could never let through.
    #[error(
        "a batch of {batch} never fits the rate limiter: {samples_per_insert} samples an insert with a slack of {slack} \
         let at most {most} be drawn at once"
    )]
    BatchTooLarge {
        /// Sequences asked for.
        batch: usize,
        /// The ratio it holds.
        samples_per_insert: f64,
        /// How far it lets the balance stray.
        slack: f64,
        /// The largest batch it can let through.
        most: f64,
    },
    /// A batch was asked for while no shard holds a sequence.
    #[error("there is nothing to sample: no sequence has been inserted yet")]
    Empty,
    /// A chunk that does not decode: memory or a file was damaged in a way that its checksum did not show.
    #[error("a stored chunk of {steps} steps is damaged: {what}")]
    CorruptChunk {
        /// Steps it should hold.
        steps: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A sequence could not be compressed.
    #[error("{bytes} bytes could not be compressed: {reason}")]
    Compress {
        /// How many went in.
        bytes: usize,
        /// What the compressor said.
        reason: &'static str,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, ReplayError>;
