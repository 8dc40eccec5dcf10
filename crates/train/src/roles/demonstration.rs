//! Plays a trained agent in one environment, step by step, for display.

use agent::acting::{ObservationRows, StepRewards};
use agent::learner::ParameterSource;
use envs::{EnvSpec, Environments, EpisodeEnd, RenderedPicture};

use crate::config::Config;
use crate::environments::Task;
use crate::error::{Result, TrainError};
use crate::roles::actor_env::EnvActor;
use crate::roles::bandit::SharedBandit;
use crate::roles::evaluation::{EvaluationOptions, EvaluationSetup};
use crate::roles::inference::{Decide, Inference};
use crate::roles::messages::{ActRequests, Decision};
use crate::run::checkpoint::Checkpoint;

/// Greedy play with the averaged parameters.
///
/// It is that of the first environment of an evaluation with the same seed.
pub struct Demonstration {
    environments: Box<dyn Environments>,
    /// Specification of the environment.
    pub spec: EnvSpec,
    env_actor: EnvActor,
    inference: Inference,
    bandit: SharedBandit,
    requests: ActRequests,
    /// Number of updates that made the parameters.
    pub updates: u64,
}

/// One step of a demonstration.
#[derive(Clone, Debug)]
pub struct DemonstrationStep {
    /// The observation.
    pub observation: Vec<u8>,
    /// The networks' decision.
    pub decision: Decision,
    /// The observation's intrinsic rewards.
    pub intrinsic: StepRewards,
    /// The action.
    pub action: usize,
    /// The environment's reward.
    pub reward: f64,
    /// How the episode ended, if it did, and its last observation.
    pub end: Option<(EpisodeEnd, Vec<u8>)>,
}

impl Demonstration {
    /// A demonstration of the agent in `checkpoint`.
    pub fn new(task: &Task, config: &Config, checkpoint: &Checkpoint, seed: u64) -> Result<Self> {
        let options = EvaluationOptions { task, config, checkpoint, parameters: ParameterSource::Averaged, seed };
        let mut workers = options.workers(1);
        workers.iter_mut().for_each(|worker| worker.render = true);
        let mut setup = EvaluationSetup::new(options, &workers)?;
        let env_actor = setup.env_actor(config, 0)?;
        let mut environments = setup.sets.pop().ok_or(TrainError::NoEnvironments)?;
        environments.reset()?;
        let EvaluationSetup { spec, inference, bandit, updates, .. } = setup;
        let requests = ActRequests::new(ObservationRows::on_host(1, spec.observation_bytes()));
        Ok(Self { environments, spec, env_actor, inference, bandit, requests, updates })
    }

    /// The policy that plays: the bandit's greedy arm.
    pub fn policy(&self) -> usize {
        self.bandit.greedy()
    }

    /// Returns the environment's own picture of its state.
    ///
    /// With `last`, of the state that ended the last episode.
    pub fn render(&mut self, last: bool) -> Result<RenderedPicture> {
        Ok(self.environments.render(0, 0, last)?)
    }

    /// Plays one step. Reports faults that were handled to `warn`.
    pub fn step(&mut self, warn: &mut dyn FnMut(&str)) -> Result<DemonstrationStep> {
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
        self.environments.take_faults().iter().for_each(|fault| warn(fault));
        let step = finished?.ok_or(TrainError::NoEnvironments)?;
        let mut last = vec![0; observation.len()];
        if step.end.is_some() {
            self.environments.last_observation(0, 0, &mut last);
        }
        // Without a writer, the actor environment does not need the last observation.
        self.env_actor.take(&step, Vec::new, &self.bandit)?;
        let end = step.end.map(|end| (end, last));
        Ok(DemonstrationStep { observation, decision, intrinsic, action, reward: step.reward, end })
    }
}
