//! The learner's side of replay: learns from batches, gives priorities back.

use std::sync::Arc;

use agent::learner::{Learner, StepOptions, StepReport};
use agent::loader::LoadedBatch;
use replay::{Key, Replay};

use crate::drawing::DrawnBatch;
use crate::error::{Result, TrainError};
use crate::published::{Embedding, Published};

/// A learner and the replay it learns from.
pub struct Learning {
    learner: Learner,
    replay: Arc<Replay>,
    /// The f that is acted with.
    embedding: Embedding,
    embedding_every: u64,
    /// Of the update under way.
    under_way: Option<Origin>,
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
    /// A learner beside its replay, which hands f over every so many updates.
    pub fn new(learner: Learner, replay: Arc<Replay>, embedding_every: u64) -> Result<Self> {
        let embedding = Published::of(&learner)?.embedding()?;
        Ok(Self { learner, replay, embedding, embedding_every, under_way: None })
    }

    /// Goes on with the f that was acted with.
    pub fn hold(&mut self, embedding: Embedding) {
        self.embedding = embedding;
    }

    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// What actors and evaluators go on with.
    pub fn publish(&mut self) -> Result<Published> {
        let mut published = Published::of(&self.learner)?;
        if published.version / self.embedding_every > self.embedding.version / self.embedding_every {
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
