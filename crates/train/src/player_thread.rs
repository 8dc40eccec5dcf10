//! One player on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use replay::{ReplayError, WriterState};

use crate::bandit::CentralBandit;
use crate::crew::{Crew, PATIENCE};
use crate::error::{Result, TrainError};
use crate::inference::Decide;
use crate::messages::{Decision, EpisodeReport, Position, Role, Turns};
use crate::player::{Player, SavedPlayer};
use crate::service::Client;
use crate::timesheet::{Activity, Stopwatch};

/// What players and sampler tell the learner's thread.
pub(crate) enum News {
    Episode(EpisodeReport),
    Positions(Vec<Position>),
    Fault(String),
    Saved {
        rest: u64,
        role: Role,
        index: usize,
        player: SavedPlayer,
        writers: Vec<WriterState>,
    },
    /// Where an environment failed, the player still hands over what it has at every rest.
    Failed(TrainError),
}

/// One player on a thread.
pub(crate) struct PlayerThread {
    pub(crate) role: Role,
    /// Its number among those of its role.
    pub(crate) index: usize,
    pub(crate) player: Player,
    pub(crate) client: Client,
    pub(crate) bandit: Arc<CentralBandit>,
    pub(crate) crew: Arc<Crew>,
    pub(crate) tell: Sender<News>,
    pub(crate) stopwatch: Stopwatch,
}

/// What a player does, by its role.
struct Activities {
    works: Activity,
    waits_for_inference: Activity,
    waits_for_environments: Activity,
    rests: Activity,
}

const ACTOR: Activities = Activities {
    works: Activity::ActorWorks,
    waits_for_inference: Activity::ActorWaitsForInference,
    waits_for_environments: Activity::ActorWaitsForEnvironments,
    rests: Activity::ActorRests,
};

const EVALUATOR: Activities = Activities {
    works: Activity::EvaluatorWorks,
    waits_for_inference: Activity::EvaluatorWaitsForInference,
    waits_for_environments: Activity::EvaluatorWaitsForEnvironments,
    rests: Activity::EvaluatorRests,
};

/// The time that decisions take is told from the player's own.
struct Timed<'a> {
    client: &'a mut Client,
    stopwatch: &'a mut Stopwatch,
    activities: &'static Activities,
}

impl Decide for Timed<'_> {
    fn decide(&mut self, turns: &mut Turns) -> Result<Vec<Decision>> {
        self.stopwatch.lap(self.activities.works);
        let decisions = self.client.decide(turns);
        self.stopwatch.lap(self.activities.waits_for_inference);
        decisions
    }
}

impl PlayerThread {
    fn activities(&self) -> &'static Activities {
        match self.role {
            Role::Actor => &ACTOR,
            Role::Evaluator => &EVALUATOR,
        }
    }

    /// Plays until all stop.
    pub(crate) fn run(mut self) {
        // The learner's thread waits for every player when it copies, so it must hear of a panic too.
        let played = catch_unwind(AssertUnwindSafe(|| self.play()));
        if let Err(error) = played.unwrap_or(Err(TrainError::Panicked { role: "a player" }))
            && !self.crew.is_stopping()
        {
            let hands_over = error.is_of_an_environment();
            let _ = self.tell.send(News::Failed(error));
            while hands_over && let Some(rest) = self.crew.await_rest() {
                self.hand_over(rest);
            }
        }
    }

    fn play(&mut self) -> Result<()> {
        loop {
            for group in 0..self.player.groups() {
                self.absorb(group)?;
                if let Some(number) = self.crew.wanted_rest() {
                    self.save(number)?;
                }
                if self.crew.is_stopping() {
                    return Ok(());
                }
                let activities = self.activities();
                let (client, stopwatch) = (&mut self.client, &mut self.stopwatch);
                self.player.decide(group, &mut Timed { client, stopwatch, activities })?;
                self.stopwatch.lap(activities.works);
                // An evaluator has nothing to put in.
                if self.role == Role::Actor {
                    let goes_on = self.flush()?;
                    self.stopwatch.lap(Activity::ActorWaitsForReplay);
                    if !goes_on {
                        return Ok(());
                    }
                }
            }
            if self.role == Role::Actor {
                continue;
            }
            let away = self.client.away();
            while self.crew.is_ahead(self.player.steps_each()) {
                if self.crew.wanted_rest().is_some() || self.crew.is_stopping() {
                    break;
                }
            }
            drop(away);
            self.stopwatch.lap(Activity::EvaluatorWaitsForActors);
        }
    }

    fn absorb(&mut self, group: usize) -> Result<()> {
        let before = self.player.steps();
        self.stopwatch.lap(self.activities().works);
        let tell = &self.tell;
        self.player.wait(group, &mut |fault| drop(tell.send(News::Fault(fault))))?;
        self.stopwatch.lap(self.activities().waits_for_environments);
        self.player.absorb(group, &self.bandit, &mut |report| drop(tell.send(News::Episode(report))))?;
        if self.role == Role::Actor {
            self.crew.count_actor_steps(self.player.steps() - before);
        }
        let positions = self.player.take_positions();
        if self.role == Role::Actor && !positions.is_empty() {
            drop(tell.send(News::Positions(positions)));
        }
        Ok(())
    }

    /// Puts sequences into replay, as long as that takes; false when all stop.
    fn flush(&mut self) -> Result<bool> {
        // Not away: where actors wait here the learner is the slowest, and few large batches leave it more of the device.
        loop {
            match self.player.flush(PATIENCE) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(TrainError::Replay(ReplayError::Stopped)) => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.crew.is_stopping() {
                return Ok(false);
            }
            if self.crew.wanted_rest().is_some() {
                // What can't be put in now is saved with the writers.
                return Ok(true);
            }
        }
    }

    /// All groups at rest, a copy handed over, and on when the rest is over.
    fn save(&mut self, rest: u64) -> Result<()> {
        for group in 0..self.player.groups() {
            self.absorb(group)?;
        }
        self.hand_over(rest);
        Ok(())
    }

    /// A copy, and sleep until the rest is over.
    fn hand_over(&mut self, rest: u64) {
        let (player, writers) = (self.player.save(), self.player.writers());
        drop(self.tell.send(News::Saved { rest, role: self.role, index: self.index, player, writers }));
        let away = self.client.away();
        self.crew.wait_out_rest(rest);
        drop(away);
        self.stopwatch.lap(self.activities().rests);
    }
}
