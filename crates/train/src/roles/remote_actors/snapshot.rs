//! What a checkpoint keeps of remote actors.

use std::ops::Range;

use replay::WriterState;
use serde::{Deserialize, Serialize};

/// What a checkpoint keeps of a remote actor, besides the writers' states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoteActorSnapshot {
    pub(super) first: usize,
    pub(super) environments: usize,
    pub(super) index: u64,
    /// Policies of episodes that have begun and not ended.
    pub(super) playing: Vec<usize>,
    /// The actor's own half; absent if it could not be had in time.
    pub(super) state: Option<Vec<u8>>,
}

/// What a checkpoint keeps of all remote actors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RemoteActorsSnapshot {
    /// Agent steps that remote environments have made.
    pub steps: u64,
    /// The actors.
    pub actors: Vec<RemoteActorSnapshot>,
}

impl RemoteActorSnapshot {
    /// Its range among the remote environments.
    pub(super) fn environments_range(&self) -> Range<usize> {
        self.first..self.first + self.environments
    }
}

impl RemoteActorsSnapshot {
    /// These actors, whose writers are appended to `all`.
    pub(crate) fn new(
        steps: u64,
        actors: Vec<(RemoteActorSnapshot, Vec<WriterState>)>,
        all: &mut Vec<WriterState>,
    ) -> Self {
        let take = |(actor, writers): (RemoteActorSnapshot, Vec<WriterState>)| {
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
    ) -> Vec<(RemoteActorSnapshot, Vec<WriterState>)> {
        let with_writers = |actor: &RemoteActorSnapshot| {
            let environments = local + actor.first..local + actor.environments_range().end;
            let own = writers.iter().filter(|writer| environments.contains(&(writer.actor() as usize)));
            (actor.clone(), own.cloned().collect())
        };
        self.actors.iter().map(with_writers).collect()
    }
}
