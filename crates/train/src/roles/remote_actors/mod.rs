//! The remote environments of a run and the actors that play them.

mod actor;
mod exploration;
mod lease;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use envs::seeds::mix;
use replay::{Writer, WriterState};
use thiserror::Error;

pub use self::actor::RemoteActorSpec;
pub use self::exploration::{remote_epsilon, remote_seed};
pub use self::lease::Lease;
pub(crate) use self::lease::RemoteRun;
pub use self::snapshot::{RemoteActorSnapshot, RemoteActorsSnapshot};
use crate::error::Result;
use crate::roles::actor_thread::ThreadMessage;
use crate::roles::remote_actor_proxy::RemoteActorProxy;

/// The remote environments of a run, which actors on other machines take over and leave.
pub struct RemoteActors {
    capacity: usize,
    state: Mutex<RemoteActorsState>,
    counters: RemoteCounters,
}

/// What the metrics show of remote actors.
#[derive(Debug, Default)]
pub struct RemoteCounters {
    /// Bytes sent and received.
    pub bytes: AtomicU64,
    /// Agent steps.
    pub steps: AtomicU64,
    /// Connections and messages that were refused.
    pub refused: AtomicU64,
}

#[derive(Default)]
struct RemoteActorsState {
    /// Absent while the run does not train.
    run: Option<Arc<RemoteRun>>,
    /// Whether the run has ended with all its frames.
    finished: bool,
    /// Actors that play, by the number of their lease.
    playing: BTreeMap<u64, PlayingActor>,
    leases: u64,
    /// Saved actors that nobody has continued yet.
    waiting: Vec<(RemoteActorSnapshot, Vec<WriterState>)>,
    /// Kinds of refusals that were reported.
    reported: BTreeSet<&'static str>,
    paused: bool,
}

struct PlayingActor {
    actor: String,
    environments: Range<usize>,
}

/// Why an actor cannot join.
#[derive(Debug, Error, PartialEq)]
pub enum JoinError {
    /// The run is not training now: it is starting, pausing for a checkpoint or stopping.
    #[error("the run does not accept actors right now")]
    NotTraining,
    /// The run has ended.
    #[error("the run is finished")]
    Finished,
    /// All remote environments are taken.
    #[error("all {0} remote environments are taken")]
    Full(usize),
    /// Its writers could not be made.
    #[error("{0}")]
    Failed(String),
}

impl RemoteActors {
    /// Creates an empty set of remote actors, for up to `capacity` environments.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default(), counters: RemoteCounters::default() }
    }

    /// Maximum number of environments.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What the metrics show.
    pub fn counters(&self) -> &RemoteCounters {
        &self.counters
    }

    /// Number of environments that are played.
    pub fn environments(&self) -> usize {
        self.state().playing.values().map(|actor| actor.environments.len()).sum()
    }

    fn state(&self) -> MutexGuard<'_, RemoteActorsState> {
        // Each change is one statement, so the state is consistent even if a thread panicked while it held the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused connection or message, and reports the first of each kind while the run trains.
    pub fn refuse(&self, kind: &'static str, reason: &str) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(run) = state.run.clone()
            && state.reported.insert(kind)
        {
            run.notice(format!("refused a remote actor: {reason} (more of this kind are only counted)"));
        }
    }

    /// Lets actors join, and lets actors saved in the checkpoint continue.
    pub(crate) fn open(&self, run: RemoteRun, saved: Vec<(RemoteActorSnapshot, Vec<WriterState>)>) {
        let mut state = self.state();
        for (actor, writers) in saved {
            let fits = actor.environments_range().end <= self.capacity && writers.len() == actor.environments;
            if fits && actor.state.is_some() {
                state.waiting.push((actor, writers));
            } else {
                run.give_up(actor, writers);
            }
        }
        state.run = Some(Arc::new(run));
    }

    /// Lets nobody join any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.run = None;
        state.waiting.clear();
    }

    /// Notes that the run has ended with all its frames: its actors need not wait for it to resume.
    pub(crate) fn finish(&self) {
        self.state().finished = true;
    }

    /// Returns whether the run has ended with all its frames.
    pub fn is_finished(&self) -> bool {
        self.state().finished
    }

    /// Gives an actor up to `wanted` environments.
    ///
    /// One that reconnects gets new ones at once, even if its lost connection is not noticed yet.
    pub fn join(self: &Arc<Self>, actor: &str, host: &str, wanted: usize) -> Result<RemoteActorProxy, JoinError> {
        let mut state = self.state();
        let run = match &state.run {
            Some(run) if !state.paused && !run.control.is_stopping() => Arc::clone(run),
            _ if state.finished => return Err(JoinError::Finished),
            _ => return Err(JoinError::NotTraining),
        };
        let wanted = wanted.clamp(1, run.config.actors.environments_per_worker.max(1));
        state.playing.retain(|_, playing| playing.actor != actor);
        let number = state.leases;
        let (environments, writers, index, saved) = match state.take_waiting(wanted) {
            Some((saved, writers)) => {
                let resume = |state| Writer::resume(&run.replay, state);
                let writers: replay::Result<Vec<_>> = writers.into_iter().map(resume).collect();
                let writers = writers.map_err(|error| JoinError::Failed(error.to_string()))?;
                (
                    saved.environments_range(),
                    writers,
                    saved.index,
                    Some((saved.state.unwrap_or_default(), saved.playing)),
                )
            }
            None => {
                let environments =
                    state.make_room(wanted, self.capacity, &run).ok_or(JoinError::Full(self.capacity))?;
                let first = run.config.actors.environments;
                let writer = |environment: usize| Writer::new(&run.replay, (first + environment) as u32);
                let writers = environments.clone().map(writer).collect();
                (environments, writers, first_index(number, run.control.actor_steps()), None)
            }
        };
        state.leases += 1;
        state.playing.insert(number, PlayingActor { actor: actor.to_owned(), environments: environments.clone() });
        drop(state);
        let count = environments.len();
        run.notice(format!("{host} joined with {count} environment{}", if count == 1 { "" } else { "s" }));
        let lease = Lease {
            actors: Arc::clone(self),
            client_wait: Duration::from_micros(run.config.inference.max_wait_microseconds),
            run,
            number,
            host: host.to_owned(),
            environments,
            index,
            saved,
        };
        Ok(RemoteActorProxy::new(lease, writers))
    }

    /// Keeps actors from joining while a checkpoint is made, and returns the leases of those that will be saved.
    pub(crate) fn pause(&self) -> BTreeSet<u64> {
        let mut state = self.state();
        state.paused = true;
        state.playing.keys().copied().collect()
    }

    /// Ends a pause.
    pub(crate) fn end_pause(&self) {
        self.state().paused = false;
    }

    /// Saved actors that nobody has continued yet, which the next checkpoint keeps.
    pub(crate) fn waiting(&self) -> Vec<(RemoteActorSnapshot, Vec<WriterState>)> {
        self.state().waiting.clone()
    }

    fn leave(&self, lease: &Lease) {
        let mut state = self.state();
        state.playing.remove(&lease.number);
        if !lease.run.control.is_stopping() {
            let count = lease.environments.len();
            let what = if count == 1 {
                "environment; its running episode is"
            } else {
                "environments; its running episodes are"
            };
            lease.run.notice(format!("{} left with {count} {what} abandoned", lease.host));
        }
        // Under the lock, so that a pause either expects this message or does not count the lease.
        let _ = lease.run.sender().send(ThreadMessage::RemoteLeft { lease: lease.number });
    }
}

impl RemoteActorsState {
    /// Takes a saved actor with this many environments, if one waits.
    fn take_waiting(&mut self, environments: usize) -> Option<(RemoteActorSnapshot, Vec<WriterState>)> {
        let found = self.waiting.iter().position(|(saved, _)| saved.environments == environments)?;
        Some(self.waiting.swap_remove(found))
    }

    /// Up to `wanted` consecutive environments. If all are taken, saved actors that still wait are given up.
    fn make_room(&mut self, wanted: usize, capacity: usize, run: &RemoteRun) -> Option<Range<usize>> {
        let mut free = self.free(capacity);
        while free.is_none() {
            let (actor, writers) = self.waiting.pop()?;
            run.give_up(actor, writers);
            free = self.free(capacity);
        }
        free.map(|free| free.start..free.end.min(free.start + wanted))
    }

    /// The longest range of environments that nobody has, if there is one.
    fn free(&self, capacity: usize) -> Option<Range<usize>> {
        let mut taken: Vec<Range<usize>> = self.playing.values().map(|actor| actor.environments.clone()).collect();
        taken.extend(self.waiting.iter().map(|(saved, _)| saved.environments_range()));
        taken.push(capacity..capacity);
        taken.sort_by_key(|range| range.start);
        let mut start = 0;
        let mut longest = 0..0;
        for range in taken {
            if range.start.saturating_sub(start) > longest.len() {
                longest = start..range.start;
            }
            start = start.max(range.end);
        }
        (!longest.is_empty()).then_some(longest)
    }
}

/// Index of an actor's first environment, which with the seed determines its episodes.
///
/// It differs from join to join, also after a resume, so that no episode is played twice. It is at least 2^63, and the
/// indices of evaluations and local actors are below that.
fn first_index(lease: u64, actor_steps: u64) -> u64 {
    (1 << 63) | mix(lease ^ (actor_steps << 20)) >> 16 << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_environments_are_the_longest_gap() {
        let mut state = RemoteActorsState::default();
        let mut take = |number: u64, environments: Range<usize>| {
            state.playing.insert(number, PlayingActor { actor: number.to_string(), environments });
            state.free(16)
        };
        assert_eq!(take(0, 0..4), Some(4..16));
        assert_eq!(take(1, 8..12), Some(4..8));
        assert_eq!(take(2, 4..8), Some(12..16));
        assert_eq!(take(3, 12..16), None);
    }
}
