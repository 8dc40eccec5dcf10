//! Training with environments in worker processes, which may fail.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use support::{Listener, checkpoints, config, files, metrics, open, task, train, train_watched};
use tempfile::tempdir;
use train::config::Config;
use train::run::Rows;
use train::run::checkpoint::Checkpoint;
use train::run::stop::Stop;
use train::runtime::starting_point::StartingPoint;
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, TrainingSetup};

/// One test at a time: a worker process does not show which test started it.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the worker processes of this process.
fn workers() -> Vec<u32> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Processes may have ended meanwhile.
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent == Some(own.as_str()) && read("cmdline").contains("meme_worker") {
            found.push(process);
        }
    }
    found
}

/// More frames than a run ever reaches: what ends it is something else.
const FOREVER: &str = "run.frames=1000000000";

fn small(settings: &[&str]) -> Config {
    config(&[&["run.frames=300", "metrics.interval_seconds=0.1"], settings].concat())
}

#[test]
fn killed_worker_does_not_stop_the_run() {
    let _alone = ALONE.lock();
    let scratch = tempdir().unwrap();
    let stop = Stop::new();
    let mut before = Vec::new();
    let kill = |status: &RunStatus| {
        if before.is_empty() && status.frames > 100 {
            before = workers();
            assert!(before.len() >= 2, "{before:?}");
            assert!(Command::new("kill").args(["-9", &before[0].to_string()]).status().unwrap().success());
        } else if !before.is_empty() && workers().iter().any(|worker| !before.contains(worker)) {
            stop.request();
        }
    };
    let config = small(&[FOREVER]);
    let (status, said) = train_watched(scratch.path(), "run", "gym:CartPole-v1", &config, &stop, kill).unwrap();
    assert!(status.frames > 100, "{status}");
    assert!(
        said.iter().any(|sentence| sentence.contains("the worker was replaced and its episodes were cut off")),
        "{said:?}"
    );
    Checkpoint::open(checkpoints(scratch.path(), "run").last().unwrap()).unwrap();
}

/// Tells the environments how to fail, in one rename: a worker that found an empty file would fail otherwise.
fn fall_ill(sick: &Path, how: &str) {
    let aside = sick.with_extension("aside");
    fs::write(&aside, how).unwrap();
    fs::rename(&aside, sick).unwrap();
}

#[test]
fn nan_reward_stops_the_run_after_a_save() {
    let _alone = ALONE.lock();
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let sick = std::env::temp_dir().join(format!("meme-test-sick-{}", std::process::id()));
    let name = "gym:tests.train_envs:Sick-v0";
    for run in ["lockstep", "threads"] {
        let lockstep = format!("run.lockstep={}", run == "lockstep");
        let mut config = small(&[FOREVER, "evaluation.evaluators=1", &lockstep]);
        // At the first step there is nothing worth saving.
        fall_ill(&sick, "late");
        let error = train_watched(root, run, name, &config, &Stop::new(), |_| {}).unwrap_err().to_string();
        fs::remove_file(&sick).unwrap();
        assert!(error.ends_with("expected a number from -1e12 to 1e12"), "{error}");
        assert!(checkpoints(root, run).is_empty());
        // Nor is there a row of metrics, so the run's directory can be removed.
        assert!(metrics(root, run).is_empty());

        let later = |status: &RunStatus| {
            if status.frames >= 150 {
                fall_ill(&sick, "");
            }
        };
        let error = train_watched(root, run, name, &config, &Stop::new(), later).unwrap_err().to_string();
        fs::remove_file(&sick).unwrap();
        let saved = Checkpoint::open(checkpoints(root, run).last().unwrap()).unwrap().frames();
        let why = "gave the reward NaN, expected a number from -1e12 to 1e12";
        let end = format!(" {why}; the run is saved at {saved} frames");
        assert!(saved >= 150 && error.ends_with(&end), "{saved}: {error}");

        // Repaired, it resumes, with new episodes in place of those that ended in a NaN.
        config.run.frames = saved + 300;
        let (status, said) = train(root, run, name, &config);
        assert!(
            status.frames >= saved + 300 && said == [format!("resuming from {saved} frames")],
            "{status}: {said:?}"
        );
    }
}

#[test]
fn all_failures_of_an_abandoned_worker_are_reported() {
    let _alone = ALONE.lock();
    let scratch = tempdir().unwrap();
    let sick = std::env::temp_dir().join(format!("meme-test-sick-{}", std::process::id()));
    let name = "gym:tests.train_envs:Sick-v0";
    for run in ["lockstep", "threads"] {
        let lockstep = format!("run.lockstep={}", run == "lockstep");
        let config = small(&[FOREVER, "evaluation.evaluators=0", "actors.environments_per_worker=4", &lockstep]);
        let seen = |status: &RunStatus| {
            if status.frames >= 150 {
                fall_ill(&sick, "die");
            }
        };
        let directory = open(scratch.path(), run, name, &config);
        let mut listener = Listener { said: Vec::new(), seen };
        let (task, from) = (&task(name), StartingPoint::Nothing);
        let setup = TrainingSetup { task, config: &config, directory: &directory, from, remote: None };
        let error = trainer::train(setup, &Stop::new(), &mut listener).unwrap_err();
        fs::remove_file(&sick).unwrap();
        assert!(error.to_string().contains("after 3 failures in a row"), "{error}");
        // The first failure in full, the second in the count at the end; the third is the error.
        let [first, summary] = &listener.said[..] else { panic!("{:?}", listener.said) };
        assert!(first.contains("exited with code 7"), "{first}");
        assert_eq!(summary, "recovered from the same fault 2 times");
    }
}

#[test]
fn resumed_run_continues_to_count_positions() {
    let _alone = ALONE.lock();
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let set = ["run.lockstep=true", "env.ram=[3, 42, 43]", "env.frame_cap=400", "env.hide_rewards=true"];
    let mut config = small(&set);
    for (name, stops) in [("whole", &[3200][..]), ("stopped", &[1600, 3200])] {
        for &frames in stops {
            config.run.frames = frames;
            train(root, name, "montezuma_revenge", &config);
        }
    }
    assert!(metrics(root, "whole") == metrics(root, "stopped"));
    let rows = Rows::open(&files(root, "whole").metrics_file()).unwrap();
    let curve: Vec<f64> = rows.filter_map(|row| row.unwrap().get("actor/positions")).collect();
    assert!(curve.windows(2).all(|pair| pair[0] <= pair[1]) && curve[curve.len() - 1] > 2.0 * curve[0], "{curve:?}");
}

#[test]
fn environment_that_cannot_be_saved_resumes_with_new_episodes() {
    let _alone = ALONE.lock();
    let scratch = tempdir().unwrap();
    let seeds = std::env::temp_dir().join(format!("meme-test-seeds-{}", std::process::id()));
    let name = "gym:tests.train_envs:Unsavable-v0";
    let mut config = small(&["evaluation.evaluators=0", "run.lockstep=true"]);
    for frames in [100, 200, 300] {
        config.run.frames = frames;
        train(scratch.path(), "run", name, &config);
    }
    let played: Vec<String> = fs::read_to_string(&seeds).unwrap().lines().map(str::to_owned).collect();
    fs::remove_file(&seeds).unwrap();
    let different: std::collections::HashSet<&String> = played.iter().collect();
    // 4 environments, three times 25 steps, 10 steps per episode.
    assert_eq!((played.len(), different.len()), (36, 36), "{played:?}");
}

/// Networks and replay are worth days, an episode only minutes.
#[test]
fn environments_that_cannot_be_restored_start_new_episodes() {
    let _alone = ALONE.lock();
    let moved = std::env::temp_dir().join(format!("meme-test-moved-{}", std::process::id()));
    let name = "gym:tests.train_envs:Moved-v0";
    let settings = ["actors.environments_per_worker=4", "run.lockstep=true", "run.frames=100"];
    let refused = format!(
        "{name} cannot restore: it cannot be unpickled (AttributeError: there is no class of that name any more); 4 \
         episodes of this worker were abandoned"
    );
    let died = format!("the environment worker of {name} was lost during restore (");
    for (how, fault) in [("refuse", &refused), ("die", &died)] {
        let scratch = tempdir().unwrap();
        let mut config = small(&settings);
        train(scratch.path(), "run", name, &config);
        fs::write(&moved, how).unwrap();
        config.run.frames = 200;
        let outcome = train_watched(scratch.path(), "run", name, &config, &Stop::new(), |_| {});
        fs::remove_file(&moved).unwrap();
        let (status, said) = outcome.unwrap();
        assert_eq!((status.frames, said[0].as_str()), (200, "resuming from 100 frames"));
        assert!(said[1].starts_with(fault.as_str()) && said.len() == 2, "{said:?}");
        // The new episodes are saved and resumed like any other.
        config.run.frames = 300;
        let (status, said) = train(scratch.path(), "run", name, &config);
        assert_eq!((status.frames, said), (300, vec!["resuming from 200 frames".to_owned()]));
    }
}
