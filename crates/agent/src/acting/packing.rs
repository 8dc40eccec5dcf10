//! All that a step is fed, in one piece of the GPU's memory.

use std::ops::Range;

use tch::{Kind, Tensor};
use torch_ext::upload::{Outbox, Piece};

use super::{ActingRow, RecurrentStates};
use crate::error::Result;
use crate::math::rescaling::rescale_f32;
use crate::networks::Networks;
use crate::observation::ObservationKind;

/// Parts begin at multiples of this many bytes, so that kernels may read them in wide words.
const ALIGNMENT: usize = 256;

/// Where the parts of a step's input lie, in bytes. The observations come last and are sent by themselves, those of
/// unused rows not at all.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    /// Rows that there is room for.
    pub rows: usize,
    /// Rows of the state table, i64: where the state before the step is.
    from: Range<usize>,
    /// The same, i64: where the state after the step goes.
    to: Range<usize>,
    policy: Range<usize>,
    /// The action one-hot, the rescaled rewards and the embedding, f32.
    features: Range<usize>,
    observations: Range<usize>,
    actions: usize,
    observation_bytes: usize,
    observation_kind: Kind,
}

/// The parts as tensors.
#[derive(Debug)]
pub(super) struct Unpacked {
    /// `[rows]`, i64.
    pub from: Tensor,
    /// `[rows]`, i64.
    pub to: Tensor,
    /// `[rows]`, i64.
    pub policy: Tensor,
    /// `[rows, ..]`, f32.
    pub features: Tensor,
    /// `[rows, values]`.
    pub observations: Tensor,
}

impl Packing {
    /// For so many rows.
    pub fn new(networks: &Networks, rows: usize) -> Self {
        let mut end = 0usize;
        let mut part = |bytes: usize| {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + rows * bytes;
            start..end
        };
        let spec = networks.input().spec();
        let features = networks.actions() + PREVIOUS_REWARDS + networks.embedding_length();
        Self {
            rows,
            from: part(size_of::<i64>()),
            to: part(size_of::<i64>()),
            policy: part(size_of::<i64>()),
            features: part(features * size_of::<f32>()),
            observations: part(spec.bytes()),
            actions: networks.actions(),
            observation_bytes: spec.bytes(),
            observation_kind: match spec.kind {
                ObservationKind::U8 => Kind::Uint8,
                ObservationKind::F32 => Kind::Float,
            },
        }
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> usize {
        self.observations.end
    }

    /// Where everything but the observations lies.
    pub fn facts(&self) -> Range<usize> {
        0..self.features.end
    }

    /// Where the observations of the first `rows` rows lie.
    pub fn observations(&self, rows: usize) -> Range<usize> {
        self.observations.start..self.observations.start + rows * self.observation_bytes
    }

    /// The parts of `bytes`, a tensor of so many.
    pub fn unpack(&self, bytes: &Tensor) -> Result<Unpacked> {
        let rows = self.rows as i64;
        let part = |range: &Range<usize>, kind: Kind| -> Result<Tensor> {
            let part = bytes.f_narrow(0, range.start as i64, range.len() as i64)?;
            Ok(part.f_view_dtype(kind)?.f_view([rows, -1])?)
        };
        let flat = |range: &Range<usize>| -> Result<Tensor> { Ok(part(range, Kind::Int64)?.f_view([rows])?) };
        Ok(Unpacked {
            from: flat(&self.from)?,
            to: flat(&self.to)?,
            policy: flat(&self.policy)?,
            features: part(&self.features, Kind::Float)?,
            observations: part(&self.observations, self.observation_kind)?,
        })
    }

    /// Where the rows' observations are to be taken from: their own places or, for those whose places a GPU can't read,
    /// the outbox, to which they are copied.
    pub fn gather<'a>(&self, rows: &[ActingRow<'a>], outbox: &mut Outbox) -> Result<Vec<Piece<'a>>> {
        let mut end = 0;
        let piece = |row: &ActingRow<'a>| match row.observation.piece() {
            Some(piece) => Ok(piece),
            None => {
                let range = end..end + self.observation_bytes;
                end = range.end;
                outbox.fill()?[range.clone()].copy_from_slice(&row.observation);
                Ok(Piece::Own(range))
            }
        };
        rows.iter().map(piece).collect()
    }

    /// Writes everything but the observations of the rows to `bytes`, and after them rows that read zeros and write to
    /// nobody's state.
    pub fn pack(&self, rows: &[ActingRow<'_>], states: &RecurrentStates, bytes: &mut [u8]) {
        let mut features = Vec::with_capacity(self.features.len() / size_of::<f32>());
        let mut places = [vec![], vec![], vec![]];
        let mut add = |from: usize, to: usize, policy: usize| {
            for (list, value) in places.iter_mut().zip([from, to, policy]) {
                list.push(value as i64);
            }
        };
        for row in rows {
            add(if row.first { states.zero_row() } else { row.environment }, row.environment, row.policy);
            features.extend((0..self.actions).map(|action| if action as i64 == row.action { 1.0 } else { 0.0 }));
            features.extend(row.rewards.in_order().map(rescale_f32));
            features.extend(row.embedding.iter().map(|value| value.to_f32()));
        }
        for _ in rows.len()..self.rows {
            add(states.zero_row(), states.scratch_row(), 0);
        }
        for (range, values) in [&self.from, &self.to, &self.policy].into_iter().zip(&places) {
            for (to, value) in bytes[range.clone()].chunks_exact_mut(size_of::<i64>()).zip(values) {
                to.copy_from_slice(&value.to_ne_bytes());
            }
        }
        for (to, value) in bytes[self.features.clone()].chunks_exact_mut(size_of::<f32>()).zip(&features) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

/// Number of rewards among the features.
const PREVIOUS_REWARDS: usize = crate::nets::features::REWARDS as usize;
