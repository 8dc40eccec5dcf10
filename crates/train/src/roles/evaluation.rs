//! Evaluates a trained agent: a fixed number of greedy episodes, usually with the averaged parameters.

use agent::intrinsic::DistanceMean;
use agent::learner::ParameterSource;
use envs::{EnvSpec, Environments, WorkerConfig};

use crate::config::Config;
use crate::device::device;
use crate::environments::{Task, environment_count, observation_spec, workers};
use crate::error::{Result, TrainError};
use crate::roles::actor::{Actor, new_actors};
use crate::roles::actor_env::{EnvActor, EnvActorSpec, Exploration};
use crate::roles::bandit::SharedBandit;
use crate::roles::events::Event;
use crate::roles::inference::{Inference, RoleSizes};
use crate::roles::messages::{EpisodeReport, Role};
use crate::roles::trained_agent::TrainedAgent;
use crate::run::checkpoint::Checkpoint;

/// Index of the first environment.
///
/// Seed and index determine episodes. Local training uses smaller indices and remote actors use indices from 2^63, so
/// no episode occurred in training, whatever the seed.
pub const FIRST_INDEX: usize = 1_000_000;

/// Maximum number of environments at the same time.
const MAX_ENVIRONMENTS: usize = 16;

/// Environments per worker, so that workers play while the networks decide for others. The same on every machine, since
/// the batch size may change the last bits of the networks' output.
const ENVIRONMENTS_PER_WORKER: usize = 4;

/// Agent and task of an evaluation.
#[derive(Clone, Copy)]
pub struct EvaluationOptions<'a> {
    /// Task that the agent plays.
    pub task: &'a Task,
    /// Config of the agent's run.
    pub config: &'a Config,
    /// Checkpoint that holds the agent.
    pub checkpoint: &'a Checkpoint,
    /// Which of the agent's parameters to use.
    pub parameters: ParameterSource,
    /// Seed of the episodes.
    pub seed: u64,
}

impl EvaluationOptions<'_> {
    /// The workers that run this many environments.
    pub(crate) fn workers(&self, environments: usize) -> Vec<WorkerConfig> {
        let mut config = self.config.clone();
        config.run.seed = self.seed;
        config.actors.environments_per_worker = ENVIRONMENTS_PER_WORKER;
        config.actors.groups = 1;
        workers(self.task, &config, FIRST_INDEX, environments)
    }
}

/// Environments for an evaluation, and the trained agent.
pub(crate) struct EvaluationSetup {
    pub(crate) sets: Vec<Box<dyn Environments>>,
    pub(crate) spec: EnvSpec,
    pub(crate) inference: Inference,
    pub(crate) bandit: SharedBandit,
    pub(crate) updates: u64,
    distances: DistanceMean,
}

impl EvaluationSetup {
    pub(crate) fn new(options: EvaluationOptions<'_>, workers: &[WorkerConfig]) -> Result<Self> {
        let EvaluationOptions { config, checkpoint, parameters, .. } = options;
        let environments = workers.iter().map(|worker| worker.environments).sum();
        let sets = envs::make_all(workers)?;
        let spec = sets.first().ok_or(TrainError::NoEnvironments)?.spec().clone();
        let (observation, actions, device) = (observation_spec(&spec), spec.actions(), device(config)?);
        let TrainedAgent { mut published, has_online, bandit, distances } =
            TrainedAgent::read(checkpoint, config, &observation, actions, device)?;
        if parameters == ParameterSource::Online {
            if !has_online {
                return Err(TrainError::OnlyAveraged);
            }
            published.swap_online_and_average();
        }
        let roles = RoleSizes { actors: 0, evaluators: environments, remote: 0 };
        let inference = Inference::new(config, &observation, actions, roles, device, &published)?;
        Ok(Self { sets, spec, inference, bandit, updates: published.version, distances })
    }

    /// Returns an actor environment that plays greedily and writes nothing to replay.
    pub(crate) fn env_actor(&self, config: &Config, environment: usize) -> Result<EnvActor> {
        let hides_rewards = config.env.hide_rewards;
        let spec = EnvActorSpec {
            role: Role::Evaluator,
            environment,
            slot: environment,
            epsilon: 0.0,
            hides_rewards,
            exploration: Exploration::default(),
        };
        // Without exploration, the seed does not matter.
        let env_actor =
            EnvActor::new(spec, &config.intrinsic, self.inference.embedding_length(), 0, None, &self.bandit)?;
        Ok(env_actor.with_distances(self.distances))
    }
}

/// An evaluation that its caller advances.
///
/// The episodes that count are fixed in advance: the first N / n of each environment, and one more of the first N mod
/// n. Counting the N that end first would favour short ones.
pub struct Evaluation {
    actors: Vec<Actor>,
    inference: Inference,
    bandit: SharedBandit,
    /// Specification of the environments.
    pub spec: EnvSpec,
    /// Number of updates that made the parameters.
    pub updates: u64,
    wanted: Vec<usize>,
    played: Vec<Vec<EpisodeReport>>,
}

impl Evaluation {
    /// An evaluation of `episodes` episodes.
    pub fn new(options: EvaluationOptions<'_>, episodes: usize) -> Result<Self> {
        let wanted = shares(episodes);
        let mut setup = EvaluationSetup::new(options, &options.workers(wanted.len()))?;
        let sets = std::mem::take(&mut setup.sets);
        let sizes: Vec<usize> = sets.iter().map(|set| environment_count(set.as_ref())).collect();
        let rows = setup.inference.observation_rows(&sizes)?;
        let actors = new_actors(sets, rows, |environment| setup.env_actor(options.config, environment))?;
        let EvaluationSetup { spec, inference, bandit, updates, .. } = setup;
        Ok(Self { actors, inference, bandit, spec, updates, played: vec![Vec::new(); wanted.len()], wanted })
    }

    /// Returns whether the bandit knows the return of any policy; otherwise the first one plays.
    pub fn policy_is_known(&self) -> bool {
        self.bandit.arms().0.iter().any(|arm| arm.episodes > 0.0)
    }

    /// The policy that plays: the bandit's greedy arm.
    pub fn policy(&self) -> usize {
        self.bandit.greedy()
    }

    /// Environments that play at the same time.
    pub fn environments(&self) -> usize {
        self.wanted.len()
    }

    /// Agent steps of all environments so far.
    pub fn steps(&self) -> u64 {
        self.actors.iter().map(|actor| actor.steps).sum()
    }

    /// Steps the environments of all workers that have episodes left. Reports faults that were handled to `warn`.
    pub fn advance(&mut self, warn: &mut dyn FnMut(&str)) -> Result<()> {
        let Self { actors, inference, bandit, wanted, played, .. } = self;
        let shares = wanted.chunks(ENVIRONMENTS_PER_WORKER).zip(played.chunks(ENVIRONMENTS_PER_WORKER));
        let mut playing: Vec<&mut Actor> = actors
            .iter_mut()
            .zip(shares)
            .filter(|(_, (wanted, played))| !all_played(wanted, played))
            .map(|(actor, _)| actor)
            .collect();
        for actor in &mut playing {
            actor.decide(0, inference)?;
        }
        for actor in playing {
            let mut on_event = |event| match event {
                Event::Notice(fault) | Event::Fault(fault) => warn(&fault),
                Event::Episode(report) => {
                    let played = &mut played[report.environment];
                    if played.len() < wanted[report.environment] {
                        played.push(report);
                    }
                }
                Event::Positions(_) | Event::Update(_) | Event::Evaluation(_) => {}
            };
            actor.wait(0, &mut on_event)?;
            actor.absorb(0, bandit, &mut on_event)?;
        }
        Ok(())
    }

    /// Returns whether all episodes that count are played.
    pub fn is_complete(&self) -> bool {
        all_played(&self.wanted, &self.played)
    }

    /// Returns the finished episodes that count, environment by environment.
    pub fn episodes(&self) -> impl Iterator<Item = &EpisodeReport> {
        self.played.iter().flatten()
    }
}

fn all_played(wanted: &[usize], played: &[Vec<EpisodeReport>]) -> bool {
    played.iter().zip(wanted).all(|(played, &wanted)| played.len() == wanted)
}

/// Returns how many episodes of each environment count.
fn shares(episodes: usize) -> Vec<usize> {
    let environments = episodes.min(MAX_ENVIRONMENTS);
    (0..environments)
        .map(|environment| episodes / environments + usize::from(environment < episodes % environments))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Kind, fields};

    #[test]
    fn episodes_are_shared_evenly() {
        assert_eq!(shares(0), [0usize; 0]);
        assert_eq!(shares(1), [1]);
        assert_eq!(shares(10), [1; 10]);
        assert_eq!(shares(16), [1; 16]);
        assert_eq!(shares(18), [2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(shares(100).iter().sum::<usize>(), 100);
    }

    #[test]
    fn training_never_uses_an_index_of_an_evaluation() {
        let most = |path: &str| match fields().find(|field| field.path == path).unwrap().kind {
            Kind::Integer(_, most) => most as usize,
            _ => panic!("{path} is not an integer"),
        };
        assert!(most("actors.environments") + most("evaluation.evaluators") <= FIRST_INDEX);
    }
}
