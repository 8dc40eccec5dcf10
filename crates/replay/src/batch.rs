//! The batch that the learner gets: plain arrays, batch-major.
//!
//! With B sequences, T = trace, E = embedding and S = state: observations are `[B][T][observation_bytes]`; the arrays
//! of steps are `[B][T + 1]`, where entry 0 is the step before the sequence's first observation (zeros at an episode's
//! start) and entry t + 1 belongs to observation t. So entries `0..T` are what the network is fed, entries `1..=T`
//! what happened. Past a sequence's length everything is zero. Its last observation only bootstraps: what was decided
//! there is not to be learned from.

use half::f16;

use crate::config::Layout;
use crate::error::Result;
use crate::shard::Key;
use crate::step::{SCALARS, expect_length};

/// Where a batch is to be written: the caller's memory.
#[derive(Debug)]
pub struct BatchMut<'a> {
    /// `[B][T][observation_bytes]`.
    pub observations: &'a mut [u8],
    /// `[B][T + 1]`: a_t.
    pub action: &'a mut [i64],
    /// `[B][T + 1]`: mu(a_t|x_t).
    pub behaviour_probability: &'a mut [f32],
    /// `[B][T + 1]`: the reward that a_t led to.
    pub reward_extrinsic: &'a mut [f32],
    /// `[B][T + 1]`: r_NGU(x_t).
    pub reward_ngu: &'a mut [f32],
    /// `[B][T + 1]`: its RND part.
    pub reward_rnd: &'a mut [f32],
    /// `[B][T + 1]`: its episodic part.
    pub reward_episodic: &'a mut [f32],
    /// `[B][T + 1]`: 0 where a_t ended the game, else 1.
    pub discount: &'a mut [f32],
    /// `[B][T + 1][E]`: f(x_t).
    pub embedding: &'a mut [f16],
    /// `[B][S]`: the recurrent state at the sequence's start.
    pub state: &'a mut [f32],
    /// `[B]`: valid observations, 2 to T.
    pub length: &'a mut [i64],
    /// `[B]`: the policy that acted.
    pub policy: &'a mut [i64],
    /// `[B]`: the actor that wrote the sequence.
    pub actor: &'a mut [u32],
    /// `[B]`: the version of the parameters that acted at its start.
    pub parameter_version: &'a mut [u64],
    /// `[B]`: sequences inserted into the same shard since.
    pub age: &'a mut [u64],
    /// `[B]`: importance weight, at most 1.
    pub importance_weight: &'a mut [f32],
    /// `[B]`: to send priorities back with.
    pub keys: &'a mut [Key],
}

impl BatchMut<'_> {
    /// Number of sequences.
    pub(crate) fn size(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn check(&self, layout: &Layout) -> Result<()> {
        let size = self.size();
        let steps = size * (layout.trace + 1);
        expect_length("observations", self.observations, size * layout.trace * layout.observation_bytes)?;
        expect_length("action", self.action, steps)?;
        expect_length("behaviour_probability", self.behaviour_probability, steps)?;
        expect_length("reward_extrinsic", self.reward_extrinsic, steps)?;
        expect_length("reward_ngu", self.reward_ngu, steps)?;
        expect_length("reward_rnd", self.reward_rnd, steps)?;
        expect_length("reward_episodic", self.reward_episodic, steps)?;
        expect_length("discount", self.discount, steps)?;
        expect_length("embedding", self.embedding, steps * layout.embedding)?;
        expect_length("state", self.state, size * layout.state)?;
        expect_length("length", self.length, size)?;
        expect_length("policy", self.policy, size)?;
        expect_length("actor", self.actor, size)?;
        expect_length("parameter_version", self.parameter_version, size)?;
        expect_length("age", self.age, size)?;
        expect_length("importance_weight", self.importance_weight, size)
    }
}

/// A batch with memory of its own.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of BatchMut")]
pub struct Batch {
    pub observations: Vec<u8>,
    pub action: Vec<i64>,
    pub behaviour_probability: Vec<f32>,
    pub reward_extrinsic: Vec<f32>,
    pub reward_ngu: Vec<f32>,
    pub reward_rnd: Vec<f32>,
    pub reward_episodic: Vec<f32>,
    pub discount: Vec<f32>,
    pub embedding: Vec<f16>,
    pub state: Vec<f32>,
    pub length: Vec<i64>,
    pub policy: Vec<i64>,
    pub actor: Vec<u32>,
    pub parameter_version: Vec<u64>,
    pub age: Vec<u64>,
    pub importance_weight: Vec<f32>,
    pub keys: Vec<Key>,
}

impl Batch {
    /// Room for `size` sequences.
    pub fn new(layout: &Layout, size: usize) -> Self {
        let steps = size * (layout.trace + 1);
        Self {
            observations: vec![0; size * layout.trace * layout.observation_bytes],
            action: vec![0; steps],
            behaviour_probability: vec![0.0; steps],
            reward_extrinsic: vec![0.0; steps],
            reward_ngu: vec![0.0; steps],
            reward_rnd: vec![0.0; steps],
            reward_episodic: vec![0.0; steps],
            discount: vec![0.0; steps],
            embedding: vec![f16::ZERO; steps * layout.embedding],
            state: vec![0.0; size * layout.state],
            length: vec![0; size],
            policy: vec![0; size],
            actor: vec![0; size],
            parameter_version: vec![0; size],
            age: vec![0; size],
            importance_weight: vec![0.0; size],
            keys: vec![Key::default(); size],
        }
    }

    /// The same without memory for the observations, which the caller has.
    pub fn without_observations(layout: &Layout, size: usize) -> Self {
        Self::new(&Layout { observation_bytes: 0, ..*layout }, size)
    }

    /// The batch as memory to sample into.
    pub fn as_mut(&mut self) -> BatchMut<'_> {
        BatchMut {
            observations: &mut self.observations,
            action: &mut self.action,
            behaviour_probability: &mut self.behaviour_probability,
            reward_extrinsic: &mut self.reward_extrinsic,
            reward_ngu: &mut self.reward_ngu,
            reward_rnd: &mut self.reward_rnd,
            reward_episodic: &mut self.reward_episodic,
            discount: &mut self.discount,
            embedding: &mut self.embedding,
            state: &mut self.state,
            length: &mut self.length,
            policy: &mut self.policy,
            actor: &mut self.actor,
            parameter_version: &mut self.parameter_version,
            age: &mut self.age,
            importance_weight: &mut self.importance_weight,
            keys: &mut self.keys,
        }
    }

    /// The same with other memory for the observations.
    pub fn as_mut_with<'a>(&'a mut self, observations: &'a mut [u8]) -> BatchMut<'a> {
        BatchMut { observations, ..self.as_mut() }
    }
}

/// One sequence's part of the large arrays of a batch; `scalars` in the order of
/// [`Step::scalars`](crate::step::Step::scalars).
pub(crate) struct SequenceMut<'a> {
    pub(crate) observations: &'a mut [u8],
    pub(crate) action: &'a mut [i64],
    pub(crate) scalars: [&'a mut [f32]; SCALARS],
    pub(crate) embedding: &'a mut [f16],
    pub(crate) state: &'a mut [f32],
}

/// Takes the large arrays of a batch apart, sequence by sequence.
pub(crate) struct Sequences<'a> {
    layout: Layout,
    rest: SequenceMut<'a>,
}

impl<'a> Sequences<'a> {
    pub(crate) fn new(layout: Layout, batch: BatchMut<'a>) -> Self {
        let rest = SequenceMut {
            observations: batch.observations,
            action: batch.action,
            scalars: [
                batch.behaviour_probability,
                batch.reward_extrinsic,
                batch.reward_ngu,
                batch.reward_rnd,
                batch.reward_episodic,
                batch.discount,
            ],
            embedding: batch.embedding,
            state: batch.state,
        };
        Self { layout, rest }
    }
}

impl<'a> Iterator for Sequences<'a> {
    type Item = SequenceMut<'a>;

    fn next(&mut self) -> Option<SequenceMut<'a>> {
        let Layout { observation_bytes, embedding, state, trace, .. } = self.layout;
        if self.rest.action.is_empty() {
            return None;
        }
        Some(SequenceMut {
            observations: take(&mut self.rest.observations, trace * observation_bytes),
            action: take(&mut self.rest.action, trace + 1),
            scalars: self.rest.scalars.each_mut().map(|column| take(column, trace + 1)),
            embedding: take(&mut self.rest.embedding, (trace + 1) * embedding),
            state: take(&mut self.rest.state, state),
        })
    }
}

/// Splits the first `n` elements off a slice whose length [`BatchMut::check`] has checked.
fn take<'a, T>(slice: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    let (first, rest) = std::mem::take(slice).split_at_mut(n);
    *slice = rest;
    first
}
