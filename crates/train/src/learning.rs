//! The learner's side of replay: learns from batches, gives priorities back.

use std::sync::Arc;

use agent::learner::{Learner, StepOptions, StepReport};
use replay::Replay;

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
        Ok(Self { learner, replay, embedding, embedding_every })
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
        let loaded = batch.loaded().ok_or(TrainError::Gone { role: "the sampler" })?;
        let before = self.learner.updates();
        let report = self.learner.step_loaded(loaded, StepOptions::default())?;
        let batch = batch.arrays();
        let updated = self.replay.update_priorities(&batch.keys, &report.priorities)?;
        let mean = |values: &mut dyn Iterator<Item = u64>| values.sum::<u64>() as f64 / batch.keys.len() as f64;
        Ok(Update {
            staleness: mean(&mut batch.parameter_version.iter().map(|&version| before.saturating_sub(version))),
            age: mean(&mut batch.age.iter().copied()),
            late: updated.late,
            report,
        })
    }
}
