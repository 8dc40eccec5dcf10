//! One set of environments and the seats beside them: what an actor or an evaluator runs.

use std::time::Duration;

use agent::acting::ObservationRows;
use envs::{EnvError, Environments, Step};
use replay::{ReplayError, Writer, WriterState};
use serde::{Deserialize, Serialize};

use crate::bandit::CentralBandit;
use crate::error::{Result, TrainError};
use crate::inference::Decide;
use crate::messages::{EpisodeReport, Position, Turns};
use crate::seat::{Progress, Seat, SeatPlace};

/// Environments of one worker, with a seat each.
///
/// A group's step is three calls: [`decide`](Self::decide) asks the networks and sets the environments going,
/// [`wait`](Self::wait) waits for them, [`absorb`](Self::absorb) takes in what they did. With two groups one steps while
/// the networks decide for the other.
pub struct Player {
    environments: Box<dyn Environments>,
    seats: Vec<Seat>,
    /// Groups between `decide` and `wait`.
    going: Vec<bool>,
    /// What the actions of each group led to, between `wait` and `absorb`.
    arrived: Vec<Vec<Step>>,
    turns: Turns,
    steps: u64,
    /// Where episodes have been for the first time, until somebody takes it.
    positions: Vec<Position>,
    /// What went wrong here and was mended, until somebody takes it.
    faults: Vec<String>,
    /// Whether an error came in the middle of a step, so that its environments are elsewhere than its seats.
    broken: bool,
}

/// What continues from a saved run, beside the writers' states.
#[derive(Serialize, Deserialize)]
pub struct SavedPlayer {
    steps: u64,
    seats: Vec<SavedSeat>,
}

impl SavedPlayer {
    /// How many environments it has.
    pub fn environments(&self) -> usize {
        self.seats.len()
    }
}

#[derive(Serialize, Deserialize)]
struct SavedSeat {
    progress: Progress,
    /// Absent where the environment can't be saved: its episode will not go on.
    environment: Option<Vec<u8>>,
    /// Episodes that it had begun: none of them is played again.
    episodes: u64,
}

impl Player {
    /// Begins the first episodes. There is one seat and one row for observations an environment, in their order.
    pub fn new(
        mut environments: Box<dyn Environments>,
        seats: Vec<Seat>,
        observations: ObservationRows,
    ) -> Result<Self> {
        environments.reset()?;
        Ok(Self::at_rest(environments, seats, observations))
    }

    /// Environments that stand at an observation each.
    fn at_rest(environments: Box<dyn Environments>, seats: Vec<Seat>, observations: ObservationRows) -> Self {
        let groups = environments.groups();
        Self {
            environments,
            seats,
            going: vec![false; groups],
            arrived: vec![Vec::new(); groups],
            turns: Turns::new(observations),
            steps: 0,
            positions: Vec::new(),
            faults: Vec::new(),
            broken: false,
        }
    }

    /// Goes on with environments that were restored, with a place and a writer (for an evaluator none) for each of them.
    /// An episode that can't go on is abandoned: learner and replay lose nothing by that.
    pub fn resume(
        restored: RestoredEnvironments,
        places: Vec<SeatPlace>,
        writers: Vec<Option<Writer>>,
        observations: ObservationRows,
        bandit: &CentralBandit,
    ) -> Result<Self> {
        let RestoredEnvironments { environments, steps, seats, fault } = restored;
        let mut player = Self::at_rest(environments, Vec::new(), observations);
        player.steps = steps;
        for ((place, writer), (progress, goes_on)) in places.into_iter().zip(writers).zip(seats) {
            let mut seat = Seat::resume(place, progress, writer);
            if !goes_on {
                seat.abandon(bandit)?;
            }
            player.seats.push(seat);
        }
        player.faults.extend(fault);
        Ok(player)
    }

    /// What the environments look like.
    pub fn spec(&self) -> &envs::EnvSpec {
        self.environments.spec()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.going.len()
    }

    /// Agent steps so far, all environments together.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Agent steps of each environment so far.
    pub fn steps_each(&self) -> u64 {
        self.steps / self.seats.len().max(1) as u64
    }

    /// Where episodes have been since the last call; a position comes once for each episode that has been there.
    pub fn take_positions(&mut self) -> Vec<Position> {
        std::mem::take(&mut self.positions)
    }

    /// Lets the networks decide for a group and sets its environments going.
    pub fn decide(&mut self, group: usize, networks: &mut dyn Decide) -> Result<()> {
        let size = self.environments.group_size();
        self.turns.turns.clear();
        for env in 0..size {
            let row = group * size + env;
            self.environments.observation(group, env, self.turns.observations.row_mut(row)?);
            self.seats[row].ask(row, &mut self.turns);
        }
        let mut decisions = networks.decide(&mut self.turns)?.into_iter();
        let mut actions = Vec::with_capacity(size);
        for env in 0..size {
            let row = group * size + env;
            let observation = self.turns.observations.row(row)?;
            actions.push(self.seats[row].choose(&observation, &mut decisions)?);
        }
        self.environments.start(group, &actions)?;
        self.going[group] = true;
        Ok(())
    }

    /// Waits for a group's environments, if they are going. What went wrong since the last call and was mended is told to
    /// `say`, a sentence each, also where in the end it could not be mended.
    pub fn wait(&mut self, group: usize, say: &mut dyn FnMut(String)) -> Result<()> {
        let mut finished = Ok(());
        if std::mem::replace(&mut self.going[group], false) {
            let arrived = &mut self.arrived[group];
            finished = self.environments.finish(group).map(|steps| arrived.extend_from_slice(steps));
        }
        self.broken |= finished.is_err();
        self.faults.drain(..).chain(self.environments.take_faults()).for_each(say);
        Ok(finished?)
    }

    /// Takes in what a group's actions led to, if they were waited for.
    pub fn absorb(&mut self, group: usize, bandit: &CentralBandit, ended: &mut dyn FnMut(EpisodeReport)) -> Result<()> {
        let size = self.environments.group_size();
        let bytes = self.environments.spec().observation_bytes();
        let steps = std::mem::take(&mut self.arrived[group]);
        for (env, step) in steps.iter().enumerate() {
            let environments = &self.environments;
            let last = || {
                let mut observation = vec![0; bytes];
                environments.last_observation(group, env, &mut observation);
                observation
            };
            let seat = &mut self.seats[group * size + env];
            let position = Position::new(environments.ram(group, env));
            self.positions.extend(position.filter(|&position| seat.visit(position)));
            if let Some(report) = seat.take(step, last, bandit).inspect_err(|_| self.broken = true)? {
                ended(report);
            }
        }
        self.steps += steps.len() as u64;
        Ok(())
    }

    /// Puts complete sequences into replay, waiting for the rate limiter at most `timeout` in all; whether none are left.
    pub fn flush(&mut self, timeout: Duration) -> Result<bool> {
        let begun = std::time::Instant::now();
        for writer in self.seats.iter_mut().filter_map(Seat::writer_mut) {
            match writer.flush(timeout.saturating_sub(begun.elapsed())) {
                Ok(()) => {}
                Err(ReplayError::Timeout { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// What continues from here; every group must be at rest, or an error have come. Then the episodes are lost, and no
    /// more than they.
    pub fn save(&mut self) -> SavedPlayer {
        let size = self.environments.group_size();
        let mut seats = Vec::with_capacity(self.seats.len());
        for (i, seat) in self.seats.iter().enumerate() {
            // It may have no way to be saved, or its worker was lost just now: then its episode will be cut off anyway.
            let environment = if self.broken { None } else { self.environments.save(i / size, i % size).ok() };
            let episodes = self.environments.episodes_begun(i / size, i % size);
            seats.push(SavedSeat { progress: seat.progress().clone(), environment, episodes });
        }
        SavedPlayer { steps: self.steps, seats }
    }

    /// The writers' states, in the order of the environments.
    pub fn writers(&self) -> Vec<WriterState> {
        self.seats.iter().filter_map(Seat::writer).map(Writer::state).collect()
    }
}

/// Environments that go on from a saved player's, and what its seats go on from.
pub struct RestoredEnvironments {
    environments: Box<dyn Environments>,
    steps: u64,
    /// Each with whether its environment goes on with the same episode.
    seats: Vec<(Progress, bool)>,
    /// What went wrong and was mended.
    fault: Option<String>,
}

impl RestoredEnvironments {
    /// Begins new episodes where the old ones can't go on, because an environment could not be saved or can't make use of
    /// what was saved. It may take long, where a game has to be played again, and each set can be restored by itself.
    pub fn new(mut environments: Box<dyn Environments>, saved: SavedPlayer) -> Result<Self> {
        let SavedPlayer { steps, seats: saved } = saved;
        let size = environments.group_size();
        let configured = environments.groups() * size;
        if saved.len() != configured {
            return Err(TrainError::OtherSeats { saved: saved.len(), configured });
        }
        for (i, seat) in saved.iter().enumerate() {
            environments.skip_episodes(i / size, i % size, seat.episodes);
        }
        environments.reset()?;
        let mut restoring = Restoring::default();
        let mut seats = Vec::with_capacity(saved.len());
        for (i, SavedSeat { progress, environment, episodes: _ }) in saved.into_iter().enumerate() {
            let goes_on = match environment {
                Some(bytes) => restoring.restore(environments.as_mut(), (i / size, i % size), &bytes)?,
                None => false,
            };
            seats.push((progress, goes_on));
        }
        Ok(Self { environments, steps, seats, fault: restoring.fault() })
    }
}

/// How far the environments of a player have gone on from what was saved.
#[derive(Default)]
struct Restoring {
    /// The worker was lost on the way and replaced: none of its episodes goes on, and each ends with its next step.
    lost: bool,
    /// Why the first environment could not make use of what was saved, and how many could not.
    refused: Option<(EnvError, usize)>,
}

impl Restoring {
    /// Whether the environment goes on from `saved`. A save of another game or another kind of play is an error: what
    /// the agent has learned is not about this one.
    fn restore(
        &mut self,
        environments: &mut dyn Environments,
        (group, env): (usize, usize),
        saved: &[u8],
    ) -> Result<bool> {
        if self.lost {
            return Ok(false);
        }
        match environments.restore(group, env, saved) {
            Ok(()) => return Ok(true),
            Err(error @ EnvError::Unsupported { .. }) => {
                let (_, count) = self.refused.get_or_insert((error, 0));
                *count += 1;
            }
            // The set says so itself, with its other faults.
            Err(
                EnvError::Raised { .. } | EnvError::Lost { .. } | EnvError::Timeout { .. } | EnvError::Protocol { .. },
            ) => self.lost = true,
            Err(error) => return Err(error.into()),
        }
        Ok(false)
    }

    /// A sentence for all that were refused: mostly all are, for the same reason.
    fn fault(self) -> Option<String> {
        let (error, count) = self.refused?;
        Some(format!("{error}; the episodes that can't go on, {count} in this worker, are abandoned"))
    }
}
