//! Batches on their way: drawn from replay into memory that the learner's device reads from, and loaded onto it.

use std::sync::Arc;
use std::time::Duration;

use agent::batch::Batch as AgentBatch;
use agent::learner::Learner;
use agent::loader::{LoadedBatch, Loader, ObservationMemory};
use replay::{Batch, Replay, ReplayError, Sampler};

use crate::error::Result;

/// Draws batches and loads them onto the learner's device; may run ahead of the learner on a thread of its own.
pub struct Drawing {
    sampler: Sampler,
    loader: Loader,
    replay: Arc<Replay>,
}

/// Memory for a batch, and the batch last drawn into it.
pub struct DrawnBatch {
    /// Everything but the observations.
    arrays: Batch,
    observations: ObservationMemory,
    loaded: Option<LoadedBatch>,
}

impl DrawnBatch {
    /// The arrays besides the observations.
    pub fn arrays(&self) -> &Batch {
        &self.arrays
    }

    /// The batch on the device, once one was drawn.
    pub fn loaded(&self) -> Option<&LoadedBatch> {
        self.loaded.as_ref()
    }
}

impl Drawing {
    /// Draws from `replay` with this many threads, for `learner`.
    pub fn new(replay: &Arc<Replay>, threads: usize, learner: &Learner) -> Result<Self> {
        Ok(Self { sampler: Sampler::new(replay, threads), loader: learner.loader()?, replay: Arc::clone(replay) })
    }

    /// Memory for a batch of `size` sequences.
    pub fn memory(&self, size: usize) -> Result<DrawnBatch> {
        let layout = self.replay.config().layout;
        Ok(DrawnBatch {
            arrays: Batch::without_observations(&layout, size),
            observations: self.loader.memory(size, layout.trace)?,
            loaded: None,
        })
    }

    /// Draws a batch, waiting for the rate limiter at most `timeout`; whether one was drawn.
    pub fn draw(&mut self, batch: &mut DrawnBatch, timeout: Duration) -> Result<bool> {
        let DrawnBatch { arrays, observations, loaded } = batch;
        *loaded = None;
        match self.sampler.sample(arrays.as_mut_with(observations.bytes()?), timeout) {
            Ok(()) => {}
            Err(ReplayError::Timeout { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let whole = |values: &[i64]| -> Vec<usize> { values.iter().map(|&value| value as usize).collect() };
        let drawn = AgentBatch {
            sequences: arrays.keys.len(),
            trace: self.replay.config().layout.trace,
            observations: &[],
            action: &arrays.action,
            behaviour_probability: &arrays.behaviour_probability,
            reward_extrinsic: &arrays.reward_extrinsic,
            reward_ngu: &arrays.reward_ngu,
            reward_rnd: &arrays.reward_rnd,
            reward_episodic: &arrays.reward_episodic,
            discount: &arrays.discount,
            embedding: &arrays.embedding,
            length: &whole(&arrays.length),
            state: &arrays.state,
            policy: &whole(&arrays.policy),
            weight: &arrays.importance_weight,
        };
        *loaded = Some(self.loader.load(&drawn, observations)?);
        Ok(true)
    }
}
