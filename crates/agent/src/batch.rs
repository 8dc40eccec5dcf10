//! A batch of sequences from replay: checked, and as tensors on a device.

use std::borrow::Cow;
use std::ops::Range;

use replay::{SCALAR_COLUMNS, SampledSequence, SequenceBatch};
use tch::kind::Element;
use tch::{Device, Kind, Tensor};

use crate::error::{AgentError, Result};
use crate::nets::agent_net::NetInput;
use crate::nets::features::FeatureInput;
use crate::observation::ObservationInput;

/// The sizes a batch has to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Number of actions.
    pub actions: usize,
    /// Number of policies.
    pub policies: usize,
    /// Length of f(x).
    pub embedding: usize,
    /// Length of the recurrent state.
    pub state: usize,
    /// Last steps of each sequence that action prediction and RND train on.
    pub intrinsic_steps: usize,
    /// First steps of a sequence that only bring its recurrent state up to date.
    pub burn_in: usize,
}

/// The last observations of every sequence, for the networks behind the intrinsic reward.
#[derive(Debug)]
pub struct RecentSteps {
    /// Indices of the frames in the batch, `[B · (K+1)]`, oldest first.
    ///
    /// A sequence's first frame stands in for those before it.
    pub frames: Tensor,
    /// Whether observation k and the one before it are real, f32 `[B, K]`.
    pub transitions: Tensor,
    /// Whether observations 1..=K are real, f32 `[B, K]`.
    pub observations: Tensor,
    /// The action between observations k and k+1, `[B · K]`.
    pub actions: Tensor,
}

/// A batch on the device.
#[derive(Debug)]
pub struct BatchTensors {
    /// Input of the network.
    pub input: NetInput,
    /// a_t, `[B, T]`.
    pub action: Tensor,
    /// μ(a_t|x_t), `[B, T]`; 1 past the last action.
    pub behaviour_probability: Tensor,
    /// r_e,t, `[B, T]`.
    pub reward_extrinsic: Tensor,
    /// r_NGU(x_{t+1}), `[B, T]`.
    pub reward_ngu: Tensor,
    /// d_t, `[B, T]`.
    pub discount: Tensor,
    /// 1 where step t is followed by a valid observation and is past the burn-in, f32 `[B, T]`.
    pub valid: Tensor,
    /// Number of valid steps of each sequence, f32 `[B]`.
    pub steps: Tensor,
    /// Number of valid steps of the batch.
    pub total_steps: f64,
    /// First steps that no gradient reaches through the recurrent state.
    pub burn_in: i64,
    /// The policy that acted, `[B]`.
    pub policy: Tensor,
    /// Importance weight, f32 `[B]`.
    pub weight: Tensor,
    /// Training data of action prediction and RND.
    pub recent: RecentSteps,
}

impl BatchTensors {
    /// Number of valid steps of the batch, on the device: one f64.
    pub fn steps_in_all(&self) -> Result<Tensor> {
        Ok(self.steps.f_sum(Kind::Double)?)
    }

    /// Allocates memory for batches of the same size.
    pub(crate) fn empty_like(&self) -> Result<Self> {
        self.map(|tensor| Ok(tensor.f_empty_like()?))
    }

    /// Copies another batch of the same size into the memory of this one.
    pub(crate) fn copy_from(&mut self, other: &Self) -> Result<()> {
        torch_ext::copy_all(self.all()?.iter_mut().zip(&other.all()?).collect())?;
        self.total_steps = other.total_steps;
        Ok(())
    }

    /// Returns every tensor of the batch, sharing its memory.
    pub(crate) fn all(&self) -> Result<Vec<Tensor>> {
        let mut all = Vec::new();
        self.map(|tensor| {
            all.push(tensor.shallow_clone());
            Ok(tensor.shallow_clone())
        })?;
        Ok(all)
    }

    /// Makes a batch of what `tensor` makes of each tensor.
    fn map(&self, mut tensor: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let NetInput { observations, features, state, policy } = &self.input;
        let features = FeatureInput {
            action: tensor(&features.action)?,
            rewards: tensor(&features.rewards)?,
            embedding: tensor(&features.embedding)?,
        };
        Ok(Self {
            input: NetInput {
                observations: tensor(observations)?,
                features,
                state: tensor(state)?,
                policy: tensor(policy)?,
            },
            action: tensor(&self.action)?,
            behaviour_probability: tensor(&self.behaviour_probability)?,
            reward_extrinsic: tensor(&self.reward_extrinsic)?,
            reward_ngu: tensor(&self.reward_ngu)?,
            discount: tensor(&self.discount)?,
            valid: tensor(&self.valid)?,
            steps: tensor(&self.steps)?,
            total_steps: self.total_steps,
            burn_in: self.burn_in,
            policy: tensor(&self.policy)?,
            weight: tensor(&self.weight)?,
            recent: RecentSteps {
                frames: tensor(&self.recent.frames)?,
                transitions: tensor(&self.recent.transitions)?,
                observations: tensor(&self.recent.observations)?,
                actions: tensor(&self.recent.actions)?,
            },
        })
    }

    /// Copies a batch that has passed [`check`] to the device.
    ///
    /// What must not be read becomes zero.
    pub fn upload(
        batch: &SequenceBatch,
        observations: &[u8],
        input: &ObservationInput,
        shape: &BatchShape,
        device: Device,
    ) -> Result<Self> {
        let observations = without_padding(batch, observations, input);
        let observations = input.upload(&observations, batch.sequences.len() * batch.trace, device)?;
        Self::with_observations(batch, observations, shape, device)
    }

    /// Like [`upload`](Self::upload), with observations that are on the device already, `[B · T, values]`.
    pub(crate) fn with_observations(
        batch: &SequenceBatch,
        observations: Tensor,
        shape: &BatchShape,
        device: Device,
    ) -> Result<Self> {
        let (sequences, frames) = (batch.sequences.len() as i64, (batch.sequences.len() * batch.trace) as i64);
        let columns = ColumnUpload { batch, device };
        let steps = &batch.steps;
        let rewards = [&steps.reward_extrinsic, &steps.reward_ngu, &steps.reward_rnd, &steps.reward_episodic];
        let rewards = rewards.map(|column| columns.upload(column, |length| 0..length, 0.0));
        let rewards = rewards.into_iter().collect::<Result<Vec<_>>>()?;
        let features = FeatureInput {
            action: columns.upload(&steps.action, |length| 0..length, 0)?.f_view([-1])?,
            rewards: Tensor::f_stack(&rewards, -1)?.f_view([frames, -1])?,
            embedding: columns
                .upload(&steps.embedding, |length| 0..length, half::f16::ZERO)?
                .f_view([frames, shape.embedding as i64])?
                .f_to_kind(Kind::Float)?,
        };
        let state = Tensor::f_from_slice(&batch.state)?.f_view([sequences, shape.state as i64])?;
        let happened = |column: &[f32], rest| columns.upload(column, |length| 1..length, rest);
        let policy = columns.of_sequences(|sequence| sequence.policy as i64)?;
        let skipped = burn_ins(batch, shape);
        let mut valid = vec![1.0; steps.discount.len()];
        for (i, &skipped) in skipped.iter().enumerate() {
            valid[i * (batch.trace + 1) + 1..][..skipped].fill(0.0);
        }
        let lengths = batch.sequences.iter().zip(&skipped);
        let lengths: Vec<f32> = lengths.map(|(sequence, skipped)| (sequence.length - 1 - skipped) as f32).collect();
        Ok(Self {
            input: NetInput {
                observations,
                features,
                state: state.f_to_device(device)?,
                policy: policy.shallow_clone(),
            },
            action: columns.upload(&steps.action, |length| 1..length, 0)?,
            behaviour_probability: happened(&steps.behaviour_probability, 1.0)?,
            reward_extrinsic: happened(&steps.reward_extrinsic, 0.0)?,
            reward_ngu: columns.upload(&steps.reward_ngu, |length| 2..length + 1, 0.0)?,
            discount: happened(&steps.discount, 0.0)?,
            valid: happened(&valid, 0.0)?,
            total_steps: lengths.iter().map(|&steps| f64::from(steps)).sum(),
            steps: Tensor::f_from_slice(&lengths)?.f_to_device(device)?,
            burn_in: shape.burn_in as i64,
            policy,
            weight: columns.of_sequences(|sequence| sequence.importance_weight)?,
            recent: columns.recent(shape.intrinsic_steps)?,
        })
    }
}

/// The first steps of each sequence that carry no loss. A sequence that starts an episode has none: its recurrent state is
/// exactly zero with any parameters.
fn burn_ins(batch: &SequenceBatch, shape: &BatchShape) -> Vec<usize> {
    let burn_in = |(i, sequence): (usize, &SampledSequence)| {
        let starts_episode = batch.state[i * shape.state..][..shape.state].iter().all(|&x| x == 0.0);
        // The last step always carries loss.
        if starts_episode { 0 } else { shape.burn_in.min(sequence.length.saturating_sub(2)) }
    };
    batch.sequences.iter().enumerate().map(burn_in).collect()
}

/// Copies columns of a batch to a device.
struct ColumnUpload<'a> {
    batch: &'a SequenceBatch,
    device: Device,
}

impl ColumnUpload<'_> {
    /// Uploads the `entries` that a sequence of a length has, then `rest`: `[B, T]`, or `[B, T, values per entry]`.
    fn upload<T: Element + Copy>(&self, column: &[T], entries: fn(usize) -> Range<usize>, rest: T) -> Result<Tensor> {
        let (sequences, trace) = (self.batch.sequences.len(), self.batch.trace);
        let size = column.len() / (sequences * (trace + 1));
        let mut rows = vec![rest; sequences * trace * size];
        for (i, sequence) in self.batch.sequences.iter().enumerate() {
            let Range { start, end } = entries(sequence.length);
            let (from, to) = (i * (trace + 1), i * trace);
            let values = &column[(from + start) * size..(from + end) * size];
            rows[to * size..][..values.len()].copy_from_slice(values);
        }
        let size = [sequences as i64, trace as i64, size as i64];
        let size = if size[2] == 1 { &size[..2] } else { &size };
        Ok(Tensor::f_from_slice(&rows)?.f_view(size)?.f_to_device(self.device)?)
    }

    /// Uploads one value per sequence, `[B]`.
    fn of_sequences<T: Element>(&self, value: impl Fn(&SampledSequence) -> T) -> Result<Tensor> {
        let values: Vec<T> = self.batch.sequences.iter().map(value).collect();
        Ok(Tensor::f_from_slice(&values)?.f_to_device(self.device)?)
    }

    fn recent(&self, steps: usize) -> Result<RecentSteps> {
        let (sequences, trace) = (self.batch.sequences.len(), self.batch.trace);
        let mut frames = Vec::with_capacity(sequences * (steps + 1));
        let (mut transitions, mut observations) = (vec![0f32; sequences * steps], vec![0f32; sequences * steps]);
        let mut actions = vec![0i64; sequences * steps];
        for (i, sequence) in self.batch.sequences.iter().enumerate() {
            // Observation k of the last K+1 is number length - (K+1) + k of the sequence; negative if before its start.
            let number = |k: usize| (sequence.length + k).checked_sub(steps + 1);
            frames.extend((0..=steps).map(|k| (i * trace + number(k).unwrap_or(0)) as i64));
            for k in 0..steps {
                observations[i * steps + k] = f32::from(number(k + 1).is_some());
                if let Some(before) = number(k) {
                    transitions[i * steps + k] = 1.0;
                    actions[i * steps + k] = self.batch.steps.action[i * (trace + 1) + before + 1];
                }
            }
        }
        let upload = |values: &[f32]| -> Result<Tensor> {
            let size = [sequences as i64, steps as i64];
            Ok(Tensor::f_from_slice(values)?.f_view(size)?.f_to_device(self.device)?)
        };
        Ok(RecentSteps {
            frames: Tensor::f_from_slice(&frames)?.f_to_device(self.device)?,
            transitions: upload(&transitions)?,
            observations: upload(&observations)?,
            actions: Tensor::f_from_slice(&actions)?.f_to_device(self.device)?,
        })
    }
}

/// Refuses a batch with a column of the wrong length, or with an invalid value where it will be read.
///
/// The last valid observation of a sequence only bootstraps: of its entry only the intrinsic rewards are read. Nothing
/// past it is read at all.
pub fn check(batch: &SequenceBatch, observations: &[u8], input: &ObservationInput, shape: &BatchShape) -> Result<()> {
    let (b, t) = (batch.sequences.len(), batch.trace);
    if b == 0 || t < 2 {
        let expected = "at least one sequence of at least two observations".to_owned();
        return Err(value_error("the batch", format!("{b} x {t}"), "its shape".to_owned(), expected));
    }
    let observation = ("observations", observations.len(), b * t * input.spec().bytes());
    for (field, found, expected) in batch.lengths(shape.embedding, shape.state).chain([observation]) {
        if found != expected {
            let what = format!("a batch of {b} sequences of {t} observations");
            return Err(AgentError::Length { field, what, expected, found });
        }
    }
    for sequence in 0..b {
        check_sequence(batch, sequence, shape)?;
        check_float_observations(batch, observations, sequence, input)?;
    }
    Ok(())
}

fn check_sequence(batch: &SequenceBatch, number: usize, shape: &BatchShape) -> Result<()> {
    let fail = |field, place: String, value: &dyn ToString, expected: &str| {
        Err(value_error(field, value.to_string(), format!("sequence {number}{place}"), expected.to_owned()))
    };
    let SampledSequence { length, policy, importance_weight: weight, .. } = batch.sequences[number];
    if !(2..=batch.trace).contains(&length) {
        return fail("length", String::new(), &length, &format!("between 2 and {}", batch.trace));
    }
    if policy >= shape.policies {
        return fail("policy", String::new(), &policy, &format!("a policy, 0 to {}", shape.policies - 1));
    }
    if !(weight > 0.0 && weight.is_finite()) {
        return fail("importance_weight", String::new(), &weight, "a finite number above 0");
    }
    let state = &batch.state[number * shape.state..(number + 1) * shape.state];
    if let Some(i) = state.iter().position(|x| !x.is_finite()) {
        return fail("state", format!(", element {i}"), &state[i], "a finite number");
    }
    let first = number * (batch.trace + 1);
    for entry in 0..length {
        let place = || format!(", entry {entry}");
        let i = first + entry;
        let action = batch.steps.action[i];
        if action < 0 || action >= shape.actions as i64 {
            return fail("action", place(), &action, &format!("an action, 0 to {}", shape.actions - 1));
        }
        for (column, values) in SCALAR_COLUMNS.iter().zip(batch.steps.scalars()) {
            if !column.range.contains(&values[i]) {
                return fail(column.name, place(), &values[i], column.expected());
            }
        }
        if entry > 0 && batch.steps.behaviour_probability[i] == 0.0 {
            return fail("behaviour_probability", place(), &0, "a probability above 0");
        }
        let embedding = &batch.steps.embedding[i * shape.embedding..(i + 1) * shape.embedding];
        if let Some(element) = embedding.iter().find(|x| !x.is_finite()) {
            return fail("embedding", place(), element, "a finite number");
        }
    }
    let last = batch.steps.reward_ngu[first + length];
    if !last.is_finite() {
        return fail("reward_ngu", format!(", entry {length}"), &last, "a finite number");
    }
    Ok(())
}

fn check_float_observations(
    batch: &SequenceBatch,
    observations: &[u8],
    sequence: usize,
    input: &ObservationInput,
) -> Result<()> {
    let bytes = input.spec().bytes();
    let valid = &observations[sequence * batch.trace * bytes..][..batch.sequences[sequence].length * bytes];
    let floats = input.spec().floats();
    let all = valid.chunks_exact(bytes).enumerate();
    for ((observation, bytes), place) in all.flat_map(|one| floats.iter().map(move |place| (one, place))) {
        let values = bytes[place.clone()].as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        if let Some((element, value)) = values.enumerate().find(|(_, value)| !value.is_finite()) {
            let place = format!("sequence {sequence}, observation {observation}, element {element}");
            return Err(value_error("observations", value.to_string(), place, "a finite number".to_owned()));
        }
    }
    Ok(())
}

/// Zeroes the padding of float observations, which may hold anything, even NaN; bytes are harmless and left alone.
fn without_padding<'a>(batch: &SequenceBatch, observations: &'a [u8], input: &ObservationInput) -> Cow<'a, [u8]> {
    let full = batch.sequences.iter().all(|sequence| sequence.length == batch.trace);
    if input.spec().floats().is_empty() || full {
        return observations.into();
    }
    let mut observations = observations.to_vec();
    clear_padding(batch, &mut observations, input.spec().bytes());
    observations.into()
}

/// Zeroes the observations past the end of each sequence, of `bytes` bytes each.
pub(crate) fn clear_padding(batch: &SequenceBatch, observations: &mut [u8], bytes: usize) {
    for (i, sequence) in batch.sequences.iter().enumerate() {
        observations[(i * batch.trace + sequence.length) * bytes..(i + 1) * batch.trace * bytes].fill(0);
    }
}

fn value_error(field: &'static str, value: String, place: String, expected: String) -> AgentError {
    AgentError::Value { field, place, value, expected }
}
