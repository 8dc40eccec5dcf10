//! Invalid data and numbers that overflow in the learner.

use agent::Random;
use agent::{AgentError, Learner, ObservationKind, ObservationSpec, SequenceBatch, random_batch};
use half::f16;
use rand::SeedableRng;
use tch::Device;

use crate::setup::{self, ACTIONS, LENGTHS, TRACE};

#[test]
fn names_field_and_place_of_bad_values() {
    let mut learner = setup::learner(&setup::config());
    let good = setup::batch(&learner, 0);
    type Edit = fn(&mut SequenceBatch);
    // Sequence 1 has 7 observations; its entries begin at 10, and entry 3 belongs to observation 2.
    let cases: [(Edit, &str); 18] = [
        (|b| b.steps.action[13] = 4, "action at sequence 1, entry 3 is 4, which is not an action, 0 to 3"),
        (|b| b.steps.action[13] = -1, "action at sequence 1, entry 3 is -1"),
        (|b| b.steps.reward_extrinsic[13] = f32::NAN, "reward_extrinsic at sequence 1, entry 3 is NaN"),
        (|b| b.steps.reward_ngu[17] = f32::INFINITY, "reward_ngu at sequence 1, entry 7 is inf"),
        (|b| b.steps.reward_rnd[13] = f32::NAN, "reward_rnd at sequence 1, entry 3"),
        (|b| b.steps.reward_episodic[13] = f32::NAN, "reward_episodic at sequence 1, entry 3"),
        (|b| b.steps.behaviour_probability[13] = 0.0, "behaviour_probability at sequence 1, entry 3 is 0"),
        (|b| b.steps.behaviour_probability[13] = 1.5, "behaviour_probability at sequence 1, entry 3 is 1.5"),
        (|b| b.steps.discount[13] = 2.0, "discount at sequence 1, entry 3 is 2"),
        (|b| b.steps.embedding[13 * 8] = f16::NAN, "embedding at sequence 1, entry 3 is NaN"),
        (|b| b.sequences[1].length = 1, "length at sequence 1 is 1, which is not between 2 and 9"),
        (|b| b.sequences[1].length = 10, "length at sequence 1 is 10"),
        (|b| b.sequences[1].policy = 4, "policy at sequence 1 is 4, which is not a policy, 0 to 3"),
        (|b| b.sequences[1].importance_weight = 0.0, "importance_weight at sequence 1 is 0"),
        (|b| b.state[20] = f32::NAN, "state at sequence 1, element 0 is NaN"),
        (|b| b.state.truncate(5), "state has 5 values, but a batch of 5 sequences of 9 observations needs 100"),
        (|b| b.observations.truncate(3), "observations has 3 values"),
        (|b| b.sequences.clear(), "the batch at its shape is 0 x 9"),
    ];
    let before = learner.save().unwrap();
    for (edit, sentence) in cases {
        let mut bad = good.clone();
        edit(&mut bad);
        let error = learner.step(&bad).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error:?} does not say {sentence:?}");
    }
    assert_eq!(learner.save().unwrap(), before);
    learner.step(&good).unwrap();
}

#[test]
fn valid_float_observations_must_be_finite() {
    let mut learner = Learner::new(&setup::config(), &setup::flat(), ACTIONS, 0, Device::Cpu).unwrap();
    let mut batch = random_batch(&learner.networks, TRACE, &LENGTHS, &mut Random::seed_from_u64(0));
    let nan = f32::NAN.to_le_bytes();
    // Observation 8 of sequence 1, which has only 7.
    let at = |observation: usize| (TRACE + observation) * 24 + 4;
    batch.observations[at(8)..at(8) + 4].copy_from_slice(&nan);
    learner.step(&batch).unwrap();
    batch.observations[at(6)..at(6) + 4].copy_from_slice(&nan);
    let error = learner.step(&batch).unwrap_err().to_string();
    assert!(error.contains("observations at sequence 1, observation 6, element 1 is NaN"), "{error}");
}

/// The step is bit for bit the same for any padding.
#[test]
fn padding_has_no_effect() {
    let config = setup::config();
    let (mut clean, mut dirty) = (setup::learner(&config), setup::learner(&config));
    let good = setup::batch(&clean, 0);
    let mut padded = good.clone();
    for (b, &length) in LENGTHS.iter().enumerate() {
        padded.observations[(b * TRACE + length) * 35..(b + 1) * TRACE * 35].fill(77);
        // The last observation's own entry counts for nothing but its intrinsic rewards.
        let first = b * (TRACE + 1);
        padded.steps.action[first + length] = 3;
        padded.steps.reward_extrinsic[first + length] = f32::NAN;
        padded.steps.behaviour_probability[first + length] = -1.0;
        padded.steps.discount[first + length] = f32::NAN;
        for entry in first + length + 1..first + TRACE + 1 {
            padded.steps.action[entry] = 1_000_000;
            padded.steps.reward_extrinsic[entry] = f32::NAN;
            padded.steps.reward_ngu[entry] = f32::INFINITY;
            padded.steps.reward_rnd[entry] = f32::NAN;
            padded.steps.reward_episodic[entry] = f32::NAN;
            padded.steps.behaviour_probability[entry] = 0.0;
            padded.steps.discount[entry] = f32::NAN;
            padded.steps.embedding[entry * 8..(entry + 1) * 8].fill(f16::NAN);
        }
    }
    for _ in 0..3 {
        assert_eq!(clean.step(&good).unwrap(), dirty.step(&padded).unwrap());
    }
    assert_eq!(clean.save().unwrap(), dirty.save().unwrap());
}

/// No finite batch that an environment could produce makes a NaN.
#[test]
fn extreme_but_finite_batches_stay_finite() {
    let config = setup::config();
    for (seed, size) in [0.0f32, 1e-6, 1.0, 1e3, 1e6, -1e6].into_iter().enumerate() {
        let mut learner = setup::learner(&config);
        let mut batch = setup::batch(&learner, seed as u64);
        batch.steps.reward_extrinsic.fill(size);
        batch.steps.reward_ngu.fill(size.abs());
        if size == 0.0 {
            batch.observations.fill(0);
            batch.steps.reward_rnd.fill(0.0);
            batch.steps.reward_episodic.fill(0.0);
            batch.steps.embedding.fill(f16::ZERO);
            batch.state.fill(0.0);
            batch.steps.action.fill(0);
        }
        for _ in 0..5 {
            let report = learner.step(&batch).unwrap();
            assert!(report.priorities.iter().all(|p| p.is_finite() && *p >= 0.0), "{:?}", report.priorities);
            assert!(report.policies.iter().all(|p| p.q_min.is_finite() && p.q_max.is_finite()));
        }
    }
}

#[test]
fn an_overflow_stops_the_update_and_keeps_the_state() {
    let mut learner = setup::learner(&setup::config());
    let good = setup::batch(&learner, 0);
    learner.step(&good).unwrap();
    let before = learner.save().unwrap();
    let mut huge = good.clone();
    huge.steps.reward_extrinsic[2] = 3e38;
    let error = learner.step(&huge).unwrap_err();
    let AgentError::NonFinite { tensor, value, update } = &error else { panic!("{error}") };
    assert!(!value.is_finite() && *update == 2 && tensor.contains("gradient"), "{error}");
    assert_eq!(learner.save().unwrap(), before);
    // The generator of stochastic depth has not moved, either: the next update is what it would have been.
    let report = learner.step(&good).unwrap();
    let mut other = Learner::restore(&setup::config(), &setup::image(), ACTIONS, &before, Device::Cpu).unwrap();
    assert_eq!(other.step(&good).unwrap(), report);
}

#[test]
fn names_a_non_finite_gradient() {
    let config = setup::config();
    let mut state = setup::learner(&config).save().unwrap();
    // A weight so large that the output of the policy head overflows nothing, but its gradient does.
    let bias = state.weights.get_mut("online.action_prediction.output.weight").unwrap();
    for value in bias.bytes.as_chunks_mut::<4>().0 {
        *value = 1e38f32.to_le_bytes();
    }
    let mut learner = Learner::restore(&config, &setup::image(), ACTIONS, &state, Device::Cpu).unwrap();
    let error = learner.step(&setup::batch(&learner, 0)).unwrap_err().to_string();
    assert!(error.contains("action") && error.contains("update 1"), "{error}");
    assert_eq!(learner.save().unwrap(), state);
}

#[test]
fn refuses_invalid_configurations_and_observations() {
    let refused = |shape: Vec<usize>, actions: usize| {
        let spec = ObservationSpec::array(shape, ObservationKind::U8);
        Learner::new(&setup::config(), &spec, actions, 0, Device::Cpu).unwrap_err().to_string()
    };
    assert!(refused(vec![], 2).contains("the observation's shape is []"));
    assert!(refused(vec![3, 0], 2).contains("each from 1 to 2^20"));
    assert!(refused(vec![1, 2, 3, 4], 2).contains("[1, 2, 3, 4]"));
    assert!(refused(vec![5, 5], 0).contains("the number of actions is 0"));
    let mut config = setup::config();
    config.optimizer.learning_rate = -1.0;
    config.loss.kl_bound = f64::NAN;
    let error = Learner::new(&config, &setup::image(), 2, 0, Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("optimizer.learning_rate is -1") && error.contains("loss.kl_bound is nan"), "{error}");
}

/// libtorch's errors become one-line errors, not panics.
#[test]
fn libtorch_errors_become_one_line_errors() {
    let mut config = setup::config();
    config.network.core = 65_536;
    config.network.head_hidden = 65_536;
    config.network.features = 65_536;
    config.network.torso.kind = agent::config::TorsoKind::Dqn;
    config.network.torso.linear = 65_536;
    let networks = agent::Networks::new(&config, &setup::image(), ACTIONS).unwrap();
    // About 0.6 terabytes.
    let error = agent::NetworkParameters::zeros(&networks, Device::Cpu).unwrap_err().to_string();
    let begins = error.starts_with("the host is out of memory: tried to allocate ");
    assert!(begins && !error.contains('\n'), "{error}");
}
