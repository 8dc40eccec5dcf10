//! The records of a snapshot from a stream; what is read is checked before it is used for anything.
//!
//! Damage is the blocks' matter. What is checked here is that the numbers of a whole file make sense together, so that
//! a file from elsewhere can't ask for absurd memory or break an invariant later on.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use half::f16;

use super::blocks::{BlockReader, Parsed};
use crate::chunk::Chunk;
use crate::config::{Layout, ReplayConfig};
use crate::sequence::{Before, Sequence, Start};
use crate::step::{Columns, SCALARS};
use crate::tiles::{self, STREAMS, Tiles};
use crate::writer::{Episode, OpenSequence, WriterState};

/// Sequences that a writer may hold ready, and open sequences of an episode: far more than there ever are.
const MOST_READY: u64 = 1 << 20;

/// Reads records.
pub(super) struct RecordReader<R> {
    blocks: BlockReader<R>,
    layout: Layout,
    shards: usize,
    chunks: Vec<Arc<Chunk>>,
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(file: R, config: &ReplayConfig) -> Self {
        Self { blocks: BlockReader::new(file), layout: config.layout, shards: config.shards, chunks: Vec::new() }
    }

    pub(super) fn finish(self) -> Parsed<()> {
        self.blocks.finish()
    }

    pub(super) fn number(&mut self) -> Parsed<u64> {
        let mut bytes = [0; 8];
        self.blocks.take(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A number that is at most `most`.
    pub(super) fn at_most(&mut self, what: &str, most: u64) -> Parsed<u64> {
        let number = self.number()?;
        if number > most {
            return Err(format!("{what} is {number} in it, more than {most}"));
        }
        Ok(number)
    }

    /// A number that fits its type.
    fn small<T: TryFrom<u64>>(&mut self, what: &str) -> Parsed<T> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| format!("{what} is {number} in it, which is too much"))
    }

    pub(super) fn real(&mut self) -> Parsed<f64> {
        Ok(f64::from_bits(self.number()?))
    }

    fn bytes(&mut self, length: usize) -> Parsed<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.blocks.take(&mut bytes)?;
        Ok(bytes)
    }

    fn reals(&mut self, count: usize) -> Parsed<Vec<f32>> {
        let bytes = self.bytes(4 * count)?;
        Ok(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }

    fn embedding(&mut self, count: usize) -> Parsed<Vec<f16>> {
        let bytes = self.bytes(2 * count)?;
        Ok(bytes.as_chunks().0.iter().map(|value| f16::from_le_bytes(*value)).collect())
    }

    /// Refuses a snapshot of a replay that differs where what is stored depends on it. The memory limit, the rate
    /// limiter and the seed may differ.
    pub(super) fn config(&mut self, config: &ReplayConfig) -> Parsed<()> {
        let Layout { observation_bytes, embedding, state, trace, period } = config.layout;
        self.same("layout.observation_bytes", observation_bytes as u64)?;
        self.same("layout.embedding", embedding as u64)?;
        self.same("layout.state", state as u64)?;
        self.same("layout.trace", trace as u64)?;
        self.same("layout.period", period as u64)?;
        self.same("shards", config.shards as u64)?;
        self.same("capacity", config.capacity as u64)?;
        self.number()?;
        let exponent = self.real()?;
        equal("priority_exponent", exponent, config.priority_exponent)?;
        let exponent = self.real()?;
        equal("importance_exponent", exponent, config.importance_exponent)?;
        for _ in 0..4 {
            self.number()?;
        }
        Ok(())
    }

    fn same(&mut self, field: &str, configured: u64) -> Parsed<()> {
        let saved = self.number()?;
        equal(field, saved, configured)
    }

    fn chunk(&mut self) -> Parsed<Arc<Chunk>> {
        let known = self.chunks.len();
        let number = self.at_most("the number of a chunk", known as u64)? as usize;
        if let Some(chunk) = self.chunks.get(number) {
            return Ok(Arc::clone(chunk));
        }
        let steps = self.at_most("the steps of a chunk", self.layout.period as u64)? as usize;
        if steps == 0 {
            return Err("a chunk has no step in it".to_owned());
        }
        let most = steps * tiles::most_bytes(self.layout.observation_bytes);
        let mut streams = [0; STREAMS];
        let mut plain = 0;
        for stream in &mut streams {
            let length = self.at_most("the length of a chunk's frames", (most - plain) as u64)?;
            *stream = length as u32;
            plain += length as usize;
        }
        let frames = self.compressed(plain)?;
        let columns = self.compressed(Columns::bytes(steps, self.layout.embedding))?;
        let (steps, uses) = (steps as u32, AtomicU32::new(0));
        let chunk = Arc::new(Chunk { steps, streams, frames, columns, uses });
        self.chunks.push(Arc::clone(&chunk));
        Ok(chunk)
    }

    fn compressed(&mut self, plain: usize) -> Parsed<Box<[u8]>> {
        let length = self.at_most("the size of a chunk", zstd_safe::compress_bound(plain) as u64)?;
        Ok(self.bytes(length as usize)?.into())
    }

    fn before(&mut self) -> Parsed<Before> {
        let action = self.small("an action")?;
        let scalars = self.reals(SCALARS)?;
        let embedding = self.embedding(self.layout.embedding)?.into();
        Ok(Before { action, scalars: std::array::from_fn(|i| scalars[i]), embedding })
    }

    fn start(&mut self) -> Parsed<Start> {
        Ok(Start {
            actor: self.small("an actor")?,
            policy: self.small("a policy")?,
            parameter_version: self.number()?,
            before: self.before()?,
            state: self.reals(self.layout.state)?.into(),
        })
    }

    pub(super) fn sequence(&mut self) -> Parsed<Arc<Sequence>> {
        let start = self.start()?;
        let length = self.at_most("the length of a sequence", self.layout.trace as u64)?;
        if length < 2 {
            return Err(format!("the length of a sequence is {length} in it, less than 2"));
        }
        let chunks = self.chunks_of(length)?.into();
        Ok(Arc::new(Sequence { start, length: length as u32, chunks }))
    }

    /// As many chunks as hold `steps` steps; all but the last are full.
    fn chunks_of(&mut self, steps: u64) -> Parsed<Vec<Arc<Chunk>>> {
        let mut chunks = Vec::new();
        let mut held = 0;
        while held < steps {
            let chunk = self.chunk()?;
            held += u64::from(chunk.steps);
            if held < steps && chunk.steps as usize != self.layout.period {
                return Err(format!("a chunk of {} steps is in the middle of a sequence in it", chunk.steps));
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    pub(super) fn writer(&mut self) -> Parsed<WriterState> {
        let actor = self.small("an actor")?;
        let shard = self.at_most("a writer's shard", self.shards as u64 - 1)? as usize;
        let ready = self.at_most("the number of sequences that are ready", MOST_READY)?;
        let ready = (0..ready).map(|_| self.sequence()).collect::<Parsed<VecDeque<_>>>()?;
        let open = self.at_most("the number of a writer's open episodes", 1)?;
        let episode = if open == 1 { Some(self.episode()?) } else { None };
        Ok(WriterState { actor, shard, episode, ready })
    }

    fn episode(&mut self) -> Parsed<Episode> {
        let period = self.layout.period as u64;
        let policy = self.small("a policy")?;
        let observations = self.at_most("the observations of an open episode", u64::MAX >> 1)?;
        let before = self.before()?;
        let frame = self.bytes(self.layout.observation_bytes)?.into();
        let steps = (observations % period) as usize;
        let mut left = (steps * tiles::most_bytes(self.layout.observation_bytes)) as u64;
        let mut streams: [Vec<u8>; STREAMS] = Default::default();
        for stream in &mut streams {
            let length = self.at_most("the length of an open chunk's frames", left)?;
            *stream = self.bytes(length as usize)?;
            left -= length;
        }
        let tiles = Tiles::from_streams(streams);
        let mut columns = Columns::default();
        for _ in 0..steps {
            columns.action.push(self.small("an action")?);
        }
        for column in &mut columns.scalars {
            *column = self.reals(steps)?;
        }
        columns.embedding = self.embedding(steps * self.layout.embedding)?;
        let mut open = VecDeque::new();
        for _ in 0..self.at_most("the number of open sequences", MOST_READY)? {
            let start = self.start()?;
            let first = self.at_most("the start of an open sequence", observations)?;
            let closed = observations - observations % period;
            if first % period != 0 || first >= observations || closed.saturating_sub(first) >= self.layout.trace as u64
            {
                return Err(format!("a sequence is open at {first} of {observations} observations in it"));
            }
            let chunks = self.chunks_of(closed.saturating_sub(first))?;
            open.push_back(OpenSequence { start, first, chunks });
        }
        Ok(Episode { policy, observations, open, before, frame, tiles, columns })
    }
}

fn equal<T: PartialEq + Display>(field: &str, saved: T, configured: T) -> Parsed<()> {
    if saved == configured {
        return Ok(());
    }
    Err(format!("its {field} is {saved}, but {configured} is configured"))
}
