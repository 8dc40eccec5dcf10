//! Gymnasium environments in workers.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use envs::{Ending, EnvError, Environments, EpisodeEnd, ObservationKind, Step, WorkerEnvironments};
use support::{config, last_observation, observation};

fn made(name: &str) -> WorkerEnvironments {
    let mut envs = WorkerEnvironments::new(config(name)).unwrap();
    envs.reset().unwrap();
    envs
}

fn step(envs: &mut WorkerEnvironments, action: usize) -> Step {
    envs.start(0, &[action]).unwrap();
    envs.finish(0).unwrap()[0]
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

#[test]
fn runs_and_replays_cart_pole() {
    let mut envs = made("gym:CartPole-v1");
    let spec = envs.spec();
    assert_eq!((spec.observation_shape.as_slice(), spec.observation_kind), (&[4][..], ObservationKind::F32));
    assert_eq!((spec.action_names.as_slice(), spec.frames_per_step), (&["0".to_owned(), "1".to_owned()][..], 1));
    let trace = |envs: &mut WorkerEnvironments| -> Vec<(Step, Vec<u8>)> {
        (0..100).map(|i| (step(envs, i % 3 % 2), observation(envs, 0, 0))).collect()
    };
    trace(&mut envs);
    let saved = envs.save(0, 0).unwrap();
    let first = trace(&mut envs);
    assert!(first.iter().any(|(step, _)| step.end.is_some_and(|end| end.ending == Ending::Terminated)));
    envs.restore(0, 0, &saved).unwrap();
    assert_eq!(trace(&mut envs), first);
    let mut other = made("gym:CartPole-v1");
    other.restore(0, 0, &saved).unwrap();
    assert_eq!(trace(&mut other), first);
}

#[test]
fn time_limits_are_truncations() {
    let mut envs = made("gym:tests.gym_envs:Flat-v0");
    assert_eq!(floats(&observation(&envs, 0, 0)), [0.1, 0.0, -1.5]);
    for i in 1..5 {
        assert_eq!(step(&mut envs, 1), Step { reward: -0.25, end: None });
        assert_eq!(floats(&observation(&envs, 0, 0)), [0.1, i as f32, 1.0]);
    }
    let end = EpisodeEnd { ending: Ending::Truncated, score: -1.25, frames: 5 };
    assert_eq!(step(&mut envs, 0), Step { reward: -0.25, end: Some(end) });
    assert_eq!(floats(&last_observation(&envs, 0, 0)), [0.1, 5.0, 0.0]);
    assert_eq!(floats(&observation(&envs, 0, 0)), [0.1, 0.0, -1.5]);
}

#[test]
fn bytes_booleans_numbers_and_parts_become_arrays() {
    use ObservationKind::{F32, U8};
    let parts = [0.2, 1.0, 0.0, 1.0, 0.0, -3.0, 4.0, 1.0, 0.0];
    for (name, kind, shape, values) in [
        ("Dict", F32, &[9][..], &parts[..]),
        ("Booleans", U8, &[1, 2, 2], &[255.0, 0.0, 0.0, 255.0]),
        ("FloatImage", F32, &[2, 2], &[0.5, 0.25, 1.0, 0.0]),
        ("Integers", F32, &[3], &[7.0, 0.0, 9.0]),
        ("TwoSticks", F32, &[3], &[0.0, 1.0, 0.0]),
    ] {
        let envs = made(&format!("gym:tests.gym_envs:{name}-v0"));
        let spec = envs.spec();
        assert_eq!((spec.observation_kind, &spec.observation_shape[..]), (kind, shape), "{name}");
        let bytes = observation(&envs, 0, 0);
        let found = if kind == F32 { floats(&bytes) } else { bytes.iter().map(|&byte| f32::from(byte)).collect() };
        assert_eq!(found, values, "{name}");
    }
}

#[test]
fn several_actions_at_once_are_numbered_and_named() {
    let mut envs = made("gym:tests.gym_envs:TwoSticks-v0");
    assert_eq!(envs.spec().action_names, ["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]);
    let rewards = [0, 1, 2, 3, 4, 5].map(|action| step(&mut envs, action).reward);
    assert_eq!(rewards, [0.0, 1.0, 2.0, 1.0, 2.0, 3.0]);
}

#[test]
fn frame_cap_truncates_sooner_than_the_time_limit() {
    let capped = envs::WorkerConfig { frame_cap: Some(3), ..config("gym:tests.gym_envs:Flat-v0") };
    let mut envs = WorkerEnvironments::new(capped).unwrap();
    envs.reset().unwrap();
    for _ in 0..2 {
        let ends = [(); 3].map(|()| step(&mut envs, 1).end);
        let end = EpisodeEnd { ending: Ending::Truncated, score: -0.75, frames: 3 };
        assert_eq!(ends, [None, None, Some(end)]);
    }
}

#[test]
fn runs_image_environments_of_user_modules() {
    let mut config = config("gym:tests.gym_envs:Image-v0");
    (config.environments, config.groups) = (4, 2);
    let mut envs = WorkerEnvironments::new(config).unwrap();
    assert_eq!(envs.spec().observation_shape, [12, 10, 3]);
    assert_eq!(envs.spec().action_names, ["5", "6", "7"]);
    envs.reset().unwrap();
    let mut first_numbers = Vec::new();
    for round in 1..=21_u8 {
        for group in 0..2 {
            envs.start(group, &[0, 2]).unwrap();
        }
        for group in 0..2 {
            let steps = envs.finish(group).unwrap().to_vec();
            for env in 0..2 {
                let image = if round % 7 == 0 {
                    first_numbers.push(observation(&envs, group, env)[2]);
                    assert_eq!(steps[env].end.map(|end| (end.ending, end.frames)), Some((Ending::Terminated, 7)));
                    last_observation(&envs, group, env)
                } else {
                    observation(&envs, group, env)
                };
                assert_eq!(image[0], (round - 1) % 7 + 1);
                assert_eq!(image[1], [5, 7][env]);
                assert_eq!(f64::from(image[2]) / 2.0, steps[env].reward);
                assert_eq!(image[image.len() - 3..], [255, 255, 255]);
            }
        }
    }
    first_numbers.sort_unstable();
    first_numbers.dedup();
    assert!(first_numbers.len() > 3, "all episodes begin alike: {first_numbers:?}");
}

#[test]
fn names_unsupported_spaces() {
    for (name, space) in [
        ("Text", "observation space is Dict('mission': Text(1, 9, charset="),
        (
            "Large",
            "observation space is Tuple(Box(0, 255, (84, 84), uint8)), with the part Box(0, 255, (84, 84), uint8)",
        ),
        ("Video", "observation space is Box(0, 255, (4, 8, 8, 3), uint8)"),
        ("Torque", "action space is Box(-1.0, 1.0, (2,), float32)"),
        ("Piano", "action space is MultiBinary(10)"),
    ] {
        let name = format!("gym:tests.gym_envs:{name}-v0");
        let error = WorkerEnvironments::new(config(&name)).err().unwrap();
        assert!(matches!(error, EnvError::Unsupported { .. }), "{error:?}");
        let sentence = error.to_string();
        assert!(sentence.starts_with(&format!("{name} cannot be used: its {space}")), "{sentence}");
        assert!(sentence.contains("; expected "), "{sentence}");
    }
}

#[test]
fn names_missing_environments_and_modules() {
    let refused = |name: &str| WorkerEnvironments::new(config(name)).err().unwrap().to_string();
    let missing = refused("gym:NoSuchThing-v0");
    assert_eq!(
        missing,
        "gym:NoSuchThing-v0 cannot be used: Environment `NoSuchThing` doesn't exist. If a package registers it, install \
         that and write gym:MODULE:NoSuchThing-v0."
    );
    for (module, absent) in [("no_such_module", "no_such_module"), ("tests.no_such", "tests.no_such")] {
        let refusal = refused(&format!("gym:{module}:Thing-v0"));
        let begins = format!("gym:{module}:Thing-v0 cannot be used: no module {absent} in /");
        assert!(refusal.starts_with(&begins) && refusal.ends_with(" or among Python's packages"), "{refusal}");
    }
}

#[test]
fn children_of_environments_can_be_interrupted() {
    let envs = made("gym:tests.gym_envs:Signals-v0");
    assert_eq!(floats(&observation(&envs, 0, 0))[..2], [0.0, 0.0]);
}

#[test]
fn environments_that_cannot_be_saved_continue() {
    for (name, reason) in [
        ("HoldsAFile", "it cannot be pickled (TypeError"),
        ("Rebuilt", "Rebuilt is an EzPickle"),
        ("Holder", "Rebuilt is an EzPickle"),
    ] {
        let mut envs = made(&format!("gym:tests.gym_envs:{name}-v0"));
        step(&mut envs, 0);
        let error = envs.save(0, 0).unwrap_err();
        assert!(matches!(error, EnvError::Unsupported { request: "save", .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(step(&mut envs, 0), Step { reward: -0.25, end: None });
        assert_eq!(floats(&observation(&envs, 0, 0))[1], 2.0);
        assert!(envs.take_faults().is_empty());
    }
}
