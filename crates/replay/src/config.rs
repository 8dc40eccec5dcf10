//! The replay's configuration and its checks.

use std::fmt::Display;

use config_schema::text::grouped;
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
    /// Returns every broken rule between two fields, with the field that limits the other.
    ///
    /// Names are relative to this section; the texts name whole paths, such as `replay.trace`.
    pub fn conflicts(&self) -> Vec<(Problem, &'static str)> {
        let mut found = Vec::new();
        if self.period >= self.trace {
            let expected = format!(
                "below replay.trace, {}: the last observation of a sequence only bootstraps, so some steps would be in \
                 no sequence",
                self.trace
            );
            found.push((Problem::new("period", self.period, expected), "trace"));
        }
        for (field, value) in [("minimum_fill", self.minimum_fill), ("shards", self.shards)] {
            if value > self.capacity {
                let expected = format!("at most replay.capacity, {}", grouped(self.capacity as i64));
                found.push((Problem::new(field, grouped(value as i64), expected), "capacity"));
            }
        }
        found
    }

    /// Returns the least `limiter_slack` for batches of this size.
    ///
    /// With less, batches and inserts could block each other forever.
    pub fn least_slack(&self, batch: usize) -> f64 {
        (batch as f64 + self.samples_per_insert) / 2.0
    }

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
        let RateLimiterConfig { samples_per_insert, min_fill, slack } = self.rate_limiter;
        let section = ReplaySection {
            capacity: self.capacity,
            shards: self.shards,
            trace,
            period,
            priority_exponent: self.priority_exponent,
            importance_exponent: self.importance_exponent,
            online_share: self.online_share,
            samples_per_insert,
            minimum_fill: min_fill as usize,
            ..ReplaySection::default()
        };
        let conflicts = || section.conflicts().into_iter().map(|(problem, _)| problem);
        if let Some(problem) = section.out_of_range().into_iter().chain(conflicts()).next() {
            return Err(ReplayError::Config(problem));
        }
        within("observation_bytes", observation_bytes, 1, MAX_OBSERVATION)?;
        within("embedding", embedding, 0, MAX_VECTOR)?;
        within("state", state, 0, MAX_VECTOR)?;
        let most = u32::MAX as usize / tiles::max_bytes(observation_bytes);
        expect(period <= most, "period", period, || {
            format!("at most {most}: that many observations are stored together, in at most 4 GiB")
        })?;
        let least = self.least_memory();
        let limit = self.memory_limit.unwrap_or(least);
        expect(limit >= least, "memory_limit_gb", limit as f64 / 1e9, || {
            format!(
                "at least {}: the indices of {} shards, and one incompressible sequence in each",
                least as f64 / 1e9,
                self.shards
            )
        })?;
        let least = section.least_slack(1);
        expect(slack >= least, "limiter_slack", slack, || {
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
    if valid { Ok(()) } else { Err(ReplayError::Config(Problem::new(field, value, expected()))) }
}

fn within<T: PartialOrd + Display>(field: &'static str, value: T, least: T, most: T) -> Result<()> {
    expect((&least..=&most).contains(&&value), field, &value, || format!("from {least} to {most}"))
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
        for (message, expected) in [
            (refused(|c| c.layout.period = 160), "replay.period is 160; it must be below replay.trace, 160"),
            (refused(|c| c.layout.period = 0), "replay.period is 0; it must be an integer from 1"),
            (refused(|c| c.layout.observation_bytes = MAX_OBSERVATION), "replay.period is 80; it must be at most"),
            (refused(|c| c.layout.trace = 1), "replay.trace is 1; it must be an integer from 2 to"),
            (refused(|c| c.layout.observation_bytes = 0), "replay.observation_bytes is 0; it must be from 1 to"),
            (refused(|c| c.shards = 0), "replay.shards is 0"),
            (refused(|c| (c.capacity, c.rate_limiter.min_fill) = (7, 7)), "replay.shards is 8; it must be at most"),
            (refused(|c| c.memory_limit = Some(1_000_000)), "replay.memory_limit_gb is 0.001; it must be at least"),
            (refused(|c| c.priority_exponent = f64::NAN), "replay.priority_exponent is nan"),
            (refused(|c| c.importance_exponent = 1.5), "replay.importance_exponent is 1.5"),
            (refused(|c| c.rate_limiter.samples_per_insert = 0.0), "replay.samples_per_insert is 0"),
            (refused(|c| c.rate_limiter.min_fill = 0), "replay.minimum_fill is 0"),
            (
                refused(|c| c.rate_limiter.min_fill = 200_001),
                "replay.minimum_fill is 200_001; it must be at most replay.capacity, 200_000",
            ),
            (refused(|c| c.rate_limiter.slack = 3.0), "replay.limiter_slack is 3; it must be at least 3.5"),
        ] {
            assert!(message.starts_with(expected), "{message}\n{expected}");
        }
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
