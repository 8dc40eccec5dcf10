//! Consecutive steps of an episode, compressed together and shared by all sequences that contain them.
//!
//! A chunk begins where a sequence begins and decodes on its own: its first frame is coded against zeros.

use std::sync::atomic::AtomicU32;

use serde::{Deserialize, Serialize};
use zstd_safe::{CCtx, CParameter, DCtx};

use crate::accounting::ALLOCATION;
use crate::columns::ChunkColumns;
use crate::config::Layout;
use crate::error::{ReplayError, Result};
use crate::tiles::{self, STREAMS, TileReader, Tiles};

/// The fastest level with entropy coding, without matches too short to save anything.
const PARAMETERS: [CParameter; 3] =
    [CParameter::CompressionLevel(1), CParameter::MinMatch(7), CParameter::ContentSizeFlag(false)];

/// A compressed run of steps of one episode.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Chunk {
    /// Number of steps, and of frames.
    pub(crate) steps: u32,
    /// Uncompressed bytes of each stream of the frames.
    pub(crate) streams: [u32; STREAMS],
    /// The streams one after another, compressed.
    #[serde(with = "serde_bytes")]
    pub(crate) frames: Box<[u8]>,
    /// The other columns, compressed.
    #[serde(with = "serde_bytes")]
    pub(crate) columns: Box<[u8]>,
    /// Sequences of its shard that contain it; changes under the shard's lock only.
    #[serde(skip)]
    pub(crate) uses: AtomicU32,
}

impl Chunk {
    /// Bytes held apart from the compressed frames.
    pub(crate) fn bytes_besides_frames(&self) -> u64 {
        (size_of::<Self>() + 2 * size_of::<usize>() + self.columns.len()) as u64 + 3 * ALLOCATION
    }
}

/// Compresses with reused memory.
pub(crate) struct Compressor {
    context: CCtx<'static>,
    plain: Vec<u8>,
    compressed: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new() -> Result<Self> {
        let mut context = CCtx::create();
        for parameter in PARAMETERS {
            context.set_parameter(parameter).map_err(|code| compress_error(0, code))?;
        }
        Ok(Self { context, plain: Vec::new(), compressed: Vec::new() })
    }

    pub(crate) fn chunk(&mut self, frames: &Tiles, columns: &ChunkColumns) -> Result<Chunk> {
        let (streams, compressed) = self.tiles(frames)?;
        let frames = compressed.into();
        self.plain.clear();
        columns.write(&mut self.plain);
        Ok(Chunk {
            steps: columns.action.len() as u32,
            streams,
            frames,
            columns: self.compress()?.into(),
            uses: AtomicU32::new(0),
        })
    }

    /// Compresses the streams of tiles one after another; returns their lengths and the compressed bytes.
    pub(crate) fn tiles(&mut self, tiles: &Tiles) -> Result<([u32; STREAMS], &[u8])> {
        self.plain.clear();
        tiles.streams().iter().for_each(|stream| self.plain.extend_from_slice(stream));
        Ok((tiles.streams().each_ref().map(|stream| stream.len() as u32), self.compress()?))
    }

    fn compress(&mut self) -> Result<&[u8]> {
        let bytes = self.plain.len();
        let bound = zstd_safe::compress_bound(bytes);
        if self.compressed.len() < bound {
            self.compressed.resize(bound, 0);
        }
        let written = self.context.compress2(&mut self.compressed[..], &self.plain);
        let length = written.map_err(|code| compress_error(bytes, code))?;
        Ok(&self.compressed[..length])
    }
}

fn compress_error(bytes: usize, code: usize) -> ReplayError {
    ReplayError::Compress { bytes, reason: zstd_safe::get_error_name(code) }
}

/// Decompresses chunks; allocates all its memory when created.
pub(crate) struct Decompressor {
    context: DCtx<'static>,
    layout: Layout,
    streams: Vec<u8>,
    columns: Vec<u8>,
}

impl Decompressor {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            context: DCtx::create(),
            layout: *layout,
            // Untouched zeroed memory is not resident, so the worst case costs nothing until it happens.
            streams: vec![0; layout.period * tiles::max_bytes(layout.observation_bytes)],
            columns: vec![0; ChunkColumns::bytes(layout.period, layout)],
        }
    }

    /// Decodes as many of the chunk's first frames as `out` has room for.
    pub(crate) fn frames(&mut self, chunk: &Chunk, out: &mut [u8]) -> Result<()> {
        let length = chunk.streams.iter().map(|&length| length as usize).sum();
        let streams = self.streams.get_mut(..length).ok_or_else(|| damaged(chunk, "too many tiles"))?;
        decompress(&mut self.context, chunk, &chunk.frames, streams)?;
        let unfit = || damaged(chunk, "the tiles do not fit the frames");
        let mut tiles = TileReader::new(streams, chunk.streams).ok_or_else(unfit)?;
        let mut before: Option<&mut [u8]> = None;
        for frame in out.chunks_exact_mut(self.layout.observation_bytes) {
            match before {
                Some(before) => frame.copy_from_slice(before),
                None => frame.fill(0),
            }
            tiles.patch(frame).ok_or_else(unfit)?;
            before = Some(frame);
        }
        Ok(())
    }

    /// Decompresses the other columns of all of the chunk's steps.
    pub(crate) fn columns(&mut self, chunk: &Chunk) -> Result<&[u8]> {
        let length = ChunkColumns::bytes(chunk.steps as usize, &self.layout);
        let columns = self.columns.get_mut(..length).ok_or_else(|| damaged(chunk, "too many steps"))?;
        decompress(&mut self.context, chunk, &chunk.columns, columns)?;
        Ok(columns)
    }
}

fn decompress(context: &mut DCtx<'static>, chunk: &Chunk, compressed: &[u8], out: &mut [u8]) -> Result<()> {
    let length = context.decompress(out, compressed).map_err(|code| damaged(chunk, zstd_safe::get_error_name(code)))?;
    if length == out.len() {
        return Ok(());
    }
    Err(damaged(chunk, &format!("decompressed to {length} bytes, expected {}", out.len())))
}

fn damaged(chunk: &Chunk, reason: &str) -> ReplayError {
    ReplayError::CorruptChunk { steps: chunk.steps as usize, reason: reason.to_owned() }
}
