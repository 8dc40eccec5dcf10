//! Plays what a run has trained in one environment, step by step, for somebody who watches.

use agent::acting::{ObservationRows, StepRewards};
use agent::learner::ParameterSource;
use envs::{EnvSpec, Environments, EpisodeEnd};

use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::roles::actor_env::EnvActor;
use crate::roles::bandit::CentralBandit;
use crate::roles::evaluation::EvaluationSetup;
use crate::roles::inference::{Decide, Inference};
use crate::roles::messages::{ActRequests, Decision};
use crate::run::checkpoint::Checkpoint;
use crate::runtime::assembly::Task;

/// Greedy play with the averaged parameters in the first environment of an evaluation with the same seed.
pub struct Demonstration {
    environments: Box<dyn Environments>,
    spec: EnvSpec,
    env_actor: EnvActor,
    inference: Inference,
    bandit: CentralBandit,
    requests: ActRequests,
    updates: u64,
}

/// What was seen, decided and done in one step.
#[derive(Clone, Debug)]
pub struct DemonstrationStep {
    /// What was seen.
    pub observation: Vec<u8>,
    /// What the networks said to it.
    pub decision: Decision,
    /// Its intrinsic rewards.
    pub intrinsic: StepRewards,
    /// What was done.
    pub action: usize,
    /// What that was rewarded with.
    pub reward: f64,
    /// Where it ended the episode: how, and what was seen then.
    pub end: Option<(EpisodeEnd, Vec<u8>)>,
}

impl Demonstration {
    /// The agent in `checkpoint`, on episodes that follow from `seed`.
    pub fn new(task: &Task, config: &Config, checkpoint: &Checkpoint, seed: u64) -> Result<Self> {
        let mut stage = EvaluationSetup::new(task, config, checkpoint, ParameterSource::Ema, seed, 1)?;
        let env_actor = stage.env_actor(config, 0)?;
        let mut environments = stage.sets.pop().ok_or(TrainError::NoEnvironments)?;
        environments.reset()?;
        let EvaluationSetup { spec, inference, bandit, updates, .. } = stage;
        let requests = ActRequests::new(ObservationRows::on_host(1, spec.observation_bytes()));
        Ok(Self { environments, spec, env_actor, inference, bandit, requests, updates })
    }

    /// What the environment looks like.
    pub fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// Updates that made the parameters.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The policy that plays: the bandit's favourite.
    pub fn policy(&self) -> usize {
        self.bandit.greedy()
    }

    /// Plays one step; what went wrong and was mended is told to `say`.
    pub fn step(&mut self, say: &mut dyn FnMut(&str)) -> Result<DemonstrationStep> {
        self.environments.observation(0, 0, self.requests.observations.row_mut(0)?);
        let observation = self.requests.observations.row(0)?.to_vec();
        self.requests.requests.clear();
        self.env_actor.request(0, &mut self.requests.requests);
        let decisions = self.inference.decide(&mut self.requests)?;
        let decision = decisions.last().ok_or(TrainError::MissingDecision)?.clone();
        let action = self.env_actor.choose(&observation, &mut decisions.into_iter())?;
        let intrinsic = self.env_actor.pending_rewards().unwrap_or_default();
        self.environments.start(0, &[action])?;
        let finished = self.environments.finish(0).map(|steps| steps.first().copied());
        self.environments.take_faults().iter().for_each(|fault| say(fault));
        let step = finished?.ok_or(TrainError::NoEnvironments)?;
        let mut last = vec![0; observation.len()];
        if step.end.is_some() {
            self.environments.last_observation(0, 0, &mut last);
        }
        // Nothing is written down, so the actor environment does not ask for the last observation.
        self.env_actor.take(&step, Vec::new, &self.bandit)?;
        let end = step.end.map(|end| (end, last));
        Ok(DemonstrationStep { observation, decision, intrinsic, action, reward: step.reward, end })
    }
}
