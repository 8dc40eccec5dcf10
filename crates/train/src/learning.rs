//! The learner's side of replay: learns from batches, gives priorities back.

use std::sync::Arc;

use agent::TensorFile;
use agent::learner::{Learner, ParameterSource, StepOptions, StepReport};
use agent::loader::LoadedBatch;
use replay::{Key, Replay};

use crate::config::IntrinsicConfig;
use crate::drawing::DrawnBatch;
use crate::error::{Result, TrainError};
use crate::published::{Embedding, Published};

/// A learner and the replay it learns from.
pub struct Learning {
    learner: Learner,
    replay: Arc<Replay>,
    /// The f that is acted with.
    embedding: Embedding,
    hold: Hold,
    /// Of the update under way.
    under_way: Option<Origin>,
}

/// How long the f that is acted with holds still.
#[derive(Clone, Copy, Debug)]
struct Hold {
    every: u64,
    share: f64,
}

impl Hold {
    /// Whether the f of `held` updates makes way after `now`.
    fn is_over(self, held: u64, now: u64) -> bool {
        now / self.every > held / self.every && (now - held) as f64 >= self.share * held as f64
    }
}

/// What an update tells besides what the learner says.
#[derive(Debug)]
pub struct Update {
    /// What the learner says.
    pub report: StepReport,
    /// Updates since the parameters that wrote the sampled sequences, on average.
    pub staleness: f64,
    /// Sequences inserted into the same shard since the sampled ones, on average.
    pub age: f64,
    /// Priorities that came too late: their sequences had been replaced.
    pub late: usize,
}

impl Learning {
    /// A learner beside its replay, which hands f over now and then.
    pub fn new(learner: Learner, replay: Arc<Replay>, config: &IntrinsicConfig) -> Result<Self> {
        let embedding = Published::of(&learner)?.embedding()?;
        let hold = Hold { every: config.embedding_every, share: config.embedding_share };
        Ok(Self { learner, replay, embedding, hold, under_way: None })
    }

    /// The f that is acted with, as a checkpoint keeps it.
    pub fn save_embedding(&self) -> Result<TensorFile> {
        self.embedding.save()
    }

    /// Goes on with the f that was acted with: episodic memories that go on can be compared with no other.
    pub fn restore_embedding(&mut self, saved: &TensorFile) -> Result<()> {
        self.embedding.restore(saved)
    }

    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// The averaged parameters as evaluators use them, with the f that is held.
    pub fn averaged_weights(&self) -> agent::Result<TensorFile> {
        let mut file = self.learner.weights(ParameterSource::Ema)?;
        self.embedding.export_to(&mut file)?;
        Ok(file)
    }

    /// What actors and evaluators begin with: the newest parameters, beside the f that is held.
    pub fn published(&self) -> Result<Published> {
        let mut published = Published::of(&self.learner)?;
        published.keep_embedding(&self.embedding)?;
        Ok(published)
    }

    /// What actors and evaluators go on with; f is the newest where its turn has come.
    pub fn publish(&mut self) -> Result<Published> {
        let mut published = Published::of(&self.learner)?;
        if self.hold.is_over(self.embedding.version, published.version) {
            self.embedding = published.embedding()?;
        } else {
            published.keep_embedding(&self.embedding)?;
        }
        Ok(published)
    }

    /// One update with a batch that was drawn before; its sequences get their new priorities.
    pub fn update(&mut self, batch: &DrawnBatch) -> Result<Update> {
        let origin = Origin::of(batch, self.learner.updates());
        let report = self.learner.step_loaded(loaded(batch)?, StepOptions::default())?;
        self.conclude(origin, report)
    }

    /// Begins an update, and finishes the one that was begun before, as [`Learner::begin`] does.
    pub fn begin(&mut self, batch: &DrawnBatch) -> Result<Option<Update>> {
        let origin = Origin::of(batch, self.learner.updates());
        let report = self.learner.begin(loaded(batch)?)?;
        let before = self.under_way.replace(origin);
        before.zip(report).map(|(origin, report)| self.conclude(origin, report)).transpose()
    }

    /// Waits for the update under way, if there is one.
    pub fn finish(&mut self) -> Result<Option<Update>> {
        let report = self.learner.finish()?;
        let origin = self.under_way.take();
        origin.zip(report).map(|(origin, report)| self.conclude(origin, report)).transpose()
    }

    fn conclude(&self, origin: Origin, report: StepReport) -> Result<Update> {
        let updated = self.replay.update_priorities(&origin.keys, &report.priorities)?;
        Ok(Update { report, staleness: origin.staleness, age: origin.age, late: updated.late })
    }
}

/// What is remembered of a batch until its update is finished.
struct Origin {
    keys: Vec<Key>,
    staleness: f64,
    age: f64,
}

impl Origin {
    /// Of a batch that is learned from after so many updates.
    fn of(batch: &DrawnBatch, updates: u64) -> Self {
        let batch = batch.arrays();
        let mean = |values: &mut dyn Iterator<Item = u64>| values.sum::<u64>() as f64 / batch.keys.len() as f64;
        Self {
            staleness: mean(&mut batch.parameter_version.iter().map(|&version| updates.saturating_sub(version))),
            age: mean(&mut batch.age.iter().copied()),
            keys: batch.keys.clone(),
        }
    }
}

fn loaded(batch: &DrawnBatch) -> Result<&LoadedBatch> {
    batch.loaded().ok_or(TrainError::Gone { role: "the sampler" })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::assembly::{Parts, Task};
    use crate::config::Sources;
    use crate::drawing::Drawing;

    const SETTINGS: [&str; 8] = [
        "run.threads=1",
        "replay.minimum_fill=12",
        "replay.limiter_slack=100",
        "replay.trace=8",
        "replay.period=4",
        "agent.intrinsic.steps=5",
        "agent.network.max_side=12",
        "learner.batch_size=4",
    ];

    /// A learner beside a replay with some sequences in it, the same at every call.
    fn begun() -> (Parts, Drawing) {
        tch::set_num_threads(1);
        let set = SETTINGS.map(str::to_owned).to_vec();
        let config = Sources { preset: Some("tiny".to_owned()), file: None, set }.load().unwrap().config;
        let task = Task { environment: "catch".parse().unwrap(), python: "none".into(), package: "none".into() };
        let mut parts = Parts::new(&task, &config, tch::Device::Cpu, None).unwrap();
        let Parts { inference, bandit, actors, replay, learning, .. } = &mut parts;
        let drawing = Drawing::new(replay, 1, learning.learner()).unwrap();
        for _ in 0..40 {
            for actor in actors.iter_mut() {
                for group in 0..actor.groups() {
                    actor.decide(group, inference).unwrap();
                    actor.wait(group, &mut |fault| panic!("{fault}")).unwrap();
                    actor.absorb(group, bandit, &mut |_| {}).unwrap();
                }
                actor.flush(Duration::ZERO).unwrap();
            }
        }
        (parts, drawing)
    }

    fn draw(drawing: &mut Drawing) -> DrawnBatch {
        let mut batch = drawing.memory(4).unwrap();
        assert!(drawing.draw(&mut batch, Duration::ZERO).unwrap());
        batch
    }

    #[test]
    fn f_holds_still_for_ever_longer() {
        let renewals = |every, share| {
            let (hold, mut held) = (Hold { every, share }, 0);
            let moves = |now: u64| {
                let over = hold.is_over(held, now);
                held = if over { now } else { held };
                over.then_some(now)
            };
            // As often as parameters are published.
            (4..=4000).step_by(4).filter_map(moves).collect::<Vec<_>>()
        };
        assert_eq!(renewals(1000, 0.0), [1000, 2000, 3000, 4000]);
        // At a multiple of `every` or, where the share comes later, in between.
        assert_eq!(renewals(400, 0.25), [400, 800, 1200, 1600, 2000, 2500, 3128, 3912]);
        assert_eq!(renewals(4, 0.0).len(), 1000);
    }

    #[test]
    fn an_update_begun_ahead_tells_the_same_and_moves_the_same_priorities() {
        let ((mut whole, mut whole_drawing), (mut ahead, mut ahead_drawing)) = (begun(), begun());
        let (first, second) = (draw(&mut whole_drawing), draw(&mut whole_drawing));
        let wanted = [whole.learning.update(&first).unwrap(), whole.learning.update(&second).unwrap()];

        let (first, second) = (draw(&mut ahead_drawing), draw(&mut ahead_drawing));
        assert!(ahead.learning.begin(&first).unwrap().is_none());
        let found = [ahead.learning.begin(&second).unwrap().unwrap(), ahead.learning.finish().unwrap().unwrap()];
        assert!(ahead.learning.finish().unwrap().is_none());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found.report, wanted.report);
            assert_eq!((found.staleness, found.age, found.late), (wanted.staleness, wanted.age, wanted.late));
        }
        // What is drawn next hangs on the priorities.
        let (wanted, found) = (draw(&mut whole_drawing), draw(&mut ahead_drawing));
        assert_eq!(found.arrays().keys, wanted.arrays().keys);
        assert_eq!(found.arrays().importance_weight, wanted.arrays().importance_weight);
    }
}
