//! Compares Atari games in workers with ale-py driven by an independent script.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::io::{BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use envs::seeds::mix;
use envs::{Ending, EnvError, Environments, Step, WorkerConfig, WorkerEnvironments, games};
use support::{config, last_observation, observation, python, test_all};

/// `yars_revenge` starts from the RAM that the last episode left, and ALE's own state cannot restore `qbert`.
const SIX_GAMES: [&str; 6] = ["pong", "breakout", "montezuma_revenge", "qbert", "seaquest", "yars_revenge"];
const STEPS: u64 = 2000;
const ACTION_SEED: u64 = 40;

/// Calls `test` for six games, or for all 57 in the long tests; two at a time.
fn for_games(test: impl Fn(&str) + Sync) {
    let all = games::games().iter().map(|game| game.rom.as_str());
    let queue: Mutex<Vec<&str>> = Mutex::new(if test_all() { all.collect() } else { SIX_GAMES.to_vec() });
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let game = queue.lock().unwrap().pop();
                    match game {
                        Some(game) => test(game),
                        None => break,
                    }
                }
            });
        }
    });
}

fn action(step: u64) -> usize {
    (mix(ACTION_SEED + step) % 18) as usize
}

/// The independent script.
struct Reference {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Reference {
    fn start(game: &str, config: &WorkerConfig) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference_ale.py");
        let numbers = [STEPS, config.seed, config.first_index].map(|number| number.to_string());
        let mut process = Command::new(python())
            .args([script, game])
            .args(numbers)
            .args([
                config.ale.sticky_probability.to_string(),
                config.ale.frame_cap.to_string(),
                ACTION_SEED.to_string(),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::with_capacity(1 << 20, process.stdout.take().unwrap());
        Self { process, output }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.output.read_exact(&mut bytes).expect("the reference script is running");
        bytes
    }

    fn observation(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 210 * 160];
        self.output.read_exact(&mut bytes).expect("the reference script is running");
        bytes
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Plays one environment beside the reference and returns how its episodes ended.
fn compare_with_reference(game: &str, sticky: f64, max_frames: u64) -> Vec<Ending> {
    let mut config = config(game);
    config.seed = 11;
    config.first_index = 5;
    config.ale.sticky_probability = sticky;
    config.ale.frame_cap = max_frames;
    let mut reference = Reference::start(game, &config);
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    let mut endings = Vec::new();
    assert!(observation(&envs, 0, 0) == reference.observation(), "{game}: first observation");
    for step in 0..STEPS {
        envs.start(0, &[action(step)]).unwrap();
        let Step { reward, end } = envs.finish(0).unwrap()[0];
        assert_eq!(reward, f64::from_le_bytes(reference.bytes()), "{game}: reward of step {step}");
        let expected = match reference.bytes() {
            [0] => None,
            [1] => Some(Ending::Terminated),
            _ => Some(Ending::Truncated),
        };
        assert_eq!(end.map(|end| end.ending), expected, "{game}: end at step {step}");
        if let Some(end) = end {
            assert!(last_observation(&envs, 0, 0) == reference.observation(), "{game}: last of step {step}");
            assert_eq!(end.score, f64::from_le_bytes(reference.bytes()), "{game}: score");
            assert_eq!(end.frames, u64::from_le_bytes(reference.bytes()), "{game}: frames");
            endings.push(end.ending);
        }
        assert!(observation(&envs, 0, 0) == reference.observation(), "{game}: observation of step {step}");
    }
    assert!(envs.take_faults().is_empty());
    endings
}

#[test]
fn workers_play_like_ale_py() {
    for_games(|game| {
        let endings = compare_with_reference(game, 0.0, 108_000);
        if SIX_GAMES.contains(&game) {
            assert!(endings.contains(&Ending::Terminated), "{game} ended with {endings:?}");
        }
    });
}

#[test]
fn workers_play_like_ale_py_with_sticky_actions_and_a_limit_within_a_step() {
    for_games(|game| {
        // The limit is reached after 1, 2 or 3 of an action's 4 frames, earlier than most games end.
        let endings = compare_with_reference(game, 0.25, 2403);
        assert!(!endings.is_empty(), "{game} never ended");
    });
}

/// Plays `steps` steps and returns rewards, endings and all observations.
fn play(envs: &mut WorkerEnvironments, first: u64, steps: u64) -> Vec<(Step, Vec<u8>)> {
    (first..first + steps)
        .map(|step| {
            envs.start(0, &[action(step)]).unwrap();
            let outcome = envs.finish(0).unwrap()[0];
            (outcome, observation(envs, 0, 0))
        })
        .collect()
}

#[test]
fn restored_environments_replay_exactly_in_any_worker() {
    for_games(|game| {
        let mut config = config(game);
        config.ale.sticky_probability = 0.25;
        // The replayed steps then include the end of an episode and the start of the next.
        config.ale.frame_cap = 2000;
        let mut envs = WorkerEnvironments::new(config.clone()).unwrap();
        envs.reset().unwrap();
        // Another index in another run, whose later episodes would differ.
        (config.seed, config.first_index) = (1, 7);
        let mut other = WorkerEnvironments::new(config).unwrap();
        other.reset().unwrap();
        play(&mut other, 900, 17);
        for (before, replayed) in [(0, 100), (60, 100), (200, 100), (33, 100)] {
            play(&mut envs, before, before);
            let saved = envs.save(0, 0).unwrap();
            let seen = observation(&envs, 0, 0);
            let first = play(&mut envs, 0, replayed);
            for envs in [&mut envs, &mut other] {
                envs.restore(0, 0, &saved).unwrap();
                assert!(observation(envs, 0, 0) == seen, "{game}: the restored observation");
                let again = play(envs, 0, replayed);
                let differs = first.iter().zip(&again).position(|(a, b)| a != b);
                assert_eq!(differs, None, "{game}: first different step of {replayed}");
            }
        }
    });
}

#[test]
fn episodes_do_not_depend_on_number_of_workers() {
    let sized = |first_index, environments, groups| {
        let mut config = config("pong");
        (config.first_index, config.environments, config.groups) = (first_index, environments, groups);
        (config.seed, config.ale.sticky_probability, config.ale.frame_cap) = (3, 0.25, 150);
        let mut envs = WorkerEnvironments::new(config).unwrap();
        envs.reset().unwrap();
        envs
    };
    let mut one = sized(0, 4, 2);
    let mut two = [sized(0, 2, 1), sized(2, 2, 2)];
    let mut endings = 0;
    for step in 0..100 {
        let actions: Vec<usize> = (0..4).map(|env| action(step * 4 + env)).collect();
        let mut whole = Vec::new();
        for group in 0..2 {
            one.start(group, &actions[2 * group..2 * group + 2]).unwrap();
            whole.extend_from_slice(one.finish(group).unwrap());
        }
        let mut parts = Vec::new();
        two[0].start(0, &actions[..2]).unwrap();
        parts.extend_from_slice(two[0].finish(0).unwrap());
        for group in 0..2 {
            two[1].start(group, &actions[2 + group..3 + group]).unwrap();
            parts.extend_from_slice(two[1].finish(group).unwrap());
        }
        assert_eq!(whole, parts);
        endings += whole.iter().filter(|step| step.end.is_some()).count();
        let seen = |env: usize| observation(&one, env / 2, env % 2);
        assert!(seen(0) == observation(&two[0], 0, 0) && seen(1) == observation(&two[0], 0, 1));
        assert!(seen(2) == observation(&two[1], 0, 0) && seen(3) == observation(&two[1], 1, 0));
    }
    assert!(endings >= 8, "{endings} episodes ended");
}

#[test]
fn starts_differ_between_seeds_indices_and_episodes() {
    let start = |seed, index| {
        let mut config = config("pong");
        (config.seed, config.first_index, config.ale.frame_cap) = (seed, index, 40);
        let mut envs = WorkerEnvironments::new(config).unwrap();
        let mut frames = Vec::new();
        for _ in 0..6 {
            envs.reset().unwrap();
            let mut steps = 0;
            loop {
                envs.start(0, &[0]).unwrap();
                steps += 1;
                if envs.finish(0).unwrap()[0].end.is_some() {
                    break;
                }
            }
            frames.push(steps);
        }
        frames
    };
    let first = start(0, 0);
    assert_eq!(first, start(0, 0));
    assert!(first.iter().any(|steps| *steps != first[0]), "all episodes have the same number of no-ops: {first:?}");
    assert_ne!(first, start(1, 0));
    assert_ne!(first, start(0, 1));
}

#[test]
fn table_of_games_agrees_with_ale_py() {
    let script = "
import json, sys
from ale_py import ALEInterface, LoggerMode, roms
ALEInterface.setLoggerMode(LoggerMode.Error)
for rom in sys.argv[1:]:
    ale = ALEInterface()
    ale.loadROM(roms.get_rom_path(rom))
    print(rom, len(ale.getMinimalActionSet()), ale.getScreenDims())
";
    let roms = games::games().iter().map(|game| &game.rom);
    let output = Command::new(python()).args(["-c", script]).args(roms).output().unwrap();
    let expected: String =
        games::games().iter().map(|game| format!("{} {} (210, 160)\n", game.rom, game.minimal_actions)).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn offers_the_minimal_action_set() {
    let mut config = config("pong");
    config.ale.full_actions = false;
    let mut envs = WorkerEnvironments::new(config).unwrap();
    assert_eq!(envs.spec().action_names, ["noop", "fire", "right", "left", "rightfire", "leftfire"]);
    envs.reset().unwrap();
    let error = envs.start(0, &[6]).unwrap_err().to_string();
    assert_eq!(error, "action 6 is out of range: pong has 6 actions, 0 to 5");
}

#[test]
fn one_frame_per_step_without_noops_shows_every_frame() {
    let frames = |repeat, steps| {
        let mut config = config("breakout");
        (config.ale.action_repeat, config.ale.noop_max, config.ale.frame_cap) = (repeat, 0, 8);
        let mut envs = WorkerEnvironments::new(config).unwrap();
        envs.reset().unwrap();
        let mut seen = vec![observation(&envs, 0, 0)];
        for step in 1..=steps {
            envs.start(0, &[1]).unwrap();
            let end = envs.finish(0).unwrap()[0].end;
            assert_eq!(end.map(|end| (end.ending, end.frames)), (step == steps).then_some((Ending::Truncated, 8)));
            seen.push(if end.is_some() { last_observation(&envs, 0, 0) } else { observation(&envs, 0, 0) });
        }
        seen
    };
    let (single, fours) = (frames(1, 8), frames(4, 2));
    assert!(single[0] == fours[0], "without no-ops both begin with the frame after the reset");
    for (step, four) in fours.iter().enumerate().skip(1) {
        let pair = single[4 * step - 1].iter().zip(&single[4 * step]);
        assert!(pair.map(|(a, b)| *a.max(b)).eq(four.iter().copied()), "step {step}");
    }
    assert!(single.windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn refuses_saves_of_another_game_or_other_options() {
    let made = |game, sticky| {
        let mut config = config(game);
        config.ale.sticky_probability = sticky;
        let mut envs = WorkerEnvironments::new(config).unwrap();
        envs.reset().unwrap();
        envs
    };
    let (mut pong, mut breakout, mut sticky) = (made("pong", 0.0), made("breakout", 0.0), made("pong", 0.25));
    let saved = pong.save(0, 0).unwrap();
    let foreign = breakout.restore(0, 0, &saved).unwrap_err().to_string();
    assert!(foreign.contains("cannot be restored to breakout: it belongs to `pong"), "{foreign}");
    let otherwise = sticky.restore(0, 0, &saved).unwrap_err();
    // Unlike an environment that cannot be restored, this stops a run from resuming.
    assert!(matches!(otherwise, EnvError::Foreign { .. }), "{otherwise}");
    assert!(otherwise.to_string().contains("cannot be restored to pong: it was saved with"), "{otherwise}");
    let mut torn = saved.clone();
    torn[40] ^= 1;
    assert!(pong.restore(0, 0, &torn).unwrap_err().to_string().contains("it is damaged"));
    assert!(pong.restore(0, 0, &saved[..50]).unwrap_err().to_string().contains("it is damaged"));
    for envs in [&mut pong, &mut breakout, &mut sticky] {
        assert!(envs.take_faults().is_empty());
        play(envs, 0, 5);
    }
}

/// Montezuma's RAM holds the room in byte 3 and the explorer's position in bytes 42 (right) and 43 (up).
#[test]
fn reports_bytes_of_ram_with_each_step() {
    let mut config = config("montezuma_revenge");
    (config.environments, config.groups, config.ram) = (4, 2, vec![3, 42, 43]);
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    assert!(envs.ram(1, 1).is_empty());
    let actions = envs.spec().action_names.clone();
    let action = |name: &str| actions.iter().position(|action| action == name).unwrap();
    let walk = |envs: &mut WorkerEnvironments, first: &str, second: &str, steps: usize| {
        for _ in 0..steps {
            envs.start(1, &[action(first), action(second)]).unwrap();
            envs.finish(1).unwrap();
        }
        [envs.ram(1, 0).to_vec(), envs.ram(1, 1).to_vec()]
    };
    assert_eq!(walk(&mut envs, "noop", "noop", 12), [[1, 77, 235], [1, 77, 235]]);
    // The other group has not been stepped.
    assert!(envs.ram(0, 0).is_empty());
    let [left, right] = walk(&mut envs, "left", "right", 3);
    assert!(left[1] < 77 && right[1] > 77, "{left:?} {right:?}");
    assert_eq!((left[0], left[2], right[0], right[2]), (1, 235, 1, 235));
    let saved = envs.save(1, 0).unwrap();
    let [on, _] = walk(&mut envs, "left", "noop", 1);
    envs.restore(1, 0, &saved).unwrap();
    assert!(envs.ram(1, 0).is_empty());
    assert_eq!(walk(&mut envs, "left", "noop", 1)[0], on);
    // A step without an outcome has no RAM to report.
    let worker = envs.worker_process().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &worker]).status().unwrap().success());
    assert!(walk(&mut envs, "left", "noop", 1).iter().all(Vec::is_empty));
    assert_eq!(walk(&mut envs, "noop", "noop", 12), [[1, 77, 235], [1, 77, 235]]);
}

/// The limit of frames ends the episode; the report is of its end, not of the next one's start.
#[test]
fn ram_of_a_last_step_is_that_of_the_ended_episode() {
    let mut config = config("montezuma_revenge");
    (config.ram, config.ale.frame_cap) = (vec![42], 80);
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    let right = envs.spec().action_names.iter().position(|action| action == "right").unwrap();
    let mut places = Vec::new();
    loop {
        envs.start(0, &[right]).unwrap();
        let ended = envs.finish(0).unwrap()[0].end.is_some();
        places.push(envs.ram(0, 0)[0]);
        if ended {
            break;
        }
    }
    let last = places[places.len() - 1];
    assert!(last > 77 && places.windows(2).all(|pair| pair[0] <= pair[1]), "{places:?}");
}
