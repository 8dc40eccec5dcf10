//! A batch of sequences in plain arrays, batch-major.

use half::f16;

use crate::columns::{SCALAR_COLUMNS, StepColumns, StepsMut};
use crate::config::Layout;
use crate::shard::Key;

/// B sequences of up to T observations.
///
/// Entry 0 of a column of steps is the step before the sequence's first observation (all zero at the start of an
/// episode), entry t + 1 belongs to observation t. So the network is fed entries `0..T`, and entries `1..=T` are what
/// happened. Everything past a sequence's length is zero. The last observation only bootstraps: nothing but its
/// intrinsic rewards may be learned from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceBatch {
    /// T.
    pub trace: usize,
    /// `[B][T][observation_bytes]`; empty if the observations are kept elsewhere.
    pub observations: Vec<u8>,
    /// `[B][T + 1]`, embeddings `[B][T + 1][embedding]`.
    pub steps: StepColumns<Vec<i64>, Vec<f32>, Vec<f16>>,
    /// `[B][state]`: the recurrent state before the first observation, h then c.
    pub state: Vec<f32>,
    /// `[B]`: everything stored once per sequence.
    pub sequences: Vec<SampledSequence>,
}

/// The part of a sampled sequence that exists once, whatever its length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledSequence {
    /// Valid observations, 2 to T.
    pub length: usize,
    /// The policy that acted.
    pub policy: usize,
    /// Importance weight, at most 1.
    pub importance_weight: f32,
    /// The actor that wrote the sequence.
    pub actor: u32,
    /// Version of the parameters that acted at its start.
    pub parameter_version: u64,
    /// Sequences inserted into the same shard since.
    pub age: u64,
    /// Names the sequence when its new priority is sent back.
    pub key: Key,
}

impl SequenceBatch {
    /// Allocates room for `size` sequences.
    pub fn new(layout: &Layout, size: usize) -> Self {
        let observations = vec![0; size * layout.trace * layout.observation_bytes];
        Self { observations, ..Self::without_observations(layout, size) }
    }

    /// Allocates room for `size` sequences, but not for their observations.
    pub fn without_observations(layout: &Layout, size: usize) -> Self {
        let entries = size * (layout.trace + 1);
        Self {
            trace: layout.trace,
            observations: Vec::new(),
            steps: StepColumns::from_parts(
                vec![0; entries],
                std::array::from_fn(|_| vec![0.0; entries]),
                vec![f16::ZERO; entries * layout.embedding],
            ),
            state: vec![0.0; size * layout.state],
            sequences: vec![SampledSequence::default(); size],
        }
    }

    /// Returns the keys of all sequences.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key> {
        self.sequences.iter().map(|sequence| sequence.key)
    }

    /// Returns name, length and expected length of each column but the observations.
    pub fn lengths(&self, embedding: usize, state: usize) -> impl Iterator<Item = (&'static str, usize, usize)> {
        let size = self.sequences.len();
        let entries = size * (self.trace + 1);
        let scalars = SCALAR_COLUMNS.into_iter().zip(self.steps.scalars());
        let others = [
            ("action", self.steps.action.len(), entries),
            ("embedding", self.steps.embedding.len(), entries * embedding),
            ("state", self.state.len(), size * state),
        ];
        scalars.map(move |(column, values)| (column.name, values.len(), entries)).chain(others)
    }

    /// Splits the batch by sequence; its observations are elsewhere. The lengths have been checked.
    pub(crate) fn split<'a>(&'a mut self, layout: &'a Layout, observations: &'a mut [u8]) -> SequenceParts<'a> {
        let (action, scalars, embedding) = self.steps.parts_mut();
        let steps = StepColumns::from_parts(&mut action[..], scalars.map(Vec::as_mut_slice), &mut embedding[..]);
        SequenceParts { layout, rest: SequencePart { observations, steps, state: &mut self.state } }
    }
}

/// One sequence's part of the large columns.
pub(crate) struct SequencePart<'a> {
    pub(crate) observations: &'a mut [u8],
    pub(crate) steps: StepsMut<'a>,
    pub(crate) state: &'a mut [f32],
}

/// The parts of a batch, sequence by sequence.
pub(crate) struct SequenceParts<'a> {
    layout: &'a Layout,
    rest: SequencePart<'a>,
}

impl<'a> Iterator for SequenceParts<'a> {
    type Item = SequencePart<'a>;

    fn next(&mut self) -> Option<SequencePart<'a>> {
        let Layout { observation_bytes, embedding, state, trace, .. } = *self.layout;
        if self.rest.steps.action.is_empty() {
            return None;
        }
        let (actions, scalars, embeddings) = self.rest.steps.parts_mut();
        Some(SequencePart {
            observations: take(&mut self.rest.observations, trace * observation_bytes),
            steps: StepColumns::from_parts(
                take(actions, trace + 1),
                scalars.map(|column| take(column, trace + 1)),
                take(embeddings, (trace + 1) * embedding),
            ),
            state: take(&mut self.rest.state, state),
        })
    }
}

/// Splits the first `n` elements off a slice.
fn take<'a, T>(slice: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    slice.split_off_mut(..n).unwrap_or_default()
}
