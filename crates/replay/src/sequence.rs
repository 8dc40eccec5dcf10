//! One item of the replay: consecutive observations of one episode.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::accounting::ALLOCATION;
use crate::batch::SequencePart;
use crate::chunk::{Chunk, Decompressor};
use crate::columns::OwnedStep;
use crate::config::Layout;
use crate::error::Result;

/// Up to `trace` observations, stored in chunks that overlapping sequences share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sequence {
    pub(crate) actor: u32,
    pub(crate) policy: u16,
    /// Version of the parameters that acted at the first observation.
    pub(crate) parameter_version: u64,
    /// The step before the first observation, which the network is fed with it.
    pub(crate) before: OwnedStep,
    /// The recurrent state before the first observation.
    pub(crate) state: Box<[f32]>,
    /// Valid observations; 0 while the sequence is open.
    pub(crate) length: u32,
    #[serde(skip)]
    pub(crate) chunks: Vec<Arc<Chunk>>,
}

impl Sequence {
    /// Heap bytes without those of the chunks.
    pub(crate) fn own_bytes(&self) -> u64 {
        let heap = size_of_val(&*self.state)
            + size_of_val(&*self.before.embedding)
            + self.chunks.capacity() * size_of::<Arc<Chunk>>()
            + size_of::<Self>()
            + 2 * size_of::<usize>();
        heap as u64 + 4 * ALLOCATION
    }

    /// Decodes the sequence into its part of a batch, with zeros past its end.
    pub(crate) fn decode(&self, layout: &Layout, by: &mut Decompressor, part: SequencePart<'_>) -> Result<()> {
        let SequencePart { observations, mut steps, state } = part;
        state.copy_from_slice(&self.state);
        steps.set_first(&self.before);
        let (length, size) = (self.length as usize, layout.observation_bytes);
        let mut done = 0;
        for chunk in &self.chunks {
            let used = (chunk.steps as usize).min(length - done);
            by.frames(chunk, &mut observations[done * size..(done + used) * size])?;
            steps.decode(layout, done + 1, used, by.columns(chunk)?, chunk.steps as usize);
            done += used;
        }
        observations[length * size..].fill(0);
        steps.clear_from(layout, length + 1);
        Ok(())
    }
}
