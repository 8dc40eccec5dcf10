//! A batch that owns its arrays, and made-up ones for benchmarks and tests.

use half::f16;
use rand::RngExt;
use rand_distr::StandardNormal;

use crate::Random;
use crate::batch::Batch;
use crate::networks::Networks;
use crate::observation::ObservationKind;

/// The arrays of a [`Batch`], which says what each holds.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of Batch")]
pub struct OwnedBatch {
    pub sequences: usize,
    pub trace: usize,
    pub observations: Vec<u8>,
    pub action: Vec<i64>,
    pub behaviour_probability: Vec<f32>,
    pub reward_extrinsic: Vec<f32>,
    pub reward_ngu: Vec<f32>,
    pub reward_rnd: Vec<f32>,
    pub reward_episodic: Vec<f32>,
    pub discount: Vec<f32>,
    pub embedding: Vec<f16>,
    pub length: Vec<usize>,
    pub state: Vec<f32>,
    pub policy: Vec<usize>,
    pub weight: Vec<f32>,
}

impl OwnedBatch {
    /// The batch.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            sequences: self.sequences,
            trace: self.trace,
            observations: &self.observations,
            action: &self.action,
            behaviour_probability: &self.behaviour_probability,
            reward_extrinsic: &self.reward_extrinsic,
            reward_ngu: &self.reward_ngu,
            reward_rnd: &self.reward_rnd,
            reward_episodic: &self.reward_episodic,
            discount: &self.discount,
            embedding: &self.embedding,
            length: &self.length,
            state: &self.state,
            policy: &self.policy,
            weight: &self.weight,
        }
    }

    /// Random play of sequences with the given lengths in a trace: noise for observations, rare rewards, and every
    /// second sequence that is shorter than the trace ends its game.
    pub fn random(networks: &Networks, trace: usize, lengths: &[usize], random: &mut Random) -> Self {
        let sequences = lengths.len();
        let spec = networks.input().spec();
        let entries = sequences * (trace + 1);
        let mut floats = |count: usize, low: f64, high: f64| -> Vec<f32> {
            (0..count).map(|_| (low + (high - low) * random.random::<f64>()) as f32).collect()
        };
        let mut batch = Self {
            sequences,
            trace,
            behaviour_probability: floats(entries, 0.05, 1.0),
            reward_extrinsic: floats(entries, -1.0, 1.0),
            reward_ngu: vec![],
            reward_rnd: floats(entries, 1.0, 5.0),
            reward_episodic: floats(entries, 0.0, 0.5),
            discount: vec![1.0; entries],
            length: lengths.to_vec(),
            state: floats(sequences * networks.state_length(), -0.5, 0.5),
            weight: floats(sequences, 0.2, 1.0),
            ..Self::default()
        };
        batch.reward_ngu = batch.reward_rnd.iter().zip(&batch.reward_episodic).map(|(rnd, e)| rnd * e).collect();
        batch.observations = match spec.kind {
            ObservationKind::U8 => (0..sequences * trace * spec.bytes()).map(|_| random.random::<u8>()).collect(),
            ObservationKind::F32 => (0..sequences * trace * spec.values())
                .flat_map(|_| (random.sample::<f64, _>(StandardNormal) as f32).to_le_bytes())
                .collect(),
        };
        batch.action = (0..entries).map(|_| random.random_range(0..networks.actions()) as i64).collect();
        let embeddings = entries * networks.embedding_length();
        batch.embedding = (0..embeddings).map(|_| f16::from_f64(random.sample::<f64, _>(StandardNormal))).collect();
        batch.policy = (0..sequences).map(|_| random.random_range(0..networks.policies())).collect();
        for reward in &mut batch.reward_extrinsic {
            if random.random::<f64>() < 0.7 {
                *reward = 0.0;
            }
        }
        for (sequence, &length) in lengths.iter().enumerate() {
            if length < trace && sequence % 2 == 0 {
                batch.discount[sequence * (trace + 1) + length - 1] = 0.0;
            }
        }
        batch
    }
}
