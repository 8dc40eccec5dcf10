//! Gymnasium environments in workers.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use envs::{
    Ending, EnvError, Environments, EpisodeEnd, ObservationKind, ObservationPart, RenderedPicture, Step,
    WorkerEnvironments,
};
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
fn bytes_booleans_and_numbers_become_arrays() {
    use ObservationKind::{F32, U8};
    for (name, kind, shape, values) in [
        ("Booleans", U8, &[1, 2, 2][..], &[255.0, 0.0, 0.0, 255.0][..]),
        ("Alone", U8, &[1, 8], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
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
fn codes_of_a_grid_become_a_channel_per_bit() {
    for (name, shape, values) in [
        ("View", [1, 2, 8], "0000010010000010".to_owned()), // 4 and 130
        ("Map", [9, 1, 6], "100011".repeat(9)),             // 4 and 3, of codes up to 5
        ("Masks", [1, 2, 2], "1001".to_owned()),
    ] {
        let envs = made(&format!("gym:tests.gym_envs:{name}-v0"));
        assert_eq!(
            (envs.spec().observation_kind, &envs.spec().observation_shape[..]),
            (ObservationKind::U8, &shape[..])
        );
        let bits: Vec<_> = values.bytes().map(|bit| if bit == b'1' { 255 } else { 0 }).collect();
        assert_eq!(observation(&envs, 0, 0), bits, "{name}");
    }
}

#[test]
fn dictionaries_and_tuples_keep_their_parts_apart() {
    use ObservationKind::{F32, U8};
    let envs = made("gym:tests.gym_envs:Dict-v0");
    let part = |name: &str, shape: &[usize], kind| ObservationPart { name: name.into(), shape: shape.into(), kind };
    let parts = [
        part("picture", &[1, 9, 1], U8),
        part("place.0", &[3], F32),
        part("place.1", &[2], F32),
        part("switches", &[2], F32),
    ];
    let spec = envs.spec();
    assert_eq!((&spec.observation_parts[..], &spec.observation_shape[..]), (&parts[..], &[12 + 12 + 8 + 8][..]));
    let bytes = observation(&envs, 0, 0);
    assert_eq!((&bytes[..9], &bytes[9..12]), (&[51; 9][..], &[0; 3][..]));
    assert_eq!(floats(&bytes[12..]), [0.0, 1.0, 0.0, -3.0, 4.0, 1.0, 0.0]);
}

#[test]
fn large_images_are_averaged_down_wherever_they_are() {
    let config = envs::WorkerConfig { max_side: Some(4), ..config("gym:tests.gym_envs:Camera-v0") };
    let mut envs = envs::make(&config).unwrap();
    envs.reset().unwrap();
    let shapes: Vec<_> = envs.spec().observation_parts.iter().map(|part| part.shape.clone()).collect();
    assert_eq!((shapes, envs.spec().observation_bytes()), (vec![vec![1], vec![4, 3]], 16));
    let mut bytes = [0; 16];
    envs.observation(0, 0, &mut bytes);
    // Of the numbers from 0 to 39 in eight lines of five.
    let means = [3, 5, 7, 13, 15, 17, 23, 25, 27, 33, 35, 37];
    assert_eq!((floats(&bytes[..4]), &bytes[4..]), (vec![0.5], &means[..]));
}

#[test]
fn texts_become_their_words_and_pairs_of_words() {
    let envs = made("gym:tests.gym_envs:Mission-v0");
    let bytes = observation(&envs, 0, 0);
    assert_eq!((envs.spec().observation_shape.as_slice(), bytes.len()), (&[256][..], 256));
    // zlib's CRC-32 of "open", "the", "door", "open the" and "the door", modulo 256.
    let places = [164, 230, 45, 90, 93];
    for (place, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, if places.contains(&place) { 255 } else { 0 }, "{place}");
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
        ("Items", "observation space is Dict('items': Sequence(Discrete(3), stack=False)), with the part Sequence("),
        ("Many", "observation space is Tuple(Discrete(5000), Discrete(2)), with the part Discrete(5000)"),
        ("Nameless", "observation space is Dict('a': Dict('b': Discrete(2)), 'a.b': Discrete(2))"),
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
    // Whether it is installed or not.
    for name in ["MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToRedBall-v0"] {
        let refusal = refused(&format!("gym:{name}"));
        assert!(refusal.contains(&format!("rite gym:minigrid:{name}")), "{refusal}");
    }
    for (module, absent) in [("no_such_module", "no_such_module"), ("tests.no_such", "tests.no_such")] {
        let refusal = refused(&format!("gym:{module}:Thing-v0"));
        let begins = format!("gym:{module}:Thing-v0 cannot be used: no module {absent} in /");
        assert!(refusal.starts_with(&begins) && refusal.ends_with(" or among Python's packages"), "{refusal}");
    }
}

#[test]
fn environments_render_their_state_and_the_end_of_an_episode() {
    let rendering = |name: &str| {
        let mut config = config(&format!("gym:tests.gym_envs:{name}-v0"));
        config.render = true;
        let mut envs = WorkerEnvironments::new(config).unwrap();
        envs.reset().unwrap();
        envs
    };
    let mut envs = rendering("Drawn");
    for _ in 0..2 {
        for shown in 0..5 {
            let picture = RenderedPicture { size: [2, 3], pixels: vec![shown; 18] };
            assert_eq!(envs.render(0, 0, false).unwrap(), picture);
            step(&mut envs, 1);
        }
        assert_eq!(envs.render(0, 0, true).unwrap().pixels, [5; 18]);
    }
    for (name, reason) in [
        ("Flat", "its render_modes are [], without rgb_array"),
        ("DrawnInGray", "its render() returned uint8 of shape (2, 3), expected uint8 of shape (height, width, 3)"),
    ] {
        let error = rendering(name).render(0, 0, false).unwrap_err();
        assert_eq!(error.to_string(), format!("gym:tests.gym_envs:{name}-v0 cannot render: {reason}"));
    }
    let mut catch = envs::make(&config("catch")).unwrap();
    assert!(matches!(catch.render(0, 0, false), Err(EnvError::Unsupported { request: "render", .. })));
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

fn vector(name: &str, environments: usize, groups: usize) -> WorkerEnvironments {
    let config = envs::WorkerConfig { environments, groups, ..config(&format!("gym:tests.gym_envs:{name}-v0")) };
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    envs
}

#[test]
fn vector_environments_end_episodes_in_every_autoreset_mode() {
    for mode in ["NextStep", "SameStep", "Disabled"] {
        let mut envs = vector(mode, 2, 1);
        let reset_step = usize::from(mode == "NextStep");
        for t in 0..20 {
            envs.start(0, &[t % 2, 1]).unwrap();
            let steps = envs.finish(0).unwrap().to_vec();
            for (env, length) in [(0, 2), (1, 3)] {
                let (episode, step) = (t / (length + reset_step) + 1, t % (length + reset_step) + 1);
                // In the order of the space: action, then episode and step.
                let seen = |step: usize, action: f32| [action, episode as f32, step as f32];
                let taken = |t: usize| if env == 0 { 5.0 + (t % 2) as f32 } else { 6.0 };
                let shown = floats(&observation(&envs, 0, env));
                let reward = if step > length { 0.0 } else { step as f64 };
                let what = format!("{mode}, step {t} of environment {env}");
                if step < length + reset_step {
                    assert_eq!(steps[env], Step { reward, end: None }, "{what}");
                    assert_eq!(shown, seen(step, taken(t)), "{what}");
                    continue;
                }
                let ending = if length == 2 { Ending::Terminated } else { Ending::Truncated };
                let score = (length * (length + 1) / 2) as f64;
                let end = EpisodeEnd { ending, score, frames: (length + reset_step) as u64 };
                assert_eq!(steps[env], Step { reward, end: Some(end) }, "{what}");
                let last = floats(&last_observation(&envs, 0, env));
                assert_eq!(last, seen(length, taken(t - reset_step)), "{what}");
                assert_eq!(shown, [0.0, (episode + 1) as f32, 0.0], "{what}");
            }
        }
        assert!(envs.take_faults().is_empty());
        let error = envs.save(0, 1).unwrap_err().to_string();
        assert!(error.contains("it is part of a vector environment, which cannot be saved one"), "{error}");
    }
}

#[test]
fn vector_environments_render_one_environment() {
    for mode in ["NextStep", "SameStep", "Disabled"] {
        let config = config(&format!("gym:tests.gym_envs:{mode}-v0"));
        let config = envs::WorkerConfig { environments: 2, groups: 1, render: true, ..config };
        let mut envs = WorkerEnvironments::new(config).unwrap();
        envs.reset().unwrap();
        let reset_step = usize::from(mode == "NextStep");
        // Environment 1 has episodes of 3 steps, and its pictures show ten times the episode plus the step.
        for episode in 1..3 {
            for t in 0..3 + reset_step {
                let picture = RenderedPicture { size: [2, 3], pixels: vec![10 * episode + t as u8; 18] };
                assert_eq!(envs.render(0, 1, false).unwrap(), picture, "{mode}");
                envs.start(0, &[0, 0]).unwrap();
                assert_eq!(envs.finish(0).unwrap()[1].end.is_some(), t == 2 + reset_step);
            }
            // In mode SAME_STEP the last state is gone, so the one before it is shown.
            let last = 10 * episode + if mode == "SameStep" { 2 } else { 3 };
            assert_eq!(envs.render(0, 1, true).unwrap().pixels, [last; 18], "{mode}");
        }
    }
}

#[test]
fn vector_environments_repeat_and_differ_between_groups() {
    let trace = || -> Vec<Vec<u8>> {
        let mut envs = vector("CartPoles", 6, 2);
        (0..60)
            .flat_map(|t| {
                for group in 0..2 {
                    envs.start(group, &[t % 2, 0, 1]).unwrap();
                    envs.finish(group).unwrap();
                }
                (0..6).map(|env| observation(&envs, env / 3, env % 3)).collect::<Vec<_>>()
            })
            .collect()
    };
    let first = trace();
    assert_eq!(first, trace());
    let distinct: std::collections::HashSet<_> = first[..6].iter().collect();
    assert_eq!(distinct.len(), 6);
}

#[test]
fn vector_environments_name_what_they_lack() {
    let refused = WorkerEnvironments::new(config("gym:tests.gym_envs:NoMode-v0")).err().unwrap().to_string();
    assert!(refused.contains("its vector environment has autoreset_mode None, expected one of"), "{refused}");
    for (mode, outcome) in [("Disabled", Ok(Some(Ending::Truncated))), ("SameStep", Err("cannot be told to end it"))] {
        let capped = envs::WorkerConfig { frame_cap: Some(1), ..config(&format!("gym:tests.gym_envs:{mode}-v0")) };
        let mut envs = WorkerEnvironments::new(capped).unwrap();
        envs.reset().unwrap();
        let step = step(&mut envs, 0);
        match outcome {
            Ok(ending) => assert_eq!(step.end.map(|end| end.ending), ending),
            Err(reason) => {
                let faults = envs.take_faults();
                assert!(faults.iter().any(|fault| format!("{fault:?}").contains(reason)), "{faults:?}");
            }
        }
    }
}
