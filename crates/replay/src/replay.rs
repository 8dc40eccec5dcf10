//! The replay: shards behind one rate limiter.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;
use crate::chunk::{Chunk, Compressor};
use crate::columns::{ChunkColumns, expect_length};
use crate::config::ReplayConfig;
use crate::error::{ReplayError, Result};
use crate::rate_limiter::RateLimiter;
use crate::sequence::Sequence;
use crate::shard::{Drawn, Key, Shard};
use crate::tiles::Tiles;

/// The sequences of all shards, shared by [`Writer`](crate::Writer)s and [`Sampler`](crate::Sampler)s.
///
/// Lock order: draws, then shards in ascending order; the limiter's lock is never held together with another.
pub struct Replay {
    /// The configuration it was created with.
    pub config: ReplayConfig,
    shards: Vec<Mutex<Shard>>,
    draws: Mutex<Draws>,
    /// The rate limiter, to query and to stop.
    pub limiter: RateLimiter,
    /// Idle compressors: as many as ever worked at once, rather than one per writer.
    compressors: Mutex<Vec<Compressor>>,
}

/// The state of the sampling.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Draws {
    pub(crate) rng: Xoshiro256PlusPlus,
    /// Sequences drawn so far.
    pub(crate) samples: u64,
}

impl Replay {
    /// Creates an empty replay.
    pub fn new(config: ReplayConfig) -> Result<Arc<Self>> {
        config.check()?;
        let shards = (0..config.shards).map(|shard| Self::empty_shard(&config, shard)).collect();
        Ok(Self::from_parts(config, shards, Draws { rng: Xoshiro256PlusPlus::seed_from_u64(config.seed), samples: 0 }))
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

    /// Counts what the replay holds now.
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
        }
        sum
    }

    /// Sets new priorities; returns how many came too late, because their sequences had been evicted.
    ///
    /// All are checked first: if one is invalid, none is applied.
    pub fn update_priorities(&self, keys: &[Key], priorities: &[f32]) -> Result<usize> {
        expect_length("priorities", priorities.len(), keys.len())?;
        for (&key, &priority) in keys.iter().zip(priorities) {
            if !(priority.is_finite() && priority >= 0.0) {
                return Err(ReplayError::Priority { key, priority });
            }
            if !self.shards.get(key.shard as usize).is_some_and(|shard| lock(shard).issued(key)) {
                let (shards, capacity) = (self.config.shards, self.config.shard_capacity(0));
                return Err(ReplayError::ForeignKey { key, shards, capacity });
            }
        }
        let set = |(&key, &priority): (&Key, &f32)| lock(&self.shards[key.shard as usize]).set_priority(key, priority);
        Ok(keys.iter().zip(priorities).filter(|&pair| !set(pair)).count())
    }

    /// Inserts a sequence, waiting at most `timeout` for the limiter.
    pub(crate) fn insert(&self, shard: usize, sequence: &Arc<Sequence>, timeout: Duration) -> Result<()> {
        self.limiter.insert(timeout, || lock(&self.shards[shard]).insert(Arc::clone(sequence)))
    }

    /// Draws `n` sequences evenly over the shards that have any, waiting at most `timeout` for the limiter.
    ///
    /// The probability of a draw is that of its shard times that within it. The configured share of each shard's draws
    /// is its newest sequences.
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
        // A batch that does not divide evenly starts at a random shard, so that all have the same expected share.
        let first = draws.rng.random_range(0..filled);
        let mut turn = 0;
        for shard in &self.shards {
            let shard = lock(shard);
            // A shard may have received its first sequence since the count.
            if shard.is_empty() || turn == filled {
                continue;
            }
            let place = (turn + filled - first) % filled;
            let share = n / filled + usize::from(place < n % filled);
            let newest = (self.config.online_share * share as f64).round() as usize;
            for i in 0..share {
                let item = if i < newest { shard.recent(i as u64) } else { shard.draw(&mut draws.rng) };
                let mut item = item.ok_or(ReplayError::Empty)?;
                item.probability /= filled as f64;
                drawn.push(item);
            }
            turn += 1;
        }
        draws.samples += n as u64;
        Ok(())
    }

    /// Compresses steps with an idle compressor.
    pub(crate) fn compress(&self, frames: &Tiles, columns: &ChunkColumns) -> Result<Chunk> {
        let idle = lock(&self.compressors).pop();
        let mut compressor = match idle {
            Some(compressor) => compressor,
            None => Compressor::new()?,
        };
        let chunk = compressor.chunk(frames, columns);
        lock(&self.compressors).push(compressor);
        chunk
    }

    /// Locks everything that a snapshot holds.
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

/// Ignores poisoning: no statement under these locks leaves data half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
