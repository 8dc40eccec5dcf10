//! The replay as bytes, and back.
//!
//! They are `MEMEREPL`, a version (u32, little-endian) and a stream of [`blocks`] with the records of [`write`]: the
//! configuration, the state of the draws, the shards from the first on with their sequences from the oldest on, and
//! the writers.

mod blocks;
mod read;
mod write;

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use self::blocks::Parsed;
use self::read::RecordReader;
use self::write::RecordWriter;
use crate::config::ReplayConfig;
use crate::replay::{Draws, Replay};
use crate::rng::Rng;
use crate::sequence::Sequence;
use crate::shard::Shard;
use crate::writer::WriterState;

const MAGIC: &[u8; 8] = b"MEMEREPL";
const VERSION: u32 = 2;

/// Sequences that a shard may have been given in all: far more than ever will be.
const MOST_INSERTED: u64 = 1 << 60;

/// A replay as it was at one moment. Writers and samplers go on while it is written; what they evict meanwhile stays in
/// memory until it has been written.
#[derive(Debug)]
pub struct Snapshot {
    config: ReplayConfig,
    draws: Draws,
    shards: Vec<ShardCut>,
    writers: Vec<WriterState>,
}

#[derive(Debug)]
struct ShardCut {
    oldest: u64,
    late_priorities: u64,
    /// With their weights, oldest first.
    sequences: Vec<(Arc<Sequence>, f64)>,
}

/// What a snapshot gives back.
#[derive(Debug)]
pub struct Restored {
    /// The replay as it was: the same draws follow.
    pub replay: Arc<Replay>,
    /// The writers as they were, for [`Writer::resume`](crate::Writer::resume).
    pub writers: Vec<WriterState>,
}

impl Snapshot {
    /// A consistent cut: all shards, the draws and the counts of the rate limiter as of one moment. Locks are held
    /// while references are copied, some tens of nanoseconds a sequence.
    ///
    /// `writers` are the states of the writers that are to go on later, taken before this call; where their steps must
    /// fit the shards exactly, as in lockstep, no writer may append in between.
    pub fn take(replay: &Replay, writers: Vec<WriterState>) -> Self {
        let (draws, shards) = replay.lock_all();
        let cut = |shard: &Shard| ShardCut {
            oldest: shard.inserted() - shard.len(),
            late_priorities: shard.accounting().late_priorities,
            sequences: shard.held().map(|(sequence, weight)| (Arc::clone(sequence), weight)).collect(),
        };
        let shards = shards.iter().map(|shard| cut(shard)).collect();
        Self { config: *replay.config(), draws: draws.clone(), shards, writers }
    }

    /// Writes it, as it may stand by itself or as a part of a checkpoint.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut out = RecordWriter::new(out);
        out.config(&self.config)?;
        for word in self.draws.rng.state() {
            out.number(word)?;
        }
        out.number(self.draws.samples)?;
        for shard in &self.shards {
            out.number(shard.oldest)?;
            out.number(shard.late_priorities)?;
            out.number(shard.sequences.len() as u64)?;
            for (sequence, weight) in &shard.sequences {
                out.real(*weight)?;
                out.sequence(sequence)?;
            }
        }
        out.number(self.writers.len() as u64)?;
        for writer in &self.writers {
            out.writer(writer)?;
        }
        out.finish().map(drop)
    }

    /// A replay from what [`write_to`](Self::write_to) wrote, for the same sizes, shards and exponents; memory limit and
    /// rate limiter are those of `config`. Nothing exists until all of it has been read and found whole; the error says
    /// what is wrong with it.
    pub fn restore_from(mut input: impl Read, config: &ReplayConfig) -> Result<Restored, String> {
        config.check().map_err(|error| error.to_string())?;
        read_head(&mut input)?;
        read_body(input, config)
    }
}

fn read_head(file: &mut impl Read) -> Parsed<()> {
    let foreign = |_: io::Error| "it does not begin like a replay snapshot".to_owned();
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).map_err(foreign)?;
    if &magic != MAGIC {
        return Err("it does not begin like a replay snapshot".to_owned());
    }
    let mut version = [0; 4];
    file.read_exact(&mut version).map_err(foreign)?;
    match u32::from_le_bytes(version) {
        VERSION => Ok(()),
        other => Err(format!("it is of version {other}, and version {VERSION} is what can be read")),
    }
}

fn read_body(file: impl Read, config: &ReplayConfig) -> Parsed<Restored> {
    let mut records = RecordReader::new(BufReader::new(file), config);
    records.config(config)?;
    let mut words = [0; 4];
    for word in &mut words {
        *word = records.number()?;
    }
    let rng = Rng::from_state(words).ok_or("its random generator stands still")?;
    let draws = Draws { rng, samples: records.number()? };
    let shards = (0..config.shards).map(|shard| read_shard(&mut records, config, shard)).collect::<Parsed<_>>()?;
    let mut writers = Vec::new();
    for _ in 0..records.at_most("the number of writers", u64::from(u32::MAX))? {
        writers.push(records.writer()?);
    }
    records.finish()?;
    Ok(Restored { replay: Replay::from_parts(*config, shards, draws), writers })
}

fn read_shard<R: Read>(records: &mut RecordReader<R>, config: &ReplayConfig, index: usize) -> Parsed<Shard> {
    let oldest = records.at_most("the number of a sequence", MOST_INSERTED)?;
    let late_priorities = records.number()?;
    let count = records.at_most("the number of sequences of a shard", config.shard_capacity(index) as u64)?;
    let mut shard = Replay::empty_shard(config, index).starting_at(oldest, late_priorities);
    for _ in 0..count {
        let weight = records.real()?;
        // What the greatest priority that can be set becomes with the greatest exponent.
        if !(0.0..=f64::from(f32::MAX)).contains(&weight) {
            return Err(format!("a priority is {weight} in it"));
        }
        shard.insert_weighted(records.sequence()?, weight);
    }
    Ok(shard)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Batch, LastStep, Layout, RateLimiterConfig, ReplayError, Sampler, SequenceStart, Step, Writer};

    fn config() -> ReplayConfig {
        let mut config = ReplayConfig::paper(1, 1);
        config.layout = Layout { observation_bytes: 9, embedding: 0, state: 1, trace: 4, period: 2 };
        (config.shards, config.capacity) = (1, 8);
        config.rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
        config
    }

    fn snapshot() -> Snapshot {
        let replay = Replay::new(config()).unwrap();
        let mut writer = Writer::new(&replay, 0);
        let step = Step {
            action: 3,
            behaviour_probability: 0.5,
            reward_extrinsic: 1.0,
            reward_ngu: 0.0,
            reward_rnd: 0.0,
            reward_episodic: 0.0,
            discount: 1.0,
            embedding: &[],
        };
        let last = LastStep { reward_ngu: 0.0, reward_rnd: 0.0, reward_episodic: 0.0, embedding: &[] };
        for _ in 0..3 {
            writer.begin_episode(1).unwrap();
            for t in 0..5u8 {
                let start = SequenceStart { state: &[0.5], parameter_version: 1 };
                writer.append(&[t; 9], &step, Some(start)).unwrap();
            }
            writer.end_episode(&[9; 9], &last).unwrap();
            writer.flush(Duration::ZERO).unwrap();
        }
        writer.begin_episode(1).unwrap();
        writer.append(&[7; 9], &step, Some(SequenceStart { state: &[0.5], parameter_version: 1 })).unwrap();
        Snapshot::take(&replay, vec![writer.state()])
    }

    /// A file whose checksums are right and whose content is not: made by someone, not by an accident.
    #[test]
    fn content_that_is_wrong_but_whole_neither_panics_nor_hangs() {
        let mut whole = Vec::new();
        snapshot().write_to(&mut whole).unwrap();
        // One block, the end, and nothing else: head of the file 12 bytes, of the block 12, of the end 12.
        let content = &whole[24..whole.len() - 12];
        let mut rng = Rng::new(1);
        let (mut loaded, mut refused, mut damaged) = (0, 0, 0);
        for _ in 0..5_000 {
            let mut content = content.to_vec();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(content.len());
                content[at] = if rng.below(2) == 0 { rng.below(256) as u8 } else { content[at] ^ (1 << rng.below(8)) };
            }
            let mut blocks = blocks::BlockWriter::new(whole[..12].to_vec());
            blocks.put(&content).unwrap();
            let Ok(restored) = Snapshot::restore_from(&blocks.finish().unwrap()[..], &config()) else {
                refused += 1;
                continue;
            };
            loaded += 1;
            let mut batch = Batch::new(&config().layout, 8);
            match Sampler::new(&restored.replay, 1).sample(batch.as_mut(), Duration::ZERO) {
                Ok(()) => assert!(batch.length.iter().all(|length| (2..=4).contains(length))),
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
