//! Training on Gymnasium environments with vectors and with images: with `MEME_TEST_ALL=1` until they are solved, which
//! takes minutes each, otherwise only until everything has been used.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::env;
use std::path::Path;

use support::{files, sources, train_watched};
use tempfile::tempdir;
use train::run::stop::Stop;
use train::run::{MetricValue, Row, Rows};
use train::runtime::status::RunStatus;

/// Least number of frames of a short training.
const A_FEW: u64 = 3_000;

/// Trains with the preset `tiny` until the evaluation reaches `bar`, for at most `frames` frames with
/// `MEME_TEST_ALL=1`, otherwise for a few. Also returns whether it is set.
fn train(environment: &str, settings: &[&str], frames: u64, bar: f64) -> (RunStatus, Vec<Row>, bool) {
    // The environments' modules are there.
    env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/examples")).unwrap();
    let whole = env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1");
    let mut config = sources("tiny", &[&["run.device=cpu"], settings].concat());
    config.run.frames = frames;
    let scratch = tempdir().unwrap();
    let stop = Stop::new();
    // By then an episode has ended and the learner has learned from it; how long that takes depends on the machine.
    let used = |status: &RunStatus| status.frames >= A_FEW && status.updates > 0 && status.actor_score.is_some();
    let reached = |status: &RunStatus| {
        if status.evaluation_score.is_some_and(|score| score >= bar) || !whole && used(status) {
            stop.request();
        }
    };
    let (status, said) = train_watched(scratch.path(), "run", environment, &config, &stop, reached).unwrap();
    assert!(said.is_empty(), "{said:?}");
    let rows: Vec<_> = Rows::open(&files(scratch.path(), "run").metrics_file()).unwrap().map(Result::unwrap).collect();
    assert!(status.updates > 0 && status.actor_score.is_some_and(f64::is_finite), "{status}");
    if !whole {
        // A row has a loss only if there was an update since the previous row.
        let loss = rows.iter().rev().find_map(|row| row.get("learner/loss"));
        let frames = rows.last().map(|row| row.frames);
        assert!(loss.is_some_and(f64::is_finite) && frames >= Some(A_FEW), "{loss:?} at {frames:?} frames");
    }
    (status, rows, whole)
}

/// Asserts that the evaluation reaches `bar`.
fn is_learned(environment: &str, bar: f64) {
    // Fewer episodes, because those of a good agent are long.
    let (status, _, whole) = train(environment, &["evaluation.mean_episodes=10"], 500_000, bar);
    assert!(!whole || status.evaluation_score.is_some_and(|score| score >= bar), "{status}");
}

#[test]
fn cart_pole() {
    is_learned("gym:CartPole-v1", 475.0);
}

/// 8 x 8 cells, with a reward of 1 at the goal only.
#[test]
fn frozen_lake_in_pictures() {
    is_learned("gym:pictures:FrozenLakePictures-v0", 0.95);
}

/// A dictionary of a picture, a vector and a number; the picture has the walls, the vector the direction. At first the
/// mean score is 0.1.
#[test]
fn compass_and_picture() {
    is_learned("gym:compass:Compass-v0", 0.6);
}

/// Policy 0 gets no reward and looks 3 300 steps ahead, so only the trust region keeps its values from following those
/// of the others, 5 to 20. With a target network that is copied four times as often, they reach 5 to 10.
#[test]
fn values_stay_small_without_rewards() {
    let settings = [
        "agent.policies.gamma_max=0.9997",
        "agent.copies.target_period=100",
        "agent.optimizer.learning_rate=0.0003",
        "agent.intrinsic.steps=20",
        "agent.intrinsic.action_prediction.learning_rate=0.0006",
        "agent.intrinsic.rnd.learning_rate=0.0006",
        "intrinsic.embedding_every=4",
        "intrinsic.kernel.mean_span=10000",
        "replay.trace=80",
        "replay.period=40",
        "replay.minimum_fill=20",
        "learner.batch_size=4",
    ];
    let (status, rows, whole) = train("gym:skulls:Skulls-v0", &settings, 22_000, f64::INFINITY);
    assert_eq!(status.actor_score, Some(0.0));
    let values = rows.iter().rev().find_map(|row| match row.values.get("policy/q_mean") {
        Some(MetricValue::Vector(values)) => Some(values.clone()),
        _ => None,
    });
    let values = values.unwrap();
    println!("after {} updates: {values:.2?}", status.updates);
    assert!(!whole || values[0] < 2.5 && values[8] > 2.5, "{values:.2?}");
}
