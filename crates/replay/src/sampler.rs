//! Draws batches and decodes them into the caller's memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::batch::{BatchMut, SequenceMut, Sequences};
use crate::chunk::Decompressor;
use crate::config::Layout;
use crate::error::Result;
use crate::replay::Replay;
use crate::shard::Drawn;

/// Samples batches on a given number of threads.
///
/// One thread allocates nothing once it has drawn a batch of the size. More threads are started for each batch, which
/// costs some tens of microseconds and a few small allocations each: threads that live longer could not borrow the
/// caller's memory. Several samplers of one thread each, with a batch each, need not even that.
pub struct Sampler {
    replay: Arc<Replay>,
    decompressors: Vec<Decompressor>,
    drawn: Vec<Drawn>,
}

impl Sampler {
    /// A sampler that decodes on `threads` threads, the caller's among them; 0 counts as 1.
    pub fn new(replay: &Arc<Replay>, threads: usize) -> Self {
        let layout = &replay.config().layout;
        let decompressors = (0..threads.max(1)).map(|_| Decompressor::new(layout)).collect();
        Self { replay: Arc::clone(replay), decompressors, drawn: Vec::new() }
    }

    /// Draws as many sequences as `batch` has room for and decodes them into it, waiting for the rate limiter at most
    /// `timeout`. On an error the content of `batch` is unspecified.
    pub fn sample(&mut self, mut batch: BatchMut<'_>, timeout: Duration) -> Result<()> {
        let layout = self.replay.config().layout;
        batch.check(&layout)?;
        self.replay.draw(batch.size(), timeout, &mut self.drawn)?;
        self.describe(&mut batch);
        let work = Mutex::new(self.drawn.iter().zip(Sequences::new(layout, batch)));
        let Some((own, others)) = self.decompressors.split_first_mut() else { return Ok(()) };
        let decoded = if others.is_empty() {
            // Not even an empty scope, which allocates.
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

    /// Writes what a sequence has once.
    fn describe(&self, batch: &mut BatchMut<'_>) {
        let exponent = -self.replay.config().importance_exponent;
        let mut greatest = 0f64;
        for drawn in &self.drawn {
            greatest = greatest.max(drawn.probability.powf(exponent));
        }
        for (i, drawn) in self.drawn.iter().enumerate() {
            let start = &drawn.sequence.start;
            batch.length[i] = i64::from(drawn.sequence.length);
            batch.policy[i] = i64::from(start.policy);
            batch.actor[i] = start.actor;
            batch.parameter_version[i] = start.parameter_version;
            batch.age[i] = drawn.age;
            batch.importance_weight[i] = (drawn.probability.powf(exponent) / greatest) as f32;
            batch.keys[i] = drawn.key;
        }
    }
}

/// Decodes sequences until none are left.
fn decode<'a>(
    layout: &Layout,
    decompressor: &mut Decompressor,
    work: &Mutex<impl Iterator<Item = (&'a Drawn, SequenceMut<'a>)>>,
) -> Result<()> {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((drawn, out)) = next else { return Ok(()) };
        drawn.sequence.decode(layout, decompressor, out)?;
    }
}
