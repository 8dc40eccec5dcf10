//! What a replay is told at creation, checked once.

use crate::error::{ReplayError, Result};
use crate::tiles;

/// Sizes of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of one observation.
    pub observation_bytes: usize,
    /// Values of one embedding f(x).
    pub embedding: usize,
    /// Values of one recurrent state (h then c).
    pub state: usize,
    /// Observations of a full sequence.
    pub trace: usize,
    /// Steps from the start of one sequence to the start of the next.
    pub period: usize,
}

/// The ratio that the [`RateLimiter`](crate::RateLimiter) holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiterConfig {
    /// Sequences sampled for each one inserted.
    pub samples_per_insert: f64,
    /// Sequences inserted before the first is sampled.
    pub min_fill: u64,
    /// How far, in sampled sequences, the balance may stray to either side; infinite: the ratio is not held.
    pub slack: f64,
}

/// Everything a [`Replay`](crate::Replay) is told at creation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayConfig {
    /// Sizes of what is stored.
    pub layout: Layout,
    /// Number of shards.
    pub shards: usize,
    /// Sequences held in all shards together.
    pub capacity: usize,
    /// Bytes held in all shards together, each having an equal part of it; the oldest go when it is reached.
    pub memory_limit: Option<u64>,
    /// A sequence is drawn in proportion to its priority to this power.
    pub priority_exponent: f64,
    /// An importance weight is the inverse of the sampling probability to this power.
    pub importance_exponent: f64,
    /// The ratio of sampling to inserting.
    pub rate_limiter: RateLimiterConfig,
    /// Seed of the draws.
    pub seed: u64,
}

impl ReplayConfig {
    /// The paper's replay for observations of this size and a state of this length.
    pub fn paper(observation_bytes: usize, state: usize) -> Self {
        Self {
            layout: Layout { observation_bytes, embedding: 32, state, trace: 160, period: 80 },
            shards: 8,
            capacity: 200_000,
            memory_limit: None,
            priority_exponent: 0.6,
            importance_exponent: 0.4,
            rate_limiter: RateLimiterConfig { samples_per_insert: 6.0, min_fill: 1_000, slack: 512.0 },
            seed: 0,
        }
    }

    /// Refuses the first field that can't be.
    pub fn check(&self) -> Result<()> {
        let Layout { observation_bytes, embedding, state, trace, period } = self.layout;
        within("layout.observation_bytes", observation_bytes, 1, MAX_OBSERVATION)?;
        within("layout.embedding", embedding, 0, MAX_VECTOR)?;
        within("layout.state", state, 0, MAX_VECTOR)?;
        within("layout.trace", trace, 2, MAX_TRACE)?;
        if period == 0 || period >= trace {
            return Err(refuse(
                "layout.period",
                period,
                format!(
                    "it must be 1 to {}: the last of a sequence's {trace} observations only bootstraps, so sequences \
                     that do not overlap would leave steps nobody learns from",
                    trace - 1
                ),
            ));
        }
        let most_period = u32::MAX as usize / tiles::most_bytes(observation_bytes);
        if period > most_period {
            let rule = format!("it must be at most {most_period}: so many observations are stored together, in 4 GiB");
            return Err(refuse("layout.period", period, rule));
        }
        within("shards", self.shards, 1, MAX_SHARDS)?;
        within("capacity", self.capacity, self.shards, MAX_CAPACITY)?;
        if let Some(limit) = self.memory_limit {
            let least = self.least_memory();
            if limit < least {
                return Err(refuse(
                    "memory_limit",
                    format!("{limit} bytes"),
                    format!(
                        "it must be at least {least}: the indices of {} shards, and in each one sequence that does \
                         not compress",
                        self.shards
                    ),
                ));
            }
        }
        exponent("priority_exponent", self.priority_exponent)?;
        exponent("importance_exponent", self.importance_exponent)?;
        self.rate_limiter.check(self.capacity)
    }

    /// Slots of shard `shard`: the capacity split evenly, the first shards having what is left over.
    pub(crate) fn shard_capacity(&self, shard: usize) -> usize {
        self.capacity / self.shards + usize::from(shard < self.capacity % self.shards)
    }

    /// Bytes that one shard may hold.
    pub(crate) fn shard_memory(&self) -> u64 {
        self.memory_limit.map_or(u64::MAX, |limit| limit / self.shards as u64)
    }
}

impl RateLimiterConfig {
    fn check(&self, capacity: usize) -> Result<()> {
        let Self { samples_per_insert, min_fill, slack } = *self;
        if !(samples_per_insert > 0.0 && samples_per_insert <= MAX_RATIO) {
            let rule = format!("it must be above 0 and at most {MAX_RATIO}");
            return Err(refuse("rate_limiter.samples_per_insert", samples_per_insert, rule));
        }
        if min_fill < 1 || min_fill > capacity as u64 {
            let rule = format!("it must be 1 to the capacity, {capacity}");
            return Err(refuse("rate_limiter.min_fill", min_fill, rule));
        }
        if slack.is_nan() || 2.0 * slack < samples_per_insert + 1.0 {
            let least = (samples_per_insert + 1.0) / 2.0;
            let rule = format!("it must be at least {least}: else neither an insert nor a sample might ever go on");
            return Err(refuse("rate_limiter.slack", slack, rule));
        }
        Ok(())
    }
}

/// Beyond these a value is a mistake, and arithmetic on sizes might overflow.
const MAX_OBSERVATION: usize = 1 << 26;
const MAX_VECTOR: usize = 1 << 20;
const MAX_TRACE: usize = 1 << 16;
const MAX_SHARDS: usize = 1 << 10;
const MAX_CAPACITY: usize = 1 << 30;
const MAX_RATIO: f64 = 1e6;

fn refuse(field: &'static str, value: impl ToString, rule: String) -> ReplayError {
    ReplayError::Config { field, value: value.to_string(), rule }
}

fn within(field: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(refuse(field, value, format!("it must be {least} to {most}")))
}

fn exponent(field: &'static str, value: f64) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(refuse(field, value, "it must be 0 to 1".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ReplayConfig)) -> String {
        let mut config = ReplayConfig::paper(210 * 160, 2048);
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn the_papers_values_pass() {
        ReplayConfig::paper(210 * 160, 2048).check().unwrap();
    }

    #[test]
    fn a_bad_field_is_named_with_what_it_may_be() {
        assert!(refused(|c| c.layout.period = 160).contains("layout.period is 160, but it must be 1 to 159"));
        assert!(refused(|c| c.layout.period = 0).contains("layout.period is 0"));
        assert!(
            refused(|c| c.layout.observation_bytes = MAX_OBSERVATION).contains("layout.period is 80, but it must be")
        );
        assert!(refused(|c| c.layout.trace = 1).contains("layout.trace is 1, but it must be 2 to"));
        assert!(refused(|c| c.layout.observation_bytes = 0).contains("observation_bytes"));
        assert!(refused(|c| c.shards = 0).contains("shards is 0"));
        assert!(refused(|c| c.capacity = 7).contains("capacity is 7, but it must be 8 to"));
        assert!(refused(|c| c.memory_limit = Some(1_000_000)).contains("memory_limit is 1000000 bytes"));
        assert!(refused(|c| c.priority_exponent = f64::NAN).contains("priority_exponent is NaN"));
        assert!(refused(|c| c.importance_exponent = 1.5).contains("importance_exponent is 1.5"));
        assert!(refused(|c| c.rate_limiter.samples_per_insert = 0.0).contains("samples_per_insert is 0"));
        assert!(refused(|c| c.rate_limiter.min_fill = 0).contains("min_fill is 0"));
        assert!(refused(|c| c.rate_limiter.min_fill = 200_001).contains("the capacity, 200000"));
        assert!(refused(|c| c.rate_limiter.slack = 3.0).contains("slack is 3, but it must be at least 3.5"));
    }

    #[test]
    fn shards_share_the_capacity() {
        let mut config = ReplayConfig::paper(4, 4);
        config.capacity = 13;
        config.shards = 5;
        let slots: Vec<usize> = (0..5).map(|shard| config.shard_capacity(shard)).collect();
        assert_eq!(slots, [3, 3, 3, 2, 2]);
    }
}
