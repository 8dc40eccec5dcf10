//! Lockstep: a run repeats bit for bit, stopped in between or not.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use agent::{ObservationKind, ObservationSpec, TensorFile};
use support::{Scratch, checkpoints, config, metrics, train, train_watched};
use tch::Device;
use train::run::checkpoint::Checkpoint;
use train::run::stop::Stop;
use train::saving;
use train::trained::Trained;

/// Every part of the newest checkpoint: learner, replay, environments, recurrent states, random generators, metrics accumulator.
fn last_state(root: &Path, name: &str) -> BTreeMap<String, Vec<u8>> {
    let checkpoint = Checkpoint::open(checkpoints(root, name).last().unwrap()).unwrap();
    let names: Vec<String> = checkpoint.part_names().map(str::to_owned).collect();
    names.into_iter().map(|name| (name.clone(), checkpoint.part_bytes(&name).unwrap())).collect()
}

/// Names the part that differs, instead of printing megabytes.
fn assert_same_state(root: &Path, one: &str, other: &str) {
    let (one, other) = (last_state(root, one), last_state(root, other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    let parts = ["acting", "embedding", "end", "learner", "metrics", "play", "replay"];
    assert_eq!(one.keys().map(String::as_str).collect::<Vec<_>>(), parts);
    for (part, bytes) in &one {
        assert!(bytes == &other[part], "the part {part} differs");
    }
}

#[test]
fn the_same_seed_gives_the_same_metrics_and_the_same_state() {
    let scratch = Scratch::new();
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
fn a_run_that_was_stopped_goes_on_as_if_it_had_not_been() {
    for environment in ["catch", "memory"] {
        let scratch = Scratch::new();
        let root = scratch.path();
        let whole = config(&["run.lockstep=true", "run.frames=800"]);
        let (unbroken, _) = train(root, "unbroken", environment, &whole);

        // Once by the frames to play, before learning begins, and then at updates between two publications.
        let mut short = whole.clone();
        short.run.frames = 50;
        train(root, "broken", environment, &short);
        assert_eq!(metrics(root, "broken").lines().count(), 1, "a run that ends before its first row still has one");
        for at in [unbroken.updates / 5, unbroken.updates / 2 + 1, unbroken.updates / 2 + 2] {
            let stop = Stop::new();
            let request = |status: &train::runtime::status::RunStatus| {
                if status.updates >= at {
                    stop.request();
                }
            };
            let (status, said) = train_watched(root, "broken", environment, &whole, &stop, request).unwrap();
            assert!(status.updates >= at && status.updates < unbroken.updates, "{status}");
            assert!(said.iter().any(|sentence| sentence.starts_with("going on from ")), "{said:?}");
        }
        let (status, _) = train(root, "broken", environment, &whole);
        assert_eq!((status.frames, status.updates), (unbroken.frames, unbroken.updates));
        assert_eq!(metrics(root, "unbroken"), metrics(root, "broken"), "{environment}");
        assert_same_state(root, "unbroken", "broken");
    }
}

#[test]
fn going_on_when_nothing_is_left_to_play_changes_nothing() {
    let scratch = Scratch::new();
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
fn a_damaged_checkpoint_falls_back_to_the_one_before() {
    let scratch = Scratch::new();
    let root = scratch.path();
    let mut config = config(&["run.lockstep=true", "run.frames=1000"]);
    train(root, "unbroken", "catch", &config);
    for frames in [400, 700] {
        config.run.frames = frames;
        train(root, "broken", "catch", &config);
    }
    let newest = checkpoints(root, "broken").pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();

    config.run.frames = 1000;
    let (status, said) = train(root, "broken", "catch", &config);
    assert_eq!(status.frames, 1000);
    let instead = "; it is now 000000000700.ckpt.damaged, and 000000000400.ckpt is used instead";
    assert!(said[0].contains("000000000700.ckpt is damaged: ") && said[0].ends_with(instead), "{said:?}");
    assert_eq!(said[1], "going on from 400 frames; about 300 frames played after that save are played again");
    assert!(newest.with_extension("ckpt.damaged").exists());
    // What the damage cost is played again, and comes out the same.
    assert_eq!(metrics(root, "unbroken"), metrics(root, "broken"));
    assert_same_state(root, "unbroken", "broken");
}

/// With threads of their own actors may have played by the time that anybody looks for a stop.
#[test]
fn a_stop_before_the_first_frame_saves_nothing() {
    let scratch = Scratch::new();
    let stop = Stop::new();
    stop.request();
    let outcome = train_watched(scratch.path(), "run", "catch", &config(&["run.lockstep=true"]), &stop, |_| {});
    assert_eq!(outcome.unwrap_err().to_string(), "stopped before anything was played");
    assert!(checkpoints(scratch.path(), "run").is_empty());
}

#[test]
fn the_last_evaluation_is_judged_too() {
    let scratch = Scratch::new();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=400", "metrics.lockstep_frames=5000"]);
    let (status, _) = train(root, "run", "catch", &config);
    assert!(status.evaluation_score.is_some(), "{status}");
    assert!(checkpoints(root, "run").pop().unwrap().with_file_name("best.ckpt").exists());
}

/// Distances are only known between embeddings of the f that was acted with, whatever it has learned since.
#[test]
fn whoever_plays_later_plays_with_the_f_that_was_acted_with() {
    let scratch = Scratch::new();
    let root = scratch.path();
    let config = config(&["run.lockstep=true", "run.frames=800", "intrinsic.embedding_every=1000"]);
    let (status, _) = train(root, "held", "catch", &config);
    assert!(status.updates > 50 && status.updates < 1000, "{status}");
    let last = checkpoints(root, "held").pop().unwrap();
    let best = last.with_file_name("best.ckpt");
    let f_of = |file: &TensorFile| -> BTreeMap<String, Vec<u8>> {
        let own = file.tensors.iter().filter(|(name, _)| name.starts_with("action_prediction."));
        own.map(|(name, tensor)| (name.clone(), tensor.bytes.clone())).collect()
    };
    let held = f_of(&saving::embedding(&Checkpoint::open(&last).unwrap()).unwrap());
    assert!(!held.is_empty());
    let (observation, actions) = (ObservationSpec { shape: vec![10, 10], kind: ObservationKind::U8 }, 3);
    for path in [last, best] {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let trained = Trained::read(&checkpoint, &config, &observation, actions, Device::Cpu).unwrap();
        assert!(f_of(&trained.published.embedding().unwrap().save().unwrap()) == held, "{}", path.display());
    }
}
