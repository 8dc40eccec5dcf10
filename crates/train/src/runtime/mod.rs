//! Assembles the roles and runs them: on one thread in a fixed order, or on threads of their own.

pub mod assembly;
mod background_saves;
pub(crate) mod fault_log;
pub mod lockstep;
pub mod metrics_accumulator;
pub mod rates;
pub mod resume;
pub mod starting_point;
pub mod status;
pub mod threads;
pub mod trainer;
pub mod usage;

use crate::error::Result;
use crate::roles::events::Event;
use crate::roles::timesheet::ActivityTimes;
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::contents::TrainingSnapshot;

/// What the roles do after a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSnapshot {
    /// They continue.
    Continue,
    /// They stay paused: their state remains that of the snapshot.
    StayPaused,
}

/// The roles of a run, advanced by the caller: [`lockstep::Lockstep`] or [`threads::Threads`].
pub trait TrainingRuntime {
    /// Advances the run a little: an update, a round of steps, or a short wait.
    fn advance(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()>;
    /// Emulator frames that the actors have played.
    fn frames(&self) -> u64;
    /// The agent in training.
    fn agent(&self) -> &TrainingAgent;
    /// How the roles have spent their time, if each has its own threads.
    fn times(&self) -> Option<ActivityTimes>;
    /// Pauses all roles and copies everything that a checkpoint keeps.
    fn snapshot(&mut self, after: AfterSnapshot, on_event: &mut dyn FnMut(Event)) -> Result<TrainingSnapshot>;
}
