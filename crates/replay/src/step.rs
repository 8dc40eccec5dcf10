//! What is stored of one agent step besides its observation.

use half::f16;

use crate::config::Layout;
use crate::error::{ReplayError, Result};

/// Numbers of a step that are stored as `f32`, in the order in which they are stored.
pub(crate) const SCALARS: usize = 6;

/// One agent step: what was decided at x_t, and what it led to.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// a_t, chosen at x_t.
    pub action: u16,
    /// mu(a_t|x_t).
    pub behaviour_probability: f32,
    /// The extrinsic reward that a_t led to.
    pub reward_extrinsic: f32,
    /// r_NGU(x_t), credited to a_{t-1}.
    pub reward_ngu: f32,
    /// The RND part of r_NGU(x_t).
    pub reward_rnd: f32,
    /// The episodic part of r_NGU(x_t).
    pub reward_episodic: f32,
    /// 0 where a_t ended the game, else 1.
    pub discount: f32,
    /// f(x_t).
    pub embedding: &'a [f16],
}

/// What is known of an episode's last observation: no action follows it, it only bootstraps.
#[derive(Clone, Copy, Debug)]
pub struct LastStep<'a> {
    /// r_NGU of the observation, credited to the action before it.
    pub reward_ngu: f32,
    /// Its RND part.
    pub reward_rnd: f32,
    /// Its episodic part.
    pub reward_episodic: f32,
    /// f of the observation.
    pub embedding: &'a [f16],
}

impl<'a> LastStep<'a> {
    pub(crate) fn as_step(&self) -> Step<'a> {
        Step {
            action: 0,
            behaviour_probability: 0.0,
            reward_extrinsic: 0.0,
            reward_ngu: self.reward_ngu,
            reward_rnd: self.reward_rnd,
            reward_episodic: self.reward_episodic,
            discount: 0.0,
            embedding: self.embedding,
        }
    }
}

impl Step<'_> {
    pub(crate) fn scalars(&self) -> [f32; SCALARS] {
        [
            self.behaviour_probability,
            self.reward_extrinsic,
            self.reward_ngu,
            self.reward_rnd,
            self.reward_episodic,
            self.discount,
        ]
    }

    /// Refuses numbers that would poison what is learned from them.
    pub(crate) fn check(&self, layout: &Layout, actor: u32, step: u64) -> Result<()> {
        const NAMES: [&str; SCALARS] = [
            "the behaviour probability",
            "the extrinsic reward",
            "the NGU reward",
            "the RND reward",
            "the episodic reward",
            "the discount",
        ];
        expect_length("the embedding", self.embedding, layout.embedding)?;
        for (what, value) in NAMES.into_iter().zip(self.scalars()) {
            let bounded = what == NAMES[0] || what == NAMES[SCALARS - 1];
            if !value.is_finite() {
                return Err(ReplayError::Value { what, value, step, actor, rule: "it must be finite" });
            }
            if bounded && !(0.0..=1.0).contains(&value) {
                return Err(ReplayError::Value { what, value, step, actor, rule: "it must be 0 to 1" });
            }
        }
        if let Some(value) = self.embedding.iter().find(|value| !value.is_finite()) {
            let (what, rule) = ("a value of the embedding", "it must be finite in f16, within -65504 to 65504");
            return Err(ReplayError::Value { what, value: value.to_f32(), step, actor, rule });
        }
        Ok(())
    }
}

pub(crate) fn expect_length<T>(what: &'static str, slice: &[T], expected: usize) -> Result<()> {
    if slice.len() == expected {
        return Ok(());
    }
    Err(ReplayError::Length { what, expected, got: slice.len() })
}

/// The steps of a chunk, one column a number, so that columns that hardly change compress to nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) action: Vec<u16>,
    pub(crate) scalars: [Vec<f32>; SCALARS],
    pub(crate) embedding: Vec<f16>,
}

impl Columns {
    pub(crate) fn push(&mut self, step: &Step<'_>) {
        self.action.push(step.action);
        for (column, value) in self.scalars.iter_mut().zip(step.scalars()) {
            column.push(value);
        }
        self.embedding.extend_from_slice(step.embedding);
    }

    pub(crate) fn clear(&mut self) {
        self.action.clear();
        self.scalars.iter_mut().for_each(Vec::clear);
        self.embedding.clear();
    }

    /// Bytes of `steps` steps as [`write`](Self::write) writes them.
    pub(crate) fn bytes(steps: usize, embedding: usize) -> usize {
        steps * (2 + 4 * SCALARS + 2 * embedding)
    }

    /// The columns one after the other, little-endian.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.action.iter().flat_map(|value| value.to_le_bytes()));
        for column in &self.scalars {
            out.extend(column.iter().flat_map(|value| value.to_le_bytes()));
        }
        out.extend(self.embedding.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// The columns of `steps` steps out of bytes that [`write`](Self::write) wrote: actions, numbers, embeddings.
    pub(crate) fn split(bytes: &[u8], steps: usize) -> (&[u8], [&[u8]; SCALARS], &[u8]) {
        let (action, rest) = bytes.split_at(2 * steps);
        let (scalars, embedding) = rest.split_at(4 * steps * SCALARS);
        (action, std::array::from_fn(|column| &scalars[4 * steps * column..4 * steps * (column + 1)]), embedding)
    }
}
