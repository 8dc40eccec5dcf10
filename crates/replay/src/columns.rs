//! The columns of agent steps, declared once for writing, storage, batches and tensors.

use std::ops::RangeInclusive;

use half::f16;
use serde::{Deserialize, Serialize};

use crate::config::Layout;
use crate::error::{ReplayError, Result};

/// Declares [`StepColumns`] from the name and the valid range of each scalar column.
macro_rules! step_columns {
    ($($(#[$doc:meta])* $name:ident in $range:expr;)*) => {
        /// Everything stored of agent steps besides the observations.
        ///
        /// The type parameters are what holds a column: a number for one [`Step`], a vector for a batch, a tensor on a
        /// device.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct StepColumns<Action, Scalar, Embedding> {
            /// a_t, chosen at x_t.
            pub action: Action,
            $($(#[$doc])* pub $name: Scalar,)*
            /// f(x_t).
            pub embedding: Embedding,
        }

        /// Number of scalar columns.
        pub const SCALARS: usize = [$(stringify!($name)),*].len();

        /// The scalar columns in declaration order.
        pub const SCALAR_COLUMNS: [ScalarColumn; SCALARS] =
            [$(ScalarColumn { name: stringify!($name), range: $range }),*];

        impl<Action, Scalar, Embedding> StepColumns<Action, Scalar, Embedding> {
            /// Joins columns, the scalar ones in declaration order.
            pub fn from_parts(action: Action, scalars: [Scalar; SCALARS], embedding: Embedding) -> Self {
                let [$($name),*] = scalars;
                Self { action, $($name,)* embedding }
            }

            /// Returns the scalar columns in declaration order.
            pub fn scalars(&self) -> [&Scalar; SCALARS] {
                [$(&self.$name),*]
            }

            /// Returns all columns to be written, the scalar ones in declaration order.
            pub fn parts_mut(&mut self) -> (&mut Action, [&mut Scalar; SCALARS], &mut Embedding) {
                (&mut self.action, [$(&mut self.$name),*], &mut self.embedding)
            }
        }
    };
}

/// A column of one number per step.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarColumn {
    /// The field of [`StepColumns`].
    pub name: &'static str,
    /// The valid values; excludes NaN and infinities.
    pub range: RangeInclusive<f32>,
}

impl ScalarColumn {
    /// Describes the valid values for error messages.
    pub fn expected(&self) -> &'static str {
        if self.range == FINITE { "a finite number" } else { "a number from 0 to 1" }
    }
}

/// Excludes NaN and infinities.
const FINITE: RangeInclusive<f32> = f32::MIN..=f32::MAX;

step_columns! {
    /// μ(a_t|x_t).
    behaviour_probability in 0.0..=1.0;
    /// The extrinsic reward that a_t led to.
    reward_extrinsic in FINITE;
    /// r_NGU(x_t), credited to a_{t-1}.
    reward_ngu in FINITE;
    /// The RND factor of r_NGU(x_t).
    reward_rnd in FINITE;
    /// The episodic factor of r_NGU(x_t).
    reward_episodic in FINITE;
    /// 0 if a_t ended the game, 1 otherwise.
    discount in 0.0..=1.0;
}

/// One agent step.
pub type Step<'a> = StepColumns<u16, f32, &'a [f16]>;

/// One agent step with its own memory.
pub(crate) type OwnedStep = StepColumns<u16, f32, Box<[f16]>>;

/// The steps of an open chunk.
pub(crate) type ChunkColumns = StepColumns<Vec<u16>, Vec<f32>, Vec<f16>>;

/// The steps of one sequence of a batch.
pub(crate) type StepsMut<'a> = StepColumns<&'a mut [i64], &'a mut [f32], &'a mut [f16]>;

impl<'a> Step<'a> {
    /// The step at an episode's last observation, where no action follows.
    ///
    /// It has r_NGU, its RND and its episodic factor.
    pub fn last([reward_ngu, reward_rnd, reward_episodic]: [f32; 3], embedding: &'a [f16]) -> Self {
        Self { reward_ngu, reward_rnd, reward_episodic, embedding, ..Self::default() }
    }

    /// Refuses values that would poison the learner.
    pub(crate) fn check(&self, layout: &Layout, actor: u32, step: u64) -> Result<()> {
        expect_length("embedding", self.embedding.len(), layout.embedding)?;
        let fail = |column, value, expected| Err(ReplayError::Value { column, value, step, actor, expected });
        for (column, &value) in SCALAR_COLUMNS.iter().zip(self.scalars()) {
            if !column.range.contains(&value) {
                return fail(column.name, value, column.expected());
            }
        }
        match self.embedding.iter().find(|value| !value.is_finite()) {
            Some(value) => fail("embedding", value.to_f32(), "a finite number"),
            None => Ok(()),
        }
    }
}

impl OwnedStep {
    /// The step before an episode's first one: all zero.
    pub(crate) fn zero(layout: &Layout) -> Self {
        Self::from_parts(0, [0.0; SCALARS], vec![f16::ZERO; layout.embedding].into())
    }
}

impl ChunkColumns {
    pub(crate) fn push(&mut self, step: &Step<'_>) {
        let (action, scalars, embedding) = self.parts_mut();
        action.push(step.action);
        scalars.into_iter().zip(step.scalars()).for_each(|(column, &value)| column.push(value));
        embedding.extend_from_slice(step.embedding);
    }

    pub(crate) fn clear(&mut self) {
        let (action, scalars, embedding) = self.parts_mut();
        action.clear();
        scalars.into_iter().for_each(Vec::clear);
        embedding.clear();
    }

    /// Returns the last step; `None` if there is none.
    pub(crate) fn last(&self, layout: &Layout) -> Option<OwnedStep> {
        let embedding = &self.embedding[self.embedding.len().checked_sub(layout.embedding)?..];
        let scalars = self.scalars().map(|column| column.last().copied().unwrap_or_default());
        Some(OwnedStep::from_parts(*self.action.last()?, scalars, embedding.into()))
    }

    /// Bytes that [`write`](Self::write) writes for `steps` steps.
    pub(crate) fn bytes(steps: usize, layout: &Layout) -> usize {
        steps * (size_of::<u16>() + SCALARS * size_of::<f32>() + layout.embedding * size_of::<f16>())
    }

    /// Appends the columns one after another, little-endian: columns that hardly change compress to almost nothing.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.action.iter().flat_map(|value| value.to_le_bytes()));
        for column in self.scalars() {
            out.extend(column.iter().flat_map(|value| value.to_le_bytes()));
        }
        out.extend(self.embedding.iter().flat_map(|value| value.to_le_bytes()));
    }
}

impl StepsMut<'_> {
    /// Writes entry 0: the step before the sequence.
    pub(crate) fn set_first(&mut self, step: &OwnedStep) {
        let (action, scalars, embedding) = self.parts_mut();
        action[0] = i64::from(step.action);
        scalars.into_iter().zip(step.scalars()).for_each(|(column, &value)| column[0] = value);
        embedding[..step.embedding.len()].copy_from_slice(&step.embedding);
    }

    /// Decodes the first `used` of `steps` steps into the entries from `entry` on.
    ///
    /// `bytes` begins with what [`ChunkColumns::write`] wrote.
    pub(crate) fn decode(&mut self, layout: &Layout, entry: usize, used: usize, mut bytes: &[u8], steps: usize) {
        let mut next = |size: usize| {
            let (column, rest) = bytes.split_at(size * steps);
            bytes = rest;
            column
        };
        let (action, scalars, embedding) = self.parts_mut();
        copy(&mut action[entry..entry + used], next(2), |value| i64::from(u16::from_le_bytes(value)));
        for column in scalars {
            copy(&mut column[entry..entry + used], next(4), f32::from_le_bytes);
        }
        let size = layout.embedding;
        copy(&mut embedding[entry * size..(entry + used) * size], next(2 * size), f16::from_le_bytes);
    }

    /// Zeroes everything from `entry` on.
    pub(crate) fn clear_from(&mut self, layout: &Layout, entry: usize) {
        let (action, scalars, embedding) = self.parts_mut();
        action[entry..].fill(0);
        scalars.into_iter().for_each(|column| column[entry..].fill(0.0));
        embedding[entry * layout.embedding..].fill(f16::ZERO);
    }
}

fn copy<T, const N: usize>(to: &mut [T], from: &[u8], value: impl Fn([u8; N]) -> T) {
    for (to, from) in to.iter_mut().zip(from.as_chunks().0) {
        *to = value(*from);
    }
}

pub(crate) fn expect_length(column: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(ReplayError::Length { column, expected, found }) }
}
