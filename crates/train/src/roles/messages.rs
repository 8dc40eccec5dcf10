//! What the roles exchange: requests for actions, the networks' decisions, and reports of finished episodes.

use agent::acting::{ActingRow, Observation, ObservationRows, StepRewards};
use agent::intrinsic::DistanceMean;
use half::f16;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::roles::step_writer::WriteOperation;

/// Which parameters act, and what becomes of the experience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Explores with the online parameters and fills replay.
    Actor,
    /// Plays greedily with the averaged parameters; its experience is discarded.
    Evaluator,
}

/// The step before an observation, as the networks are fed it; zeros at an episode's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreviousStep {
    /// a_{t-1}.
    pub action: i64,
    /// The extrinsic reward of a_{t-1}, and r_NGU(x_{t-1}) with its parts.
    pub rewards: StepRewards,
    /// f(x_{t-1}), as replay stores it.
    pub embedding: Vec<f16>,
}

impl PreviousStep {
    /// All zeros, with an embedding of this length.
    pub fn zeros(embedding_length: usize) -> Self {
        Self { action: 0, rewards: StepRewards::default(), embedding: vec![f16::ZERO; embedding_length] }
    }
}

/// One environment's request for an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActRequest {
    /// The environment's recurrent state.
    pub slot: usize,
    /// Which parameters decide.
    pub role: Role,
    /// Whether an episode starts here, and the recurrent state with it.
    pub first: bool,
    /// The observation that ended an episode, for which only the novelty is wanted. Its row already holds the next
    /// episode's first observation.
    pub last_observation: Option<Vec<u8>>,
    /// Row of the actor's observations that holds any other observation.
    pub row: usize,
    /// The policy that acts.
    pub policy: usize,
    /// Whether the recurrent state before this observation is wanted, because a sequence starts here.
    pub wants_state: bool,
    /// The step before.
    pub previous: PreviousStep,
    /// Residual blocks of the torso that are computed; all of them if not given.
    pub kept_blocks: Option<Vec<bool>>,
}

impl ActRequest {
    /// A request for the observation in row 0 of an episode in progress, without its recurrent state.
    pub fn new(slot: usize, role: Role, policy: usize, previous: PreviousStep, kept_blocks: Option<Vec<bool>>) -> Self {
        let (first, last_observation, row, wants_state) = (false, None, 0, false);
        Self { slot, role, first, last_observation, row, policy, wants_state, previous, kept_blocks }
    }

    /// Asks about the observation that ended the episode instead.
    pub fn for_last(self, observation: Vec<u8>) -> Self {
        Self { last_observation: Some(observation), ..self }
    }
}

/// Requests of one actor's environments.
#[derive(Debug, Default)]
pub struct ActRequests {
    /// The requests.
    pub requests: Vec<ActRequest>,
    /// What each environment recorded for a writer on another machine.
    ///
    /// In the order of the group; empty lists otherwise.
    pub operations: Vec<Vec<WriteOperation>>,
    /// Current observations of all the actor's environments, in memory that suits the networks.
    pub observations: ObservationRows,
}

impl ActRequests {
    /// No requests yet, with memory for the observations.
    pub fn new(observations: ObservationRows) -> Self {
        Self { requests: Vec::new(), operations: Vec::new(), observations }
    }

    /// The observation that a request is about.
    pub fn observation<'a>(&'a self, request: &'a ActRequest) -> Result<Observation<'a>> {
        match &request.last_observation {
            Some(bytes) => Ok(bytes.as_slice().into()),
            None => Ok(self.observations.row(request.row)?),
        }
    }

    /// A request as the networks take it.
    pub fn acting_row<'a>(&'a self, request: &'a ActRequest) -> Result<ActingRow<'a>> {
        Ok(ActingRow {
            environment: request.slot,
            first: request.first,
            wants_state: request.wants_state,
            observation: self.observation(request)?,
            action: request.previous.action,
            rewards: request.previous.rewards,
            embedding: &request.previous.embedding,
            policy: request.policy,
            kept_blocks: request.kept_blocks.as_deref(),
        })
    }
}

/// The networks' output for one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The acting policy's preference for each action: the logits of its policy, or its values.
    pub preferences: Vec<f32>,
    /// Q_j(x_t, ·) of the acting policy, rescaled.
    pub q: Vec<f32>,
    /// f(x_t).
    pub embedding: Vec<f32>,
    /// Life-long novelty of x_t, clamped.
    pub rnd: f32,
    /// The recurrent state before x_t, if the request wanted it.
    pub state: Option<Vec<f32>>,
    /// Version of the parameters: the number of updates that made them.
    pub version: u64,
}

impl Decision {
    /// f(x_t) as replay stores it: acting and learning are fed the same bits.
    pub fn stored_embedding(&self) -> Vec<f16> {
        self.embedding.iter().map(|&value| f16::from_f32(value)).collect()
    }
}

/// The bytes of RAM that an environment reports, the first in the lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position(pub u64);

impl Position {
    /// The position that these bytes hold, at most eight of them; `None` without any.
    pub fn new(ram: &[u8]) -> Option<Self> {
        let bytes = ram.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte));
        (!ram.is_empty()).then_some(Self(bytes))
    }

    /// The first byte, such as the room.
    pub fn area(self) -> u8 {
        self.0 as u8
    }
}

/// One finished episode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeReport {
    /// Role that played it.
    pub role: Role,
    /// The environment's index among those of its role.
    pub environment: usize,
    /// Policy that played it.
    pub policy: usize,
    /// Undiscounted, unclipped sum of rewards.
    pub score: f64,
    /// Emulator frames.
    pub frames: u64,
    /// Distinct positions reached; 0 if the environment reports none.
    pub positions: u64,
    /// Novelty of its observations; an evaluator's last observation is not included.
    pub novelty: NoveltySums,
    /// d²_m of the environment after the episode.
    pub distances: DistanceMean,
}

/// r_NGU and its parts, summed over the observations of an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoveltySums {
    /// Observations.
    pub observations: u64,
    /// r_NGU: the intrinsic return.
    pub ngu: f64,
    /// Its life-long part, the clamped multiplier.
    pub rnd: f64,
    /// Its episodic part.
    pub episodic: f64,
}

impl NoveltySums {
    /// Adds one observation.
    pub fn add(&mut self, rewards: StepRewards) {
        self.observations += 1;
        self.ngu += f64::from(rewards.ngu);
        self.rnd += f64::from(rewards.rnd);
        self.episodic += f64::from(rewards.episodic);
    }
}
