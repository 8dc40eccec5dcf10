//! What is in a snapshot, record by record, to a stream; [`read`](super::read) goes the other way.
//!
//! A chunk is written where it is met first, and then named by its number: shared chunks are written once, and are
//! shared again after reading.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use half::f16;

use super::blocks::BlockWriter;
use crate::chunk::Chunk;
use crate::config::{Layout, ReplayConfig};
use crate::sequence::{Before, Sequence, Start};
use crate::writer::{Episode, WriterState};

/// Writes records.
pub(super) struct RecordWriter<W> {
    blocks: BlockWriter<W>,
    /// Numbers of the chunks written so far, by their place in memory; the snapshot keeps all of them alive.
    chunks: HashMap<*const Chunk, u64>,
    little_endian: Vec<u8>,
}

impl<W: Write> RecordWriter<W> {
    pub(super) fn new(file: W) -> Self {
        Self { blocks: BlockWriter::new(file), chunks: HashMap::new(), little_endian: Vec::new() }
    }

    pub(super) fn finish(self) -> io::Result<W> {
        self.blocks.finish()
    }

    pub(super) fn number(&mut self, value: u64) -> io::Result<()> {
        self.blocks.put(&value.to_le_bytes())
    }

    pub(super) fn real(&mut self, value: f64) -> io::Result<()> {
        self.blocks.put(&value.to_le_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.number(bytes.len() as u64)?;
        self.blocks.put(bytes)
    }

    fn reals(&mut self, values: &[f32]) -> io::Result<()> {
        self.little_endian.clear();
        self.little_endian.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.blocks.put(&self.little_endian)
    }

    fn embedding(&mut self, values: &[f16]) -> io::Result<()> {
        self.little_endian.clear();
        self.little_endian.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.blocks.put(&self.little_endian)
    }

    pub(super) fn config(&mut self, config: &ReplayConfig) -> io::Result<()> {
        let Layout { observation_bytes, embedding, state, trace, period } = config.layout;
        for size in [observation_bytes, embedding, state, trace, period, config.shards, config.capacity] {
            self.number(size as u64)?;
        }
        self.number(config.memory_limit.unwrap_or(u64::MAX))?;
        self.real(config.priority_exponent)?;
        self.real(config.importance_exponent)?;
        self.real(config.rate_limiter.samples_per_insert)?;
        self.number(config.rate_limiter.min_fill)?;
        self.real(config.rate_limiter.slack)?;
        self.number(config.seed)
    }

    fn chunk(&mut self, chunk: &Arc<Chunk>) -> io::Result<()> {
        let next = self.chunks.len() as u64;
        let number = *self.chunks.entry(Arc::as_ptr(chunk)).or_insert(next);
        self.number(number)?;
        if number < next {
            return Ok(());
        }
        self.number(u64::from(chunk.steps))?;
        chunk.streams.iter().try_for_each(|&length| self.number(u64::from(length)))?;
        self.bytes(&chunk.frames)?;
        self.bytes(&chunk.columns)
    }

    fn before(&mut self, before: &Before) -> io::Result<()> {
        self.number(u64::from(before.action))?;
        self.reals(&before.scalars)?;
        self.embedding(&before.embedding)
    }

    fn start(&mut self, start: &Start) -> io::Result<()> {
        self.number(u64::from(start.actor))?;
        self.number(u64::from(start.policy))?;
        self.number(start.parameter_version)?;
        self.before(&start.before)?;
        self.reals(&start.state)
    }

    pub(super) fn sequence(&mut self, sequence: &Sequence) -> io::Result<()> {
        self.start(&sequence.start)?;
        self.number(u64::from(sequence.length))?;
        sequence.chunks.iter().try_for_each(|chunk| self.chunk(chunk))
    }

    pub(super) fn writer(&mut self, writer: &WriterState) -> io::Result<()> {
        self.number(u64::from(writer.actor))?;
        self.number(writer.shard as u64)?;
        self.number(writer.ready.len() as u64)?;
        writer.ready.iter().try_for_each(|sequence| self.sequence(sequence))?;
        self.number(u64::from(writer.episode.is_some()))?;
        writer.episode.iter().try_for_each(|episode| self.episode(episode))
    }

    fn episode(&mut self, episode: &Episode) -> io::Result<()> {
        self.number(u64::from(episode.policy))?;
        self.number(episode.observations)?;
        self.before(&episode.before)?;
        self.blocks.put(&episode.frame)?;
        episode.tiles.streams().iter().try_for_each(|stream| self.bytes(stream))?;
        for &action in &episode.columns.action {
            self.number(u64::from(action))?;
        }
        for column in &episode.columns.scalars {
            self.reals(column)?;
        }
        self.embedding(&episode.columns.embedding)?;
        self.number(episode.open.len() as u64)?;
        for open in &episode.open {
            self.start(&open.start)?;
            self.number(open.first)?;
            open.chunks.iter().try_for_each(|chunk| self.chunk(chunk))?;
        }
        Ok(())
    }
}
