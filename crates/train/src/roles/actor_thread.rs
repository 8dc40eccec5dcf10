//! The thread that drives one actor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use replay::{ReplayError, WriterState};

use crate::error::{Result, TrainError};
use crate::roles::actor::{Actor, SavedActor};
use crate::roles::bandit::CentralBandit;
use crate::roles::inference::Decide;
use crate::roles::inference_server::InferenceClient;
use crate::roles::messages::{ActRequests, Decision, Role};
use crate::runtime::events::Event;
use crate::runtime::run_control::{POLL, RunControl};
use crate::runtime::timesheet::{Activity, Stopwatch};

/// What the other threads send to the learner's.
pub(crate) enum ThreadMessage {
    Event(Event),
    /// An actor's copy for a checkpoint, made during the pause of this number.
    Saved {
        pause: u64,
        role: Role,
        index: usize,
        actor: SavedActor,
        writers: Vec<WriterState>,
    },
    /// The thread has failed. After an environment's failure it still answers every pause.
    Failed(TrainError),
}

/// An actor or evaluator on its own thread.
pub(crate) struct ActorThread {
    pub(crate) role: Role,
    /// Index among the threads of its role.
    pub(crate) index: usize,
    pub(crate) actor: Actor,
    pub(crate) client: InferenceClient,
    pub(crate) bandit: Arc<CentralBandit>,
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
        // The learner's thread waits for every actor when it makes a copy, so it must learn of a panic too.
        let played = catch_unwind(AssertUnwindSafe(|| self.play()));
        if let Err(error) = played.unwrap_or(Err(TrainError::Panicked { role: "an actor" }))
            && !self.control.is_stopping()
        {
            let is_usable = error.is_from_environment();
            let _ = self.messages.send(ThreadMessage::Failed(error));
            while is_usable && let Some(pause) = self.control.await_pause() {
                self.send_copy(pause);
            }
        }
    }

    fn play(&mut self) -> Result<()> {
        loop {
            for group in 0..self.actor.groups() {
                self.absorb(group)?;
                if let Some(pause) = self.control.wanted_pause() {
                    for group in 0..self.actor.groups() {
                        self.absorb(group)?;
                    }
                    self.send_copy(pause);
                }
                if self.control.is_stopping() {
                    return Ok(());
                }
                let (client, stopwatch) = (&mut self.client, &mut self.stopwatch);
                self.actor.decide(group, &mut TimedClient { client, stopwatch })?;
                self.stopwatch.lap(Activity::Working);
                // Evaluators have nothing to insert.
                if self.role == Role::Actor {
                    let continues = self.flush()?;
                    self.stopwatch.lap(Activity::WaitingForReplay);
                    if !continues {
                        return Ok(());
                    }
                }
            }
            if self.role == Role::Actor {
                continue;
            }
            let away = self.client.away();
            while self.control.is_ahead(self.actor.steps_each()) {
                if self.control.wanted_pause().is_some() || self.control.is_stopping() {
                    break;
                }
            }
            drop(away);
            self.stopwatch.lap(Activity::WaitingForActors);
        }
    }

    fn absorb(&mut self, group: usize) -> Result<()> {
        let steps_before = self.actor.steps();
        self.stopwatch.lap(Activity::Working);
        let messages = &self.messages;
        let mut send = |event| drop(messages.send(ThreadMessage::Event(event)));
        self.actor.wait(group, &mut send)?;
        self.stopwatch.lap(Activity::WaitingForEnvironments);
        self.actor.absorb(group, &self.bandit, &mut send)?;
        if self.role == Role::Actor {
            self.control.count_actor_steps(self.actor.steps() - steps_before);
        }
        Ok(())
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

    /// Sends a copy to the learner's thread and sleeps until the pause is over.
    fn send_copy(&mut self, pause: u64) {
        let (actor, writers) = (self.actor.save(), self.actor.writers());
        drop(self.messages.send(ThreadMessage::Saved { pause, role: self.role, index: self.index, actor, writers }));
        let away = self.client.away();
        self.control.wait_out_pause(pause);
        drop(away);
        self.stopwatch.lap(Activity::Resting);
    }
}
