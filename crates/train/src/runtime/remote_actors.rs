//! Which remote environments of a run are played, and by whom.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::policy_family::actor_epsilon;
use envs::EnvSpec;
use envs::seeds::mix;
use replay::{Replay, Writer, WriterState};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{ActorsConfig, Config};
use crate::error::Result;
use crate::roles::actor_thread::ThreadMessage;
use crate::roles::bandit::CentralBandit;
use crate::roles::inference_server::InferenceConnector;
use crate::roles::messages::Role;
use crate::roles::remote_actor::RemoteActor;
use crate::runtime::events::Event;
use crate::runtime::run_control::RunControl;

/// Remote environments of a run: a number of places that actors on other machines take and leave.
pub struct RemoteActors {
    capacity: usize,
    places: Mutex<Places>,
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
struct Places {
    /// Absent while the run does not train.
    run: Option<Arc<RemoteRun>>,
    /// Whether the run has ended with all its frames.
    finished: bool,
    /// Actors that play, by the number of their lease.
    playing: BTreeMap<u64, PlayingActor>,
    leases: u64,
    /// Saved actors that nobody has continued yet.
    waiting: Vec<(SavedRemoteActor, Vec<WriterState>)>,
    /// Kinds of refusals that were reported.
    reported: BTreeSet<&'static str>,
    paused: bool,
}

struct PlayingActor {
    actor: String,
    environments: Range<usize>,
}

/// What remote actors need of a run that trains.
pub(crate) struct RemoteRun {
    pub(crate) inference: InferenceConnector,
    pub(crate) replay: Arc<Replay>,
    pub(crate) bandit: Arc<CentralBandit>,
    pub(crate) control: Arc<RunControl>,
    pub(crate) messages: Mutex<Sender<ThreadMessage>>,
    pub(crate) config: Config,
    pub(crate) spec: EnvSpec,
    pub(crate) embedding: usize,
    pub(crate) droppable_blocks: usize,
}

/// What a checkpoint keeps of a remote actor, besides the writers' states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedRemoteActor {
    first: usize,
    environments: usize,
    index: u64,
    /// Policies of episodes that have begun and not ended.
    playing: Vec<usize>,
    /// The actor's own half; absent if it could not be had in time.
    state: Option<Vec<u8>>,
}

/// What a checkpoint keeps of all remote actors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedRemoteActors {
    /// Agent steps that remote environments have made.
    pub steps: u64,
    /// The actors.
    pub actors: Vec<SavedRemoteActor>,
}

impl SavedRemoteActors {
    /// These actors, whose writers are appended to `all`.
    pub(crate) fn new(
        steps: u64,
        actors: Vec<(SavedRemoteActor, Vec<WriterState>)>,
        all: &mut Vec<WriterState>,
    ) -> Self {
        let take = |(actor, writers): (SavedRemoteActor, Vec<WriterState>)| {
            all.extend(writers);
            actor
        };
        Self { steps, actors: actors.into_iter().map(take).collect() }
    }

    /// Each actor with its writers.
    pub(crate) fn with_writers(
        &self,
        writers: Vec<WriterState>,
        local: usize,
    ) -> Vec<(SavedRemoteActor, Vec<WriterState>)> {
        let with_writers = |actor: &SavedRemoteActor| {
            let first = local + actor.first;
            let own = writers
                .iter()
                .filter(|writer| (first..first + actor.environments).contains(&(writer.actor() as usize)));
            (actor.clone(), own.cloned().collect())
        };
        self.actors.iter().map(with_writers).collect()
    }
}

/// Why an actor cannot join.
#[derive(Debug, Error, PartialEq)]
pub enum JoinError {
    /// The run does not train yet, or not at this moment.
    #[error("the run is starting")]
    NotTraining,
    /// The run has ended.
    #[error("the run is finished")]
    Finished,
    /// All places are taken.
    #[error("all {0} remote environments are taken")]
    Full(usize),
    /// Its writers could not be made.
    #[error("{0}")]
    Failed(String),
}

impl RemoteActors {
    /// Places for this many environments.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, places: Mutex::default(), counters: RemoteCounters::default() }
    }

    /// Most environments.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What the metrics show.
    pub fn counters(&self) -> &RemoteCounters {
        &self.counters
    }

    /// Number of environments that are played.
    pub fn environments(&self) -> usize {
        self.places().playing.values().map(|actor| actor.environments.len()).sum()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Each change is one statement, so the places are consistent even if a thread panicked while it held the lock.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused connection or message, and reports the first of each kind.
    pub fn refuse(&self, kind: &'static str, reason: &str) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let mut places = self.places();
        if places.reported.insert(kind)
            && let Some(run) = &places.run
        {
            run.notice(format!("refused a remote actor: {reason} (more of this kind are only counted)"));
        }
    }

    /// Lets actors join a run that trains, and those that its checkpoint has continue.
    pub(crate) fn open(&self, run: RemoteRun, saved: Vec<(SavedRemoteActor, Vec<WriterState>)>) {
        let mut places = self.places();
        for (actor, writers) in saved {
            let fits = actor.first + actor.environments <= self.capacity && writers.len() == actor.environments;
            if fits && actor.state.is_some() {
                places.waiting.push((actor, writers));
            } else {
                run.give_up(actor, writers);
            }
        }
        places.run = Some(Arc::new(run));
    }

    /// Lets nobody join any more.
    pub(crate) fn close(&self) {
        let mut places = self.places();
        places.run = None;
        places.waiting.clear();
    }

    /// Notes that the run has ended with all its frames: its actors need not wait for it to resume.
    pub(crate) fn finish(&self) {
        self.places().finished = true;
    }

    /// Whether the run has ended with all its frames.
    pub fn is_finished(&self) -> bool {
        self.places().finished
    }

    /// Gives places to an actor that would run up to `wanted` environments. One that reconnects gets new places at
    /// once, even if its lost connection is not noticed yet.
    pub fn join(self: &Arc<Self>, actor: &str, host: &str, wanted: usize) -> Result<RemoteActor, JoinError> {
        let mut places = self.places();
        let run = match &places.run {
            Some(run) if !places.paused && !run.control.is_stopping() => Arc::clone(run),
            _ if places.finished => return Err(JoinError::Finished),
            _ => return Err(JoinError::NotTraining),
        };
        let full = || JoinError::Full(self.capacity);
        let wanted = wanted.clamp(1, run.config.actors.environments_per_worker.max(1));
        places.playing.retain(|_, playing| playing.actor != actor);
        let (saved, environments) = match places.waiting.iter().position(|(saved, _)| saved.environments == wanted) {
            Some(found) => {
                let (saved, writers) = places.waiting.swap_remove(found);
                let environments = saved.first..saved.first + saved.environments;
                (Some((saved, writers)), environments)
            }
            None => {
                let mut free = places.free(self.capacity);
                while free.is_none()
                    && let Some((actor, writers)) = places.waiting.pop()
                {
                    run.give_up(actor, writers);
                    free = places.free(self.capacity);
                }
                let free = free.ok_or_else(full)?;
                (None, free.start..free.end.min(free.start + wanted))
            }
        };
        let number = places.leases;
        places.leases += 1;
        let count = environments.len();
        let first = run.config.actors.environments + environments.start;
        let writer = |environment: usize| Ok(Writer::new(&run.replay, (first + environment) as u32));
        let (saved, writers) = match saved {
            Some((saved, states)) => {
                let resume = |state| Writer::resume(&run.replay, state);
                (Some(saved), states.into_iter().map(resume).collect::<replay::Result<Vec<_>>>())
            }
            None => (None, (0..count).map(writer).collect()),
        };
        let writers = writers.map_err(|error| JoinError::Failed(error.to_string()))?;
        // Distinct for every join, and different after a resume: no episode is played twice, and none of an evaluation.
        let index = match &saved {
            Some(saved) => saved.index,
            None => (1 << 63) | mix(number ^ (run.control.actor_steps() << 20)) >> 16 << 12,
        };
        places.playing.insert(number, PlayingActor { actor: actor.to_owned(), environments: environments.clone() });
        let lease = Lease {
            actors: Arc::clone(self),
            client_wait: Duration::from_micros(run.config.inference.max_wait_microseconds),
            run,
            number,
            host: host.to_owned(),
            environments,
            index,
            saved: saved.map(|saved| (saved.state.unwrap_or_default(), saved.playing)),
        };
        drop(places);
        let groups = lease.groups();
        lease.run.notice(format!("{host} joined with {count} environment{}", if count == 1 { "" } else { "s" }));
        let client = lease.run.inference.client(Role::Actor);
        Ok(RemoteActor::new(lease, client, writers, groups))
    }

    /// Keeps actors from joining while a checkpoint is made, and returns the leases of those that will be saved.
    pub(crate) fn pause(&self) -> BTreeSet<u64> {
        let mut places = self.places();
        places.paused = true;
        places.playing.keys().copied().collect()
    }

    /// Ends a pause.
    pub(crate) fn end_pause(&self) {
        self.places().paused = false;
    }

    /// Saved actors that nobody has continued yet, which the next checkpoint keeps.
    pub(crate) fn waiting(&self) -> Vec<(SavedRemoteActor, Vec<WriterState>)> {
        self.places().waiting.clone()
    }

    fn leave(&self, lease: &Lease) {
        let mut places = self.places();
        places.playing.remove(&lease.number);
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

impl Places {
    /// The longest range of places that nobody has, if there is one.
    fn free(&self, capacity: usize) -> Option<Range<usize>> {
        let mut taken: Vec<Range<usize>> = self.playing.values().map(|actor| actor.environments.clone()).collect();
        taken.extend(self.waiting.iter().map(|(saved, _)| saved.first..saved.first + saved.environments));
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

impl RemoteRun {
    fn notice(&self, text: String) {
        // A run that has ended shows nothing any more.
        let _ = self.sender().send(ThreadMessage::Event(Event::Notice(text)));
    }

    pub(crate) fn sender(&self) -> Sender<ThreadMessage> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up a saved actor: its complete sequences stay, its episodes end.
    fn give_up(&self, actor: SavedRemoteActor, writers: Vec<WriterState>) {
        for state in writers {
            if let Ok(mut writer) = Writer::resume(&self.replay, state) {
                writer.abandon_episode();
                // What the limiter does not admit now is lost: a few sequences at most.
                let _ = writer.flush(Duration::ZERO);
            }
        }
        for policy in actor.playing {
            // It was one of the bandit's.
            let _ = self.bandit.abandon(Role::Actor, policy);
        }
    }
}

/// The places of an actor; they are free again when it is dropped.
pub struct Lease {
    actors: Arc<RemoteActors>,
    pub(crate) run: Arc<RemoteRun>,
    number: u64,
    host: String,
    environments: Range<usize>,
    index: u64,
    /// The actor's half to continue from, and the policies of its episodes.
    saved: Option<(Vec<u8>, Vec<usize>)>,
    /// How long inference waits for the actor.
    pub(crate) client_wait: Duration,
}

impl Lease {
    /// The run's effective config.
    pub fn config(&self) -> &Config {
        &self.run.config
    }

    /// The run's environment.
    pub fn spec(&self) -> &EnvSpec {
        &self.run.spec
    }

    /// Places among the remote environments.
    pub fn environments(&self) -> Range<usize> {
        self.environments.clone()
    }

    /// Index of the first environment, from which its episodes follow.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The state to continue from.
    pub fn state(&self) -> Option<&[u8]> {
        self.saved.as_ref().map(|(state, _)| state.as_slice())
    }

    /// Most remote environments of the run.
    pub fn capacity(&self) -> usize {
        self.actors.capacity
    }

    /// Length of f(x).
    pub fn embedding(&self) -> usize {
        self.run.embedding
    }

    /// Residual blocks of the torso that an actor may drop.
    pub fn droppable_blocks(&self) -> usize {
        self.run.droppable_blocks
    }

    /// The machine of the actor.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the run stops.
    pub fn is_stopping(&self) -> bool {
        self.run.control.is_stopping()
    }

    /// The number of the current pause, in which everything is saved.
    pub fn wanted_pause(&self) -> Option<u64> {
        self.run.control.wanted_pause()
    }

    /// Whether another connection of the same actor has taken its place.
    pub fn is_replaced(&self) -> bool {
        !self.actors.places().playing.contains_key(&self.number)
    }

    /// Number of groups that the environments are split into.
    pub fn groups(&self) -> usize {
        groups(&self.run.config.actors, self.environments.len())
    }

    pub(crate) fn policies(&self) -> usize {
        self.run.config.agent.policies.count
    }

    /// Index of an environment's recurrent state: after those of the run's own actors and evaluators.
    pub(crate) fn slot(&self, environment: usize) -> usize {
        let Config { actors, evaluation, .. } = &self.run.config;
        actors.environments + evaluation.evaluators + self.environments.start + environment
    }

    /// Index of an environment among those of all actors.
    pub(crate) fn environment(&self, environment: usize) -> usize {
        self.run.config.actors.environments + self.environments.start + environment
    }

    pub(crate) fn begun_policies(&self) -> Vec<usize> {
        self.saved.as_ref().map(|(_, playing)| playing.clone()).unwrap_or_default()
    }

    pub(crate) fn count_steps(&self, steps: u64) {
        self.actors.counters.steps.fetch_add(steps, Ordering::Relaxed);
        self.run.control.count_actor_steps(steps);
    }

    pub(crate) fn saved(&self, state: Option<Vec<u8>>, playing: Vec<usize>) -> (u64, SavedRemoteActor) {
        let (first, environments) = (self.environments.start, self.environments.len());
        (self.number, SavedRemoteActor { first, environments, index: self.index, playing, state })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.actors.leave(self);
    }
}

/// Number of groups of an actor with this many environments.
pub fn groups(config: &ActorsConfig, environments: usize) -> usize {
    if environments.is_multiple_of(config.groups) { config.groups } else { 1 }
}

/// Exploration rate of a remote environment. However few of them play, their rates cover the whole range: each new one
/// halves a gap.
pub fn remote_epsilon(config: &ActorsConfig, environment: usize, capacity: usize) -> f64 {
    let halved = (environment as u32).reverse_bits() as f64 / f64::from(u32::MAX);
    let rank = (halved * capacity.saturating_sub(1) as f64).round() as usize;
    actor_epsilon(rank, capacity, config.epsilon_base, config.epsilon_exponent)
}

/// Seed of a remote environment's exploration.
pub fn remote_seed(run: u64, index: u64) -> u64 {
    mix(mix(run ^ 0x7265_6d6f_7465) ^ index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_places_are_the_longest_gap() {
        let mut places = Places::default();
        let mut take = |number: u64, environments: Range<usize>| {
            places.playing.insert(number, PlayingActor { actor: number.to_string(), environments });
            places.free(16)
        };
        assert_eq!(take(0, 0..4), Some(4..16));
        assert_eq!(take(1, 8..12), Some(4..8));
        assert_eq!(take(2, 4..8), Some(12..16));
        assert_eq!(take(3, 12..16), None);
    }

    #[test]
    fn exploration_rates_cover_the_range_for_any_number_of_actors() {
        let config = ActorsConfig::default();
        let rates: Vec<f64> = (0..64).map(|environment| remote_epsilon(&config, environment, 64)).collect();
        assert!((rates[0] - 0.4).abs() < 1e-9, "{}", rates[0]);
        for few in [4, 8, 16] {
            let (high, low) =
                (rates[..few].iter().cloned().fold(0.0, f64::max), rates[..few].iter().cloned().fold(1.0, f64::min));
            assert!(high > 0.3 && low < 0.4_f64.powf(5.5), "{few}: {high} to {low}");
        }
    }
}
