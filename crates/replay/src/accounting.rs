//! How much memory is held, and how much a configuration will take.

use std::fmt;

use crate::config::ReplayConfig;
use crate::shard::Shard;
use crate::step::Columns;
use crate::tiles;

/// What an allocator keeps beside each block it hands out, roughly.
pub(crate) const ALLOCATION: u64 = 16;

/// What a replay holds; bytes are those of the heap, indices and allocator included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accounting {
    /// Sequences held.
    pub sequences: u64,
    /// Steps held, each counted once.
    pub steps: u64,
    /// Bytes of compressed frames.
    pub frame_bytes: u64,
    /// Bytes of everything else that a step has.
    pub step_bytes: u64,
    /// Bytes of what a sequence has once, its recurrent state above all.
    pub sequence_bytes: u64,
    /// Bytes of slots and sum trees, which do not grow.
    pub index_bytes: u64,
    /// Sequences inserted so far.
    pub inserted: u64,
    /// Sequences sampled so far.
    pub sampled: u64,
    /// Sequences that were replaced, for want of slots or of memory.
    pub evicted: u64,
    /// Priorities that came for a sequence after it was replaced.
    pub late_priorities: u64,
    /// Sequences inserted into its shard since the oldest one held, the greatest of all shards.
    pub oldest_age: u64,
}

impl Accounting {
    /// All bytes held.
    pub fn bytes(&self) -> u64 {
        self.frame_bytes + self.step_bytes + self.sequence_bytes + self.index_bytes
    }

    /// Bytes a step that grow with what is held: all but the indices.
    pub fn bytes_per_step(&self) -> f64 {
        (self.bytes() - self.index_bytes) as f64 / self.steps.max(1) as f64
    }

    /// Bytes of compressed frames a step.
    pub fn frame_bytes_per_step(&self) -> f64 {
        self.frame_bytes as f64 / self.steps.max(1) as f64
    }
}

impl fmt::Display for Accounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sequences of {} steps in {}: {:.0} bytes a step, {:.0} of them frames",
            grouped(self.sequences),
            grouped(self.steps),
            size(self.bytes()),
            self.bytes_per_step(),
            self.frame_bytes_per_step()
        )
    }
}

/// The memory that a configuration takes when it is full, at so many bytes a compressed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Sequences held.
    pub sequences: u64,
    /// Steps held: a sequence adds one period.
    pub steps: u64,
    /// Bytes at 150 a frame, which most games take at the very most.
    pub bytes_at_150: u64,
    /// Bytes at 2 500 a frame, more than the noisiest game takes.
    pub bytes_at_2500: u64,
    /// Bytes of the same frames as they are.
    pub bytes_raw: u64,
    /// Bytes of slots and sum trees, which are taken at once and counted in all of these.
    pub index_bytes: u64,
    limit: Option<u64>,
}

impl ReplayConfig {
    /// How much memory the capacity will take.
    pub fn forecast(&self) -> Forecast {
        let sequences = self.capacity as u64;
        let steps = sequences * self.layout.period as u64;
        let other = sequences * self.sequence_bytes() + steps * self.step_bytes() + self.index_bytes();
        Forecast {
            sequences,
            steps,
            bytes_at_150: other + steps * 150,
            bytes_at_2500: other + steps * 2_500,
            bytes_raw: other + steps * self.layout.observation_bytes as u64,
            index_bytes: self.index_bytes(),
            limit: self.memory_limit,
        }
    }

    /// Bytes below which a memory limit could not be kept: every index, and in each shard one sequence that does not
    /// compress, in chunks as long as they get.
    pub(crate) fn least_memory(&self) -> u64 {
        let steps = (self.layout.trace.div_ceil(self.layout.period) * self.layout.period) as u64;
        let step = tiles::most_bytes(self.layout.observation_bytes) as u64 + self.step_bytes();
        // A sixteenth more than that: zstd adds a little to what does not compress, a chunk has its own overhead.
        let sequence = (self.sequence_bytes() + steps * step) * 17 / 16 + steps * 256;
        // Every shard has the same part of the limit, and the first has the largest index.
        self.shards as u64 * (Shard::index_bytes(self.shard_capacity(0)) + sequence + 1)
    }

    fn step_bytes(&self) -> u64 {
        Columns::bytes(1, self.layout.embedding) as u64
    }

    fn sequence_bytes(&self) -> u64 {
        (4 * self.layout.state + 2 * self.layout.embedding) as u64 + SEQUENCE_OVERHEAD
    }

    /// Bytes of the slots and trees of all shards.
    fn index_bytes(&self) -> u64 {
        (0..self.shards).map(|shard| Shard::index_bytes(self.shard_capacity(shard))).sum()
    }
}

/// Bytes of a sequence's and its chunks' bookkeeping, about.
const SEQUENCE_OVERHEAD: u64 = 512;

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sequences are about {} steps: {} at 150 bytes a frame, {} at 2 500 ({} if frames were kept as \
             they are)",
            grouped(self.sequences),
            rounded(self.steps),
            size(self.bytes_at_150),
            size(self.bytes_at_2500),
            size(self.bytes_raw),
        )?;
        match self.limit {
            Some(limit) => write!(f, "; the oldest go at {}", size(limit)),
            None => write!(f, "; there is no memory limit"),
        }
    }
}

fn rounded(count: u64) -> String {
    if count < 1_000_000 { grouped(count) } else { format!("{:.1} million", count as f64 / 1e6) }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Digits in groups of three: 200 000.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_capacity_in_words() {
        let config = ReplayConfig::paper(210 * 160, 2048);
        assert_eq!(
            config.forecast().to_string(),
            "200 000 sequences are about 16.0 million steps: 5.6 GB at 150 bytes a frame, 43.2 GB at 2 500 (540.8 GB \
             if frames were kept as they are); there is no memory limit"
        );
    }

    #[test]
    fn a_small_capacity_in_words() {
        let mut config = ReplayConfig::paper(100, 8);
        config.capacity = 1_000;
        config.memory_limit = Some(64 << 20);
        config.check().unwrap();
        assert_eq!(
            config.forecast().to_string(),
            "1 000 sequences are about 80 000 steps: 19.8 MB at 150 bytes a frame, 207.8 MB at 2 500 (15.8 MB if \
             frames were kept as they are); the oldest go at 67.1 MB"
        );
    }
}
