//! Updates begun before the previous one is finished.

use agent::{AgentError, Learner, NamedTensors, StepReport};
use tch::Device;

use crate::setup::{self, ACTIONS, loaded};

/// With a copy to the target network every second update.
fn config() -> agent::AgentConfig {
    let mut config = setup::config();
    config.copies.target_period = 2;
    config
}

#[test]
fn pending_updates_equal_sequential_ones_bit_for_bit() {
    let (mut whole, mut halves) = (setup::learner(&config()), setup::learner(&config()));
    let (mut wanted, mut found) = (vec![], vec![]);
    for seed in 0..7 {
        let batch = setup::batch(&whole, seed);
        wanted.push(whole.step(&batch).unwrap());
        found.extend(halves.begin(&loaded(&halves, &batch)).unwrap());
        assert_eq!((halves.updates(), found.len()), (seed + 1, seed as usize));
    }
    found.extend(halves.finish().unwrap());
    assert_eq!(halves.finish().unwrap(), None);
    assert_eq!(found, wanted);
    assert_eq!(halves.save().unwrap(), whole.save().unwrap());
}

/// Acting gets the parameters of the pending update; a checkpoint must not hold half of one.
#[test]
fn a_pending_update_allows_copying_parameters_but_not_saving() {
    let source = agent::learner::ParameterSource::Online;
    let mut learner = setup::learner(&config());
    let batch = setup::batch(&learner, 0);
    let weights = |learner: &Learner| {
        let mut tensors = NamedTensors::new();
        learner.parameters(source).unwrap().export(&mut tensors, "").unwrap();
        tensors
    };
    let before = weights(&learner);
    learner.begin(&loaded(&learner, &batch)).unwrap();
    let meanwhile = weights(&learner);
    assert_ne!(meanwhile, before);
    for refused in [learner.save().map(drop), learner.step(&batch).map(drop)] {
        assert_eq!(refused.unwrap_err().to_string(), "update 1 is still pending: finish it first");
    }
    assert_eq!(learner.finish().unwrap().unwrap().update, 1);
    assert_eq!(weights(&learner), meanwhile);
    learner.save().unwrap();
}

#[test]
fn a_failed_update_leaves_no_trace_and_stops_the_next() {
    let mut learner = setup::learner(&config());
    let (good, mut huge) = (setup::batch(&learner, 0), setup::batch(&learner, 1));
    huge.steps.reward_extrinsic[2] = 3e38;
    learner.step(&good).unwrap();
    let before = learner.save().unwrap();
    let refused = |outcome: agent::Result<Option<StepReport>>| {
        let error = outcome.unwrap_err();
        let AgentError::NonFinite { tensor, value, update } = &error else { panic!("{error}") };
        assert!(!value.is_finite() && *update == 2 && tensor.contains("gradient"), "{error}");
    };
    assert_eq!(learner.begin(&loaded(&learner, &huge)).unwrap(), None);
    refused(learner.begin(&loaded(&learner, &good)));
    assert_eq!((learner.updates(), learner.save().unwrap()), (1, before.clone()));
    assert_eq!(learner.begin(&loaded(&learner, &huge)).unwrap(), None);
    refused(learner.finish());
    assert_eq!((learner.updates(), learner.save().unwrap()), (1, before.clone()));
    // What comes next is what would have come.
    let mut other = Learner::restore(&config(), &setup::image(), ACTIONS, &before, Device::Cpu).unwrap();
    assert_eq!(learner.begin(&loaded(&learner, &good)).unwrap(), None);
    assert_eq!(learner.finish().unwrap(), Some(other.step(&good).unwrap()));
    assert_eq!(learner.save().unwrap(), other.save().unwrap());
}
