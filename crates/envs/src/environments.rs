//! The interface between an actor and its environments.

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use crate::error::EnvError;

/// The element type of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObservationKind {
    /// One byte per value, 0..=255; the networks see it divided by 255.
    U8,
    /// Little-endian `f32`.
    F32,
}

impl ObservationKind {
    /// Bytes per value.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F32 => 4,
        }
    }
}

/// One of the arrays that an observation consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservationPart {
    /// The part's name; empty if the observation is this array alone.
    pub name: String,
    /// `[height, width]` or `[height, width, channels]` of an image, `[n]` of a vector.
    pub shape: Vec<usize>,
    /// Element type.
    pub kind: ObservationKind,
}

impl ObservationPart {
    /// Every part begins at a multiple of this many bytes, and an observation of several ends at one.
    const ALIGNMENT: usize = 4;

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.kind.size()
    }

    /// Byte range of each part in an observation.
    pub fn places(parts: &[Self]) -> Vec<Range<usize>> {
        let mut end = 0usize;
        let place = |part: &Self| {
            let start = end.next_multiple_of(Self::ALIGNMENT);
            end = start + part.bytes();
            start..end
        };
        parts.iter().map(place).collect()
    }

    /// Bytes of an observation of these parts.
    pub fn total_bytes(parts: &[Self]) -> usize {
        let end = Self::places(parts).last().map_or(0, |place| place.end);
        if parts.len() == 1 { end } else { end.next_multiple_of(Self::ALIGNMENT) }
    }
}

/// What an agent needs to know of an environment; the same for all environments of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvSpec {
    /// The name a user types: `pong`, `catch`, `gym:CartPole-v1`.
    #[serde(skip)]
    pub name: String,
    /// `[height, width]` or `[height, width, channels]` of an image, `[n]` of a flat observation.
    pub observation_shape: Vec<usize>,
    /// Element type of the observation.
    pub observation_kind: ObservationKind,
    /// The arrays in an observation of several, which is a flat one of bytes; otherwise empty.
    #[serde(default)]
    pub observation_parts: Vec<ObservationPart>,
    /// The readable name of each action; an action is an index into this.
    pub action_names: Vec<String>,
    /// Emulator frames per agent step: 4 for Atari by default, otherwise 1.
    pub frames_per_step: u32,
}

impl EnvSpec {
    /// Bytes per observation.
    pub fn observation_bytes(&self) -> usize {
        self.observation_shape.iter().product::<usize>() * self.observation_kind.size()
    }

    /// The arrays that an observation consists of: its parts, or a single one without a name.
    pub fn observation_arrays(&self) -> Vec<ObservationPart> {
        if self.observation_parts.is_empty() {
            let (name, shape, kind) = (String::new(), self.observation_shape.clone(), self.observation_kind);
            return vec![ObservationPart { name, shape, kind }];
        }
        self.observation_parts.clone()
    }

    /// Number of actions.
    pub fn actions(&self) -> usize {
        self.action_names.len()
    }

    /// Refuses an environment that a set of this many groups of this size does not have.
    pub(crate) fn check_exists(
        &self,
        [groups, group_size]: [usize; 2],
        group: usize,
        env: usize,
    ) -> Result<(), EnvError> {
        if group < groups && env < group_size {
            return Ok(());
        }
        Err(EnvError::NoSuchEnvironment { name: self.name.clone(), groups, group_size, group, env })
    }

    /// Makes the error of a call at the wrong time.
    pub(crate) fn out_of_turn(&self, request: &'static str, group: usize, state: &'static str) -> EnvError {
        EnvError::OutOfTurn { name: self.name.clone(), request, group, state }
    }

    /// Refuses actions that a group of this size cannot take.
    pub(crate) fn check_actions(&self, actions: &[usize], group_size: usize) -> Result<(), EnvError> {
        if actions.len() != group_size {
            let (name, given) = (self.name.clone(), actions.len());
            return Err(EnvError::WrongActionCount { name, expected: group_size, given });
        }
        match actions.iter().find(|&&action| action >= self.actions()) {
            Some(&action) => {
                Err(EnvError::ActionOutOfRange { name: self.name.clone(), action, actions: self.actions() })
            }
            None => Ok(()),
        }
    }
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The game is over: nothing follows, discount 0.
    Terminated,
    /// A limit was reached in a running game: bootstrap through it.
    Truncated,
    /// The worker was lost, and the action had no outcome. The step has no reward, and its last observation repeats the
    /// one for which the action was chosen.
    CutOff,
}

/// The result of a finished episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeEnd {
    /// How it ended.
    pub ending: Ending,
    /// Undiscounted, unclipped sum of rewards.
    pub score: f64,
    /// Emulator frames, including the no-ops at the start.
    pub frames: u64,
}

/// The outcome of one action.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Unclipped reward.
    pub reward: f64,
    /// Set if this step ended the episode; the next one has then begun already.
    pub end: Option<EpisodeEnd>,
}

/// A picture of three bytes per pixel: red, green and blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedPicture {
    /// Height and width.
    pub size: [usize; 2],
    /// The pixels, row by row.
    pub pixels: Vec<u8>,
}

/// A fixed set of environments of one kind, stepped in groups.
///
/// While one group is between [`start`](Self::start) and [`finish`](Self::finish), the caller may choose actions for
/// another. Environment `env` of group `group` has the index `group * group_size + env` in the set. Its `n`-th episode
/// depends only on the run's seed, its index in the whole run and `n`, so the number of workers does not matter.
pub trait Environments: Send {
    /// Describes the environments.
    fn spec(&self) -> &EnvSpec;

    /// Number of groups.
    fn groups(&self) -> usize;

    /// Number of environments in each group.
    fn group_size(&self) -> usize;

    /// Begins the next episode in every environment; no group may be between `start` and `finish`.
    fn reset(&mut self) -> Result<(), EnvError>;

    /// Number of episodes an environment has begun, which is also the number of its next one.
    ///
    /// # Panics
    /// If there is no such environment.
    fn episodes_begun(&self, group: usize, env: usize) -> u64;

    /// Raises the number of episodes begun to `begun`, so that those in between are never played.
    ///
    /// This is for resuming a run with an environment that could not be saved. A smaller number changes nothing.
    ///
    /// # Panics
    /// If there is no such environment.
    fn skip_episodes(&mut self, group: usize, env: usize, begun: u64);

    /// Begins one step of a group, with one action per environment, and returns at once.
    fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError>;

    /// Waits for the step that `start` began and returns one [`Step`] per environment of the group.
    ///
    /// Rewards are finite; a reward that is not is an error.
    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError>;

    /// Copies the observation to act on: after an episode's end, the first one of the next episode.
    ///
    /// It does not change between `start` and `finish`.
    ///
    /// # Panics
    /// If there is no such environment or `out` is not [`EnvSpec::observation_bytes`] long.
    fn observation(&self, group: usize, env: usize, out: &mut [u8]);

    /// Copies the observation that ended the episode, for an environment whose last [`Step::end`] is set.
    ///
    /// # Panics
    /// Like [`observation`](Self::observation).
    fn last_observation(&self, group: usize, env: usize, out: &mut [u8]);

    /// Returns the requested bytes of RAM after the last step; if that ended an episode, as the episode ended.
    ///
    /// Empty if none were requested, before the first step, after a restore, and after the loss of the worker.
    ///
    /// # Panics
    /// If there is no such environment.
    fn ram(&self, _group: usize, _env: usize) -> &[u8] {
        &[]
    }

    /// Returns the environment's own picture of its state, or with `last` of the one that ended its last episode.
    ///
    /// Only for environments made with [`WorkerConfig::render`](crate::WorkerConfig::render). Not allowed between
    /// `start` and `finish`. [`EnvError::Unsupported`] means that the environment has no such picture.
    fn render(&mut self, _group: usize, _env: usize, _last: bool) -> Result<RenderedPicture, EnvError> {
        let (name, reason) = (self.spec().name.clone(), "it does not run in a worker".to_owned());
        Err(EnvError::Unsupported { name, request: "render", reason })
    }

    /// Saves one environment so that [`restore`](Self::restore) can continue it, even in another process.
    ///
    /// Not allowed between `start` and `finish`.
    fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError>;

    /// Continues from a [`save`](Self::save) of an environment with the same spec.
    ///
    /// [`EnvError::Foreign`] means that the save is of another environment or was played with other options, and
    /// [`EnvError::Unsupported`] that the environment cannot use it; both leave the current episode as it is. Other
    /// errors mean that the worker was lost, as in a step.
    fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError>;

    /// Returns the faults repaired since the last call, one sentence each: lost workers and why.
    fn take_faults(&mut self) -> Vec<String>;
}

/// Implements methods of [`Environments`] by those of the environments in a field.
#[macro_export]
macro_rules! delegate_to {
    ($field:ident: $(fn $method:ident $arguments:tt $(-> $out:ty)?;)*) => {
        $($crate::delegate_to!(@ $field $method $arguments $(-> $out)?);)*
    };
    (@ $field:ident $method:ident (&mut $self:ident $(, $name:ident: $type:ty)*) $(-> $out:ty)?) => {
        fn $method(&mut $self $(, $name: $type)*) $(-> $out)? { $self.$field.$method($($name),*) }
    };
    (@ $field:ident $method:ident (&$self:ident $(, $name:ident: $type:ty)*) $(-> $out:ty)?) => {
        fn $method(&$self $(, $name: $type)*) $(-> $out)? { $self.$field.$method($($name),*) }
    };
}
