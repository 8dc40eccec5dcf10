//! What every built-in task is.

use std::ops::RangeInclusive;

use crate::environments::Ending;

/// A small game on a grayscale image, written in Rust, that shows one ability of an agent.
///
/// An episode is a function of its seed and the actions alone. A task keeps one episode; many of them make a set of
/// environments, see [`TaskEnvironments`](super::TaskEnvironments).
pub trait Task: Send {
    /// The name a user types, with its parameter where the task has one: `catch`, `deep_sea:14`.
    fn name(&self) -> String;

    /// Height and width of the image in pixels.
    fn image_size(&self) -> (usize, usize);

    /// The readable name of each action; an action is an index into this.
    fn action_names(&self) -> &'static [&'static str];

    /// Mean scores of three policies, exact: what docs/tasks.md says, and what the tests hold the rules against.
    #[cfg(test)]
    fn scores(&self) -> Scores;

    /// Begins the episode of this seed.
    fn reset(&mut self, seed: u64);

    /// Takes one action, which must be an index into [`action_names`](Self::action_names); only while the episode runs.
    fn step(&mut self, action: usize) -> Outcome;

    /// Draws the present state into `image`, one byte a pixel, row by row; all of its bytes are written.
    fn draw(&self, image: &mut [u8]);

    /// The state of the episode: at most a few numbers, which [`restore`](Self::restore) takes back.
    fn save(&self) -> Vec<u32>;

    /// Goes on from a saved state of the same task. A state that no running episode can have is refused, and the
    /// present one is kept.
    fn restore(&mut self, saved: &[u32]) -> Result<(), ImpossibleState>;
}

/// What one action led to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Reward of the action.
    pub reward: f64,
    /// Set when the action ended the episode.
    pub ending: Option<Ending>,
}

impl Outcome {
    /// The episode goes on.
    pub fn goes_on(reward: f64) -> Self {
        Self { reward, ending: None }
    }

    /// The game is over.
    pub fn terminated(reward: f64) -> Self {
        Self { reward, ending: Some(Ending::Terminated) }
    }

    /// The time limit was reached.
    pub fn truncated(reward: f64) -> Self {
        Self { reward, ending: Some(Ending::Truncated) }
    }
}

/// Mean scores of an episode, to measure an agent against.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Of the best policy there is.
    pub best: f64,
    /// Of actions drawn evenly.
    pub random: f64,
    /// Of the policy an agent falls for when it lacks the ability that the task is about; each task says which.
    pub naive: f64,
}

/// The saved numbers are not a state that a running episode of the task can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpossibleState;

/// Why a built-in task could not be made.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TaskError {
    /// There is no such task.
    #[error("there is no built-in task `{name}`; there are {}", super::usages())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The task has no parameter.
    #[error("the task `{task}` takes no parameter, and `{parameter}` was given")]
    NoParameter {
        /// The task.
        task: &'static str,
        /// What stands after the colon.
        parameter: String,
    },
    /// The parameter is no whole number, or out of range.
    #[error(
        "`{parameter}` is no {meaning} of the task `{task}`: it must be a whole number from {} to {}",
        range.start(), range.end()
    )]
    BadParameter {
        /// The task.
        task: &'static str,
        /// What stands after the colon.
        parameter: String,
        /// What the parameter says.
        meaning: &'static str,
        /// What it may be.
        range: RangeInclusive<usize>,
    },
}
