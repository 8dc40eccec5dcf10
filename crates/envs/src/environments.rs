//! The one interface between an actor and whatever it acts in.

pub use crate::error::EnvError;

/// How the bytes of one observation are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservationKind {
    /// One byte a value, 0..=255.
    U8,
    /// Little-endian `f32`.
    F32,
}

impl ObservationKind {
    /// Bytes of one value.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F32 => 4,
        }
    }
}

/// What an environment looks like to an agent: the same for every environment of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvSpec {
    /// The name a user types: `pong`, `catch`, `gym:CartPole-v1`.
    pub name: String,
    /// `[height, width]` or `[height, width, channels]` of an image, `[n]` of a flat observation.
    pub observation_shape: Vec<usize>,
    /// How the observation's bytes are to be read.
    pub observation_kind: ObservationKind,
    /// The readable name of each action; an action is an index into this.
    pub action_names: Vec<String>,
    /// Emulator frames of one agent step (4 for Atari, else 1).
    pub frames_per_step: u32,
}

impl EnvSpec {
    /// Bytes of one observation.
    pub fn observation_bytes(&self) -> usize {
        self.observation_shape.iter().product::<usize>() * self.observation_kind.size()
    }

    /// Number of actions.
    pub fn actions(&self) -> usize {
        self.action_names.len()
    }
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The game is over: nothing follows, discount 0.
    Terminated,
    /// A limit was reached: the game would have gone on, bootstrap through it.
    Truncated,
    /// The worker was lost: the action had no outcome. The step carries no reward, and its last observation is the
    /// one the action was chosen for, once more.
    CutOff,
}

/// What is known once an episode is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeEnd {
    /// How it ended.
    pub ending: Ending,
    /// Undiscounted, unclipped sum of rewards.
    pub score: f64,
    /// Emulator frames, the no-ops at the start included.
    pub frames: u64,
}

/// What one action led to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Unclipped reward.
    pub reward: f64,
    /// Present when this step ended the episode; the next one has then begun already.
    pub end: Option<EpisodeEnd>,
}

/// A fixed set of environments of one kind, stepped in groups.
///
/// While one group is between [`start`](Self::start) and [`finish`](Self::finish) the caller may decide on actions for
/// another. Environment `env` of group `group` has the index `group * group_size + env` in the set; its `n`-th episode
/// is a function of the run's seed, its index in the whole run and `n` alone, so the number of workers does not matter.
pub trait Environments: Send {
    /// What the environments look like.
    fn spec(&self) -> &EnvSpec;

    /// Number of groups.
    fn groups(&self) -> usize;

    /// Number of environments in each group.
    fn group_size(&self) -> usize;

    /// Begins the next episode in every environment of every group; none may be between `start` and `finish`.
    fn reset(&mut self) -> Result<(), EnvError>;

    /// How many episodes an environment has begun, which is the number of its next one.
    ///
    /// # Panics
    /// If there is no such environment.
    fn episodes_begun(&self, group: usize, env: usize) -> u64;

    /// The next episode that an environment begins is the one after so many, unless it has begun more already: for a
    /// run that goes on with an environment that could not be saved.
    ///
    /// # Panics
    /// If there is no such environment.
    fn skip_episodes(&mut self, group: usize, env: usize, begun: u64);

    /// Begins one step of a group with one action an environment, and returns at once.
    fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError>;

    /// Waits for the step that `start` began: one [`Step`] an environment of the group. Its rewards are finite; one that
    /// is not is an error.
    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError>;

    /// Copies out the observation to act on: the one after the last step or, where that ended an episode, the first of
    /// the next episode. It stays the same between `start` and `finish`.
    ///
    /// # Panics
    /// If there is no such environment or `out` has not exactly [`EnvSpec::observation_bytes`] bytes.
    fn observation(&self, group: usize, env: usize, out: &mut [u8]);

    /// Copies out the observation that ended the episode, for an environment whose last [`Step::end`] is set.
    ///
    /// # Panics
    /// As [`observation`](Self::observation).
    fn last_observation(&self, group: usize, env: usize, out: &mut [u8]);

    /// The bytes of RAM that were asked for, as the last step left them: where it ended an episode, as that one ended.
    /// Empty if none were asked for, before the first step, after a restore, and where the worker was lost.
    ///
    /// # Panics
    /// If there is no such environment.
    fn ram(&self, _group: usize, _env: usize) -> &[u8] {
        &[]
    }

    /// Everything needed to go on from here with one environment, in a new process too. Not between `start` and
    /// `finish`.
    fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError>;

    /// Goes on from a [`save`](Self::save) of an environment of the same spec; [`observation`](Self::observation) is
    /// then the saved one. Where it can't, [`EnvError::Foreign`] says that the save is of another environment or another
    /// kind of play, and [`EnvError::Unsupported`] that the environment can't make use of it: then it stays in the
    /// episode that it was in. Other errors are as in a step: the worker was lost.
    fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError>;

    /// What went wrong and was mended since the last call, a sentence each: lost workers and why.
    fn take_faults(&mut self) -> Vec<String>;
}
