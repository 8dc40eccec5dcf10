//! The learner around its step: learns from batches, returns priorities to replay, publishes parameters.

use std::sync::Arc;

use agent::NamedTensors;
use agent::learner::{AVERAGED, Learner, LearnerState, ONLINE, ParameterSource, StepOptions, StepReport};
use agent::loader::LoadedBatch;
use agent::tensor_file::HostTensor;
use replay::{Key, Replay};

use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::roles::batch_prefetch::PrefetchedBatch;
use crate::roles::published_parameters::{EmbeddingNetwork, PublishedParameters};

/// A learner and the replay that it learns from.
pub struct LearnerLoop {
    /// The learner.
    pub learner: Learner,
    /// The replay that it learns from.
    pub replay: Arc<Replay>,
    publish_every: u64,
    /// The f that actors use.
    pub embedding_network: EmbeddingNetwork,
    hold: EmbeddingHold,
    /// Batch of the update in progress.
    in_progress: Option<BatchOrigin>,
}

/// How long actors keep the same f.
#[derive(Clone, Copy, Debug)]
struct EmbeddingHold {
    every: u64,
    share: f64,
}

impl EmbeddingHold {
    /// Whether the f of update `held` is replaced at update `now`.
    fn is_over(self, held: u64, now: u64) -> bool {
        now / self.every > held / self.every && (now - held) as f64 >= self.share * held as f64
    }
}

/// A finished update.
#[derive(Debug)]
pub struct LearnerUpdate {
    /// The learner's own report.
    pub report: StepReport,
    /// Mean number of updates since the parameters that wrote the sampled sequences.
    pub staleness: f64,
    /// Mean number of sequences inserted into the same shard since the sampled ones.
    pub age: f64,
    /// Priorities that came too late: their sequences had been replaced.
    pub late: usize,
}

impl LearnerLoop {
    /// A learner with its replay.
    pub fn new(learner: Learner, replay: Arc<Replay>, config: &Config) -> Result<Self> {
        let embedding_network = PublishedParameters::of(&learner)?.embedding_network()?;
        let hold = EmbeddingHold { every: config.intrinsic.embedding_every, share: config.intrinsic.embedding_share };
        let publish_every = config.learner.publish_every;
        Ok(Self { learner, replay, publish_every, embedding_network, hold, in_progress: None })
    }

    /// Copies the learner's state. The averaged weights include everything evaluators need, with the held f.
    pub fn snapshot(&self) -> Result<LearnerState> {
        let mut state = self.learner.save()?;
        let rnd = |(name, tensor): (&String, &HostTensor)| {
            Some((
                format!("{AVERAGED}{}", name.strip_prefix(ONLINE).filter(|name| name.starts_with("rnd."))?),
                tensor.clone(),
            ))
        };
        let rnd: Vec<_> = state.weights.iter().filter_map(rnd).collect();
        state.weights.extend(rnd);
        self.embedding_network.export(&mut state.weights)?;
        Ok(state)
    }

    /// Continues with a saved f: restored episodic memories can be compared with no other.
    pub fn hold_embedding_network(&mut self, saved: EmbeddingNetwork) {
        self.embedding_network = saved;
    }

    /// Returns the averaged parameters as evaluators use them, with the f that is held.
    pub fn averaged_weights(&self) -> Result<NamedTensors> {
        let mut weights = NamedTensors::new();
        self.learner.parameters(ParameterSource::Averaged)?.export(&mut weights, AVERAGED)?;
        self.embedding_network.export(&mut weights)?;
        Ok(weights)
    }

    /// Returns the newest parameters with the f that is held.
    pub fn current_parameters(&self) -> Result<PublishedParameters> {
        let mut published = PublishedParameters::of(&self.learner)?;
        published.hold_embedding_network(&self.embedding_network)?;
        Ok(published)
    }

    /// Returns the newest parameters, with the newest f if its time has come.
    pub fn publish_parameters(&mut self) -> Result<PublishedParameters> {
        let mut published = PublishedParameters::of(&self.learner)?;
        if self.hold.is_over(self.embedding_network.version, published.version) {
            self.embedding_network = published.embedding_network()?;
        } else {
            published.hold_embedding_network(&self.embedding_network)?;
        }
        Ok(published)
    }

    /// Publishes if the last update was one to publish after.
    pub fn publish_if_due(&mut self) -> Result<Option<PublishedParameters>> {
        let is_due = self.learner.updates().is_multiple_of(self.publish_every);
        is_due.then(|| self.publish_parameters()).transpose()
    }

    /// Makes one update and returns the new priorities to replay.
    pub fn update(&mut self, batch: &PrefetchedBatch) -> Result<LearnerUpdate> {
        let origin = BatchOrigin::of(batch, self.learner.updates());
        let report = self.learner.step_loaded(loaded(batch)?, StepOptions::default())?;
        self.conclude(origin, report)
    }

    /// Begins an update and finishes the one begun before, as [`Learner::begin`] does.
    pub fn begin(&mut self, batch: &PrefetchedBatch) -> Result<Option<LearnerUpdate>> {
        let origin = BatchOrigin::of(batch, self.learner.updates());
        let report = self.learner.begin(loaded(batch)?)?;
        let before = self.in_progress.replace(origin);
        before.zip(report).map(|(origin, report)| self.conclude(origin, report)).transpose()
    }

    /// Waits for the update in progress, if there is one.
    pub fn finish(&mut self) -> Result<Option<LearnerUpdate>> {
        let report = self.learner.finish()?;
        let origin = self.in_progress.take();
        origin.zip(report).map(|(origin, report)| self.conclude(origin, report)).transpose()
    }

    fn conclude(&self, origin: BatchOrigin, report: StepReport) -> Result<LearnerUpdate> {
        let late = self.replay.update_priorities(&origin.keys, &report.priorities)?;
        Ok(LearnerUpdate { report, staleness: origin.staleness, age: origin.age, late })
    }
}

/// What an unfinished update needs to know of its batch.
struct BatchOrigin {
    keys: Vec<Key>,
    staleness: f64,
    age: f64,
}

impl BatchOrigin {
    /// Origin of a batch that is learned from after `updates` updates.
    fn of(batch: &PrefetchedBatch, updates: u64) -> Self {
        let batch = &batch.arrays;
        let mean = |values: &mut dyn Iterator<Item = u64>| values.sum::<u64>() as f64 / batch.sequences.len() as f64;
        Self {
            staleness: mean(
                &mut batch.sequences.iter().map(|sequence| updates.saturating_sub(sequence.parameter_version)),
            ),
            age: mean(&mut batch.sequences.iter().map(|sequence| sequence.age)),
            keys: batch.keys().collect(),
        }
    }
}

fn loaded(batch: &PrefetchedBatch) -> Result<&LoadedBatch> {
    batch.loaded.as_ref().ok_or(TrainError::BatchNotLoaded)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Sources;
    use crate::environments::Task;
    use crate::roles::batch_prefetch::BatchPrefetch;
    use crate::roles::training_agent::TrainingAgent;
    use crate::runtime::assembly::Assembly;
    use crate::runtime::starting_point::StartingPoint;

    const SETTINGS: [&str; 8] = [
        "run.threads=1",
        "replay.minimum_fill=12",
        "replay.limiter_slack=100",
        "replay.trace=8",
        "replay.period=4",
        "agent.intrinsic.steps=5",
        "env.max_side=12",
        "learner.batch_size=4",
    ];

    /// A learner and a replay with some sequences, the same at every call.
    fn begun() -> (Assembly, BatchPrefetch) {
        tch::set_num_threads(1);
        let set = SETTINGS.map(str::to_owned).to_vec();
        let config = Sources { preset: Some("tiny".to_owned()), file: None, set }.load().unwrap().config;
        let task = Task { environment: "catch".parse().unwrap(), python: "none".into(), package: "none".into() };
        let mut assembly = Assembly::new(&task, &config, tch::Device::Cpu, &StartingPoint::Nothing, 0).unwrap();
        let Assembly { inference, agent, actors, .. } = &mut assembly;
        let TrainingAgent { learner_loop, bandit, .. } = agent;
        let prefetch = BatchPrefetch::new(&learner_loop.replay, 1, &learner_loop.learner).unwrap();
        for _ in 0..40 {
            for actor in actors.iter_mut() {
                for group in 0..actor.groups() {
                    actor.decide(group, inference).unwrap();
                    actor.wait(group, &mut |_| panic!("a fault")).unwrap();
                    actor.absorb(group, &**bandit, &mut |_| {}).unwrap();
                }
                actor.flush(Duration::ZERO).unwrap();
            }
        }
        (assembly, prefetch)
    }

    fn draw(prefetch: &mut BatchPrefetch) -> PrefetchedBatch {
        let mut batch = prefetch.memory(4).unwrap();
        assert!(prefetch.draw(&mut batch, Duration::ZERO).unwrap());
        batch
    }

    #[test]
    fn the_embedding_is_held_longer_and_longer() {
        let renewals = |every, share| {
            let (hold, mut held) = (EmbeddingHold { every, share }, 0);
            let moves = |now: u64| {
                let over = hold.is_over(held, now);
                held = if over { now } else { held };
                over.then_some(now)
            };
            // As often as parameters are published.
            (4..=4000).step_by(4).filter_map(moves).collect::<Vec<_>>()
        };
        assert_eq!(renewals(1000, 0.0), [1000, 2000, 3000, 4000]);
        // At a multiple of `every`, or later if the share demands it.
        assert_eq!(renewals(400, 0.25), [400, 800, 1200, 1600, 2000, 2500, 3128, 3912]);
        assert_eq!(renewals(4, 0.0).len(), 1000);
    }

    #[test]
    fn an_update_begun_ahead_has_the_same_report_and_priorities() {
        let ((mut whole, mut whole_prefetch), (mut ahead, mut ahead_prefetch)) = (begun(), begun());
        let (first, second) = (draw(&mut whole_prefetch), draw(&mut whole_prefetch));
        let wanted =
            [whole.agent.learner_loop.update(&first).unwrap(), whole.agent.learner_loop.update(&second).unwrap()];

        let (first, second) = (draw(&mut ahead_prefetch), draw(&mut ahead_prefetch));
        assert!(ahead.agent.learner_loop.begin(&first).unwrap().is_none());
        let found = [
            ahead.agent.learner_loop.begin(&second).unwrap().unwrap(),
            ahead.agent.learner_loop.finish().unwrap().unwrap(),
        ];
        assert!(ahead.agent.learner_loop.finish().unwrap().is_none());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found.report, wanted.report);
            assert_eq!((found.staleness, found.age, found.late), (wanted.staleness, wanted.age, wanted.late));
        }
        // The next draw depends on the priorities.
        let (wanted, found) = (draw(&mut whole_prefetch), draw(&mut ahead_prefetch));
        assert_eq!(found.arrays.sequences, wanted.arrays.sequences);
    }
}
