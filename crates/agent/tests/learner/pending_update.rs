//! Updates that are begun before the last one is finished.

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
fn they_are_bit_for_bit_those_of_one_call_each() {
    let (mut whole, mut halves) = (setup::learner(&config()), setup::learner(&config()));
    let (mut wanted, mut found) = (vec![], vec![]);
    for seed in 0..7 {
        let batch = setup::batch(&whole, seed);
        wanted.push(whole.step(&batch.batch()).unwrap());
        found.extend(halves.begin(&loaded(&halves, &batch)).unwrap());
        assert_eq!((halves.updates(), found.len()), (seed + 1, seed as usize));
    }
    found.extend(halves.finish().unwrap());
    assert_eq!(halves.finish().unwrap(), None);
    assert_eq!(found, wanted);
    assert_eq!(halves.save().unwrap(), whole.save().unwrap());
}

/// What acts gets the parameters of the update under way; what goes on from a checkpoint must not get half of one.
#[test]
fn parameters_can_be_copied_meanwhile_but_nothing_is_saved() {
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
    for refused in [learner.save().map(drop), learner.step(&batch.batch()).map(drop)] {
        assert_eq!(refused.unwrap_err().to_string(), "update 1 is still pending: finish it first");
    }
    assert_eq!(learner.finish().unwrap().unwrap().update, 1);
    assert_eq!(weights(&learner), meanwhile);
    learner.save().unwrap();
}

#[test]
fn one_that_blows_up_leaves_no_trace_and_stops_the_one_begun_after_it() {
    let mut learner = setup::learner(&config());
    let (good, mut huge) = (setup::batch(&learner, 0), setup::batch(&learner, 1));
    huge.reward_extrinsic[2] = 3e38;
    learner.step(&good.batch()).unwrap();
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
    assert_eq!(learner.finish().unwrap(), Some(other.step(&good.batch()).unwrap()));
    assert_eq!(learner.save().unwrap(), other.save().unwrap());
}
