//! Where the steps of an actor environment go: into replay, or into a record for a writer on another machine.

use std::time::{Duration, Instant};

use agent::acting::StepRewards;
use half::f16;
use replay::{ReplayError, SequenceStart, Writer};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Takes the steps of one environment.
#[derive(Debug)]
pub enum StepWriter {
    /// Writes them to replay.
    Replay(Box<Writer>),
    /// Records them, without what the learner's machine knows: observations, embeddings and recurrent states.
    Record(Vec<WriteOperation>),
}

/// One call of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum WriteOperation {
    /// An episode begins.
    Begin {
        /// Policy that acts.
        policy: u16,
    },
    /// A step.
    Append(WrittenStep),
    /// The episode has ended; these are the rewards of its last observation.
    End(StepRewards),
    /// The episode will not continue.
    Abandon,
}

/// A step without its observation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrittenStep {
    /// The action.
    pub action: u16,
    /// Probability with which it was chosen.
    pub probability: f32,
    /// Its rewards.
    pub rewards: StepRewards,
    /// 0 if the game is over, otherwise 1.
    pub discount: f32,
}

/// An observation that the networks have seen, with what replay stores in addition to its step.
#[derive(Clone, Copy, Debug)]
pub struct SeenObservation<'a> {
    /// The observation.
    pub observation: &'a [u8],
    /// f of it, as replay stores it.
    pub embedding: &'a [f16],
    /// The recurrent state before it, where a sequence starts.
    pub start: Option<SequenceStart<'a>>,
}

impl StepWriter {
    /// Returns whether the next step begins a sequence and so needs the recurrent state.
    pub fn needs_state_now(&self) -> bool {
        match self {
            Self::Replay(writer) => writer.wants_start(),
            Self::Record(_) => false,
        }
    }

    /// The writer to replay on this machine.
    pub fn replay(&self) -> Option<&Writer> {
        match self {
            Self::Replay(writer) => Some(writer),
            Self::Record(_) => None,
        }
    }

    /// The writer to replay on this machine, to insert sequences.
    pub fn replay_mut(&mut self) -> Option<&mut Writer> {
        match self {
            Self::Replay(writer) => Some(writer),
            Self::Record(_) => None,
        }
    }

    /// Returns whether recurrent states are stored, of which an episode's first step needs one.
    pub fn stores_states(&self) -> bool {
        matches!(self, Self::Replay(_))
    }

    /// Carries out or records an operation, about the observation that was seen.
    pub fn write(&mut self, operation: WriteOperation, seen: Option<SeenObservation<'_>>) -> Result<()> {
        match self {
            Self::Replay(writer) => write(writer, operation, seen),
            Self::Record(operations) => {
                operations.push(operation);
                Ok(())
            }
        }
    }
}

/// Carries out an operation.
pub fn write(writer: &mut Writer, operation: WriteOperation, seen: Option<SeenObservation<'_>>) -> Result<()> {
    let seen = seen.unwrap_or(SeenObservation { observation: &[], embedding: &[], start: None });
    match operation {
        WriteOperation::Begin { policy } => writer.begin_episode(policy)?,
        WriteOperation::Append(WrittenStep { action, probability, rewards, discount }) => {
            let step = replay::Step {
                action,
                behaviour_probability: probability,
                reward_extrinsic: rewards.extrinsic,
                reward_ngu: rewards.ngu,
                reward_rnd: rewards.rnd,
                reward_episodic: rewards.episodic,
                discount,
                embedding: seen.embedding,
            };
            writer.append(seen.observation, &step, seen.start)?;
        }
        WriteOperation::End(rewards) => {
            let last = replay::Step::last([rewards.ngu, rewards.rnd, rewards.episodic], seen.embedding);
            writer.end_episode(seen.observation, &last)?;
        }
        WriteOperation::Abandon => writer.abandon_episode(),
    }
    Ok(())
}

/// Inserts complete sequences into replay and returns whether none are left.
///
/// Waits for the rate limiter at most `timeout` in all.
pub fn flush<'a>(writers: impl IntoIterator<Item = &'a mut Writer>, timeout: Duration) -> replay::Result<bool> {
    let start = Instant::now();
    for writer in writers {
        match writer.flush(timeout.saturating_sub(start.elapsed())) {
            Ok(()) => {}
            Err(ReplayError::Timeout { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
