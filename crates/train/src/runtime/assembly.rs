//! Assembles a run: the only place that knows how the roles connect.

use std::sync::Arc;
use std::thread;

use agent::acting::ObservationRows;
use agent::policy_family::actor_epsilon;
use agent::{AgentError, Learner, ObservationSpec};
use envs::seeds::mix;
use envs::{EnvSpec, Environments};
use replay::{Replay, ReplayConfig, Restored, Writer, WriterState};
use tch::Device;

use crate::config::Config;
use crate::environments::{SeedPurpose, Task, environment_count, make_sets, observation_spec, seed_for};
use crate::error::{Result, TrainError};
use crate::roles::actor::{Actor, ActorSnapshot, RestoredEnvironments, new_actors};
use crate::roles::actor_env::{EnvActor, EnvActorSpec, Exploration};
use crate::roles::bandit::SharedBandit;
use crate::roles::inference::{Inference, RoleSizes};
use crate::roles::learner_loop::LearnerLoop;
use crate::roles::messages::Role;
use crate::roles::published_parameters::{EmbeddingNetwork, PublishedParameters};
use crate::roles::remote_actors::RemoteActorsSnapshot;
use crate::roles::thread_role::ThreadRole;
use crate::roles::training_agent::{NeighbourDistances, TrainingAgent};
use crate::run::checkpoint::contents::{self, AgentScalars, EvaluatorStates, TrainingState};
use crate::runtime::starting_point::{StartingPoint, transfer_message};

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
    pub remote: (RemoteActorsSnapshot, Vec<WriterState>),
    /// Message about the weights of another run that it starts from.
    pub transferred: Option<String>,
}

impl Assembly {
    /// Assembles a run with up to `remote_capacity` environments on other machines.
    pub fn new(
        task: &Task,
        config: &Config,
        device: Device,
        from: &StartingPoint,
        remote_capacity: usize,
    ) -> Result<Self> {
        let seed = |purpose| seed_for(config.run.seed, purpose);
        let local = config.actors.environments;
        let actor_sets = make_sets(task, config, 0, local, None)?;
        let evaluator_sets = evaluator_sets(task, config)?;
        // A run can leave all acting to other machines, and evaluate only.
        let no_actors = evaluator_sets.first().filter(|_| remote_capacity > 0);
        let spec = actor_sets.first().or(no_actors).ok_or(TrainError::NoEnvironments)?.spec().clone();
        let (observation, actions) = (observation_spec(&spec), spec.actions());
        let StartingLearner { learner, resumed, transferred } =
            StartingLearner::new(config, &observation, actions, device, from)?;
        let (state_length, embedding_length) = (learner.networks.state_length(), learner.networks.embedding_length);
        let droppable_blocks = learner.networks.agent.droppable_blocks();
        let replay_config = config.replay_for(spec.observation_bytes(), state_length, seed(SeedPurpose::Draws));
        let Restored { replay, mut writers } = starting_replay(from, replay_config)?;
        let mut learner_loop = LearnerLoop::new(learner, Arc::clone(&replay), config)?;
        let resumed = resumed.map(|(scalars, training_state, embedding_network)| {
            learner_loop.hold_embedding_network(embedding_network);
            (scalars, training_state)
        });
        let mut published = learner_loop.current_parameters()?;
        if let (Some(checkpoint), Some((_, training_state))) = (from.resumed(), &resumed) {
            contents::restore_acting(checkpoint, training_state, &mut published)?;
        }
        let roles = RoleSizes { actors: local, evaluators: config.evaluation.evaluators, remote: remote_capacity };
        let mut inference = Inference::new(config, &observation, actions, roles, device, &published)?;
        let (bandit, distances, actor_snapshots, evaluator_states) = match resumed {
            None => {
                let (policies, environments) = (config.agent.policies.count, local + remote_capacity);
                let bandit = SharedBandit::new(policies, environments, &config.bandit, seed(SeedPurpose::Bandit));
                (bandit, NeighbourDistances::default(), Vec::new(), EvaluatorStates::default())
            }
            Some((scalars, TrainingState { roles, .. })) => {
                inference.restore(&roles.recurrent)?;
                (SharedBandit::resume(scalars.bandit), scalars.distances, roles.actors, roles.evaluators)
            }
        };
        let sets = actor_sets.iter().chain(&evaluator_sets);
        let mut rows =
            inference.observation_rows(&sets.map(|set| environment_count(set.as_ref())).collect::<Vec<_>>())?;
        let evaluator_rows = rows.split_off(actor_sets.len());
        let remote_writers = writers.split_off(writers.len().min(local));
        let remote_snapshot = from.resumed().map_or(Ok(RemoteActorsSnapshot::default()), contents::remote)?;
        let builder = ActorBuilder { config, embedding_length, droppable_blocks, replay: &replay, bandit: &bandit };
        let actors = builder.actors(actor_sets, rows, actor_snapshots, writers)?;
        let evaluators = builder.evaluators(evaluator_sets, evaluator_rows, &evaluator_states.episodes)?;
        let agent = TrainingAgent { learner_loop, bandit: Arc::new(bandit), distances, environment: spec.clone() };
        let remote = (remote_snapshot, remote_writers);
        Ok(Self { agent, inference, published, actors, evaluators, evaluator_states, transferred, spec, remote })
    }
}

fn evaluator_sets(task: &Task, config: &Config) -> Result<Vec<Box<dyn Environments>>> {
    let mut evaluating = config.clone();
    // Evaluators mostly wait for the networks, which decide for one large group faster than for two.
    evaluating.actors.groups = 1;
    let (first, frame_cap) = (config.actors.environments, config.evaluation.frame_cap);
    make_sets(task, &evaluating, first, config.evaluation.evaluators, Some(frame_cap))
}

/// The learner that a run starts with.
struct StartingLearner {
    learner: Learner,
    /// What a resumed run has besides: its numbers, the states of its roles, and the f that acted.
    resumed: Option<(AgentScalars, TrainingState, EmbeddingNetwork)>,
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
            let mut embedding_network = PublishedParameters::of(&learner)?.embedding_network()?;
            embedding_network.restore(&saved.weights, agent.embedding_version)?;
            return Ok(Self { learner, resumed: Some((agent, state, embedding_network)), transferred: None });
        }
        let seed = seed_for(config.run.seed, SeedPurpose::Parameters);
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

/// Restores all sets in parallel: each has its own worker.
fn restore(sets: Vec<Box<dyn Environments>>, saved: Vec<ActorSnapshot>) -> Result<Vec<RestoredEnvironments>> {
    if saved.len() != sets.len() {
        let configured = sets.iter().map(|set| environment_count(set.as_ref())).sum();
        let saved = saved.iter().map(ActorSnapshot::environments).sum();
        return Err(TrainError::OtherEnvironmentCount { saved, configured });
    }
    thread::scope(|scope| {
        let start = |(set, actor)| {
            let restore = move || RestoredEnvironments::new(set, actor);
            let started = thread::Builder::new().name("env-restorer".to_owned()).spawn_scoped(scope, restore);
            started.map_err(|cause| TrainError::Thread { role: ThreadRole::Actor, cause })
        };
        let restoring = sets.into_iter().zip(saved).map(start).collect::<Result<Vec<_>>>()?;
        let panicked = || TrainError::Panicked { role: ThreadRole::Actor };
        restoring.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

/// Builds actors, with what their environments share.
struct ActorBuilder<'a> {
    config: &'a Config,
    embedding_length: usize,
    droppable_blocks: usize,
    replay: &'a Arc<Replay>,
    bandit: &'a SharedBandit,
}

impl ActorBuilder<'_> {
    /// Builds one actor per set; all of them new if nothing was saved.
    fn actors(
        &self,
        sets: Vec<Box<dyn Environments>>,
        rows: Vec<ObservationRows>,
        saved: Vec<ActorSnapshot>,
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
            let count = environment_count(set.as_ref());
            let env_actor = |environment| self.env_actor(Role::Evaluator, environment, None);
            let env_actors = indices.by_ref().take(count).map(env_actor).collect::<Result<_>>()?;
            let own = begun.split_off(..count.min(begun.len())).unwrap_or_default();
            Ok(Actor::evaluator(set, env_actors, observations, own))
        };
        sets.into_iter().zip(rows).map(evaluator).collect()
    }

    fn env_actor(&self, role: Role, environment: usize, writer: Option<Writer>) -> Result<EnvActor> {
        let spec = self.spec(role, environment);
        let seed = mix(seed_for(self.config.run.seed, SeedPurpose::Exploration) ^ spec.slot as u64);
        EnvActor::new(spec, &self.config.intrinsic, self.embedding_length, seed, writer, self.bandit)
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
