//! Assembles a run: the only place that knows how the roles connect.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use agent::acting::ObservationRows;
use agent::policy_family::actor_epsilon;
use agent::{AgentError, Learner, ObservationSpec};
use envs::seeds::mix;
use envs::{EnvId, EnvSpec, Environments, WorkerConfig};
use replay::{Replay, ReplayConfig, Restored, Writer, WriterState};
use tch::Device;

use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::roles::actor::{Actor, RestoredEnvironments, SavedActor};
use crate::roles::actor_env::{EnvActor, EnvActorSpec, Exploration};
use crate::roles::bandit::{CentralBandit, Policies};
use crate::roles::inference::{Inference, RoleSizes};
use crate::roles::learner_loop::LearnerLoop;
use crate::roles::messages::Role;
use crate::roles::training_agent::{NeighbourDistances, TrainingAgent};
use crate::run::checkpoint::contents::{self, AgentScalars, EvaluatorStates, TrainingState};
use crate::runtime::published_parameters::{Embedding, PublishedParameters};
use crate::runtime::remote_actors::{SavedRemoteActors, remote_epsilon, remote_seed};
use crate::runtime::starting_point::{StartingPoint, transfer_message};

/// The environment to play, and where its workers come from.
#[derive(Clone, Debug)]
pub struct Task {
    /// The environment.
    pub environment: EnvId,
    /// The Python interpreter that runs workers.
    pub python: PathBuf,
    /// Directory of the package `meme_worker`.
    pub package: PathBuf,
}

/// All roles of a run, before it starts.
pub struct Assembly {
    /// The agent: learner, replay and bandit.
    pub agent: TrainingAgent,
    /// The acting networks.
    pub inference: Inference,
    /// The parameters that they act with.
    pub published: PublishedParameters,
    /// Actors, one per worker.
    pub actors: Vec<Actor>,
    /// Evaluators, one per worker.
    pub evaluators: Vec<Actor>,
    /// What the checkpoint had of the evaluators.
    pub evaluator_states: EvaluatorStates,
    /// The run's environment.
    pub spec: EnvSpec,
    /// Remote actors of the checkpoint, and their writers.
    pub remote: (SavedRemoteActors, Vec<WriterState>),
    /// Message about the weights of another run that it starts from.
    pub transferred: Option<String>,
}

/// Purpose of a seed; each has its own random numbers.
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

impl Assembly {
    /// Assembles a run with up to `remote` environments on other machines.
    pub fn new(task: &Task, config: &Config, device: Device, from: &StartingPoint, remote: usize) -> Result<Self> {
        let seed = |purpose| seed_for(config.run.seed, purpose);
        let actors = make_sets(task, config, 0, config.actors.environments, None)?;
        let mut evaluating = config.clone();
        // Evaluators mostly wait for the networks, which decide for one large group faster than for two.
        evaluating.actors.groups = 1;
        let cap = Some(config.evaluation.frame_cap);
        let evaluators = make_sets(task, &evaluating, config.actors.environments, config.evaluation.evaluators, cap)?;
        // A run can leave all acting to other machines, and evaluate only.
        let any = if remote > 0 { actors.first().or(evaluators.first()) } else { actors.first() };
        let spec = any.ok_or(TrainError::NoEnvironments)?.spec().clone();
        let (observation, actions) = (observation_spec(&spec), spec.actions());
        let StartingLearner { learner, resumed, transferred } =
            StartingLearner::new(config, &observation, actions, device, from)?;
        let (state, embedding) = (learner.networks.state_length(), learner.networks.embedding_length);
        let droppable_blocks = learner.networks.agent.droppable_blocks();
        let replay_config = config.replay_for(spec.observation_bytes(), state, seed(Purpose::Draws));
        let Restored { replay, mut writers } = starting_replay(from, replay_config)?;
        let mut learner_loop = LearnerLoop::new(learner, Arc::clone(&replay), config)?;
        let resumed = resumed.map(|(agent, state, embedding)| {
            learner_loop.keep_embedding(embedding);
            (agent, state)
        });
        let mut published = learner_loop.published()?;
        if let (Some(checkpoint), Some((_, state))) = (from.resumed(), &resumed) {
            contents::restore_acting(checkpoint, state, &mut published)?;
        }
        let roles = RoleSizes { actors: config.actors.environments, evaluators: config.evaluation.evaluators, remote };
        let mut inference =
            Inference::new(&config.agent, &config.intrinsic, &observation, actions, roles, device, &published)?;
        let (bandit, distances, saved_actors, evaluator_states) = match resumed {
            None => {
                let bandit = CentralBandit::new(
                    config.agent.policies.count,
                    config.actors.environments + remote,
                    &config.bandit,
                    seed(Purpose::Bandit),
                );
                (bandit, NeighbourDistances::default(), Vec::new(), EvaluatorStates::default())
            }
            Some((agent, state)) => {
                inference.restore(&state.roles.recurrent)?;
                (CentralBandit::resume(agent.bandit), agent.distances, state.roles.actors, state.roles.evaluators)
            }
        };
        let sizes: Vec<usize> = actors.iter().chain(&evaluators).map(|set| environments(set.as_ref())).collect();
        let mut rows = inference.observation_rows(&sizes)?;
        let evaluator_rows = rows.split_off(actors.len());
        let remote_writers = writers.split_off(writers.len().min(config.actors.environments));
        let saved_remote = from.resumed().map_or(Ok(SavedRemoteActors::default()), contents::remote)?;
        let builder = ActorBuilder { config, embedding, droppable_blocks, replay: &replay, bandit: &bandit };
        let actors = builder.actors(actors, rows, saved_actors, writers)?;
        let evaluators = builder.evaluators(evaluators, evaluator_rows, &evaluator_states.episodes)?;
        let agent = TrainingAgent { learner_loop, bandit: Arc::new(bandit), distances, environment: spec.clone() };
        let remote = (saved_remote, remote_writers);
        Ok(Self { agent, inference, published, actors, evaluators, evaluator_states, transferred, spec, remote })
    }
}

/// The learner that a run starts with.
struct StartingLearner {
    learner: Learner,
    /// What a resumed run has besides: its numbers, the states of its roles, and the f that acted.
    resumed: Option<(AgentScalars, TrainingState, Embedding)>,
    /// Message about the weights of another run that it starts from.
    transferred: Option<String>,
}

impl StartingLearner {
    fn new(
        config: &Config,
        observation: &ObservationSpec,
        actions: usize,
        device: Device,
        from: &StartingPoint,
    ) -> Result<Self> {
        if let Some(checkpoint) = from.resumed() {
            let (state, agent) = (contents::state(checkpoint)?, contents::agent(checkpoint)?);
            let saved = contents::learner(checkpoint, &state)?;
            let learner = Learner::restore(&config.agent, observation, actions, &saved, device)?;
            let mut embedding = PublishedParameters::of(&learner)?.embedding()?;
            embedding.restore(&saved.weights, agent.embedding_version)?;
            return Ok(Self { learner, resumed: Some((agent, state, embedding)), transferred: None });
        }
        let seed = seed_for(config.run.seed, Purpose::Parameters);
        let mut learner = Learner::new(&config.agent, observation, actions, seed, device)?;
        let mut transferred = None;
        if let StartingPoint::Weights { checkpoint, .. } = from {
            let (parts, problems) = (learner.parts(), learner.load_fitting(&contents::weights(checkpoint)?)?);
            if problems.len() == parts {
                return Err(AgentError::Weights(problems).into());
            }
            transferred = Some(transfer_message(parts, &problems));
        }
        Ok(Self { learner, resumed: None, transferred })
    }
}

/// The replay that a run starts with, and the states of its writers.
fn starting_replay(from: &StartingPoint, config: ReplayConfig) -> Result<Restored> {
    match from {
        StartingPoint::Resume(checkpoint) => contents::replay(checkpoint, &config),
        // Its unfinished sequences belong to the other run's episodes.
        StartingPoint::Weights { checkpoint, with_replay: true } => {
            Ok(Restored { writers: Vec::new(), ..contents::replay(checkpoint, &config)? })
        }
        StartingPoint::Nothing | StartingPoint::Weights { .. } => {
            Ok(Restored { replay: Replay::new(config)?, writers: Vec::new() })
        }
    }
}

pub(crate) fn observation_spec(spec: &EnvSpec) -> ObservationSpec {
    ObservationSpec { parts: spec.observation_arrays() }
}

/// Number of environments in a set.
pub(crate) fn environments(set: &dyn Environments) -> usize {
    set.groups() * set.group_size()
}

/// Makes `count` environments whose indices start at `first`, one set per worker. Their episodes are truncated after
/// `frame_cap` frames.
fn make_sets(
    task: &Task,
    config: &Config,
    first: usize,
    count: usize,
    frame_cap: Option<u32>,
) -> Result<Vec<Box<dyn Environments>>> {
    let mut workers = workers(task, config, first, count);
    workers.iter_mut().for_each(|worker| worker.frame_cap = frame_cap.map(u64::from));
    Ok(envs::make_all(&workers)?)
}

/// The workers that run `count` environments whose indices start at `first`.
pub(crate) fn workers(task: &Task, config: &Config, first: usize, count: usize) -> Vec<WorkerConfig> {
    let per_worker = config.actors.environments_per_worker;
    let worker = |made: usize| worker(task, config, (first + made) as u64, per_worker.min(count - made));
    (0..count).step_by(per_worker).map(worker).collect()
}

/// The worker that runs environments whose indices start at `first`.
fn worker(task: &Task, config: &Config, first: u64, environments: usize) -> WorkerConfig {
    WorkerConfig {
        environment: task.environment.clone(),
        python: task.python.clone(),
        package: task.package.clone(),
        first_index: first,
        environments,
        groups: config.actors.groups_of(environments),
        seed: seed_for(config.run.seed, Purpose::Environments),
        ale: config.env.ale_options(),
        frame_cap: None,
        ram: config.env.ram.clone(),
        max_side: config.env.max_side,
        view: config.env.view(),
        render: false,
        limits: config.env.limits(),
    }
}

/// The places of an actor on another machine than the learner.
#[derive(Clone, Copy, Debug)]
pub struct RemotePlaces {
    /// First of the run's remote environments.
    pub first: usize,
    /// Number of environments.
    pub environments: usize,
    /// Most remote environments of the run.
    pub capacity: usize,
    /// Index of the first environment, from which its episodes follow.
    pub index: u64,
    /// Length of f(x).
    pub embedding: usize,
    /// Residual blocks of the torso that an actor may drop.
    pub droppable_blocks: usize,
}

/// Builds the half of a remote actor that is on this machine: environments, episodic memories, choice of actions. It
/// continues from a state that [`Actor::save`] returned, if there is one.
pub fn remote_actor(
    task: &Task,
    config: &Config,
    places: RemotePlaces,
    saved: Option<SavedActor>,
    policies: &dyn Policies,
) -> Result<Actor> {
    let RemotePlaces { first, environments: count, capacity, index, embedding, droppable_blocks } = places;
    let set = envs::make_all(&[worker(task, config, index, count)])?.pop().ok_or(TrainError::NoEnvironments)?;
    let rows = ObservationRows::on_host(count, set.spec().observation_bytes());
    let spec = |environment: usize| EnvActorSpec {
        role: Role::Actor,
        environment,
        slot: environment,
        epsilon: remote_epsilon(&config.actors, first + environment, capacity),
        hides_rewards: config.env.hide_rewards,
        exploration: Exploration::of_actors(&config.agent, droppable_blocks),
    };
    let Some(saved) = saved else {
        let new = |environment: usize| {
            let seed = remote_seed(config.run.seed, index + environment as u64);
            let env_actor = EnvActor::new(spec(environment), &config.intrinsic, embedding, seed, None, policies)?;
            Ok(env_actor.recording())
        };
        return new_actors(vec![set], vec![rows], new)?.pop().ok_or(TrainError::NoEnvironments);
    };
    let mut environment = 0;
    let resume = |state| {
        environment += 1;
        Ok(EnvActor::resume(spec(environment - 1), state, None).recording())
    };
    Actor::resume(RestoredEnvironments::new(set, saved)?, rows, policies, resume)
}

/// Restores all sets in parallel: each has its own worker.
fn restore(sets: Vec<Box<dyn Environments>>, saved: Vec<SavedActor>) -> Result<Vec<RestoredEnvironments>> {
    const ROLE: &str = "restoring environments";
    if saved.len() != sets.len() {
        let configured = sets.iter().map(|set| environments(set.as_ref())).sum();
        let saved = saved.iter().map(SavedActor::environments).sum();
        return Err(TrainError::OtherEnvironmentCount { saved, configured });
    }
    thread::scope(|scope| {
        let start = |(set, actor)| {
            let restore = move || RestoredEnvironments::new(set, actor);
            let started = thread::Builder::new().name("env-restorer".to_owned()).spawn_scoped(scope, restore);
            started.map_err(|cause| TrainError::Thread { role: ROLE, cause })
        };
        let restoring = sets.into_iter().zip(saved).map(start).collect::<Result<Vec<_>>>()?;
        let join =
            |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Err(TrainError::Panicked { role: ROLE }));
        restoring.into_iter().map(join).collect()
    })
}

/// Makes one actor per set; `new` makes the actor environment with an index.
pub(crate) fn new_actors(
    sets: Vec<Box<dyn Environments>>,
    rows: Vec<ObservationRows>,
    mut new: impl FnMut(usize) -> Result<EnvActor>,
) -> Result<Vec<Actor>> {
    let mut indices = 0..;
    let actor = |(set, observations): (Box<dyn Environments>, ObservationRows)| {
        let count = environments(set.as_ref());
        let env_actors = indices.by_ref().take(count).map(&mut new).collect::<Result<_>>()?;
        Actor::new(set, env_actors, observations)
    };
    sets.into_iter().zip(rows).map(actor).collect()
}

/// Builds actors, with what their environments share.
struct ActorBuilder<'a> {
    config: &'a Config,
    embedding: usize,
    droppable_blocks: usize,
    replay: &'a Arc<Replay>,
    bandit: &'a CentralBandit,
}

impl ActorBuilder<'_> {
    /// Builds one actor per set; all of them new if nothing was saved.
    fn actors(
        &self,
        sets: Vec<Box<dyn Environments>>,
        rows: Vec<ObservationRows>,
        saved: Vec<SavedActor>,
        writers: Vec<WriterState>,
    ) -> Result<Vec<Actor>> {
        let mut writers = writers.into_iter();
        let mut writer = |environment: usize| match writers.next() {
            Some(state) => Writer::resume(self.replay, state),
            None => Ok(Writer::new(self.replay, environment as u32)),
        };
        if saved.is_empty() {
            return new_actors(sets, rows, |environment| {
                self.env_actor(Role::Actor, environment, Some(writer(environment)?))
            });
        }
        let mut environment = 0;
        let mut resume = |state| {
            let spec = self.spec(Role::Actor, environment);
            let env_actor = EnvActor::resume(spec, state, Some(writer(environment)?));
            environment += 1;
            Ok(env_actor)
        };
        let restored = restore(sets, saved)?.into_iter().zip(rows);
        restored.map(|(set, observations)| Actor::resume(set, observations, self.bandit, &mut resume)).collect()
    }

    /// Builds one evaluator per set, whose environments have begun this many episodes.
    fn evaluators(
        &self,
        sets: Vec<Box<dyn Environments>>,
        rows: Vec<ObservationRows>,
        mut begun: &[u64],
    ) -> Result<Vec<Actor>> {
        let mut indices = 0..;
        let evaluator = |(set, observations): (Box<dyn Environments>, ObservationRows)| {
            let count = environments(set.as_ref());
            let env_actor = |environment| self.env_actor(Role::Evaluator, environment, None);
            let env_actors = indices.by_ref().take(count).map(env_actor).collect::<Result<_>>()?;
            let own = begun.split_off(..count.min(begun.len())).unwrap_or_default();
            Ok(Actor::evaluator(set, env_actors, observations, own))
        };
        sets.into_iter().zip(rows).map(evaluator).collect()
    }

    fn env_actor(&self, role: Role, environment: usize, writer: Option<Writer>) -> Result<EnvActor> {
        let spec = self.spec(role, environment);
        let seed = mix(seed_for(self.config.run.seed, Purpose::Exploration) ^ spec.slot as u64);
        EnvActor::new(spec, &self.config.intrinsic, self.embedding, seed, writer, self.bandit)
    }

    fn spec(&self, role: Role, environment: usize) -> EnvActorSpec {
        let (actors, hides_rewards) = (&self.config.actors, self.config.env.hide_rewards);
        let (slot, epsilon, exploration) = match role {
            Role::Actor => {
                let (base, exponent) = (actors.epsilon_base, actors.epsilon_exponent);
                let epsilon = actor_epsilon(environment, actors.environments, base, exponent);
                (environment, epsilon, Exploration::of_actors(&self.config.agent, self.droppable_blocks))
            }
            Role::Evaluator => (actors.environments + environment, 0.0, Exploration::default()),
        };
        EnvActorSpec { role, environment, slot, epsilon, hides_rewards, exploration }
    }
}
