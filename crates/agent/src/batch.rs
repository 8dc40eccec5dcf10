//! A batch of sequences as replay hands it over, checked, and as tensors.

use half::f16;
use tch::{Device, Kind, Tensor};

use crate::error::{AgentError, Result};
use crate::nets::agent_net::NetInput;
use crate::nets::features::FeatureInput;
use crate::observation::{ObservationInput, ObservationKind};

/// B sequences of T observations, batch-major.
///
/// Arrays that are `[B][T+1]` hold at entry 0 the step before the first observation (all zero at an episode's start)
/// and at entry t+1 what belongs to observation t. The last valid observation only bootstraps: of its entry only the
/// intrinsic rewards are read. Nothing behind it is read at all.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// B.
    pub sequences: usize,
    /// T, at least 2.
    pub trace: usize,
    /// `[B][T][observation bytes]`.
    pub observations: &'a [u8],
    /// a_t, `[B][T+1]`.
    pub action: &'a [i64],
    /// μ(a_t|x_t), in (0, 1], `[B][T+1]`.
    pub behaviour_probability: &'a [f32],
    /// r_t that a_t led to, `[B][T+1]`.
    pub reward_extrinsic: &'a [f32],
    /// r_NGU(x_t), `[B][T+1]`; credited to a_{t-1}.
    pub reward_ngu: &'a [f32],
    /// Its RND part, `[B][T+1]`.
    pub reward_rnd: &'a [f32],
    /// Its episodic part, `[B][T+1]`.
    pub reward_episodic: &'a [f32],
    /// 0 where a_t ended the game, else 1, `[B][T+1]`.
    pub discount: &'a [f32],
    /// f(x_t), `[B][T+1][embedding]`.
    pub embedding: &'a [f16],
    /// Valid observations, 2..=T, `[B]`.
    pub length: &'a [usize],
    /// Recurrent state at the start, h then c, `[B][state]`.
    pub state: &'a [f32],
    /// The policy that acted, `[B]`.
    pub policy: &'a [usize],
    /// Importance weight, larger than 0, `[B]`.
    pub weight: &'a [f32],
}

/// What a batch has to fit.
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
}

/// The last observations of every sequence, for the networks behind the intrinsic reward.
#[derive(Debug)]
pub struct RecentSteps {
    /// Which frames of the batch, `[B · (K+1)]`, oldest first; frames before a sequence's start are its first.
    pub frames: Tensor,
    /// Whether observation k and the one before are real, f32 `[B, K]`.
    pub transitions: Tensor,
    /// Whether observations 1..=K are real, f32 `[B, K]`.
    pub observations: Tensor,
    /// The action between observations k and k+1, `[B · K]`.
    pub actions: Tensor,
}

/// A batch on the device.
#[derive(Debug)]
pub struct BatchTensors {
    /// What the network is fed.
    pub input: NetInput,
    /// a_t, `[B, T]`.
    pub action: Tensor,
    /// μ(a_t|x_t), `[B, T]`; 1 where nothing happened.
    pub behaviour_probability: Tensor,
    /// r_e,t, `[B, T]`.
    pub reward_extrinsic: Tensor,
    /// r_NGU(x_{t+1}), `[B, T]`.
    pub reward_ngu: Tensor,
    /// d_t, `[B, T]`.
    pub discount: Tensor,
    /// 1 where step t is followed by a valid observation, f32 `[B, T]`.
    pub valid: Tensor,
    /// Number of valid steps of each sequence, f32 `[B]`.
    pub steps: Tensor,
    /// Number of valid steps of the batch.
    pub total_steps: f64,
    /// The policy that acted, `[B]`.
    pub policy: Tensor,
    /// Importance weight, f32 `[B]`.
    pub weight: Tensor,
    /// What action prediction and RND train on.
    pub recent: RecentSteps,
}

impl BatchTensors {
    /// Number of valid steps of the batch, on the device: one f64.
    pub fn steps_in_all(&self) -> Result<Tensor> {
        Ok(self.steps.f_sum(Kind::Double)?)
    }

    /// Memory for batches of the same size, without gradients.
    pub(crate) fn room(&self) -> Result<Self> {
        let room = |tensor: &Tensor| tensor.f_empty_like();
        let NetInput { observations, features, state } = &self.input;
        let FeatureInput { action, rewards, embedding } = features;
        let features = FeatureInput { action: room(action)?, rewards: room(rewards)?, embedding: room(embedding)? };
        let RecentSteps { frames, transitions, observations: recent, actions } = &self.recent;
        Ok(Self {
            input: NetInput { observations: room(observations)?, features, state: room(state)? },
            action: room(&self.action)?,
            behaviour_probability: room(&self.behaviour_probability)?,
            reward_extrinsic: room(&self.reward_extrinsic)?,
            reward_ngu: room(&self.reward_ngu)?,
            discount: room(&self.discount)?,
            valid: room(&self.valid)?,
            steps: room(&self.steps)?,
            total_steps: 0.0,
            policy: room(&self.policy)?,
            weight: room(&self.weight)?,
            recent: RecentSteps {
                frames: room(frames)?,
                transitions: room(transitions)?,
                observations: room(recent)?,
                actions: room(actions)?,
            },
        })
    }

    /// Takes over another batch of the same size in the memory that this one has.
    pub(crate) fn take_over(&mut self, other: &Self) -> Result<()> {
        let mut own = self.all().map(Tensor::shallow_clone);
        torch_ext::copy_all(own.iter_mut().zip(other.all()).collect())?;
        self.total_steps = other.total_steps;
        Ok(())
    }

    /// Every tensor of the batch.
    pub(crate) fn all(&self) -> [&Tensor; 18] {
        let NetInput { observations, features, state } = &self.input;
        let FeatureInput { action, rewards, embedding } = features;
        let RecentSteps { frames, transitions, observations: recent, actions } = &self.recent;
        [
            observations,
            action,
            rewards,
            embedding,
            state,
            &self.action,
            &self.behaviour_probability,
            &self.reward_extrinsic,
            &self.reward_ngu,
            &self.discount,
            &self.valid,
            &self.steps,
            &self.policy,
            &self.weight,
            frames,
            transitions,
            recent,
            actions,
        ]
    }
}

impl Batch<'_> {
    /// Whether every array has the right length and every value that will be read makes sense.
    pub fn check(&self, input: &ObservationInput, shape: &BatchShape) -> Result<()> {
        let (b, t) = (self.sequences, self.trace);
        if b == 0 || t < 2 {
            let expected = "at least one sequence of at least two observations".to_owned();
            return Err(value_error("the batch", format!("{b} x {t}"), "its shape".to_owned(), expected));
        }
        let entries = b * (t + 1);
        let length = |field, found: usize, expected: usize| {
            let what = format!("a batch of {b} sequences of {t} observations");
            if found == expected { Ok(()) } else { Err(AgentError::Length { field, what, expected, found }) }
        };
        length("observations", self.observations.len(), b * t * input.spec().bytes())?;
        length("action", self.action.len(), entries)?;
        for (field, values) in self.per_step() {
            length(field, values.len(), entries)?;
        }
        length("embedding", self.embedding.len(), entries * shape.embedding)?;
        length("length", self.length.len(), b)?;
        length("state", self.state.len(), b * shape.state)?;
        length("policy", self.policy.len(), b)?;
        length("weight", self.weight.len(), b)?;
        for sequence in 0..b {
            self.check_sequence(sequence, shape)?;
            if input.spec().kind == ObservationKind::F32 {
                self.check_float_observations(sequence, input)?;
            }
        }
        Ok(())
    }

    fn per_step(&self) -> [(&'static str, &[f32]); 6] {
        [
            ("behaviour_probability", self.behaviour_probability),
            ("reward_extrinsic", self.reward_extrinsic),
            ("reward_ngu", self.reward_ngu),
            ("reward_rnd", self.reward_rnd),
            ("reward_episodic", self.reward_episodic),
            ("discount", self.discount),
        ]
    }

    fn check_sequence(&self, sequence: usize, shape: &BatchShape) -> Result<()> {
        let fail = |field, place: String, value: String, expected: String| {
            Err(value_error(field, value, format!("sequence {sequence}{place}"), expected))
        };
        let length = self.length[sequence];
        if !(2..=self.trace).contains(&length) {
            return fail("length", String::new(), length.to_string(), format!("between 2 and {}", self.trace));
        }
        if self.policy[sequence] >= shape.policies {
            let expected = format!("a policy, 0 to {}", shape.policies - 1);
            return fail("policy", String::new(), self.policy[sequence].to_string(), expected);
        }
        let weight = self.weight[sequence];
        if !(weight > 0.0 && weight.is_finite()) {
            return fail("weight", String::new(), weight.to_string(), "a finite number above 0".to_owned());
        }
        let state = &self.state[sequence * shape.state..(sequence + 1) * shape.state];
        if let Some(i) = state.iter().position(|x| !x.is_finite()) {
            return fail("state", format!(", element {i}"), state[i].to_string(), "finite".to_owned());
        }
        let first = sequence * (self.trace + 1);
        for entry in 0..=length {
            let place = || format!(", entry {entry}");
            let i = first + entry;
            // Entry `length` is the last observation's, of which only the intrinsic reward counts.
            if entry == length {
                if !self.reward_ngu[i].is_finite() {
                    return fail("reward_ngu", place(), self.reward_ngu[i].to_string(), "finite".to_owned());
                }
                break;
            }
            if self.action[i] < 0 || self.action[i] >= shape.actions as i64 {
                let expected = format!("an action, 0 to {}", shape.actions - 1);
                return fail("action", place(), self.action[i].to_string(), expected);
            }
            for (field, values) in self.per_step() {
                if !values[i].is_finite() {
                    return fail(field, place(), values[i].to_string(), "finite".to_owned());
                }
            }
            if entry > 0 {
                let probability = self.behaviour_probability[i];
                if !(probability > 0.0 && probability <= 1.0) {
                    let expected = "a probability above 0".to_owned();
                    return fail("behaviour_probability", place(), probability.to_string(), expected);
                }
                if !(0.0..=1.0).contains(&self.discount[i]) {
                    return fail("discount", place(), self.discount[i].to_string(), "between 0 and 1".to_owned());
                }
            }
            let embedding = &self.embedding[i * shape.embedding..(i + 1) * shape.embedding];
            if let Some(element) = embedding.iter().find(|x| !x.is_finite()) {
                return fail("embedding", place(), element.to_string(), "finite".to_owned());
            }
        }
        Ok(())
    }

    fn check_float_observations(&self, sequence: usize, input: &ObservationInput) -> Result<()> {
        let bytes = input.spec().bytes();
        let start = sequence * self.trace * bytes;
        let valid = &self.observations[start..start + self.length[sequence] * bytes];
        for (i, value) in valid.as_chunks::<4>().0.iter().enumerate() {
            let value = f32::from_le_bytes(*value);
            if !value.is_finite() {
                let values = input.spec().values();
                let place = format!("sequence {sequence}, observation {}, element {}", i / values, i % values);
                return Err(value_error("observations", value.to_string(), place, "finite".to_owned()));
            }
        }
        Ok(())
    }

    /// The batch on the device, with everything that must not be read set to zero.
    ///
    /// It has passed [`check`](Self::check).
    pub fn upload(&self, input: &ObservationInput, shape: &BatchShape, device: Device) -> Result<BatchTensors> {
        let frames = self.sequences * self.trace;
        let observations = input.upload(&self.observations_without_padding(input), frames, device)?;
        self.with_observations(observations, shape, device)
    }

    /// The same, with observations that are on the device already, `[B · T, values]`.
    pub(crate) fn with_observations(
        &self,
        observations: Tensor,
        shape: &BatchShape,
        device: Device,
    ) -> Result<BatchTensors> {
        let (b, t) = (self.sequences, self.trace);
        let size = [b as i64, t as i64];
        // The `count(length)` entries from `from` on of each sequence, then `rest`.
        let pick = |values: &[f32], from: usize, count: &dyn Fn(usize) -> usize, rest: f32| {
            let mut picked = vec![rest; b * t];
            for (sequence, &length) in self.length.iter().enumerate() {
                let (source, used) = (sequence * (t + 1) + from, count(length));
                picked[sequence * t..sequence * t + used].copy_from_slice(&values[source..source + used]);
            }
            picked
        };
        let upload =
            |values: &[f32]| -> Result<Tensor> { Ok(Tensor::f_from_slice(values)?.f_view(size)?.f_to_device(device)?) };
        let happened = |values: &[f32], rest| upload(&pick(values, 1, &|length| length - 1, rest));
        let (mut fed_actions, mut actions) = (vec![0i64; b * t], vec![0i64; b * t]);
        let mut embedding = vec![f16::ZERO; b * t * shape.embedding];
        let mut valid = vec![0f32; b * t];
        for (sequence, &length) in self.length.iter().enumerate() {
            let (to, from) = (sequence * t, sequence * (t + 1));
            fed_actions[to..to + length].copy_from_slice(&self.action[from..from + length]);
            actions[to..to + length - 1].copy_from_slice(&self.action[from + 1..from + length]);
            valid[to..to + length - 1].fill(1.0);
            let e = shape.embedding;
            embedding[to * e..(to + length) * e].copy_from_slice(&self.embedding[from * e..(from + length) * e]);
        }
        let fed = |values: &[f32]| upload(&pick(values, 0, &|length| length, 0.0));
        let rewards = [self.reward_extrinsic, self.reward_ngu, self.reward_rnd, self.reward_episodic]
            .into_iter()
            .map(fed)
            .collect::<Result<Vec<_>>>()?;
        let frames = (b * t) as i64;
        let features = FeatureInput {
            action: Tensor::f_from_slice(&fed_actions)?.f_to_device(device)?,
            rewards: Tensor::f_stack(&rewards, -1)?.f_view([frames, -1])?,
            embedding: Tensor::f_from_slice(&embedding)?
                .f_view([frames, shape.embedding as i64])?
                .f_to_device(device)?
                .f_to_kind(Kind::Float)?,
        };
        let state = Tensor::f_from_slice(self.state)?.f_view([b as i64, shape.state as i64])?.f_to_device(device)?;
        let steps: Vec<f32> = self.length.iter().map(|&length| (length - 1) as f32).collect();
        let policies: Vec<i64> = self.policy.iter().map(|&policy| policy as i64).collect();
        Ok(BatchTensors {
            input: NetInput { observations, features, state },
            action: Tensor::f_from_slice(&actions)?.f_view(size)?.f_to_device(device)?,
            behaviour_probability: happened(self.behaviour_probability, 1.0)?,
            reward_extrinsic: happened(self.reward_extrinsic, 0.0)?,
            reward_ngu: upload(&pick(self.reward_ngu, 2, &|length| length - 1, 0.0))?,
            discount: happened(self.discount, 0.0)?,
            valid: upload(&valid)?,
            total_steps: steps.iter().map(|&n| f64::from(n)).sum(),
            steps: Tensor::f_from_slice(&steps)?.f_to_device(device)?,
            policy: Tensor::f_from_slice(&policies)?.f_to_device(device)?,
            weight: Tensor::f_from_slice(self.weight)?.f_to_device(device)?,
            recent: self.recent(shape, &actions, device)?,
        })
    }

    /// Padding of float observations may hold anything, a NaN too; bytes can do no harm and are left alone.
    fn observations_without_padding(&self, input: &ObservationInput) -> std::borrow::Cow<'_, [u8]> {
        let bytes = input.spec().bytes();
        if input.spec().kind == ObservationKind::U8 || self.length.iter().all(|&length| length == self.trace) {
            return self.observations.into();
        }
        let mut observations = self.observations.to_vec();
        self.clear_padding(&mut observations, bytes);
        observations.into()
    }

    /// Zeroes what lies behind the sequences, in observations of `bytes` bytes each.
    pub(crate) fn clear_padding(&self, observations: &mut [u8], bytes: usize) {
        for (sequence, &length) in self.length.iter().enumerate() {
            observations[(sequence * self.trace + length) * bytes..(sequence + 1) * self.trace * bytes].fill(0);
        }
    }

    fn recent(&self, shape: &BatchShape, actions: &[i64], device: Device) -> Result<RecentSteps> {
        let (b, steps) = (self.sequences, shape.intrinsic_steps);
        let mut frames = Vec::with_capacity(b * (steps + 1));
        let (mut transitions, mut observations) = (vec![0f32; b * steps], vec![0f32; b * steps]);
        let mut taken = vec![0i64; b * steps];
        for (sequence, &length) in self.length.iter().enumerate() {
            let start = sequence * self.trace;
            // Observation k of the K+1 last ones is number length - (K+1) + k; negative: it lies before the sequence.
            let number = |k: usize| (length + k).checked_sub(steps + 1);
            for k in 0..=steps {
                frames.push((start + number(k).unwrap_or(0)) as i64);
            }
            for k in 0..steps {
                observations[sequence * steps + k] = f32::from(number(k + 1).is_some());
                if let Some(before) = number(k) {
                    transitions[sequence * steps + k] = 1.0;
                    taken[sequence * steps + k] = actions[start + before];
                }
            }
        }
        let upload = |values: &[f32]| -> Result<Tensor> {
            Ok(Tensor::f_from_slice(values)?.f_view([b as i64, steps as i64])?.f_to_device(device)?)
        };
        Ok(RecentSteps {
            frames: Tensor::f_from_slice(&frames)?.f_to_device(device)?,
            transitions: upload(&transitions)?,
            observations: upload(&observations)?,
            actions: Tensor::f_from_slice(&taken)?.f_to_device(device)?,
        })
    }
}

fn value_error(field: &'static str, value: String, place: String, expected: String) -> AgentError {
    AgentError::Value { field, place, value, expected }
}
