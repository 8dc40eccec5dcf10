//! Workers that die, hang, raise, print and answer nonsense.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use envs::{Ending, EnvError, Environments, EpisodeEnd, Step, WorkerConfig, WorkerEnvironments};
use support::{config, last_observation, observation, workspace};

const FAULTY: &str = "gym:tests.gym_envs:Faulty-v0";
/// What the actions of the faulty environment do.
const FINE: usize = 0;
const RAISE: usize = 1;
const HANG: usize = 2;
const PRINT: usize = 3;
const WRONG_SHAPE: usize = 4;
const NAN_REWARD: usize = 5;
const EXIT: usize = 6;
const KILL: usize = 7;
const WRONG_TYPE: usize = 8;
const HANG_WITH_LOCK: usize = 9;
const CLOSE_ALL_FILES: usize = 10;
const SYSTEM_EXIT: usize = 11;
const SLOW: usize = 12;

const STEP_LIMIT: Duration = Duration::from_millis(700);

/// Two groups of two faulty environments, after one good step.
fn faulty() -> WorkerEnvironments {
    let mut config = config(FAULTY);
    (config.environments, config.groups, config.seed) = (4, 2, 9);
    config.limits.step = STEP_LIMIT;
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    for group in 0..2 {
        envs.start(group, &[FINE, FINE]).unwrap();
        assert_eq!(envs.finish(group).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    }
    envs
}

fn all_observations(envs: &WorkerEnvironments) -> Vec<Vec<u8>> {
    (0..4).map(|i| observation(envs, i / 2, i % 2)).collect()
}

/// The first observations of each environment's second episode, where nothing has gone wrong.
fn second_episodes() -> Vec<Vec<u8>> {
    let mut envs = faulty();
    envs.reset().unwrap();
    all_observations(&envs)
}

const CUT_OFF: Step = Step { reward: 0.0, end: Some(EpisodeEnd { ending: Ending::CutOff, score: 1.0, frames: 1 }) };

#[test]
fn every_fault_is_told_and_mended_and_cuts_off_only_the_episodes_of_that_worker() {
    let second = second_episodes();
    for (action, told) in [
        (RAISE, "ValueError: the moon is in the wrong house (at "),
        (HANG, "did not answer to `step` within 700ms"),
        (HANG_WITH_LOCK, "did not answer to `step` within 700ms"),
        (WRONG_SHAPE, "an observation of shape (5,), not (4,)"),
        (WRONG_TYPE, "an observation of float32, not uint8"),
        (EXIT, "it ended with exit code 3); the last it printed: about to leave"),
        (KILL, "it was killed by signal 9"),
        (CLOSE_ALL_FILES, "it "),
        (SYSTEM_EXIT, "it ended with exit code 1); the last it printed: leaving"),
    ] {
        let mut envs = faulty();
        let before = all_observations(&envs);
        let begin = Instant::now();
        envs.start(0, &[FINE, action]).unwrap();
        envs.start(1, &[FINE, FINE]).unwrap();
        assert_eq!(envs.finish(0).unwrap(), [CUT_OFF; 2], "action {action}");
        // The limit, the start of another worker, and an allowance for a busy machine.
        assert!(begin.elapsed() < STEP_LIMIT + Duration::from_secs(20), "action {action}: {:?}", begin.elapsed());
        let faults = envs.take_faults();
        assert!(faults.len() == 1 && faults[0].contains(told), "action {action}: {faults:?}");
        assert!(faults[0].contains("`step`") && faults[0].contains("it is replaced"), "{faults:?}");
        // The other group shows what its actions were chosen for until it is finished.
        assert_eq!(all_observations(&envs)[2..], before[2..]);
        assert_eq!(envs.finish(1).unwrap(), [CUT_OFF; 2]);
        for (i, before) in before.iter().enumerate() {
            assert_eq!(last_observation(&envs, i / 2, i % 2), *before);
        }
        assert_eq!(all_observations(&envs), second, "the next episodes are the second ones, as without the fault");
        for group in 0..2 {
            envs.start(group, &[FINE, FINE]).unwrap();
            assert_eq!(envs.finish(group).unwrap(), [Step { reward: 1.0, end: None }; 2]);
        }
        assert!(envs.take_faults().is_empty());
    }
}

#[test]
fn a_reward_that_is_not_finite_is_an_error_and_no_reason_to_replace_the_worker() {
    let mut envs = faulty();
    let worker = envs.worker_process();
    envs.start(0, &[FINE, NAN_REWARD]).unwrap();
    envs.start(1, &[FINE, FINE]).unwrap();
    let error = envs.finish(0).unwrap_err().to_string();
    assert_eq!(error, "environment 1 of gym:tests.gym_envs:Faulty-v0 gave the reward NaN; a reward must be finite");
    assert_eq!(envs.finish(1).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    assert_eq!(envs.worker_process(), worker);
    assert!(envs.take_faults().is_empty());
    // Whoever goes on all the same finds it usable: new episodes have no past.
    envs.reset().unwrap();
    envs.start(0, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(0).unwrap(), [Step { reward: 1.0, end: None }; 2]);
}

#[test]
fn a_group_that_was_not_being_stepped_is_cut_off_at_its_next_step() {
    let mut envs = faulty();
    let before = all_observations(&envs);
    envs.start(0, &[KILL, FINE]).unwrap();
    envs.finish(0).unwrap();
    assert!(matches!(envs.save(1, 0), Err(EnvError::OutOfTurn { .. })));
    assert_eq!(all_observations(&envs)[2..], before[2..]);
    envs.start(1, &[RAISE, RAISE]).unwrap();
    assert_eq!(envs.finish(1).unwrap(), [CUT_OFF; 2], "its actions are for episodes that are gone");
    assert_eq!(last_observation(&envs, 1, 1), before[3]);
    assert!(envs.save(1, 0).is_ok());
}

#[test]
fn a_worker_killed_from_outside_is_replaced() {
    let mut envs = faulty();
    let first = envs.worker_process().unwrap();
    assert!(envs.worker_cpu_time().unwrap() > Duration::ZERO);
    kill(first);
    envs.start(1, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(1).unwrap(), [CUT_OFF; 2]);
    assert_ne!(envs.worker_process().unwrap(), first);
    // Again, while nothing is asked of it; then a reset begins new episodes without ado.
    kill(envs.worker_process().unwrap());
    envs.reset().unwrap();
    assert_eq!(envs.take_faults().len(), 2);
    envs.start(0, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(0).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    // And while it is to save.
    kill(envs.worker_process().unwrap());
    assert!(matches!(envs.save(0, 0), Err(EnvError::Lost { .. })));
    envs.start(0, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(0).unwrap(), [CUT_OFF; 2]);
}

#[test]
fn what_an_environment_prints_does_no_harm() {
    let mut envs = faulty();
    for _ in 0..3 {
        envs.start(0, &[PRINT, PRINT]).unwrap();
        assert_eq!(envs.finish(0).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    }
    assert_eq!(observation(&envs, 0, 0)[1], 4);
    assert!(envs.take_faults().is_empty());
}

#[test]
fn an_observation_that_is_not_finite_is_an_error() {
    let mut envs = WorkerEnvironments::new(config("gym:tests.gym_envs:NotFinite-v0")).unwrap();
    envs.reset().unwrap();
    envs.start(0, &[0]).unwrap();
    assert_eq!(envs.finish(0).unwrap()[0].end.map(|end| end.ending), Some(Ending::CutOff));
    let faults = envs.take_faults();
    assert!(faults[0].contains("an observation that is not finite: [ 0. inf  0.]"), "{faults:?}");
}

#[test]
fn an_environment_that_never_works_is_given_up() {
    let mut envs = WorkerEnvironments::new(config("gym:tests.gym_envs:Broken-v0")).unwrap();
    envs.reset().unwrap();
    for _ in 0..2 {
        envs.start(0, &[0]).unwrap();
        assert_eq!(envs.finish(0).unwrap()[0].end.map(|end| end.ending), Some(Ending::CutOff));
    }
    envs.start(0, &[0]).unwrap();
    let error = envs.finish(0).unwrap_err();
    assert!(matches!(error, EnvError::GaveUp { attempts: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("after 3 failures in a row") && error.to_string().contains("no step today"));
    assert!(matches!(envs.reset(), Err(EnvError::GaveUp { .. })));
    assert!(matches!(envs.start(0, &[0]), Err(EnvError::GaveUp { .. })));

    let mut envs = WorkerEnvironments::new(config("gym:tests.gym_envs:BrokenReset-v0")).unwrap();
    let error = envs.reset().unwrap_err().to_string();
    assert!(error.contains("gave up") && error.contains("`reset`: RuntimeError: no reset today"), "{error}");
}

#[test]
fn an_environment_that_never_ends_an_episode_is_given_up() {
    let mut config = config("gym:tests.gym_envs:Fragile-v0");
    config.limits.failures = 2;
    let mut envs = WorkerEnvironments::new(config.clone()).unwrap();
    envs.reset().unwrap();
    let mut cut_off = 0;
    let error = loop {
        envs.start(0, &[0]).unwrap();
        match envs.finish(0) {
            Ok(steps) => cut_off += u32::from(steps[0].end.is_some()),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(cut_off, 19);
    assert!(error.contains("after 20 failures without the end of an episode between them; the last one: "), "{error}");
    // One that ends its episodes may fail between them as often as it likes.
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    let mut cut_off = 0;
    while cut_off < 21 {
        for action in [1, 0, 0, 0] {
            envs.start(0, &[action]).unwrap();
            cut_off += u32::from(envs.finish(0).unwrap()[0].end.is_some_and(|end| end.ending == Ending::CutOff));
        }
    }
}

#[test]
fn a_worker_that_never_starts_is_an_error_at_once() {
    let mut no_package = config("pong");
    no_package.package = "/no/such/package".into();
    let error = WorkerEnvironments::new(no_package).err().unwrap();
    assert!(error.to_string().contains("can't open file '/no/such/package'"), "{error}");
    let mut no_python = config("pong");
    no_python.python = "cat".into();
    let error = WorkerEnvironments::new(no_python).err().unwrap();
    assert!(matches!(error, EnvError::Lost { .. }), "{error:?}");
    let mut slow = config("pong");
    slow.limits.start_up = Duration::from_millis(1);
    let error = WorkerEnvironments::new(slow).err().unwrap();
    assert!(matches!(error, EnvError::Timeout { request: "open", .. }), "{error:?}");
}

#[test]
fn mistakes_of_the_caller_are_refused_before_they_reach_the_worker() {
    let mut config = config(FAULTY);
    config.environments = 2;
    let mut envs = WorkerEnvironments::new(config).unwrap();
    assert!(matches!(envs.start(0, &[0, 0]), Err(EnvError::OutOfTurn { .. })));
    assert!(matches!(envs.save(0, 0), Err(EnvError::OutOfTurn { .. })));
    envs.reset().unwrap();
    assert!(matches!(envs.finish(0), Err(EnvError::OutOfTurn { .. })));
    assert!(matches!(envs.start(1, &[0, 0]), Err(EnvError::NoSuchEnvironment { .. })));
    assert!(matches!(envs.start(0, &[0]), Err(EnvError::WrongActionCount { expected: 2, given: 1, .. })));
    assert!(matches!(envs.start(0, &[0, 13]), Err(EnvError::ActionOutOfRange { action: 13, actions: 13, .. })));
    assert!(matches!(envs.save(0, 2), Err(EnvError::NoSuchEnvironment { .. })));
    envs.start(0, &[0, 0]).unwrap();
    assert!(matches!(envs.start(0, &[0, 0]), Err(EnvError::OutOfTurn { .. })));
    assert!(matches!(envs.reset(), Err(EnvError::OutOfTurn { .. })));
    assert!(matches!(envs.save(0, 0), Err(EnvError::OutOfTurn { .. })));
    assert_eq!(envs.finish(0).unwrap().len(), 2);
    assert!(envs.take_faults().is_empty());
}

#[test]
fn a_worker_outlives_the_thread_that_made_it() {
    let mut envs = std::thread::spawn(faulty).join().unwrap();
    let process = envs.worker_process();
    std::thread::sleep(Duration::from_millis(100));
    envs.start(0, &[FINE, FINE]).unwrap();
    envs.finish(0).unwrap();
    assert_eq!(envs.worker_process(), process);
    assert!(envs.take_faults().is_empty());
}

#[test]
fn dropping_the_environments_ends_the_worker_even_in_the_middle_of_a_step() {
    for action in [FINE, HANG_WITH_LOCK] {
        let mut envs = faulty();
        let process = envs.worker_process().unwrap();
        envs.start(0, &[FINE, action]).unwrap();
        drop(envs);
        assert!(!runs(process), "action {action}");
    }
}

/// Episodes that end together are begun again within the limit of resets, not of steps.
#[test]
fn resets_after_a_step_have_their_own_limit() {
    let mut config = config("gym:tests.gym_envs:SlowReset-v0");
    (config.environments, config.groups, config.seed) = (2, 1, 9);
    config.limits.step = STEP_LIMIT;
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    for episode_step in [1, 2, 3, 4, 5, 1] {
        envs.start(0, &[0, 0]).unwrap();
        let end = EpisodeEnd { ending: Ending::Truncated, score: -1.25, frames: 5 };
        let end = (episode_step == 5).then_some(end);
        assert_eq!(envs.finish(0).unwrap(), [Step { reward: -0.25, end }; 2]);
    }
    assert_eq!(envs.take_faults(), Vec::<String>::new());
}

/// This test starts itself once more, as the one that is stopped for longer than the limit while its worker answers.
#[test]
fn a_stopped_parent_does_not_blame_its_worker() {
    const ROLE: &str = "MEME_TEST_STOPPED";
    if std::env::var(ROLE).is_ok() {
        let mut envs = faulty();
        envs.start(0, &[FINE, SLOW]).unwrap();
        println!("waiting {}", std::process::id());
        let steps = envs.finish(0).unwrap().to_vec();
        println!("done {:?} {:?}", steps, envs.take_faults());
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_stopped_parent_does_not_blame_its_worker", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    lines.find(|line| line.contains("waiting ")).expect("it says when it waits");
    std::thread::sleep(Duration::from_millis(100));
    signal("-STOP");
    std::thread::sleep(STEP_LIMIT + Duration::from_millis(300));
    signal("-CONT");
    let said = lines.find_map(|line| line.split_once("done ").map(|(_, said)| said.to_owned())).unwrap();
    assert_eq!(said, format!("{:?} []", [Step { reward: 1.0, end: None }; 2]));
    assert!(child.wait().unwrap().success());
}

/// This test starts itself once more, as the parent that is then killed.
#[test]
fn a_killed_parent_leaves_no_worker_behind() {
    const ROLE: &str = "MEME_TEST_PARENT_ACTION";
    if let Ok(action) = std::env::var(ROLE) {
        let mut envs = faulty();
        envs.start(0, &[FINE, action.parse().unwrap()]).unwrap();
        println!("worker {}", envs.worker_process().unwrap());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    for action in [FINE, HANG, HANG_WITH_LOCK] {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_parent_leaves_no_worker_behind", "--nocapture"])
            .env(ROLE, action.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let worker = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("worker ").and_then(|(_, id)| id.parse().ok()))
            .expect("the parent says which process its worker is");
        std::thread::sleep(Duration::from_millis(100));
        assert!(runs(worker));
        parent.kill().unwrap();
        parent.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while runs(worker) {
            assert!(Instant::now() < deadline, "worker {worker} still runs; action {action}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

/// Whether a process exists and is not a zombie that waits for whoever adopted it.
fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn a_worker_of_another_commit_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("meme_worker");
    fs::create_dir_all(&package).unwrap();
    for entry in fs::read_dir(workspace().join("python/meme_worker")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|ending| ending == "py") {
            let text = fs::read_to_string(entry.path()).unwrap();
            fs::write(package.join(entry.file_name()), text.replace("\nVERSION = ", "\nVERSION = 100 + ")).unwrap();
        }
    }
    let error = WorkerEnvironments::new(WorkerConfig { package, ..config(FAULTY) }).err().unwrap();
    let sentence = error.to_string();
    assert!(matches!(error, EnvError::Unsupported { .. }), "{sentence}");
    assert!(
        sentence.contains("python/meme_worker speaks version 10") && sentence.contains("`make build`"),
        "{sentence}"
    );
}
