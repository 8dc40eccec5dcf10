//! Draws batches and decodes them into the caller's memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::batch::{SampledSequence, SequenceBatch, SequencePart};
use crate::chunk::Decompressor;
use crate::columns::expect_length;
use crate::config::Layout;
use crate::error::Result;
use crate::replay::Replay;
use crate::shard::Drawn;

/// Samples batches on a given number of threads.
///
/// One thread allocates nothing after its first batch of a size. Further threads are started for each batch, at some
/// tens of microseconds and a few small allocations each: threads that live longer could not borrow the caller's
/// memory. Several samplers of one thread and one batch each avoid even that.
pub struct Sampler {
    replay: Arc<Replay>,
    decompressors: Vec<Decompressor>,
    drawn: Vec<Drawn>,
}

impl Sampler {
    /// Creates a sampler that decodes on `threads` threads, the caller's included; 0 counts as 1.
    pub fn new(replay: &Arc<Replay>, threads: usize) -> Self {
        let layout = &replay.config.layout;
        let decompressors = (0..threads.max(1)).map(|_| Decompressor::new(layout)).collect();
        Self { replay: Arc::clone(replay), decompressors, drawn: Vec::new() }
    }

    /// Fills a batch, waiting at most `timeout` for the rate limiter. On an error its content is unspecified.
    pub fn sample(&mut self, batch: &mut SequenceBatch, timeout: Duration) -> Result<()> {
        let mut observations = std::mem::take(&mut batch.observations);
        let sampled = self.sample_into(&mut observations, batch, timeout);
        batch.observations = observations;
        sampled
    }

    /// Like [`sample`](Self::sample), but decodes the observations into other memory than the batch's.
    pub fn sample_into(&mut self, observations: &mut [u8], batch: &mut SequenceBatch, timeout: Duration) -> Result<()> {
        let layout = self.replay.config.layout;
        let size = batch.sequences.len();
        batch.trace = layout.trace;
        expect_length("observations", observations.len(), size * layout.trace * layout.observation_bytes)?;
        for (column, found, expected) in batch.lengths(layout.embedding, layout.state) {
            expect_length(column, found, expected)?;
        }
        self.replay.draw(size, timeout, &mut self.drawn)?;
        self.describe(&mut batch.sequences);
        let work = Mutex::new(self.drawn.iter().zip(batch.split(&layout, observations)));
        let Some((own, others)) = self.decompressors.split_first_mut() else { return Ok(()) };
        let decoded = if others.is_empty() {
            // Even an empty scope allocates.
            decode(&layout, own, &work)
        } else {
            let failure = Mutex::new(Ok(()));
            let part = |decompressor| {
                if let Err(error) = decode(&layout, decompressor, &work) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                }
            };
            std::thread::scope(|scope| {
                for decompressor in others {
                    scope.spawn(|| part(decompressor));
                }
                part(own);
            });
            failure.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        self.drawn.clear();
        decoded
    }

    /// Writes everything that exists once per sequence.
    fn describe(&self, sequences: &mut [SampledSequence]) {
        let weight = |drawn: &Drawn| drawn.probability.powf(-self.replay.config.importance_exponent);
        let greatest = self.drawn.iter().map(weight).fold(0.0, f64::max);
        for (described, drawn) in sequences.iter_mut().zip(&self.drawn) {
            *described = SampledSequence {
                length: drawn.sequence.length as usize,
                policy: usize::from(drawn.sequence.policy),
                importance_weight: (weight(drawn) / greatest) as f32,
                actor: drawn.sequence.actor,
                parameter_version: drawn.sequence.parameter_version,
                age: drawn.age,
                key: drawn.key,
            };
        }
    }
}

/// Decodes sequences until none are left.
fn decode<'a>(
    layout: &Layout,
    decompressor: &mut Decompressor,
    work: &Mutex<impl Iterator<Item = (&'a Drawn, SequencePart<'a>)>>,
) -> Result<()> {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((drawn, part)) = next else { return Ok(()) };
        drawn.sequence.decode(layout, decompressor, part)?;
    }
}
