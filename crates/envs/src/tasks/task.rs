//! The interface of all built-in tasks.

use crate::environments::Ending;

/// A small game on a grayscale image that tests one ability of an agent.
///
/// An episode depends only on its seed and the actions. A task holds one episode;
/// [`TaskEnvironments`](super::TaskEnvironments) makes a set of environments of many tasks.
pub trait Task: Send {
    /// Height and width of the image in pixels.
    fn image_size(&self) -> (usize, usize);

    /// The readable name of each action; an action is an index into this.
    fn action_names(&self) -> &'static [&'static str];

    /// Begins the episode with this seed.
    fn reset(&mut self, seed: u64);

    /// Takes one action, an index into [`action_names`](Self::action_names), while the episode runs.
    fn step(&mut self, action: usize) -> Outcome;

    /// Draws the current state, one byte per pixel, row by row; writes all bytes of `image`.
    fn draw(&self, image: &mut [u8]);
}

/// The outcome of one action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Reward of the action.
    pub reward: f64,
    /// Set if the action ended the episode.
    pub ending: Option<Ending>,
}

impl Outcome {
    /// The episode continues.
    pub fn running(reward: f64) -> Self {
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

/// Why a built-in task could not be made.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TaskError {
    /// No built-in task has that name.
    #[error("unknown built-in task `{name}`")]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The task has no parameter.
    #[error("the task `{task}` takes no parameter, got `{parameter}`")]
    NoParameter {
        /// The task.
        task: &'static str,
        /// The text after the colon.
        parameter: String,
    },
    /// The parameter is not an integer, or out of range.
    #[error("invalid {meaning} `{parameter}` of the task `{task}`, expected an integer from {least} to {most}")]
    BadParameter {
        /// The task.
        task: &'static str,
        /// The text after the colon.
        parameter: String,
        /// The meaning of the parameter.
        meaning: &'static str,
        /// The least valid value.
        least: usize,
        /// The greatest valid value.
        most: usize,
    },
}
