//! Workers that die, hang, raise, print and violate the protocol.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use envs::{Ending, EnvError, Environments, EpisodeEnd, Step, WorkerConfig, WorkerEnd, WorkerEnvironments};
use support::{config, last_observation, observation, workspace};

const FAULTY: &str = "gym:tests.gym_envs:Faulty-v0";
/// Actions of the faulty environment.
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

/// Makes two groups of two faulty environments and takes one good step.
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

/// Returns the first observations of each environment's second episode without faults.
fn second_episodes() -> Vec<Vec<u8>> {
    let mut envs = faulty();
    envs.reset().unwrap();
    all_observations(&envs)
}

const CUT_OFF: Step = Step { reward: 0.0, end: Some(EpisodeEnd { ending: Ending::CutOff, score: 1.0, frames: 1 }) };

#[test]
fn reports_and_repairs_every_fault_and_cuts_off_only_that_workers_episodes() {
    let second = second_episodes();
    for (action, expected) in [
        (RAISE, "ValueError: the moon is in the wrong house (at "),
        (HANG, "did not answer step within 700ms"),
        (HANG_WITH_LOCK, "did not answer step within 700ms"),
        (WRONG_SHAPE, "an observation of shape (5,), expected (4,)"),
        (WRONG_TYPE, "an observation of float32, expected uint8"),
        (EXIT, "it exited with code 3); its last output: about to leave"),
        (KILL, "it was killed by signal 9"),
        (CLOSE_ALL_FILES, "it "),
        (SYSTEM_EXIT, "it exited with code 1); its last output: leaving"),
    ] {
        let mut envs = faulty();
        let before = all_observations(&envs);
        let begin = Instant::now();
        envs.start(0, &[FINE, action]).unwrap();
        envs.start(1, &[FINE, FINE]).unwrap();
        assert_eq!(envs.finish(0).unwrap(), [CUT_OFF; 2], "action {action}");
        // Allows for the limit, the start of another worker and a busy machine.
        assert!(begin.elapsed() < STEP_LIMIT + Duration::from_secs(20), "action {action}: {:?}", begin.elapsed());
        let faults = envs.take_faults();
        assert!(faults.len() == 1 && faults[0].contains(expected), "action {action}: {faults:?}");
        assert!(faults[0].contains(" step") && faults[0].contains("the worker was replaced"), "{faults:?}");
        // Until it is finished, the other group shows the observations its actions were chosen for.
        assert_eq!(all_observations(&envs)[2..], before[2..]);
        assert_eq!(envs.finish(1).unwrap(), [CUT_OFF; 2]);
        for (i, before) in before.iter().enumerate() {
            assert_eq!(last_observation(&envs, i / 2, i % 2), *before);
        }
        assert_eq!(all_observations(&envs), second, "the next episodes are the second ones, as without a fault");
        for group in 0..2 {
            envs.start(group, &[FINE, FINE]).unwrap();
            assert_eq!(envs.finish(group).unwrap(), [Step { reward: 1.0, end: None }; 2]);
        }
        assert!(envs.take_faults().is_empty());
    }
}

#[test]
fn refuses_rewards_that_are_not_finite_without_replacing_the_worker() {
    let mut envs = faulty();
    let worker = envs.worker_process();
    envs.start(0, &[FINE, NAN_REWARD]).unwrap();
    envs.start(1, &[FINE, FINE]).unwrap();
    let error = envs.finish(0).unwrap_err().to_string();
    assert_eq!(
        error,
        "environment 1 of gym:tests.gym_envs:Faulty-v0 gave the reward NaN, expected a number from -1e12 to 1e12"
    );
    assert_eq!(envs.finish(1).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    assert_eq!(envs.worker_process(), worker);
    assert!(envs.take_faults().is_empty());
    // It stays usable: new episodes have no past.
    envs.reset().unwrap();
    envs.start(0, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(0).unwrap(), [Step { reward: 1.0, end: None }; 2]);
}

#[test]
fn idle_groups_are_cut_off_at_their_next_step() {
    let mut envs = faulty();
    let before = all_observations(&envs);
    envs.start(0, &[KILL, FINE]).unwrap();
    envs.finish(0).unwrap();
    assert!(matches!(envs.save(1, 0), Err(EnvError::OutOfTurn { .. })));
    assert_eq!(all_observations(&envs)[2..], before[2..]);
    envs.start(1, &[RAISE, RAISE]).unwrap();
    assert_eq!(envs.finish(1).unwrap(), [CUT_OFF; 2], "its actions are for lost episodes");
    assert_eq!(last_observation(&envs, 1, 1), before[3]);
    assert!(envs.save(1, 0).is_ok());
}

#[test]
fn replaces_workers_killed_from_outside() {
    let mut envs = faulty();
    let first = envs.worker_process().unwrap();
    assert!(envs.worker_cpu_time().unwrap() > Duration::ZERO);
    kill(first);
    envs.start(1, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(1).unwrap(), [CUT_OFF; 2]);
    assert_ne!(envs.worker_process().unwrap(), first);
    // A reset replaces a worker that was killed while idle.
    kill(envs.worker_process().unwrap());
    envs.reset().unwrap();
    assert_eq!(envs.take_faults().len(), 2);
    envs.start(0, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(0).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    // So does a failed save.
    kill(envs.worker_process().unwrap());
    assert!(matches!(envs.save(0, 0), Err(EnvError::Lost { .. })));
    envs.start(0, &[FINE, FINE]).unwrap();
    assert_eq!(envs.finish(0).unwrap(), [CUT_OFF; 2]);
}

#[test]
fn output_of_environments_does_no_harm() {
    let mut envs = faulty();
    for _ in 0..3 {
        envs.start(0, &[PRINT, PRINT]).unwrap();
        assert_eq!(envs.finish(0).unwrap(), [Step { reward: 1.0, end: None }; 2]);
    }
    assert_eq!(observation(&envs, 0, 0)[1], 4);
    assert!(envs.take_faults().is_empty());
}

#[test]
fn refuses_observations_that_are_not_finite() {
    let mut envs = WorkerEnvironments::new(config("gym:tests.gym_envs:NotFinite-v0")).unwrap();
    envs.reset().unwrap();
    envs.start(0, &[0]).unwrap();
    assert_eq!(envs.finish(0).unwrap()[0].end.map(|end| end.ending), Some(Ending::CutOff));
    let faults = envs.take_faults();
    assert!(faults[0].contains("an observation that is not finite: [ 0. inf  0.]"), "{faults:?}");
}

#[test]
fn numbers_out_of_range_are_reported_as_the_environment_returned_them() {
    let error = WorkerEnvironments::new(config("gym:tests.gym_envs:OutOfRange-v0")).unwrap().reset().unwrap_err();
    assert!(error.to_string().contains("returned 2, expected a number from 5 to 7"), "{error}");
}

#[test]
fn codes_beyond_the_declared_ones_are_reported() {
    let error = WorkerEnvironments::new(config("gym:tests.gym_envs:UnknownCode-v0")).unwrap().reset().unwrap_err();
    assert!(error.to_string().contains("returned 9, expected codes up to 5"), "{error}");
}

#[test]
fn gives_up_on_environments_that_never_work() {
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
    assert!(error.contains("gave up") && error.contains("reset: RuntimeError: no reset today"), "{error}");
}

#[test]
fn gives_up_on_environments_that_never_finish_an_episode() {
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
    assert!(error.contains("after 20 failures without finishing an episode; the last one: "), "{error}");
    // An environment that finishes episodes may fail between them any number of times.
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
fn gives_up_on_environments_that_keep_hanging() {
    let mut config = config("gym:tests.gym_envs:Stalls-v0");
    config.limits.step = STEP_LIMIT;
    let mut envs = WorkerEnvironments::new(config).unwrap();
    envs.reset().unwrap();
    let mut ends = Vec::new();
    let error = loop {
        envs.start(0, &[FINE]).unwrap();
        match envs.finish(0) {
            Ok(steps) => ends.extend(steps[0].end.map(|end| end.ending)),
            Err(error) => break error.to_string(),
        }
    };
    // Episodes that end between two hangs do not help.
    use Ending::{CutOff, Terminated};
    assert_eq!(ends, [[Terminated; 4].as_slice(), &[CutOff], &[Terminated; 4], &[CutOff], &[Terminated; 4]].concat());
    assert!(error.contains("after 3 hangs with fewer than 1000 steps between them; the last one: "), "{error}");
}

#[test]
fn hang_before_the_first_step_is_not_tried_again() {
    let mut config = config("gym:tests.gym_envs:StallsAtStart-v0");
    config.limits.start_up = Duration::from_secs(20);
    let mut envs = WorkerEnvironments::new(config).unwrap();
    let error = envs.reset().unwrap_err();
    assert!(matches!(error, EnvError::Timeout { request: "reset", .. }), "{error:?}");
}

#[test]
fn worker_killed_while_it_starts_is_started_again_within_limits() {
    let scratch = tempfile::tempdir().unwrap();
    let script = scratch.path().join("worker.sh");
    let mut config = config(FAULTY);
    let worker = format!("exec '{}' '{}' \"$@\"", config.python.display(), config.package.display());
    fs::write(&script, format!("mkdir \"$0.first\" 2>/dev/null && kill -9 $$\n{worker}\n")).unwrap();
    (config.python, config.package) = ("sh".into(), script.clone());
    let mut envs = WorkerEnvironments::new(config.clone()).unwrap();
    envs.reset().unwrap();
    let faults = envs.take_faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains("during open (it was killed by signal 9)"), "{faults:?}");

    fs::write(&script, "echo started >> \"$0.log\"; kill -9 $$").unwrap();
    let error = WorkerEnvironments::new(config.clone()).err().unwrap();
    assert!(matches!(error, EnvError::Lost { how: WorkerEnd::Killed(9), .. }), "{error:?}");
    let log = fs::read_to_string(scratch.path().join("worker.sh.log")).unwrap();
    assert_eq!(log.lines().count(), config.limits.failures as usize);
}

#[test]
fn reports_workers_that_never_start() {
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
fn refuses_invalid_calls_before_they_reach_the_worker() {
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
fn workers_outlive_the_thread_that_made_them() {
    let mut envs = std::thread::spawn(faulty).join().unwrap();
    let process = envs.worker_process();
    std::thread::sleep(Duration::from_millis(100));
    envs.start(0, &[FINE, FINE]).unwrap();
    envs.finish(0).unwrap();
    assert_eq!(envs.worker_process(), process);
    assert!(envs.take_faults().is_empty());
}

#[test]
fn dropping_environments_ends_the_worker_even_during_a_step() {
    for action in [FINE, HANG_WITH_LOCK] {
        let mut envs = faulty();
        let process = envs.worker_process().unwrap();
        envs.start(0, &[FINE, action]).unwrap();
        drop(envs);
        assert!(!runs(process), "action {action}");
    }
}

/// The limit of resets, not that of steps, applies to beginning the next episodes.
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

/// Starts itself again as a process that is stopped for longer than the limit while its worker answers.
#[test]
fn stopped_parents_do_not_blame_their_worker() {
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
        .args(["--exact", "stopped_parents_do_not_blame_their_worker", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    lines.find(|line| line.contains("waiting ")).expect("the child prints when it waits");
    std::thread::sleep(Duration::from_millis(100));
    signal("-STOP");
    std::thread::sleep(STEP_LIMIT + Duration::from_millis(300));
    signal("-CONT");
    let printed = lines.find_map(|line| line.split_once("done ").map(|(_, rest)| rest.to_owned())).unwrap();
    assert_eq!(printed, format!("{:?} []", [Step { reward: 1.0, end: None }; 2]));
    assert!(child.wait().unwrap().success());
}

/// Starts itself again as a parent that is then killed.
#[test]
fn killed_parents_leave_no_worker_behind() {
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
            .args(["--exact", "killed_parents_leave_no_worker_behind", "--nocapture"])
            .env(ROLE, action.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let worker = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("worker ").and_then(|(_, id)| id.parse().ok()))
            .expect("the parent prints the id of its worker");
        std::thread::sleep(Duration::from_millis(100));
        assert!(runs(worker));
        parent.kill().unwrap();
        parent.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while runs(worker) {
            assert!(Instant::now() < deadline, "worker {worker} still runs; action {action}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

/// Returns whether a process exists and is not a zombie.
fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn refuses_workers_of_another_commit_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let package = directory.path().join("meme_worker");
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
