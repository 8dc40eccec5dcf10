//! Random batches for benchmarks and tests.

use half::f16;
use rand::RngExt;
use rand_distr::StandardNormal;
use replay::{Layout, SequenceBatch};

use crate::Random;
use crate::networks::Networks;
use crate::observation::ObservationKind;

/// Returns sequences of these lengths of random play in a trace.
///
/// Observations are noise, rewards are rare, and every second sequence that is shorter than the trace ends its game.
pub fn random_batch(networks: &Networks, trace: usize, lengths: &[usize], random: &mut Random) -> SequenceBatch {
    let spec = networks.input().spec();
    let (embedding, state) = (networks.embedding_length, networks.state_length());
    let layout = Layout { observation_bytes: spec.bytes(), embedding, state, trace, period: 1 };
    let mut batch = SequenceBatch::new(&layout, lengths.len());
    let SequenceBatch { observations, steps, state, sequences, .. } = &mut batch;
    let mut fill = |values: &mut [f32], low: f64, high: f64| {
        values.fill_with(|| (low + (high - low) * random.random::<f64>()) as f32);
    };
    fill(&mut steps.behaviour_probability, 0.05, 1.0);
    fill(&mut steps.reward_extrinsic, -1.0, 1.0);
    fill(&mut steps.reward_rnd, 1.0, 5.0);
    fill(&mut steps.reward_episodic, 0.0, 0.5);
    fill(state, -0.5, 0.5);
    for (sequence, &length) in sequences.iter_mut().zip(lengths) {
        fill(std::slice::from_mut(&mut sequence.importance_weight), 0.2, 1.0);
        sequence.length = length;
    }
    let factors = steps.reward_rnd.iter().zip(&steps.reward_episodic);
    steps.reward_ngu = factors.map(|(rnd, episodic)| rnd * episodic).collect();
    steps.discount.fill(1.0);
    if spec.parts.iter().any(|part| part.kind == ObservationKind::U8) {
        observations.fill_with(|| random.random());
    }
    let floats = spec.floats();
    for observation in observations.chunks_exact_mut(spec.bytes()) {
        for place in &floats {
            let values = observation[place.clone()].as_chunks_mut::<4>().0;
            values.fill_with(|| (random.sample::<f64, _>(StandardNormal) as f32).to_le_bytes());
        }
    }
    steps.action.fill_with(|| random.random_range(0..networks.actions) as i64);
    steps.embedding.fill_with(|| f16::from_f64(random.sample::<f64, _>(StandardNormal)));
    for sequence in sequences.iter_mut() {
        sequence.policy = random.random_range(0..networks.policies);
    }
    for reward in &mut steps.reward_extrinsic {
        if random.random::<f64>() < 0.7 {
            *reward = 0.0;
        }
    }
    for (i, &length) in lengths.iter().enumerate() {
        if length < trace && i % 2 == 0 {
            steps.discount[i * (trace + 1) + length - 1] = 0.0;
        }
    }
    batch
}
