//! The half of a remote actor that runs on its own machine.
//!
//! It has the environments, the episodic memories and the choice of actions.

use agent::acting::ObservationRows;

use super::{remote_epsilon, remote_seed};
use crate::config::Config;
use crate::environments::{Task, worker};
use crate::error::{Result, TrainError};
use crate::roles::actor::{Actor, ActorSnapshot, RestoredEnvironments, new_actors};
use crate::roles::actor_env::{EnvActor, EnvActorSpec, Exploration};
use crate::roles::bandit::PolicySource;
use crate::roles::messages::Role;

/// Which of a run's remote environments an actor plays, and what it must know of the run's networks.
#[derive(Clone, Copy, Debug)]
pub struct RemoteActorSpec {
    /// First of the run's remote environments.
    pub first: usize,
    /// Number of environments.
    pub environments: usize,
    /// Maximum number of remote environments of the run.
    pub capacity: usize,
    /// Index of the first environment, from which its episodes follow.
    pub index: u64,
    /// Length of f(x).
    pub embedding_length: usize,
    /// Residual blocks of the torso that an actor may drop.
    pub droppable_blocks: usize,
}

impl RemoteActorSpec {
    /// Builds the actor. It continues from what [`Actor::snapshot`] returned, if that is given.
    pub fn build(
        self,
        task: &Task,
        config: &Config,
        saved: Option<ActorSnapshot>,
        policies: &dyn PolicySource,
    ) -> Result<Actor> {
        let Self { first, environments: count, capacity, index, embedding_length, droppable_blocks } = self;
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
                let spec = spec(environment);
                let env_actor = EnvActor::new(spec, &config.intrinsic, embedding_length, seed, None, policies)?;
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
}
