//! One item of the replay: consecutive observations of one episode, and what was known when they began.

use std::sync::Arc;

use half::f16;

use crate::accounting::ALLOCATION;
use crate::batch::SequenceMut;
use crate::chunk::{Chunk, Decompressor};
use crate::config::Layout;
use crate::error::Result;
use crate::step::{Columns, SCALARS, Step};

/// The step before a sequence's first observation: what the network is fed with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Before {
    pub(crate) action: u16,
    pub(crate) scalars: [f32; SCALARS],
    pub(crate) embedding: Box<[f16]>,
}

impl Before {
    /// There is none at an episode's start.
    pub(crate) fn nothing(layout: &Layout) -> Self {
        Self { action: 0, scalars: [0.0; SCALARS], embedding: vec![f16::ZERO; layout.embedding].into() }
    }

    pub(crate) fn clear(&mut self) {
        self.action = 0;
        self.scalars = [0.0; SCALARS];
        self.embedding.fill(f16::ZERO);
    }

    pub(crate) fn set(&mut self, step: &Step<'_>) {
        self.action = step.action;
        self.scalars = step.scalars();
        self.embedding.copy_from_slice(step.embedding);
    }
}

/// What was known when a sequence began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Start {
    /// Recurrent state with which its first observation was seen.
    pub(crate) state: Box<[f32]>,
    pub(crate) before: Before,
    /// Version of the parameters that acted.
    pub(crate) parameter_version: u64,
    /// The policy of the family that acted.
    pub(crate) policy: u16,
    pub(crate) actor: u32,
}

/// A sequence of up to `trace` observations, its steps in chunks that it shares with those that overlap it.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) start: Start,
    /// Valid observations.
    pub(crate) length: u32,
    pub(crate) chunks: Box<[Arc<Chunk>]>,
}

impl Sequence {
    /// Bytes of its own, its chunks apart; the recurrent state's are among them.
    pub(crate) fn own_bytes(&self) -> u64 {
        let heap = size_of_val(&*self.start.state)
            + size_of_val(&*self.start.before.embedding)
            + size_of_val(&*self.chunks)
            + size_of::<Self>()
            + 2 * size_of::<usize>();
        heap as u64 + 4 * ALLOCATION
    }

    /// Writes the sequence into a batch, what is past its end as zeros.
    pub(crate) fn decode(&self, layout: &Layout, by: &mut Decompressor, mut out: SequenceMut<'_>) -> Result<()> {
        out.state.copy_from_slice(&self.start.state);
        out.action[0] = i64::from(self.start.before.action);
        for (column, value) in out.scalars.iter_mut().zip(self.start.before.scalars) {
            column[0] = value;
        }
        out.embedding[..layout.embedding].copy_from_slice(&self.start.before.embedding);
        let length = self.length as usize;
        let mut done = 0;
        for chunk in &self.chunks {
            let steps = (chunk.steps as usize).min(length - done);
            let frames = done * layout.observation_bytes..(done + steps) * layout.observation_bytes;
            by.frames(chunk, &mut out.observations[frames])?;
            let (action, scalars, embedding) = Columns::split(by.columns(chunk)?, chunk.steps as usize);
            for (to, from) in out.action[done + 1..].iter_mut().zip(action.as_chunks().0).take(steps) {
                *to = i64::from(u16::from_le_bytes(*from));
            }
            for (to, from) in out.scalars.iter_mut().zip(scalars) {
                for (to, from) in to[done + 1..].iter_mut().zip(from.as_chunks().0).take(steps) {
                    *to = f32::from_le_bytes(*from);
                }
            }
            let embeddings = &mut out.embedding[(done + 1) * layout.embedding..];
            for (to, from) in embeddings.iter_mut().zip(embedding.as_chunks().0).take(steps * layout.embedding) {
                *to = f16::from_le_bytes(*from);
            }
            done += steps;
        }
        out.observations[length * layout.observation_bytes..].fill(0);
        out.action[length + 1..].fill(0);
        out.scalars.iter_mut().for_each(|column| column[length + 1..].fill(0.0));
        out.embedding[(length + 1) * layout.embedding..].fill(f16::ZERO);
        Ok(())
    }
}
