//! Gymnasium environments, one of vectors and one of pictures, are trained on like any other. With `MEME_TEST_ALL=1` until
//! they are solved, which takes minutes each; else for long enough to see all of it at work.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::env;
use std::path::Path;

use support::{Scratch, files, sources, train_watched};
use train::run::Rows;
use train::run::stop::Stop;
use train::status::Status;

/// Trains with the preset `tiny` until the evaluation reaches `bar`, or a little.
fn is_learned(environment: &str, bar: f64) {
    // Where the module `pictures` is.
    env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/examples")).unwrap();
    let whole = env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1");
    // The mean of fewer episodes, which take long where the agent is good.
    let mut config = sources("tiny", &["run.device=cpu", "evaluation.mean_episodes=10"]);
    config.run.frames = if whole { 500_000 } else { 3_000 };
    let scratch = Scratch::new();
    let stop = Stop::new();
    let reached = |status: &Status| {
        if status.evaluation_score.is_some_and(|score| score >= bar) {
            stop.request();
        }
    };
    let (status, said) = train_watched(scratch.path(), "run", environment, &config, &stop, reached).unwrap();
    assert!(said.is_empty(), "{said:?}");
    if whole {
        assert!(status.evaluation_score.is_some_and(|score| score >= bar), "{status}");
        return;
    }
    assert!(status.updates > 0 && status.actor_score.is_some_and(f64::is_finite), "{status}");
    let rows: Vec<_> = Rows::open(&files(scratch.path(), "run").metrics_file()).unwrap().map(Result::unwrap).collect();
    // A row has a loss only if there was an update since the one before.
    let loss = rows.iter().rev().find_map(|row| row.get("learner/loss"));
    let frames = rows.last().map(|row| row.frames);
    assert!(loss.is_some_and(f64::is_finite) && frames >= Some(config.run.frames), "{loss:?} at {frames:?} frames");
}

#[test]
fn cart_pole() {
    is_learned("gym:CartPole-v1", 475.0);
}

/// Eight cells by eight, and a reward of 1 only at the goal.
#[test]
fn frozen_lake_in_pictures() {
    is_learned("gym:pictures:FrozenLakePictures-v0", 0.95);
}
