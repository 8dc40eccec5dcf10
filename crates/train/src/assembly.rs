//! Puts the parts of a run together: the one place that knows how they connect.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use agent::acting::ObservationRows;
use agent::math::ladders::actor_epsilon;
use agent::{Learner, ObservationKind, ObservationSpec};
use envs::seeds::mix;
use envs::{EnvId, EnvSpec, Environments, WorkerConfig};
use replay::{Replay, Restored, Writer, WriterState};
use tch::Device;

use crate::bandit::CentralBandit;
use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::inference::{Inference, RoleSizes};
use crate::learning::Learning;
use crate::messages::Role;
use crate::player::{Player, RestoredEnvironments, SavedPlayer};
use crate::published::Published;
use crate::run::checkpoint::Checkpoint;
use crate::saving::{self, Play};
use crate::seat::{Seat, SeatPlace};

/// What is trained on, and where its workers come from.
#[derive(Clone, Debug)]
pub struct Task {
    /// The environment.
    pub environment: EnvId,
    /// The Python that runs workers.
    pub python: PathBuf,
    /// The folder of the package `meme_worker`.
    pub package: PathBuf,
}

/// All parts of a run, at rest.
pub struct Parts {
    /// What is learned with.
    pub learning: Learning,
    /// What is remembered.
    pub replay: Arc<Replay>,
    /// Who decides.
    pub inference: Inference,
    /// The parameters they decide with.
    pub published: Published,
    /// Which policy plays an episode.
    pub bandit: Arc<CentralBandit>,
    /// Who plays to learn.
    pub actors: Vec<Player>,
    /// Who plays to be measured.
    pub evaluators: Vec<Player>,
}

/// What a seed is drawn for; each purpose has random numbers of its own.
#[derive(Clone, Copy)]
enum Purpose {
    Environments,
    Parameters,
    Draws,
    Bandit,
    Exploration,
}

fn seed_for(run: u64, purpose: Purpose) -> u64 {
    mix(mix(run) ^ purpose as u64)
}

impl Parts {
    /// The parts of a run that begins, or that goes on from a checkpoint.
    pub fn new(task: &Task, config: &Config, device: Device, checkpoint: Option<&Checkpoint>) -> Result<Self> {
        let seed = config.run.seed;
        let actors = make_sets(task, config, 0, config.actors.environments)?;
        let evaluators = make_sets(task, config, config.actors.environments, config.evaluation.evaluators)?;
        let spec = actors.first().ok_or(TrainError::NoEnvironments)?.spec().clone();
        let observation = observation_spec(&spec);
        let learner = match checkpoint {
            None => {
                let seed = seed_for(seed, Purpose::Parameters);
                Learner::new(&config.agent, &observation, spec.actions(), seed, device)?
            }
            Some(checkpoint) => {
                let saved = saving::learner(checkpoint)?;
                Learner::restore(&config.agent, &observation, spec.actions(), &saved, device)?
            }
        };
        let state = learner.networks().state_length();
        let replay_config = config.replay_for(spec.observation_bytes(), state, seed_for(seed, Purpose::Draws));
        let (replay, play) = match checkpoint {
            None => (Replay::new(replay_config)?, None),
            Some(checkpoint) => {
                let Restored { replay, writers } = saving::replay(checkpoint, &replay_config)?;
                (replay, Some((saving::play(checkpoint)?, writers)))
            }
        };
        let embedding = learner.networks().embedding_length();
        let mut learning = Learning::new(learner, Arc::clone(&replay), &config.intrinsic)?;
        if let Some(checkpoint) = checkpoint {
            learning.restore_embedding(&saving::embedding(checkpoint)?)?;
        }
        let mut published = learning.published()?;
        if let Some(acting) = checkpoint.map(saving::acting).transpose()?.flatten() {
            published.restore(&acting)?;
        }
        let (agent, intrinsic, actions) = (&config.agent, &config.intrinsic, spec.actions());
        let roles = RoleSizes { actors: config.actors.environments, evaluators: config.evaluation.evaluators };
        let mut inference = Inference::new(agent, intrinsic, &observation, actions, roles, device, &published)?;
        let (bandit, saved_actors, saved_evaluators, writers) = match play {
            None => {
                let seed = seed_for(seed, Purpose::Bandit);
                (CentralBandit::new(config.agent.policies.count, &config.bandit, seed), Vec::new(), Vec::new(), None)
            }
            Some((Play { states, bandit, actors, evaluators }, writers)) => {
                inference.restore(&states)?;
                (CentralBandit::resume(bandit), actors, evaluators, Some(writers))
            }
        };
        let sizes: Vec<usize> = actors.iter().chain(&evaluators).map(|set| environments(set.as_ref())).collect();
        let mut rows = inference.observation_rows(&sizes)?;
        let evaluator_rows = rows.split_off(actors.len());
        let seating = Seating { config, embedding, replay: &replay, bandit: &bandit };
        let actors = seating.players(actors, rows, Role::Actor, saved_actors, writers)?;
        let evaluators = seating.players(evaluators, evaluator_rows, Role::Evaluator, saved_evaluators, None)?;
        Ok(Self { learning, replay, inference, published, bandit: Arc::new(bandit), actors, evaluators })
    }
}

pub(crate) fn observation_spec(spec: &EnvSpec) -> ObservationSpec {
    let kind = match spec.observation_kind {
        envs::ObservationKind::U8 => ObservationKind::U8,
        envs::ObservationKind::F32 => ObservationKind::F32,
    };
    ObservationSpec { shape: spec.observation_shape.clone(), kind }
}

/// How many environments a set has.
pub(crate) fn environments(set: &dyn Environments) -> usize {
    set.groups() * set.group_size()
}

/// Environments from `first` on, so many to a worker.
pub(crate) fn make_sets(
    task: &Task,
    config: &Config,
    first: usize,
    count: usize,
) -> Result<Vec<Box<dyn Environments>>> {
    let mut configs = Vec::new();
    let mut described = 0;
    while described < count {
        let environments = config.actors.environments_per_worker.min(count - described);
        configs.push(WorkerConfig {
            environment: task.environment.clone(),
            python: task.python.clone(),
            package: task.package.clone(),
            first_index: (first + described) as u64,
            environments,
            groups: if environments.is_multiple_of(config.actors.groups) { config.actors.groups } else { 1 },
            seed: seed_for(config.run.seed, Purpose::Environments),
            ale: config.env.ale_options(),
            ram: config.env.ram.clone(),
            limits: config.env.limits(),
        });
        described += environments;
    }
    Ok(envs::make_all(&configs)?)
}

/// Environments of one worker.
enum Set {
    New(Box<dyn Environments>),
    Restored(RestoredEnvironments),
}

/// Lets all sets go on from what was saved, if anything was, at the same time: each has a worker of its own.
fn restore(sets: Vec<Box<dyn Environments>>, saved: Vec<SavedPlayer>) -> Result<Vec<Set>> {
    const ROLE: &str = "restoring environments";
    if saved.is_empty() {
        return Ok(sets.into_iter().map(Set::New).collect());
    }
    if saved.len() != sets.len() {
        let configured = sets.iter().map(|set| environments(set.as_ref())).sum();
        return Err(TrainError::OtherSeats { saved: saved.iter().map(SavedPlayer::environments).sum(), configured });
    }
    thread::scope(|scope| {
        let start = |(set, player)| {
            let restore = move || RestoredEnvironments::new(set, player);
            let started = thread::Builder::new().name("env-restorer".to_owned()).spawn_scoped(scope, restore);
            started.map_err(|cause| TrainError::Thread { role: ROLE, cause })
        };
        let restoring = sets.into_iter().zip(saved).map(start).collect::<Result<Vec<_>>>()?;
        let wait = |one: ScopedJoinHandle<'_, Result<RestoredEnvironments>>| {
            one.join().unwrap_or(Err(TrainError::Panicked { role: ROLE })).map(Set::Restored)
        };
        restoring.into_iter().map(wait).collect()
    })
}

/// What all seats have in common.
struct Seating<'a> {
    config: &'a Config,
    embedding: usize,
    replay: &'a Arc<Replay>,
    bandit: &'a CentralBandit,
}

impl Seating<'_> {
    fn players(
        &self,
        sets: Vec<Box<dyn Environments>>,
        rows: Vec<ObservationRows>,
        role: Role,
        saved: Vec<SavedPlayer>,
        writers: Option<Vec<WriterState>>,
    ) -> Result<Vec<Player>> {
        let counts: Vec<usize> = sets.iter().map(|set| environments(set.as_ref())).collect();
        let mut writers = writers.map(Vec::into_iter);
        let mut first = 0;
        let mut players = Vec::with_capacity(sets.len());
        for ((set, count), observations) in restore(sets, saved)?.into_iter().zip(counts).zip(rows) {
            let places: Vec<SeatPlace> =
                (first..first + count).map(|environment| self.place(role, environment)).collect();
            first += count;
            let mut writer = |place: &SeatPlace| -> Result<Option<Writer>> {
                if role == Role::Evaluator {
                    return Ok(None);
                }
                let state = writers.as_mut().and_then(Iterator::next);
                Ok(Some(match state {
                    Some(state) => Writer::resume(self.replay, state)?,
                    None => Writer::new(self.replay, place.environment as u32),
                }))
            };
            players.push(match set {
                Set::Restored(restored) => {
                    let writers = places.iter().map(&mut writer).collect::<Result<Vec<_>>>()?;
                    Player::resume(restored, places, writers, observations, self.bandit)?
                }
                Set::New(set) => {
                    let seat = |place: SeatPlace| {
                        let seed = mix(seed_for(self.config.run.seed, Purpose::Exploration) ^ place.slot as u64);
                        let writer = writer(&place)?;
                        Seat::new(place, &self.config.intrinsic, self.embedding, seed, writer, self.bandit)
                    };
                    Player::new(set, places.into_iter().map(seat).collect::<Result<_>>()?, observations)?
                }
            });
        }
        Ok(players)
    }

    fn place(&self, role: Role, environment: usize) -> SeatPlace {
        let (actors, hides_rewards) = (&self.config.actors, self.config.env.hide_rewards);
        match role {
            Role::Actor => {
                let (base, exponent) = (actors.epsilon_base, actors.epsilon_exponent);
                let epsilon = actor_epsilon(environment, actors.environments, base, exponent);
                SeatPlace { role, environment, slot: environment, epsilon, hides_rewards }
            }
            Role::Evaluator => {
                let slot = actors.environments + environment;
                SeatPlace { role, environment, slot, epsilon: 0.0, hides_rewards }
            }
        }
    }
}
