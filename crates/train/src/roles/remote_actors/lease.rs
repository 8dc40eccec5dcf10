//! A remote actor's hold on a run: its environments and the roles it talks to.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use envs::EnvSpec;
use replay::{Replay, Writer, WriterState};

use super::{RemoteActorSnapshot, RemoteActorSpec, RemoteActors};
use crate::config::Config;
use crate::roles::actor_thread::ThreadMessage;
use crate::roles::bandit::{PolicySource, SharedBandit};
use crate::roles::events::Event;
use crate::roles::inference_server::InferenceConnector;
use crate::roles::messages::Role;
use crate::roles::run_control::RunControl;

/// What remote actors need of a run that trains.
pub(crate) struct RemoteRun {
    pub(crate) inference: InferenceConnector,
    pub(crate) replay: Arc<Replay>,
    pub(crate) bandit: Arc<SharedBandit>,
    pub(crate) control: Arc<RunControl>,
    pub(crate) messages: Mutex<Sender<ThreadMessage>>,
    pub(crate) config: Config,
    pub(crate) spec: EnvSpec,
    pub(crate) embedding_length: usize,
    pub(crate) droppable_blocks: usize,
}

impl RemoteRun {
    pub(super) fn notice(&self, text: String) {
        // A run that has ended shows nothing any more.
        let _ = self.sender().send(ThreadMessage::Event(Event::Notice(text)));
    }

    pub(crate) fn sender(&self) -> Sender<ThreadMessage> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up a saved actor: its complete sequences stay, its episodes end.
    pub(super) fn give_up(&self, actor: RemoteActorSnapshot, writers: Vec<WriterState>) {
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

/// The environments of an actor; they are free again when it is dropped.
pub struct Lease {
    pub(super) actors: Arc<RemoteActors>,
    pub(crate) run: Arc<RemoteRun>,
    pub(crate) number: u64,
    pub(crate) host: String,
    pub(super) environments: Range<usize>,
    pub(super) index: u64,
    /// The actor's half to continue from, and the policies of its episodes.
    pub(super) saved: Option<(Vec<u8>, Vec<usize>)>,
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

    /// Which remote environments the actor plays.
    pub fn remote_spec(&self) -> RemoteActorSpec {
        RemoteActorSpec {
            first: self.environments.start,
            environments: self.environments.len(),
            capacity: self.actors.capacity,
            index: self.index,
            embedding_length: self.run.embedding_length,
            droppable_blocks: self.run.droppable_blocks,
        }
    }

    /// The state to continue from.
    pub fn state(&self) -> Option<&[u8]> {
        self.saved.as_ref().map(|(state, _)| state.as_slice())
    }

    /// Returns whether the run stops.
    pub fn is_stopping(&self) -> bool {
        self.run.control.is_stopping()
    }

    /// The number of the current pause, in which everything is saved.
    pub fn wanted_pause(&self) -> Option<u64> {
        self.run.control.wanted_pause()
    }

    /// Returns whether another connection of the same actor has taken its place.
    pub fn is_replaced(&self) -> bool {
        !self.actors.state().playing.contains_key(&self.number)
    }

    /// Number of groups that the environments are split into.
    pub fn groups(&self) -> usize {
        self.run.config.actors.groups_of(self.environments.len())
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

    pub(crate) fn snapshot(&self, state: Option<Vec<u8>>, playing: Vec<usize>) -> RemoteActorSnapshot {
        let RemoteActorSpec { first, environments, index, .. } = self.remote_spec();
        RemoteActorSnapshot { first, environments, index, playing, state }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.actors.leave(self);
    }
}
