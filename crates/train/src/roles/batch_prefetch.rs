//! Sampling and decoding ahead of the learner: batches are drawn from replay and loaded onto the learner's device.

use std::sync::Arc;
use std::time::Duration;

use agent::learner::Learner;
use agent::loader::{LoadedBatch, Loader, ObservationMemory};
use replay::{Replay, ReplayError, Sampler, SequenceBatch};

use crate::error::Result;

/// Draws batches and loads them onto the learner's device.
pub struct BatchPrefetch {
    sampler: Sampler,
    loader: Loader,
    replay: Arc<Replay>,
}

/// Memory for a batch, and the last batch drawn into it.
pub struct PrefetchedBatch {
    /// Everything but the observations.
    pub arrays: SequenceBatch,
    observations: ObservationMemory,
    /// The batch on the device, once one has been drawn.
    pub loaded: Option<LoadedBatch>,
}

impl BatchPrefetch {
    /// Prefetches from `replay` with this many threads, for `learner`.
    pub fn new(replay: &Arc<Replay>, threads: usize, learner: &Learner) -> Result<Self> {
        Ok(Self { sampler: Sampler::new(replay, threads), loader: learner.loader()?, replay: Arc::clone(replay) })
    }

    /// Returns memory for a batch of `size` sequences.
    pub fn memory(&self, size: usize) -> Result<PrefetchedBatch> {
        let layout = self.replay.config.layout;
        Ok(PrefetchedBatch {
            arrays: SequenceBatch::without_observations(&layout, size),
            observations: self.loader.memory(size, layout.trace)?,
            loaded: None,
        })
    }

    /// Draws a batch, waiting for the rate limiter at most `timeout`; returns whether it did.
    pub fn draw(&mut self, batch: &mut PrefetchedBatch, timeout: Duration) -> Result<bool> {
        let PrefetchedBatch { arrays, observations, loaded } = batch;
        *loaded = None;
        match self.sampler.sample_into(observations.bytes()?, arrays, timeout) {
            Ok(()) => {}
            Err(ReplayError::Timeout { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        *loaded = Some(self.loader.load(arrays, observations)?);
        Ok(true)
    }
}
