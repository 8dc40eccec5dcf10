//! The replay's configuration and its checks.

use std::fmt::Display;

use config_schema::{Problem, Schema, above, integer, number};

use crate::error::{ReplayError, Result};
use crate::tiles;

config_schema::section! {
    /// Replay memory: what it holds and how it is sampled.
    pub struct ReplaySection {
        /// Number of sequences in all shards together. The oldest are evicted first.
        capacity: usize = 200_000, integer(2, 100_000_000).unit("sequences").paper();
        /// Number of parts with their own lock and priorities. An environment always writes to the same shard.
        shards: usize = 8, integer(1, 1024).unit("shards").paper();
        /// Observations per sequence. The last one only bootstraps.
        trace: usize = 160, integer(2, 65_536).unit("agent steps").paper();
        /// Steps from the start of one sequence to the start of the next.
        period: usize = 80, integer(1, 65_535).unit("agent steps").paper();
        /// Exponent of the priorities: a sequence is sampled in proportion to its priority to this power.
        priority_exponent: f64 = 0.6, number(0.0, 1.0).paper();
        /// Exponent of the importance weights: losses are weighted by the inverse sampling probability to this power.
        importance_exponent: f64 = 0.4, number(0.0, 1.0).paper();
        /// Average number of times a sequence is sampled. Actors and learner wait for each other to keep it.
        samples_per_insert: f64 = 6.0, above(0.0, 10_000.0).paper().changeable();
        /// Share of each batch that is the newest sequences instead of sampled ones. The paper tried such a mixture.
        online_share: f64 = 0.0, number(0.0, 1.0).paper();
        /// Number of sequences inserted before learning starts; 6 250 as in NGU.
        minimum_fill: usize = 6250, integer(1, 100_000_000).unit("sequences").silent();
        /// How far sampling may run ahead of or behind `samples_per_insert` before one side waits for the other.
        limiter_slack: f64 = 512.0, above(0.0, 1e9).unit("sampled sequences").changeable();
        /// Memory limit of all shards together, in units of 10^9 bytes. The oldest sequences are evicted beyond it. The
        /// paper's capacity takes 6 to 45 GB, depending on the game.
        memory_limit_gb: f64 = 64.0, above(0.0, 1e6).unit("GB").changeable();
        /// Number of threads that decode batches.
        sampler_threads: usize = 4, integer(1, 256).unit("threads").changeable();
    }
}

impl ReplaySection {
    /// Returns the configuration of a replay with these sizes and this sampling seed.
    pub fn config_for(&self, observation_bytes: usize, embedding: usize, state: usize, seed: u64) -> ReplayConfig {
        ReplayConfig {
            layout: Layout { observation_bytes, embedding, state, trace: self.trace, period: self.period },
            shards: self.shards,
            capacity: self.capacity,
            memory_limit: Some((self.memory_limit_gb * 1e9) as u64),
            priority_exponent: self.priority_exponent,
            importance_exponent: self.importance_exponent,
            online_share: self.online_share,
            rate_limiter: RateLimiterConfig {
                samples_per_insert: self.samples_per_insert,
                min_fill: self.minimum_fill as u64,
                slack: self.limiter_slack,
            },
            seed,
        }
    }
}

/// Sizes of stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes per observation.
    pub observation_bytes: usize,
    /// Values per embedding f(x).
    pub embedding: usize,
    /// Values per recurrent state (h then c).
    pub state: usize,
    /// Observations of a full sequence.
    pub trace: usize,
    /// Steps from the start of one sequence to the start of the next.
    pub period: usize,
}

/// The ratio that the [`RateLimiter`](crate::RateLimiter) enforces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiterConfig {
    /// Sequences sampled per sequence inserted.
    pub samples_per_insert: f64,
    /// Sequences inserted before the first is sampled.
    pub min_fill: u64,
    /// How far, in sampled sequences, the balance may deviate to either side; infinity disables the limiter.
    pub slack: f64,
}

/// Configuration of a [`Replay`](crate::Replay).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayConfig {
    /// Sizes of stored data.
    pub layout: Layout,
    /// Number of shards.
    pub shards: usize,
    /// Sequences held in all shards together.
    pub capacity: usize,
    /// Bytes held in all shards together, split evenly; beyond it the oldest sequences are evicted.
    pub memory_limit: Option<u64>,
    /// A sequence is sampled in proportion to its priority to this power.
    pub priority_exponent: f64,
    /// An importance weight is the inverse of the sampling probability to this power.
    pub importance_exponent: f64,
    /// Share of each batch that is the newest sequences.
    pub online_share: f64,
    /// The ratio of sampling to inserting.
    pub rate_limiter: RateLimiterConfig,
    /// Seed of the sampling.
    pub seed: u64,
}

impl ReplayConfig {
    /// Returns a configuration for tests and benchmarks.
    ///
    /// It is the paper's, but sampling starts after 1 000 sequences and memory is not limited.
    pub fn paper_sized(observation_bytes: usize, state: usize) -> Self {
        let mut config = ReplaySection::default().config_for(observation_bytes, 32, state, 0);
        config.memory_limit = None;
        config.rate_limiter.min_fill = 1_000;
        config
    }

    /// Refuses the first invalid field.
    pub fn check(&self) -> Result<()> {
        let Layout { observation_bytes, embedding, state, trace, period } = self.layout;
        let declared = ReplaySection {
            capacity: self.capacity,
            shards: self.shards,
            trace,
            period,
            priority_exponent: self.priority_exponent,
            importance_exponent: self.importance_exponent,
            online_share: self.online_share,
            samples_per_insert: self.rate_limiter.samples_per_insert,
            ..ReplaySection::default()
        };
        if let Some(Problem { path, found, expected }) = declared.out_of_range().into_iter().next() {
            return Err(ReplayError::Config { field: path, value: found, expected });
        }
        within("layout.observation_bytes", observation_bytes, 1, MAX_OBSERVATION)?;
        within("layout.embedding", embedding, 0, MAX_VECTOR)?;
        within("layout.state", state, 0, MAX_VECTOR)?;
        let most = trace - 1;
        expect(period <= most, "layout.period", period, || {
            format!(
                "at most {most}: the last of a sequence's {trace} observations only bootstraps, so without overlap \
                 some steps would never be learned from"
            )
        })?;
        let most = u32::MAX as usize / tiles::max_bytes(observation_bytes);
        expect(period <= most, "layout.period", period, || {
            format!("at most {most}: that many observations are stored together, in at most 4 GiB")
        })?;
        expect(self.capacity >= self.shards, "capacity", self.capacity, || {
            format!("at least {}, the number of shards", self.shards)
        })?;
        let least = self.least_memory();
        let limit = self.memory_limit.unwrap_or(least);
        expect(limit >= least, "memory_limit", limit, || {
            format!(
                "at least {least} bytes: the indices of {} shards, and one incompressible sequence in each",
                self.shards
            )
        })?;
        let RateLimiterConfig { samples_per_insert, min_fill, slack } = self.rate_limiter;
        within("rate_limiter.min_fill", min_fill, 1, self.capacity as u64)?;
        let least = (samples_per_insert + 1.0) / 2.0;
        expect(slack >= least, "rate_limiter.slack", slack, || {
            format!("at least {least}: with less, inserts and samples could block each other forever")
        })
    }

    /// Returns name and value of each field that stored data depends on.
    pub(crate) fn stored(&self) -> [(&'static str, f64); 9] {
        let Layout { observation_bytes, embedding, state, trace, period } = self.layout;
        [
            ("layout.observation_bytes", observation_bytes as f64),
            ("layout.embedding", embedding as f64),
            ("layout.state", state as f64),
            ("layout.trace", trace as f64),
            ("layout.period", period as f64),
            ("shards", self.shards as f64),
            ("capacity", self.capacity as f64),
            ("priority_exponent", self.priority_exponent),
            ("importance_exponent", self.importance_exponent),
        ]
    }

    /// Slots of shard `shard`: the capacity split evenly, the remainder over the first shards.
    pub(crate) fn shard_capacity(&self, shard: usize) -> usize {
        self.capacity / self.shards + usize::from(shard < self.capacity % self.shards)
    }

    /// Bytes that one shard may hold.
    pub(crate) fn shard_memory(&self) -> u64 {
        self.memory_limit.map_or(u64::MAX, |limit| limit / self.shards as u64)
    }
}

/// Beyond these a value is a mistake, and arithmetic on sizes could overflow.
const MAX_OBSERVATION: usize = 1 << 26;
const MAX_VECTOR: usize = 1 << 20;

fn expect(valid: bool, field: &'static str, value: impl Display, expected: impl FnOnce() -> String) -> Result<()> {
    if valid {
        Ok(())
    } else {
        Err(ReplayError::Config { field: field.to_owned(), value: value.to_string(), expected: expected() })
    }
}

fn within<T: PartialOrd + Display>(field: &'static str, value: T, least: T, most: T) -> Result<()> {
    expect((&least..=&most).contains(&&value), field, &value, || format!("{least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ReplayConfig)) -> String {
        let mut config = ReplayConfig::paper_sized(210 * 160, 2048);
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn accepts_the_papers_values() {
        ReplayConfig::paper_sized(210 * 160, 2048).check().unwrap();
    }

    #[test]
    fn names_an_invalid_field_and_its_valid_values() {
        assert!(refused(|c| c.layout.period = 160).contains("layout.period is 160, expected at most 159"));
        assert!(refused(|c| c.layout.period = 0).contains("period is 0, expected an integer from 1"));
        assert!(refused(|c| c.layout.observation_bytes = MAX_OBSERVATION).contains("layout.period is 80, expected"));
        assert!(refused(|c| c.layout.trace = 1).contains("trace is 1, expected an integer from 2 to"));
        assert!(refused(|c| c.layout.observation_bytes = 0).contains("observation_bytes"));
        assert!(refused(|c| c.shards = 0).contains("shards is 0"));
        assert!(refused(|c| c.capacity = 7).contains("capacity is 7, expected at least 8"));
        assert!(refused(|c| c.memory_limit = Some(1_000_000)).contains("memory_limit is 1000000, expected at least"));
        assert!(refused(|c| c.priority_exponent = f64::NAN).contains("priority_exponent is nan"));
        assert!(refused(|c| c.importance_exponent = 1.5).contains("importance_exponent is 1.5"));
        assert!(refused(|c| c.rate_limiter.samples_per_insert = 0.0).contains("samples_per_insert is 0"));
        assert!(refused(|c| c.rate_limiter.min_fill = 0).contains("min_fill is 0"));
        assert!(refused(|c| c.rate_limiter.min_fill = 200_001).contains("min_fill is 200001, expected 1 to 200000"));
        assert!(refused(|c| c.rate_limiter.slack = 3.0).contains("slack is 3, expected at least 3.5"));
    }

    #[test]
    fn splits_the_capacity_over_the_shards() {
        let mut config = ReplayConfig::paper_sized(4, 4);
        config.capacity = 13;
        config.shards = 5;
        let slots: Vec<usize> = (0..5).map(|shard| config.shard_capacity(shard)).collect();
        assert_eq!(slots, [3, 3, 3, 2, 2]);
    }
}
