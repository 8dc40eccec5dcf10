//! The replay as bytes, and back.
//!
//! The format is `MEMEREPL`, a version (u32, little-endian) and a stream of [`records`]: the configuration, the state
//! of the sampling, the shards in order with their sequences oldest first, and the writers. The XXH3 hash of all
//! records (u64, little-endian) ends it.

mod records;

use std::io::{self, Read, Write};
use std::sync::Arc;

use rand::Rng;

use self::records::{Parsed, RecordReader, RecordWriter};
use crate::config::ReplayConfig;
use crate::error::ReplayError;
use crate::replay::{Draws, Replay};
use crate::sequence::Sequence;
use crate::shard::Shard;
use crate::writer::WriterState;

const MAGIC: &[u8; 8] = b"MEMEREPL";
const VERSION: u32 = 4;

/// Maximum number of sequences that a shard may have received in all: far more than ever will be.
const MAX_INSERTED: u64 = 1 << 60;

/// Why a snapshot was refused.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The configuration to restore with is invalid.
    #[error(transparent)]
    Config(#[from] ReplayError),
    /// The file does not begin like a snapshot.
    #[error("not a replay snapshot")]
    Foreign,
    /// The file has another version.
    #[error("the replay snapshot has version {found}, expected {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// The file ends too early.
    #[error("the replay snapshot is cut off")]
    CutOff,
    /// The content is not what was written.
    #[error("the replay snapshot is damaged: its hash is wrong")]
    Hash,
    /// Reading failed.
    #[error("the replay snapshot cannot be read: {0}")]
    Read(io::Error),
    /// The file continues after its last record.
    #[error("the replay snapshot continues after its end")]
    Trailing,
    /// The snapshot is of a replay with another configuration.
    #[error("{field} of the replay snapshot is {found}, but {configured} is configured")]
    Mismatch {
        /// The field of the configuration.
        field: &'static str,
        /// Its value in the snapshot.
        found: f64,
        /// Its configured value.
        configured: f64,
    },
    /// A record does not decode.
    #[error("a record of {bytes} bytes in the replay snapshot is malformed")]
    Record {
        /// Length of the record.
        bytes: usize,
    },
    /// A value does not fit the rest of the snapshot.
    #[error("the {what} in the replay snapshot is {value}, which is impossible")]
    Content {
        /// The value's meaning.
        what: &'static str,
        /// The value.
        value: String,
    },
}

/// A replay as of one moment, which is written while writers and samplers continue.
///
/// Sequences evicted in the meantime stay in memory until the snapshot is dropped.
#[derive(Debug)]
pub struct Snapshot {
    config: ReplayConfig,
    draws: Draws,
    shards: Vec<ShardCut>,
    writers: Vec<WriterState>,
}

#[derive(Debug)]
struct ShardCut {
    /// Number of the oldest sequence.
    oldest: u64,
    /// With their weights, oldest first.
    sequences: Vec<(Arc<Sequence>, f64)>,
}

/// The content of a snapshot.
#[derive(Debug)]
pub struct Restored {
    /// The replay, which continues with the same draws.
    pub replay: Arc<Replay>,
    /// The writers' states, for [`Writer::resume`](crate::Writer::resume).
    pub writers: Vec<WriterState>,
}

impl Snapshot {
    /// Takes a consistent cut: all shards, draws and the limiter's counts as of one moment.
    ///
    /// Locks are held while references are copied, some tens of nanoseconds per sequence. `writers` are the states of
    /// the writers to be resumed, taken before this call; where their steps must fit the shards exactly, as in
    /// lockstep, no writer may append in between.
    pub fn take(replay: &Replay, writers: Vec<WriterState>) -> Self {
        let (draws, shards) = replay.lock_all();
        let cut = |shard: &Shard| ShardCut {
            oldest: shard.inserted() - shard.len(),
            sequences: shard.held().map(|(sequence, weight)| (Arc::clone(sequence), weight)).collect(),
        };
        let shards = shards.iter().map(|shard| cut(shard)).collect();
        Self { config: replay.config, draws: draws.clone(), shards, writers }
    }

    /// Writes the snapshot.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut out = RecordWriter::new(out);
        out.put(&self.config.stored().map(|(_, value)| value))?;
        out.put(&self.draws)?;
        for shard in &self.shards {
            out.put(&(shard.oldest, shard.sequences.len()))?;
            for (sequence, weight) in &shard.sequences {
                out.put(weight)?;
                out.sequence(sequence)?;
            }
        }
        out.put(&self.writers.len())?;
        self.writers.iter().try_for_each(|writer| out.writer(writer))?;
        out.finish()
    }

    /// Restores a replay of the same sizes, shards and exponents.
    ///
    /// Memory limit and rate limiter come from `config`.
    ///
    /// Nothing is created until the whole snapshot has been read and checked.
    pub fn restore_from(mut input: impl Read, config: &ReplayConfig) -> Result<Restored, SnapshotError> {
        config.check()?;
        read_head(&mut input)?;
        let mut records = RecordReader::new(input, config);
        let saved: [f64; 9] = records.get()?;
        for ((field, configured), found) in config.stored().into_iter().zip(saved) {
            if found != configured {
                return Err(SnapshotError::Mismatch { field, found, configured });
            }
        }
        let draws: Draws = records.get()?;
        let mut probe = draws.rng.clone();
        if (0..4).all(|_| probe.next_u64() == 0) {
            return Err(SnapshotError::Content { what: "state of the random generator", value: "0".to_owned() });
        }
        let shards = (0..config.shards).map(|shard| read_shard(&mut records, config, shard)).collect::<Parsed<_>>()?;
        let writers = (0..records.get::<usize>()?).map(|_| records.writer()).collect::<Parsed<_>>()?;
        records.finish()?;
        Ok(Restored { replay: Replay::from_parts(*config, shards, draws), writers })
    }
}

fn read_head(file: &mut impl Read) -> Parsed<()> {
    let (mut magic, mut version) = ([0; MAGIC.len()], [0; 4]);
    let read = file.read_exact(&mut magic).and_then(|()| file.read_exact(&mut version));
    match u32::from_le_bytes(version) {
        _ if read.is_err() || &magic != MAGIC => Err(SnapshotError::Foreign),
        VERSION => Ok(()),
        found => Err(SnapshotError::Version { found }),
    }
}

fn read_shard<R: Read>(records: &mut RecordReader<R>, config: &ReplayConfig, index: usize) -> Parsed<Shard> {
    let (oldest, count): (u64, usize) = records.get()?;
    let impossible = |what, value: String| Err(SnapshotError::Content { what, value });
    if oldest > MAX_INSERTED {
        return impossible("number of a sequence", oldest.to_string());
    }
    if count > config.shard_capacity(index) {
        return impossible("number of sequences of a shard", count.to_string());
    }
    let mut shard = Replay::empty_shard(config, index).starting_at(oldest);
    for _ in 0..count {
        let weight: f64 = records.get()?;
        // At most the greatest priority to the greatest exponent.
        if !(0.0..=f64::from(f32::MAX)).contains(&weight) {
            return impossible("weight of a sequence", weight.to_string());
        }
        shard.insert_weighted(records.sequence()?, weight);
    }
    Ok(shard)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use xxhash_rust::xxh3::xxh3_64;

    use crate::{Layout, RateLimiterConfig, ReplayError, Sampler, SequenceBatch, SequenceStart, Step, Writer};

    fn config() -> ReplayConfig {
        let mut config = ReplayConfig::paper_sized(1, 1);
        config.layout = Layout { observation_bytes: 9, embedding: 0, state: 1, trace: 4, period: 2 };
        (config.shards, config.capacity) = (1, 8);
        config.rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
        config
    }

    fn snapshot() -> Snapshot {
        let replay = Replay::new(config()).unwrap();
        let mut writer = Writer::new(&replay, 0);
        let step =
            Step { action: 3, behaviour_probability: 0.5, reward_extrinsic: 1.0, discount: 1.0, ..Step::default() };
        for _ in 0..3 {
            writer.begin_episode(1).unwrap();
            for t in 0..5u8 {
                let start = SequenceStart { state: &[0.5], parameter_version: 1 };
                writer.append(&[t; 9], &step, Some(start)).unwrap();
            }
            writer.end_episode(&[9; 9], &Step::last([0.0; 3], &[])).unwrap();
            writer.flush(Duration::ZERO).unwrap();
        }
        writer.begin_episode(1).unwrap();
        writer.append(&[7; 9], &step, Some(SequenceStart { state: &[0.5], parameter_version: 1 })).unwrap();
        Snapshot::take(&replay, vec![writer.state()])
    }

    /// A valid hash of invalid content: made on purpose, not by accident.
    #[test]
    fn invalid_content_with_a_valid_hash_neither_panics_nor_hangs() {
        let mut whole = Vec::new();
        snapshot().write_to(&mut whole).unwrap();
        let (head, content) = whole[..whole.len() - 8].split_at(12);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut loaded, mut refused, mut damaged) = (0, 0, 0);
        for _ in 0..5_000 {
            let mut content = content.to_vec();
            for _ in 0..1 + rng.random_range(0..3) {
                let at = rng.random_range(0..content.len());
                content[at] = if rng.random() { rng.random() } else { content[at] ^ (1 << rng.random_range(0..8)) };
            }
            let file = [head, &content, &xxh3_64(&content).to_le_bytes()].concat();
            let Ok(restored) = Snapshot::restore_from(&file[..], &config()) else {
                refused += 1;
                continue;
            };
            loaded += 1;
            let mut batch = SequenceBatch::new(&config().layout, 8);
            match Sampler::new(&restored.replay, 1).sample(&mut batch, Duration::ZERO) {
                Ok(()) => assert!(batch.sequences.iter().all(|sequence| (2..=4).contains(&sequence.length))),
                Err(ReplayError::CorruptChunk { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(
            loaded > 100 && refused > 100 && damaged > 100,
            "{loaded} loaded, {refused} refused, {damaged} damaged"
        );
    }
}
