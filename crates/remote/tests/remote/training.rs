//! Training with remote actors: beside local ones, alone, after losses, and from a checkpoint.

use train::config::Config;
use train::runtime::status::RunStatus;

use crate::support::{Actors, Learner, config, on_loopback, until};

/// Checks the contract of replay's rate limiter at the end of a run.
fn assert_rate_limit_held(status: &RunStatus, config: &Config) {
    let replay = &config.replay;
    let balance = status.inserted as f64 * replay.samples_per_insert - status.sampled as f64;
    let middle = replay.minimum_fill as f64 * replay.samples_per_insert;
    assert!(status.sampled > 0 && (balance - middle).abs() <= replay.limiter_slack, "{status:?}");
}

#[test]
fn remote_actors_train_beside_local_ones_until_the_run_is_finished() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(&["run.frames=6000"]);
    let learner = Learner::start(scratch.path(), &config, on_loopback());
    let actors = Actors::plain(&learner, 4);
    until("remote actors play", || learner.steps() > 500);
    let counted = std::sync::Arc::clone(&learner.actors);
    let status = learner.end();
    assert!(status.frames >= 6000 && status.updates > 0, "{status}");
    // They learn that the run is finished, and end.
    actors.end().unwrap();
    let steps = counted.counters().steps.load(std::sync::atomic::Ordering::Relaxed);
    assert!(steps < status.frames, "local actors play too: {steps} of {}", status.frames);
    assert_eq!(counted.counters().refused.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_rate_limit_held(&status, &config);
}

#[test]
fn learner_without_environments_of_its_own_learns_from_remote_actors() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(&["run.frames=2000", "actors.environments=0"]);
    let learner = Learner::start(scratch.path(), &config, on_loopback());
    let actors = Actors::plain(&learner, 8);
    let status = learner.end();
    assert!(status.frames >= 2000 && status.updates > 0, "{status}");
    assert_rate_limit_held(&status, &config);
    actors.end().unwrap();
}

#[test]
fn lost_actors_are_replaced_and_a_resumed_learner_is_found_again() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(&["run.frames=1000000000", "checkpoint.every_minutes=0.005"]);
    let learner = Learner::start(scratch.path(), &config, on_loopback());
    let leaving = Actors::plain(&learner, 2);
    until("they play", || learner.steps() > 100);
    leaving.stop.request();
    leaving.end().unwrap();
    until("their end is noticed", || learner.has_said("left with 2 environments; its running episodes are abandoned"));
    until("their places are free", || learner.actors.environments() == 0);
    let address = learner.listener.address();
    let actors = Actors::plain(&learner, 4);
    let before = learner.steps();
    until("others play", || learner.steps() > before + 200);
    let stopped = learner.stop();
    assert_rate_limit_held(&stopped, &config);
    assert!(
        actors.said.lock().unwrap().iter().any(|said| said.contains("playing 2 environments of catch for run run"))
    );

    // Resumed at the same address, with the same environments in the middle of their episodes.
    let mut options = on_loopback();
    options.address = address;
    let learner = Learner::start(scratch.path(), &config, options);
    let resumed = stopped.frames;
    until("they continue", || {
        actors.said.lock().unwrap().iter().any(|said| said.contains("continuing 2 environments of catch for run run"))
    });
    let before = learner.steps();
    assert!(before > 0, "the steps of remote actors count after a resume");
    until("they play on", || learner.steps() > before + 200);
    assert_eq!(learner.refused(), 0, "{:?}", learner.said.lock().unwrap());
    let status = learner.stop();
    assert!(status.frames > resumed, "{status}");
    assert_rate_limit_held(&status, &config);
    actors.stop.request();
    actors.end().unwrap();
}
