//! How much memory the replay holds, and how much a configuration will take.

use std::fmt;

use crate::columns::ChunkColumns;
use crate::config::ReplayConfig;
use crate::shard::Shard;
use crate::tiles;

/// Approximate overhead of the allocator per block.
pub(crate) const ALLOCATION: u64 = 16;

/// What a replay holds; bytes are heap bytes, including indices and the allocator's overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accounting {
    /// Sequences held.
    pub sequences: u64,
    /// Steps held, each counted once.
    pub steps: u64,
    /// Bytes of compressed frames.
    pub frame_bytes: u64,
    /// Bytes of all other columns of steps.
    pub step_bytes: u64,
    /// Bytes stored once per sequence, mostly its recurrent state.
    pub sequence_bytes: u64,
    /// Bytes of slots and sum trees, which do not grow.
    pub index_bytes: u64,
    /// Sequences inserted so far.
    pub inserted: u64,
    /// Sequences sampled so far.
    pub sampled: u64,
}

impl Accounting {
    /// All bytes held.
    pub fn bytes(&self) -> u64 {
        self.frame_bytes + self.step_bytes + self.sequence_bytes + self.index_bytes
    }

    /// Bytes per step, without the indices.
    pub fn bytes_per_step(&self) -> f64 {
        (self.bytes() - self.index_bytes) as f64 / self.steps.max(1) as f64
    }

    /// Bytes of compressed frames per step.
    pub fn frame_bytes_per_step(&self) -> f64 {
        self.frame_bytes as f64 / self.steps.max(1) as f64
    }
}

impl fmt::Display for Accounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sequences of {} steps in {:.2} GB: {:.0} bytes per step, {:.0} of them frames",
            self.sequences,
            self.steps,
            self.bytes() as f64 / 1e9,
            self.bytes_per_step(),
            self.frame_bytes_per_step()
        )
    }
}

/// The memory that a full replay takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Sequences held.
    pub sequences: u64,
    /// Steps held: one period per sequence.
    pub steps: u64,
    /// Bytes of slots and sum trees, which are allocated at once.
    pub index_bytes: u64,
    /// All bytes except those of the frames.
    besides_frames: u64,
    observation_bytes: u64,
    limit: Option<u64>,
}

impl Forecast {
    /// All bytes at this number of bytes per compressed frame.
    pub fn bytes_at(&self, frame: u64) -> u64 {
        self.besides_frames + self.steps * frame
    }
}

impl ReplayConfig {
    /// Forecasts the memory that the configured capacity takes.
    pub fn forecast(&self) -> Forecast {
        let sequences = self.capacity as u64;
        let steps = sequences * self.layout.period as u64;
        let index_bytes = (0..self.shards).map(|shard| Shard::index_bytes(self.shard_capacity(shard))).sum();
        Forecast {
            sequences,
            steps,
            index_bytes,
            besides_frames: sequences * self.sequence_bytes() + steps * self.step_bytes() + index_bytes,
            observation_bytes: self.layout.observation_bytes as u64,
            limit: self.memory_limit,
        }
    }

    /// The least memory limit that can be kept: all indices, and one incompressible sequence per shard.
    pub(crate) fn least_memory(&self) -> u64 {
        let steps = (self.layout.trace.div_ceil(self.layout.period) * self.layout.period) as u64;
        let step = tiles::max_bytes(self.layout.observation_bytes) as u64 + self.step_bytes();
        // One sixteenth for zstd, which enlarges incompressible data slightly, and the overhead of each chunk.
        let sequence = (self.sequence_bytes() + steps * step) * 17 / 16 + steps * 256;
        // All shards have the same share of the limit, and the first has the largest index.
        self.shards as u64 * (Shard::index_bytes(self.shard_capacity(0)) + sequence + 1)
    }

    fn step_bytes(&self) -> u64 {
        ChunkColumns::bytes(1, &self.layout) as u64
    }

    fn sequence_bytes(&self) -> u64 {
        (4 * self.layout.state + 2 * self.layout.embedding) as u64 + SEQUENCE_OVERHEAD
    }
}

/// Approximate bytes of bookkeeping per sequence and its chunks.
const SEQUENCE_OVERHEAD: u64 = 512;

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
        write!(
            f,
            "{} sequences are about {:.2} million steps: {} at 150 bytes per frame (most games), {} at 2500 (the \
             noisiest), {} uncompressed; ",
            self.sequences,
            self.steps as f64 / 1e6,
            gigabytes(self.bytes_at(150)),
            gigabytes(self.bytes_at(2_500)),
            gigabytes(self.bytes_at(self.observation_bytes)),
        )?;
        match self.limit {
            Some(limit) => write!(f, "limited to {}", gigabytes(limit)),
            None => write!(f, "no memory limit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecasts_the_papers_capacity() {
        let config = ReplayConfig::paper_sized(210 * 160, 2048);
        assert_eq!(
            config.forecast().to_string(),
            "200000 sequences are about 16.00 million steps: 5.60 GB at 150 bytes per frame (most games), 43.20 GB at \
             2500 (the noisiest), 540.80 GB uncompressed; no memory limit"
        );
    }

    #[test]
    fn forecasts_a_small_capacity_with_a_limit() {
        let mut config = ReplayConfig::paper_sized(100, 8);
        config.capacity = 1_000;
        config.memory_limit = Some(64 << 20);
        config.check().unwrap();
        assert_eq!(
            config.forecast().to_string(),
            "1000 sequences are about 0.08 million steps: 0.02 GB at 150 bytes per frame (most games), 0.21 GB at \
             2500 (the noisiest), 0.02 GB uncompressed; limited to 0.07 GB"
        );
    }
}
