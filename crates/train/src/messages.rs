//! What roles say to one another: plain, serialisable values, though all roles are threads of one process today. A role
//! that becomes another process, or moves to another machine, needs no other messages.

use std::fmt;

use agent::acting::ObservationRows;
use agent::math::ngu::DistanceMean;
use half::f16;
use serde::{Deserialize, Serialize};

/// Whose parameters decide, and what becomes of the experience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Explores with the online parameters and remembers.
    Actor,
    /// Plays greedily with the averaged parameters; its experience is thrown away.
    Evaluator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Actor => "actor",
            Self::Evaluator => "evaluator",
        })
    }
}

/// Where in its episode an observation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The first: the recurrent state begins at zero.
    First,
    /// One that an action is wanted for.
    Middle,
    /// The one that ended the episode: no action is wanted, only how new it is.
    Last,
}

/// What the networks are fed besides the observation: the step before, zeros at an episode's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Previous {
    /// a_{t-1}.
    pub action: i64,
    /// The extrinsic reward it led to.
    pub reward_extrinsic: f32,
    /// r_NGU(x_{t-1}) and its parts.
    pub novelty: Novelty,
    /// f(x_{t-1}), as replay stores it.
    pub embedding: Vec<f16>,
}

impl Previous {
    /// Nothing came before.
    pub fn nothing(embedding: usize) -> Self {
        let embedding = vec![f16::ZERO; embedding];
        Self { action: 0, reward_extrinsic: 0.0, novelty: Novelty::default(), embedding }
    }
}

/// How new an observation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Novelty {
    /// r_NGU.
    pub ngu: f32,
    /// Its life-long part, the clamped multiplier.
    pub rnd: f32,
    /// Its episodic part.
    pub episodic: f32,
}

/// Where a turn's observation is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// In this row of the player's observations.
    Row(usize),
    /// Here: the one that ended an episode, whose row has the next episode's first already.
    Last(Vec<u8>),
}

/// One environment asks what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Which recurrent state is its own.
    pub slot: usize,
    /// Whose parameters decide.
    pub role: Role,
    /// Where in the episode the observation stands.
    pub place: Place,
    /// The policy that acts.
    pub policy: usize,
    /// Whether the recurrent state before this observation is wanted, because a sequence begins here.
    pub wants_state: bool,
    /// The step before.
    pub previous: Previous,
    /// What it sees.
    pub observation: Seen,
}

/// Turns of several environments.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Turns {
    /// The turns.
    pub turns: Vec<Turn>,
    /// The present observations of all the player's environments, in memory that suits the networks.
    pub observations: ObservationRows,
}

impl Turns {
    /// No turns yet, with memory for the observations.
    pub fn new(observations: ObservationRows) -> Self {
        Self { turns: Vec::new(), observations }
    }
}

/// What the networks say to one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What the acting policy is greedy to, one value an action: logits, or action values without distillation.
    pub preferences: Vec<f32>,
    /// Q_j(x_t, ·) of the acting policy, rescaled.
    pub q: Vec<f32>,
    /// f(x_t).
    pub embedding: Vec<f32>,
    /// The life-long novelty of x_t, clamped.
    pub rnd: f32,
    /// The recurrent state before x_t, where it was wanted.
    pub state: Option<Vec<f32>>,
    /// Version of the parameters: the number of updates that made them.
    pub version: u64,
}

/// What an environment's reported bytes of RAM held, the first in the lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position(u64);

impl Position {
    /// The position that these bytes say, at most eight; `None` without any.
    pub fn new(ram: &[u8]) -> Option<Self> {
        let bytes = ram.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte));
        (!ram.is_empty()).then_some(Self(bytes))
    }

    /// What the first byte says, such as the room.
    pub fn area(self) -> u8 {
        self.0 as u8
    }
}

/// One finished episode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeReport {
    /// Who played it.
    pub role: Role,
    /// The environment's number among those of its role.
    pub environment: usize,
    /// The policy that played it.
    pub policy: usize,
    /// Probability of a random action.
    pub epsilon: f64,
    /// Undiscounted, unclipped sum of rewards.
    pub score: f64,
    /// Emulator frames.
    pub frames: u64,
    /// Different positions that it led to; 0 where none are reported.
    pub positions: u64,
    /// How new its observations were. An evaluator's last observation is not among them: nobody asks for it.
    pub novelty: NoveltySums,
    /// d²_m of the environment after it.
    pub distances: DistanceMean,
}

/// r_NGU and its parts, added up over the observations of an episode.
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
    /// One observation more.
    pub fn add(&mut self, novelty: Novelty) {
        self.observations += 1;
        self.ngu += f64::from(novelty.ngu);
        self.rnd += f64::from(novelty.rnd);
        self.episodic += f64::from(novelty.episodic);
    }
}
