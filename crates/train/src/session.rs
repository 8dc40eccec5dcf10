//! A run that goes on, whether on one thread or on many.

use replay::Replay;

use crate::bandit::CentralBandit;
use crate::error::Result;
use crate::learning::{Learning, Update};
use crate::messages::{EpisodeReport, Position};
use crate::saving::Copied;
use crate::timesheet::Times;

/// What happens while a run goes on, for whoever keeps the books.
pub trait Watch {
    /// An episode ended.
    fn episode(&mut self, report: &EpisodeReport);
    /// Actors have been somewhere.
    fn positions(&mut self, positions: &[Position]);
    /// The learner made an update.
    fn update(&mut self, update: &Update);
    /// A worker was lost and replaced.
    fn fault(&mut self, sentence: &str);
}

/// What the parts of a run do after a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// They go on as soon as they can.
    GoOn,
    /// They rest for good: what is seen of them is what was copied.
    Rest,
}

/// A run that is moved on by its caller.
pub trait Session {
    /// Moves the run on a little: an update, a round of steps, or a short wait.
    fn advance(&mut self, watch: &mut dyn Watch) -> Result<()>;
    /// Emulator frames that the actors have played.
    fn frames(&self) -> u64;
    /// Which policy plays an episode.
    fn bandit(&self) -> &CentralBandit;
    /// What is remembered.
    fn replay(&self) -> &Replay;
    /// What is learned with.
    fn learning(&self) -> &Learning;
    /// How the roles have spent their time, where each has threads of its own.
    fn times(&self) -> Option<Times>;
    /// Brings all parts to rest and copies everything that continues.
    fn copy(&mut self, afterwards: Afterwards, watch: &mut dyn Watch) -> Result<Copied>;
}
