//! The records of a snapshot: a length (u32, little-endian), then a value as `postcard` encodes it.
//!
//! A chunk is written where it first occurs and named by its number elsewhere, so shared chunks are written once and
//! are shared again when read.
//!
//! The hash at the end detects damage. The checks make sure that the values before it fit together, so that a damaged
//! or foreign file can neither ask for absurd memory nor break an invariant later.

use std::collections::HashMap;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::Xxh3;

use super::SnapshotError;
use crate::chunk::Chunk;
use crate::columns::{ChunkColumns, OwnedStep};
use crate::config::{Layout, ReplayConfig};
use crate::sequence::Sequence;
use crate::tiles;
use crate::writer::{OpenEpisode, OpenSequence, WriterState};

/// Bytes read or written at once.
const BUFFER: usize = 1 << 20;

pub(super) type Parsed<T> = Result<T, SnapshotError>;

pub(super) struct RecordWriter<W: Write> {
    file: BufWriter<W>,
    hash: Xxh3,
    /// Numbers of the chunks written so far, by address; the snapshot keeps all of them alive.
    chunks: HashMap<*const Chunk, usize>,
    record: Vec<u8>,
}

impl<W: Write> RecordWriter<W> {
    pub(super) fn new(file: W) -> Self {
        let file = BufWriter::with_capacity(BUFFER, file);
        Self { file, hash: Xxh3::new(), chunks: HashMap::new(), record: Vec::new() }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.write_all(&self.hash.digest().to_le_bytes())?;
        self.file.flush()
    }

    pub(super) fn put(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.record.clear();
        self.record = postcard::to_extend(value, std::mem::take(&mut self.record)).map_err(io::Error::other)?;
        for bytes in [&(self.record.len() as u32).to_le_bytes()[..], &self.record] {
            self.hash.update(bytes);
            self.file.write_all(bytes)?;
        }
        Ok(())
    }

    pub(super) fn sequence(&mut self, sequence: &Sequence) -> io::Result<()> {
        self.put(sequence)?;
        for chunk in &sequence.chunks {
            let next = self.chunks.len();
            let number = *self.chunks.entry(Arc::as_ptr(chunk)).or_insert(next);
            self.put(&number)?;
            if number == next {
                self.put(chunk.as_ref())?;
            }
        }
        Ok(())
    }

    pub(super) fn writer(&mut self, writer: &WriterState) -> io::Result<()> {
        self.put(writer)?;
        self.put(&writer.ready.len())?;
        writer.ready.iter().try_for_each(|sequence| self.sequence(sequence))?;
        self.put(&writer.episode)?;
        let Some(episode) = &writer.episode else { return Ok(()) };
        self.put(&episode.open.len())?;
        for open in &episode.open {
            self.put(&open.first)?;
            self.sequence(&open.sequence)?;
        }
        Ok(())
    }
}

pub(super) struct RecordReader<R> {
    file: BufReader<R>,
    hash: Xxh3,
    layout: Layout,
    shards: usize,
    chunks: Vec<Arc<Chunk>>,
    record: Vec<u8>,
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(file: R, config: &ReplayConfig) -> Self {
        let (file, hash) = (BufReader::with_capacity(BUFFER, file), Xxh3::new());
        Self { file, hash, layout: config.layout, shards: config.shards, chunks: Vec::new(), record: Vec::new() }
    }

    /// Compares the hash, and refuses a file that continues.
    pub(super) fn finish(mut self) -> Parsed<()> {
        let mut hash = [0; 8];
        self.file.read_exact(&mut hash).map_err(unreadable)?;
        if u64::from_le_bytes(hash) != self.hash.digest() {
            return Err(SnapshotError::Hash);
        }
        match self.file.read(&mut [0]).map_err(unreadable)? {
            0 => Ok(()),
            _ => Err(SnapshotError::Trailing),
        }
    }

    pub(super) fn get<T: DeserializeOwned>(&mut self) -> Parsed<T> {
        let mut length = [0; 4];
        self.file.read_exact(&mut length).map_err(unreadable)?;
        self.hash.update(&length);
        let length = u32::from_le_bytes(length) as usize;
        check("length of a record", length, length <= max_record_bytes(&self.layout))?;
        self.record.resize(length, 0);
        self.file.read_exact(&mut self.record).map_err(unreadable)?;
        self.hash.update(&self.record);
        match postcard::take_from_bytes(&self.record) {
            Ok((value, [])) => Ok(value),
            _ => Err(SnapshotError::Record { bytes: length }),
        }
    }

    /// Reads a sequence that is complete.
    pub(super) fn sequence(&mut self) -> Parsed<Arc<Sequence>> {
        let mut sequence = self.sequence_without_chunks()?;
        let length = sequence.length as usize;
        check("length of a sequence", length, (2..=self.layout.trace).contains(&length))?;
        sequence.chunks = self.chunks(length)?;
        Ok(Arc::new(sequence))
    }

    fn sequence_without_chunks(&mut self) -> Parsed<Sequence> {
        let sequence: Sequence = self.get()?;
        check("length of a recurrent state", sequence.state.len(), sequence.state.len() == self.layout.state)?;
        self.check_step(&sequence.before)?;
        Ok(sequence)
    }

    fn check_step(&self, step: &OwnedStep) -> Parsed<()> {
        check("length of an embedding", step.embedding.len(), step.embedding.len() == self.layout.embedding)
    }

    /// Reads as many chunks as hold `steps` steps; all but the last are full.
    fn chunks(&mut self, steps: usize) -> Parsed<Vec<Arc<Chunk>>> {
        let mut chunks = Vec::with_capacity(self.layout.trace.div_ceil(self.layout.period));
        let mut held = 0;
        while held < steps {
            let chunk = self.chunk()?;
            held += chunk.steps as usize;
            let full = chunk.steps as usize == self.layout.period;
            check("number of steps of a chunk inside a sequence", chunk.steps, held >= steps || full)?;
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    fn chunk(&mut self) -> Parsed<Arc<Chunk>> {
        let number: usize = self.get()?;
        check("number of a chunk", number, number <= self.chunks.len())?;
        if let Some(chunk) = self.chunks.get(number) {
            return Ok(Arc::clone(chunk));
        }
        let chunk: Chunk = self.get()?;
        let steps = chunk.steps as usize;
        check("number of steps of a chunk", steps, (1..=self.layout.period).contains(&steps))?;
        let plain = chunk.streams.iter().map(|&length| length as usize).sum();
        check("size of a chunk's tiles", plain, plain <= steps * tiles::max_bytes(self.layout.observation_bytes))?;
        let (frames, columns) = (chunk.frames.len(), chunk.columns.len());
        check("size of a chunk's frames", frames, frames <= zstd_safe::compress_bound(plain))?;
        let plain = ChunkColumns::bytes(steps, &self.layout);
        check("size of a chunk's columns", columns, columns <= zstd_safe::compress_bound(plain))?;
        self.chunks.push(Arc::new(chunk));
        Ok(Arc::clone(&self.chunks[number]))
    }

    pub(super) fn writer(&mut self) -> Parsed<WriterState> {
        let mut writer: WriterState = self.get()?;
        check("shard of a writer", writer.shard, writer.shard < self.shards)?;
        for _ in 0..self.get::<usize>()? {
            writer.ready.push_back(self.sequence()?);
        }
        writer.episode = self.get()?;
        if let Some(episode) = &mut writer.episode {
            self.check_episode(episode)?;
            for _ in 0..self.get::<usize>()? {
                episode.open.push_back(self.open_sequence(episode.observations)?);
            }
        }
        Ok(writer)
    }

    fn check_episode(&self, episode: &OpenEpisode) -> Parsed<()> {
        let OpenEpisode { observations, before, frame, tiles, columns, .. } = episode;
        check("number of observations of an open episode", observations, *observations <= u64::MAX >> 1)?;
        self.check_step(before)?;
        check("size of a frame", frame.len(), frame.len() == self.layout.observation_bytes)?;
        let steps = (*observations % self.layout.period as u64) as usize;
        let bytes: usize = tiles.streams().iter().map(Vec::len).sum();
        check("size of an open chunk's tiles", bytes, bytes <= steps * tiles::max_bytes(frame.len()))?;
        let actions = columns.action.len();
        check("number of actions of an open chunk", actions, actions == steps)?;
        for column in columns.scalars() {
            check("length of an open chunk's column", column.len(), column.len() == steps)?;
        }
        let embeddings = columns.embedding.len();
        check("length of an open chunk's embeddings", embeddings, embeddings == steps * self.layout.embedding)
    }

    fn open_sequence(&mut self, observations: u64) -> Parsed<OpenSequence> {
        let (trace, period) = (self.layout.trace as u64, self.layout.period as u64);
        let first: u64 = self.get()?;
        let closed = (observations - observations % period).saturating_sub(first);
        check(
            "start of an open sequence",
            first,
            first.is_multiple_of(period) && first < observations && closed < trace,
        )?;
        let mut sequence = self.sequence_without_chunks()?;
        sequence.chunks = self.chunks(closed as usize)?;
        Ok(OpenSequence { first, sequence })
    }
}

fn unreadable(error: io::Error) -> SnapshotError {
    if error.kind() == ErrorKind::UnexpectedEof { SnapshotError::CutOff } else { SnapshotError::Read(error) }
}

/// The longest valid record: an open chunk of incompressible frames, with varints at their longest, or a sequence.
fn max_record_bytes(layout: &Layout) -> usize {
    let frames = (layout.period + 1) * (tiles::max_bytes(layout.observation_bytes) + 64);
    2 * (frames + ChunkColumns::bytes(layout.period + 1, layout) + 4 * layout.state) + 4_096
}

fn check(what: &'static str, value: impl ToString, valid: bool) -> Parsed<()> {
    if valid { Ok(()) } else { Err(SnapshotError::Content { what, value: value.to_string() }) }
}
