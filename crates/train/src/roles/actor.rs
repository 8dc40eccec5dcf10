//! The environments of one worker with their actor environments: what an actor or an evaluator runs.

use std::time::Duration;

use agent::acting::ObservationRows;
use agent::intrinsic::DistanceMean;
use envs::{EnvError, Environments, Step};
use replay::WriterState;
use serde::{Deserialize, Serialize};

use crate::environments::environment_count;
use crate::error::{Result, TrainError};
use crate::roles::actor_env::{EnvActor, EnvActorState};
use crate::roles::bandit::PolicySource;
use crate::roles::events::Event;
use crate::roles::inference::Decide;
use crate::roles::messages::{ActRequests, Position, Role};
use crate::roles::step_writer::{self, WriteOperation};

/// The environments of one worker, each with its actor environment.
///
/// A group's step is three calls: [`decide`](Self::decide) asks the networks and starts the environments,
/// [`wait`](Self::wait) waits for them, [`absorb`](Self::absorb) takes their outcomes. With two groups, one steps while
/// the networks decide for the other.
pub struct Actor {
    environments: Box<dyn Environments>,
    env_actors: Vec<EnvActor>,
    /// Groups between `decide` and `wait`.
    stepping: Vec<bool>,
    /// Outcomes of each group, between `wait` and `absorb`.
    arrived: Vec<Vec<Step>>,
    requests: ActRequests,
    /// Agent steps so far, summed over the environments.
    pub steps: u64,
    /// Reported by the next `wait`.
    fault: Option<String>,
    /// Whether an error interrupted a step, so that environments and actor environments disagree.
    broken: bool,
}

/// What a checkpoint keeps of an actor, besides the writers' states.
#[derive(Serialize, Deserialize)]
pub struct ActorSnapshot {
    steps: u64,
    env_actors: Vec<EnvActorSnapshot>,
}

impl ActorSnapshot {
    /// Number of environments.
    pub fn environments(&self) -> usize {
        self.env_actors.len()
    }
}

#[derive(Serialize, Deserialize)]
struct EnvActorSnapshot {
    state: EnvActorState,
    /// Absent where the environment cannot be saved: its episode is lost.
    environment: Option<Vec<u8>>,
    /// Episodes started so far; none of them is played again.
    episodes: u64,
}

impl Actor {
    /// Starts the first episodes. Takes one actor environment and one row for observations per environment.
    pub fn new(
        mut environments: Box<dyn Environments>,
        env_actors: Vec<EnvActor>,
        observations: ObservationRows,
    ) -> Result<Self> {
        environments.reset()?;
        Ok(Self::between_steps(environments, env_actors, observations))
    }

    /// An evaluator, which plays from [`restart`](Self::restart) on. Its environments have begun this many episodes
    /// before; those without a number have begun none.
    pub fn evaluator(
        mut environments: Box<dyn Environments>,
        env_actors: Vec<EnvActor>,
        observations: ObservationRows,
        episodes_begun: &[u64],
    ) -> Self {
        let size = environments.group_size();
        for (i, &begun) in episodes_begun.iter().take(env_actors.len()).enumerate() {
            environments.skip_episodes(i / size, i % size, begun);
        }
        Self::between_steps(environments, env_actors, observations)
    }

    /// Begins new episodes in all environments, none of which may be stepping, with this d²_m.
    pub fn restart(&mut self, distances: DistanceMean, bandit: &dyn PolicySource) -> Result<()> {
        self.environments.reset()?;
        self.env_actors.iter_mut().try_for_each(|env_actor| env_actor.restart(distances, bandit))
    }

    /// Number of episodes that each environment has begun.
    pub fn episodes_begun(&self) -> Vec<u64> {
        let size = self.environments.group_size();
        (0..self.env_actors.len()).map(|i| self.environments.episodes_begun(i / size, i % size)).collect()
    }

    /// Number of environments.
    pub fn environments(&self) -> usize {
        self.env_actors.len()
    }

    fn between_steps(
        environments: Box<dyn Environments>,
        env_actors: Vec<EnvActor>,
        observations: ObservationRows,
    ) -> Self {
        let groups = environments.groups();
        Self {
            environments,
            env_actors,
            stepping: vec![false; groups],
            arrived: vec![Vec::new(); groups],
            requests: ActRequests::new(observations),
            steps: 0,
            fault: None,
            broken: false,
        }
    }

    /// Continues with restored environments. `resume` makes an actor environment of each saved state, in order;
    /// episodes that cannot continue are abandoned, which costs learner and replay nothing.
    pub fn resume(
        restored: RestoredEnvironments,
        observations: ObservationRows,
        bandit: &dyn PolicySource,
        mut resume: impl FnMut(EnvActorState) -> Result<EnvActor>,
    ) -> Result<Self> {
        let RestoredEnvironments { environments, steps, states, fault } = restored;
        let mut env_actors = Vec::with_capacity(states.len());
        for (state, continues) in states {
            let mut env_actor = resume(state)?;
            if !continues {
                env_actor.abandon(bandit)?;
            }
            env_actors.push(env_actor);
        }
        Ok(Self { steps, fault, ..Self::between_steps(environments, env_actors, observations) })
    }

    /// Specification of the environments.
    pub fn spec(&self) -> &envs::EnvSpec {
        self.environments.spec()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.stepping.len()
    }

    /// Asks the networks for a group's actions and starts its environments.
    pub fn decide(&mut self, group: usize, networks: &mut dyn Decide) -> Result<()> {
        let size = self.environments.group_size();
        let rows = group * size..(group + 1) * size;
        self.requests.requests.clear();
        self.requests.operations.clear();
        for (env, row) in rows.clone().enumerate() {
            self.environments.observation(group, env, self.requests.observations.row_mut(row)?);
            self.env_actors[row].request(row, &mut self.requests.requests);
            self.requests.operations.push(self.env_actors[row].take_operations());
        }
        let mut decisions = networks.decide(&mut self.requests)?.into_iter();
        let mut actions = Vec::with_capacity(size);
        for row in rows {
            let observation = self.requests.observations.row(row)?;
            actions.push(self.env_actors[row].choose(&observation, &mut decisions)?);
        }
        self.environments.start(group, &actions)?;
        self.stepping[group] = true;
        Ok(())
    }

    /// Waits for a group's environments, if they are stepping. Reports faults that were recovered from, even if the
    /// last one was not.
    pub fn wait(&mut self, group: usize, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        let mut finished = Ok(());
        if std::mem::take(&mut self.stepping[group]) {
            let arrived = &mut self.arrived[group];
            finished = self.environments.finish(group).map(|steps| arrived.extend_from_slice(steps));
        }
        self.broken |= finished.is_err();
        self.fault.take().into_iter().chain(self.environments.take_faults()).map(Event::Fault).for_each(on_event);
        Ok(finished?)
    }

    /// Takes the outcomes of a group's actions, if there are any.
    ///
    /// Reports finished episodes and an actor's new positions.
    pub fn absorb(&mut self, group: usize, bandit: &dyn PolicySource, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        let size = self.environments.group_size();
        let bytes = self.environments.spec().observation_bytes();
        let steps = std::mem::take(&mut self.arrived[group]);
        let mut positions = Vec::new();
        for (env, step) in steps.iter().enumerate() {
            let environments = &self.environments;
            let last = || {
                let mut observation = vec![0; bytes];
                environments.last_observation(group, env, &mut observation);
                observation
            };
            let env_actor = &mut self.env_actors[group * size + env];
            let position = Position::new(environments.ram(group, env));
            let is_new = position.filter(|&position| env_actor.visit(position));
            positions.extend(is_new.filter(|_| env_actor.spec.role == Role::Actor));
            let report = env_actor.take(step, last, bandit).inspect_err(|_| self.broken = true)?;
            if let Some(report) = report {
                on_event(Event::Episode(report));
            }
        }
        self.steps += steps.len() as u64;
        if !positions.is_empty() {
            on_event(Event::Positions(positions));
        }
        Ok(())
    }

    /// Takes what a group's environments recorded for writers on another machine, one list per environment.
    pub fn take_operations(&mut self, group: usize) -> Vec<Vec<WriteOperation>> {
        let size = self.environments.group_size();
        self.env_actors[group * size..(group + 1) * size].iter_mut().map(EnvActor::take_operations).collect()
    }

    /// Inserts complete sequences into replay, and returns whether none are left.
    ///
    /// Waits for the rate limiter at most `timeout` in all.
    pub fn flush(&mut self, timeout: Duration) -> Result<bool> {
        let writers = self.env_actors.iter_mut().filter_map(|env_actor| env_actor.writer.as_mut()?.replay_mut());
        Ok(step_writer::flush(writers, timeout)?)
    }

    /// Returns what a checkpoint keeps, while no group is stepping. After an error the current episodes are lost, and
    /// nothing else.
    pub fn snapshot(&mut self) -> ActorSnapshot {
        let size = self.environments.group_size();
        let mut env_actors = Vec::with_capacity(self.env_actors.len());
        for (i, env_actor) in self.env_actors.iter().enumerate() {
            // An environment that cannot be saved, or whose worker was just lost, loses its episode.
            let environment = if self.broken { None } else { self.environments.save(i / size, i % size).ok() };
            let episodes = self.environments.episodes_begun(i / size, i % size);
            env_actors.push(EnvActorSnapshot { state: env_actor.state.clone(), environment, episodes });
        }
        ActorSnapshot { steps: self.steps, env_actors }
    }

    /// The writers' states, in the order of the environments.
    pub fn writers(&self) -> Vec<WriterState> {
        self.env_actors.iter().filter_map(|env_actor| Some(env_actor.writer.as_ref()?.replay()?.state())).collect()
    }
}

/// Makes one actor per set; `new` makes the actor environment with an index.
pub(crate) fn new_actors(
    sets: Vec<Box<dyn Environments>>,
    rows: Vec<ObservationRows>,
    mut new: impl FnMut(usize) -> Result<EnvActor>,
) -> Result<Vec<Actor>> {
    let mut indices = 0..;
    let actor = |(set, observations): (Box<dyn Environments>, ObservationRows)| {
        let count = environment_count(set.as_ref());
        let env_actors = indices.by_ref().take(count).map(&mut new).collect::<Result<_>>()?;
        Actor::new(set, env_actors, observations)
    };
    sets.into_iter().zip(rows).map(actor).collect()
}

/// Environments restored from a saved actor, with the states of their actor environments.
pub struct RestoredEnvironments {
    environments: Box<dyn Environments>,
    steps: u64,
    /// Each with whether its environment continues the same episode.
    states: Vec<(EnvActorState, bool)>,
    fault: Option<String>,
}

impl RestoredEnvironments {
    /// Restores each environment, or starts a new episode where that is impossible. A saved environment of another game
    /// or setup is an error: the agent has learned nothing about this one.
    ///
    /// This takes long where a game has to be replayed; sets can be restored in parallel.
    pub fn new(mut environments: Box<dyn Environments>, saved: ActorSnapshot) -> Result<Self> {
        let ActorSnapshot { steps, env_actors: saved } = saved;
        let size = environments.group_size();
        let configured = environments.groups() * size;
        if saved.len() != configured {
            return Err(TrainError::OtherEnvironmentCount { saved: saved.len(), configured });
        }
        for (i, env_actor) in saved.iter().enumerate() {
            environments.skip_episodes(i / size, i % size, env_actor.episodes);
        }
        environments.reset()?;
        // A worker that is lost on the way is replaced: none of its episodes continues. The set reports that itself.
        let mut lost = false;
        let mut refused: Option<(EnvError, usize)> = None;
        let mut states = Vec::with_capacity(saved.len());
        for (i, EnvActorSnapshot { state, environment, episodes: _ }) in saved.into_iter().enumerate() {
            let restored =
                environment.filter(|_| !lost).map(|bytes| environments.restore(i / size, i % size, &bytes)).transpose();
            let continues = match restored {
                Ok(restored) => restored.is_some(),
                Err(error @ EnvError::Unsupported { .. }) => {
                    refused.get_or_insert((error, 0)).1 += 1;
                    false
                }
                Err(
                    EnvError::Raised { .. }
                    | EnvError::Lost { .. }
                    | EnvError::Timeout { .. }
                    | EnvError::Protocol { .. },
                ) => {
                    lost = true;
                    false
                }
                Err(error) => return Err(error.into()),
            };
            states.push((state, continues));
        }
        let fault = refused.map(|(error, count)| format!("{error}; {count} episodes of this worker were abandoned"));
        Ok(Self { environments, steps, states, fault })
    }
}
