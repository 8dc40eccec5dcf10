//! The thread that drives one actor or evaluator.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use replay::{ReplayError, WriterState};

use crate::error::{Result, TrainError};
use crate::roles::actor::{Actor, ActorSnapshot};
use crate::roles::bandit::SharedBandit;
use crate::roles::events::Event;
use crate::roles::inference::Decide;
use crate::roles::inference_server::InferenceClient;
use crate::roles::messages::{ActRequests, Decision, Role};
use crate::roles::remote_actors::RemoteActorSnapshot;
use crate::roles::run_control::{POLL, RunControl};
use crate::roles::timesheet::{Activity, Stopwatch};

/// What the other threads send to the learner's.
#[allow(clippy::large_enum_variant, reason = "almost every message is an event")]
pub(crate) enum ThreadMessage {
    Event(Event),
    /// An actor or evaluator for a checkpoint, from the pause of this number.
    Snapshot {
        pause: u64,
        index: usize,
        snapshot: ThreadSnapshot,
    },
    /// A remote actor for a checkpoint, with the number of its lease.
    RemoteSnapshot {
        pause: u64,
        lease: u64,
        actor: RemoteActorSnapshot,
        writers: Vec<WriterState>,
    },
    /// A remote actor is gone; it is in no snapshot.
    RemoteLeft {
        lease: u64,
    },
    /// The thread has failed. After an environment's failure it still answers every pause.
    Failed(TrainError),
}

/// What a checkpoint keeps of a thread.
pub(crate) enum ThreadSnapshot {
    Actor(ActorSnapshot, Vec<WriterState>),
    /// The number of episodes that each environment has begun.
    Evaluator(Vec<u64>),
}

/// An actor or evaluator on its own thread.
pub(crate) struct ActorThread {
    pub(crate) role: Role,
    /// Index among the threads of its role.
    pub(crate) index: usize,
    /// Episodes of each environment in an evaluation.
    pub(crate) episodes_each: usize,
    pub(crate) actor: Actor,
    pub(crate) client: InferenceClient,
    pub(crate) bandit: Arc<SharedBandit>,
    pub(crate) control: Arc<RunControl>,
    pub(crate) messages: Sender<ThreadMessage>,
    pub(crate) stopwatch: Stopwatch,
}

/// Separates the time that decisions take from the actor's own.
struct TimedClient<'a> {
    client: &'a mut InferenceClient,
    stopwatch: &'a mut Stopwatch,
}

impl Decide for TimedClient<'_> {
    fn decide(&mut self, requests: &mut ActRequests) -> Result<Vec<Decision>> {
        self.stopwatch.lap(Activity::Working);
        let decisions = self.client.decide(requests);
        self.stopwatch.lap(Activity::WaitingForInference);
        decisions
    }
}

impl ActorThread {
    /// Plays until the run stops.
    pub(crate) fn run(mut self) {
        // The learner thread waits for every actor when it takes a snapshot: without a report of a panic, forever.
        let played = catch_unwind(AssertUnwindSafe(|| match self.role {
            Role::Actor => self.play(),
            Role::Evaluator => self.evaluate(),
        }));
        if let Err(error) = played.unwrap_or(Err(TrainError::Panicked { role: self.role.into() }))
            && !self.control.is_stopping()
        {
            let is_usable = error.is_from_environment();
            let _ = self.messages.send(ThreadMessage::Failed(error));
            while is_usable && let Some(pause) = self.control.await_pause() {
                self.send_snapshot(pause);
            }
        }
    }

    fn play(&mut self) -> Result<()> {
        loop {
            for group in 0..self.actor.groups() {
                self.absorb_as_actor(group)?;
                if let Some(pause) = self.control.wanted_pause() {
                    for group in 0..self.actor.groups() {
                        self.absorb_as_actor(group)?;
                    }
                    self.send_snapshot(pause);
                }
                if self.control.is_stopping() {
                    return Ok(());
                }
                self.decide(group)?;
                let continues = self.flush()?;
                self.stopwatch.lap(Activity::WaitingForReplay);
                if !continues {
                    return Ok(());
                }
            }
        }
    }

    /// Plays one evaluation after another until the run stops.
    fn evaluate(&mut self) -> Result<()> {
        let mut number = 0;
        while !self.control.is_stopping() {
            let away = self.client.away();
            let begun = self.control.await_evaluation(number);
            drop(away);
            self.stopwatch.lap(Activity::BetweenEvaluations);
            if let Some(begun) = begun {
                number = begun.number;
                self.actor.restart(begun.distances, &*self.bandit)?;
                self.play_evaluation()?;
            } else if let Some(pause) = self.control.wanted_pause() {
                self.send_snapshot(pause);
            }
        }
        Ok(())
    }

    /// Plays until every environment has finished as many episodes as count, or the run stops.
    fn play_evaluation(&mut self) -> Result<()> {
        let mut played = BTreeMap::new();
        let each = self.episodes_each;
        let is_complete =
            |played: &BTreeMap<_, usize>, of: usize| played.values().filter(|&&count| count >= each).count() == of;
        while !is_complete(&played, self.actor.environments()) && !self.control.is_stopping() {
            for group in 0..self.actor.groups() {
                self.absorb_as_evaluator(group, &mut played)?;
                if let Some(pause) = self.control.wanted_pause() {
                    self.send_snapshot(pause);
                }
                self.decide(group)?;
            }
        }
        // Episodes that do not count end here.
        (0..self.actor.groups()).try_for_each(|group| self.absorb_as_evaluator(group, &mut played))
    }

    fn decide(&mut self, group: usize) -> Result<()> {
        let (client, stopwatch) = (&mut self.client, &mut self.stopwatch);
        self.actor.decide(group, &mut TimedClient { client, stopwatch })?;
        self.stopwatch.lap(Activity::Working);
        Ok(())
    }

    fn absorb_as_actor(&mut self, group: usize) -> Result<()> {
        let steps_before = self.actor.steps;
        self.absorb(group, |_| true)?;
        self.control.count_actor_steps(self.actor.steps - steps_before);
        Ok(())
    }

    /// Counts the episodes that each environment has finished, and sends only as many as count.
    fn absorb_as_evaluator(&mut self, group: usize, played: &mut BTreeMap<usize, usize>) -> Result<()> {
        let each = self.episodes_each;
        self.absorb(group, |event| match event {
            Event::Episode(report) => {
                let played = played.entry(report.environment).or_default();
                *played += 1;
                *played <= each
            }
            _ => true,
        })
    }

    /// Waits for a group, takes its outcomes and sends the events that are wanted.
    fn absorb(&mut self, group: usize, mut is_wanted: impl FnMut(&Event) -> bool) -> Result<()> {
        self.stopwatch.lap(Activity::Working);
        let messages = &self.messages;
        let mut send = |event| {
            if is_wanted(&event) {
                drop(messages.send(ThreadMessage::Event(event)));
            }
        };
        self.actor.wait(group, &mut send)?;
        self.stopwatch.lap(Activity::WaitingForEnvironments);
        self.actor.absorb(group, &*self.bandit, &mut send)
    }

    /// Inserts sequences into replay, however long that takes; returns false if the run stops.
    fn flush(&mut self) -> Result<bool> {
        // Inference keeps waiting for this actor: if actors block here, the learner is the bottleneck, and a few large
        // inference batches leave it more of the device.
        loop {
            match self.actor.flush(POLL) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(TrainError::Replay(ReplayError::Stopped)) => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.control.is_stopping() {
                return Ok(false);
            }
            if self.control.wanted_pause().is_some() {
                // The rest is saved with the writers.
                return Ok(true);
            }
        }
    }

    /// Sends a snapshot to the learner's thread and sleeps until the pause is over.
    fn send_snapshot(&mut self, pause: u64) {
        let snapshot = match self.role {
            Role::Actor => ThreadSnapshot::Actor(self.actor.snapshot(), self.actor.writers()),
            Role::Evaluator => ThreadSnapshot::Evaluator(self.actor.episodes_begun()),
        };
        drop(self.messages.send(ThreadMessage::Snapshot { pause, index: self.index, snapshot }));
        let away = self.client.away();
        self.control.wait_out_pause(pause);
        drop(away);
        self.stopwatch.lap(Activity::Resting);
    }
}
