//! The replay: shards behind one rate limiter, and the order of draws.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::accounting::Accounting;
use crate::chunk::{Chunk, Compressor};
use crate::config::ReplayConfig;
use crate::error::{ReplayError, Result};
use crate::rate_limiter::RateLimiter;
use crate::rng::Rng;
use crate::sequence::Sequence;
use crate::shard::{Drawn, Key, Shard};
use crate::step::{Columns, expect_length};
use crate::tiles::Tiles;

/// What an agent remembers. Shared by [`Writer`](crate::Writer)s and [`Sampler`](crate::Sampler)s.
///
/// Locks are taken in the order draws, shards from the first on; the limiter's is never held together with another.
pub struct Replay {
    config: ReplayConfig,
    shards: Vec<Mutex<Shard>>,
    draws: Mutex<Draws>,
    limiter: RateLimiter,
    /// Idle compressors: as many as ever worked at once, rather than one for each writer.
    compressors: Mutex<Vec<Compressor>>,
}

/// What decides which sequences are drawn next.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    pub(crate) rng: Rng,
    /// Sequences drawn so far.
    pub(crate) samples: u64,
}

/// What became of new priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrioritiesUpdated {
    /// Sequences that have their new priority.
    pub applied: usize,
    /// Sequences that had been replaced already.
    pub late: usize,
}

impl Replay {
    /// An empty replay.
    pub fn new(config: ReplayConfig) -> Result<Arc<Self>> {
        config.check()?;
        let shards = (0..config.shards).map(|shard| Self::empty_shard(&config, shard)).collect();
        Ok(Self::from_parts(config, shards, Draws { rng: Rng::new(config.seed), samples: 0 }))
    }

    pub(crate) fn empty_shard(config: &ReplayConfig, shard: usize) -> Shard {
        Shard::new(shard, config.shard_capacity(shard), config.shard_memory(), config.priority_exponent)
    }

    pub(crate) fn from_parts(config: ReplayConfig, shards: Vec<Shard>, draws: Draws) -> Arc<Self> {
        let inserts = shards.iter().map(Shard::inserted).sum();
        Arc::new(Self {
            config,
            shards: shards.into_iter().map(Mutex::new).collect(),
            limiter: RateLimiter::new(config.rate_limiter, inserts, draws.samples),
            draws: Mutex::new(draws),
            compressors: Mutex::default(),
        })
    }

    /// What it was created with.
    pub fn config(&self) -> &ReplayConfig {
        &self.config
    }

    /// What holds the ratio of samples to inserts: to ask whether one would wait, and to stop everybody.
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// What is held now.
    pub fn accounting(&self) -> Accounting {
        let mut sum = Accounting { sampled: lock(&self.draws).samples, ..Accounting::default() };
        for shard in &self.shards {
            let shard = lock(shard).accounting();
            sum.sequences += shard.sequences;
            sum.steps += shard.steps;
            sum.frame_bytes += shard.frame_bytes;
            sum.step_bytes += shard.step_bytes;
            sum.sequence_bytes += shard.sequence_bytes;
            sum.index_bytes += shard.index_bytes;
            sum.inserted += shard.inserted;
            sum.evicted += shard.evicted;
            sum.late_priorities += shard.late_priorities;
            sum.oldest_age = sum.oldest_age.max(shard.oldest_age);
        }
        sum
    }

    /// Gives sequences their new priorities. All are checked first: either every one is applied (or late, where its
    /// sequence has been replaced meanwhile), or none.
    pub fn update_priorities(&self, keys: &[Key], priorities: &[f32]) -> Result<PrioritiesUpdated> {
        expect_length("priorities", priorities, keys.len())?;
        for (&key, &priority) in keys.iter().zip(priorities) {
            if !(priority.is_finite() && priority >= 0.0) {
                return Err(ReplayError::Priority { key, priority });
            }
            if !self.shards.get(key.shard as usize).is_some_and(|shard| lock(shard).issued(key)) {
                let (shards, capacity) = (self.config.shards, self.config.shard_capacity(0));
                return Err(ReplayError::ForeignKey { key, shards, capacity });
            }
        }
        let mut updated = PrioritiesUpdated::default();
        for (&key, &priority) in keys.iter().zip(priorities) {
            if lock(&self.shards[key.shard as usize]).set_priority(key, priority) {
                updated.applied += 1;
            } else {
                updated.late += 1;
            }
        }
        Ok(updated)
    }

    /// Inserts a sequence, waiting for the limiter at most `timeout`; where that fails the sequence stays the caller's.
    pub(crate) fn insert(&self, shard: usize, sequence: &Arc<Sequence>, timeout: Duration) -> Result<()> {
        self.limiter.insert(timeout, || lock(&self.shards[shard]).insert(Arc::clone(sequence)))
    }

    /// Draws `n` sequences, evenly over the shards that have any, waiting for the limiter at most `timeout`; their
    /// probabilities are those over all shards.
    pub(crate) fn draw(&self, n: usize, timeout: Duration, drawn: &mut Vec<Drawn>) -> Result<()> {
        drawn.clear();
        self.limiter.sample(n, timeout, || self.draw_now(n, drawn))
    }

    fn draw_now(&self, n: usize, drawn: &mut Vec<Drawn>) -> Result<()> {
        let mut draws = lock(&self.draws);
        let filled = self.shards.iter().filter(|shard| !lock(shard).is_empty()).count();
        if filled == 0 {
            return Err(ReplayError::Empty);
        }
        // The turn begins at a shard drawn at random, so that each has the same expected share of a batch that can't
        // be divided evenly.
        let first = draws.rng.below(filled);
        let mut turn = 0;
        for shard in &self.shards {
            let shard = lock(shard);
            // A shard may have got its first sequence since the count; as many are drawn from as were counted.
            if shard.is_empty() || turn == filled {
                continue;
            }
            let place = (turn + filled - first) % filled;
            let share = n / filled + usize::from(place < n % filled);
            for _ in 0..share {
                let mut item = shard.draw(&mut draws.rng).ok_or(ReplayError::Empty)?;
                item.probability /= filled as f64;
                drawn.push(item);
            }
            turn += 1;
        }
        draws.samples += n as u64;
        Ok(())
    }

    /// Compresses steps with a compressor that nobody uses.
    pub(crate) fn compress(&self, frames: &Tiles, columns: &Columns) -> Result<Chunk> {
        let idle = lock(&self.compressors).pop();
        let mut compressor = match idle {
            Some(compressor) => compressor,
            None => Compressor::new()?,
        };
        let chunk = compressor.chunk(frames, columns);
        lock(&self.compressors).push(compressor);
        chunk
    }

    /// Everything that a snapshot holds, as of one moment.
    pub(crate) fn lock_all(&self) -> (MutexGuard<'_, Draws>, Vec<MutexGuard<'_, Shard>>) {
        let draws = lock(&self.draws);
        (draws, self.shards.iter().map(lock).collect())
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("config", &self.config).field("held", &self.accounting()).finish()
    }
}

/// A lock whose holder died is still taken: no statement under these locks leaves the data half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
