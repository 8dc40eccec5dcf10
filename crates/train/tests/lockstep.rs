//! A run in lockstep repeats bit for bit, also if it is stopped in between.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use agent::tensor_file::SafeTensors;
use agent::{NamedTensors, ObservationKind, ObservationSpec};
use support::{checkpoints, config, metrics, train, train_watched};
use tch::Device;
use tempfile::tempdir;
use train::roles::trained_agent::TrainedAgent;
use train::run::checkpoint::{Checkpoint, contents};
use train::run::stop::Stop;

/// Returns every file of the newest checkpoint.
fn last_state(root: &Path, name: &str) -> BTreeMap<String, Vec<u8>> {
    let checkpoint = Checkpoint::open(checkpoints(root, name).last().unwrap()).unwrap();
    checkpoint.file_names().map(|name| (name.to_owned(), checkpoint.file_bytes(name).unwrap())).collect()
}

/// Names the file that differs, instead of printing megabytes.
fn assert_same_state(root: &Path, one: &str, other: &str) {
    let (one, other) = (last_state(root, one), last_state(root, other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    let files = [
        "acting.safetensors",
        "agent.json",
        "final_status.json",
        "learner.safetensors",
        "metrics.bin",
        "replay.bin",
        "state.bin",
        "weights.safetensors",
    ];
    assert_eq!(one.keys().map(String::as_str).collect::<Vec<_>>(), files);
    for (file, bytes) in &one {
        assert!(bytes == &other[file], "{file} differs");
    }
}

#[test]
fn same_seed_gives_same_metrics_and_state() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=800"]);
    for name in ["one", "other"] {
        let (status, _) = train(root, name, "catch", &config);
        assert!(status.updates > 50, "{status}");
        assert!(status.evaluation_score.is_some(), "{status}");
    }
    let rows = metrics(root, "one");
    assert_eq!(rows.lines().count(), 8);
    assert_eq!(rows, metrics(root, "other"));
    assert_same_state(root, "one", "other");

    let mut config = config;
    config.run.seed = 2;
    train(root, "third", "catch", &config);
    assert_ne!(rows, metrics(root, "third"));
}

#[test]
fn stopped_run_resumes_as_if_it_had_not_stopped() {
    for environment in ["catch", "memory"] {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        let whole = config(&["run.lockstep=true", "run.frames=800"]);
        let (unbroken, _) = train(root, "unbroken", environment, &whole);

        // Once by its frames, before learning starts, and then at updates between two publications.
        let mut short = whole.clone();
        short.run.frames = 50;
        train(root, "broken", environment, &short);
        assert_eq!(
            metrics(root, "broken").lines().count(),
            1,
            "a run that ends before its first row has one nevertheless"
        );
        for at in [unbroken.updates / 5, unbroken.updates / 2 + 1, unbroken.updates / 2 + 2] {
            let stop = Stop::new();
            let request = |status: &train::runtime::status::RunStatus| {
                if status.updates >= at {
                    stop.request();
                }
            };
            let (status, said) = train_watched(root, "broken", environment, &whole, &stop, request).unwrap();
            assert!(status.updates >= at && status.updates < unbroken.updates, "{status}");
            assert!(said.iter().any(|sentence| sentence.starts_with("resuming from ")), "{said:?}");
        }
        let (status, _) = train(root, "broken", environment, &whole);
        assert_eq!((status.frames, status.updates), (unbroken.frames, unbroken.updates));
        assert_eq!(metrics(root, "unbroken"), metrics(root, "broken"), "{environment}");
        assert_same_state(root, "unbroken", "broken");
    }
}

/// Frames stand still while evaluators play.
#[test]
fn run_stopped_during_an_evaluation_repeats_it() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=800"]);
    train(root, "unbroken", "memory", &config);
    for least in [100, 400] {
        let (stop, mut frames_before) = (Stop::new(), 0);
        let request = |status: &train::runtime::status::RunStatus| {
            if status.frames >= least && status.frames == std::mem::replace(&mut frames_before, status.frames) {
                stop.request();
            }
        };
        let (status, _) = train_watched(root, "broken", "memory", &config, &stop, request).unwrap();
        assert!((least..800).contains(&status.frames), "{status}");
    }
    train(root, "broken", "memory", &config);
    assert_eq!(metrics(root, "unbroken"), metrics(root, "broken"));
    assert_same_state(root, "unbroken", "broken");
}

#[test]
fn resuming_a_finished_run_changes_nothing() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=600"]);
    train(root, "once", "catch", &config);
    let (before, rows) = (last_state(root, "once"), metrics(root, "once"));
    let names = checkpoints(root, "once");
    let (status, _) = train(root, "once", "catch", &config);
    assert_eq!(status.frames, 600);
    assert_eq!(checkpoints(root, "once"), names);
    assert_eq!(metrics(root, "once"), rows);
    assert!(last_state(root, "once") == before);
}

#[test]
fn resumes_from_previous_checkpoint_when_newest_is_damaged() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let mut config = config(&["run.lockstep=true", "run.frames=1000"]);
    train(root, "unbroken", "catch", &config);
    for frames in [400, 700] {
        config.run.frames = frames;
        train(root, "broken", "catch", &config);
    }
    let newest = checkpoints(root, "broken").pop().unwrap();
    let replay = newest.join("replay.bin");
    let mut bytes = fs::read(&replay).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&replay, bytes).unwrap();

    config.run.frames = 1000;
    let (status, said) = train(root, "broken", "catch", &config);
    assert_eq!(status.frames, 1000);
    let instead = "; renamed it to 000000000700.damaged, using 000000000400 instead";
    assert!(said[0].contains("000000000700 is damaged: ") && said[0].ends_with(instead), "{said:?}");
    assert_eq!(said[1], "resuming from 400 frames; about 300 frames after that save will be played again");
    assert!(newest.with_extension("damaged").exists());
    // The lost part is played again, with the same result.
    assert_eq!(metrics(root, "unbroken"), metrics(root, "broken"));
    assert_same_state(root, "unbroken", "broken");
}

/// With threads, actors may have played before the stop is noticed.
#[test]
fn stop_before_the_first_frame_saves_nothing() {
    let scratch = tempdir().unwrap();
    let stop = Stop::new();
    stop.request();
    let outcome = train_watched(scratch.path(), "run", "catch", &config(&["run.lockstep=true"]), &stop, |_| {});
    assert_eq!(outcome.unwrap_err().to_string(), "stopped before anything was played");
    assert!(checkpoints(scratch.path(), "run").is_empty());
}

#[test]
fn last_evaluation_counts_for_the_best_checkpoint() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=400", "metrics.lockstep_frames=5000"]);
    let (status, _) = train(root, "run", "catch", &config);
    assert!(status.evaluation_score.is_some(), "{status}");
    assert!(checkpoints(root, "run").pop().unwrap().with_file_name("best").exists());
}

/// d²_m is known only for the f that acted, not for the one that the learner has now.
#[test]
fn trained_agent_plays_with_the_f_that_acted() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=800", "intrinsic.embedding_every=1000"]);
    let (status, _) = train(root, "held", "catch", &config);
    assert!(status.updates > 50 && status.updates < 1000, "{status}");
    let last = checkpoints(root, "held").pop().unwrap();
    let best = last.with_file_name("best");
    let f_of = |weights: &NamedTensors| -> BTreeMap<String, Vec<u8>> {
        let f = weights.iter().filter(|(name, _)| name.starts_with("average.action_prediction."));
        f.map(|(name, tensor)| (name.clone(), tensor.bytes.clone())).collect()
    };
    let weights = contents::weights(&Checkpoint::open(&last).unwrap()).unwrap();
    let held = f_of(&weights);
    assert!(!held.is_empty());
    // The learner's own f has moved on since.
    assert!(held.iter().any(|(name, bytes)| weights[&name.replace("average.", "online.")].bytes != *bytes));
    let (observation, actions) = (ObservationSpec::array(vec![10, 10], ObservationKind::U8), 3);
    for path in [last, best] {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let trained = TrainedAgent::read(&checkpoint, &config, &observation, actions, Device::Cpu).unwrap();
        let mut weights = NamedTensors::new();
        trained.published.embedding_network().unwrap().export(&mut weights).unwrap();
        assert!(f_of(&weights) == held, "{}", path.display());
    }
}

/// Opens the weights as a PyTorch user does: with a safetensors reader and nothing else.
#[test]
fn weights_open_with_any_safetensors_reader() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    train(root, "run", "catch", &config(&["run.lockstep=true", "run.frames=800"]));
    let last = checkpoints(root, "run").pop().unwrap();
    for (path, prefixes) in
        [(last.clone(), &["average.", "online.", "target."][..]), (last.with_file_name("best"), &["average."])]
    {
        let bytes = fs::read(path.join("weights.safetensors")).unwrap();
        let weights = SafeTensors::deserialize(&bytes).unwrap();
        let mut found: Vec<&str> = weights.names().iter().map(|name| &name[..name.find('.').unwrap() + 1]).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, prefixes);
        for prefix in prefixes {
            let shape = |name: &str| weights.tensor(&format!("{prefix}{name}")).unwrap().shape().to_vec();
            assert_eq!(shape("lstm.weight_hh"), [64, 16]);
            // Four policies of three actions.
            assert_eq!(shape("heads.policy.output.weight"), [12, 16]);
            assert_eq!(shape("heads.policy.output.bias"), [12]);
        }
        assert!(weights.tensor("average.action_prediction.output.weight").is_ok());
        assert!(weights.tensor("average.rnd.predictor.output.weight").is_ok());
    }
    let bytes = fs::read(last.join("learner.safetensors")).unwrap();
    let optimizer = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(optimizer.tensor("second_moment.lstm.weight_hh").unwrap().shape(), [64, 16]);
}
