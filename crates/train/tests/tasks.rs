//! The tiny preset learns the built-in tasks, in lockstep, so that a machine always gives the same result.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use support::{sources, train_watched};
use tempfile::tempdir;
use train::run::stop::Stop;

/// A task, the mean of 50 greedy episodes to reach, and the budget in frames.
///
/// Budgets are two to three times what is needed, so that rounding on another processor does not matter.
struct Bar {
    task: &'static str,
    score: f64,
    frames: u64,
}

const CATCH: Bar = Bar { task: "catch", score: 0.95, frames: 60_000 };
const MEMORY: Bar = Bar { task: "memory", score: 0.95, frames: 60_000 };
/// The best score: every dive finds the treasure.
const DEEP_SEA: Bar = Bar { task: "deep_sea:14", score: 0.989, frames: 300_000 };
/// The best score: every episode opens the door.
const KEY_DOOR: Bar = Bar { task: "key_door", score: 1.0, frames: 400_000 };

/// Always `catch`, which takes half a minute; with `MEME_TEST_ALL` the other three too.
#[test]
fn learns_the_built_in_tasks() {
    let all = std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1");
    let bars = if all { vec![CATCH, MEMORY, DEEP_SEA, KEY_DOOR] } else { vec![CATCH] };
    bars.iter().for_each(|bar| learns("tiny", bar));
}

/// The same network and environments with the algorithm of R2D2.
#[test]
fn r2d2_learns_to_catch() {
    learns("r2d2-tiny", &CATCH);
}

fn learns(preset: &str, bar: &Bar) {
    let &Bar { task, score: bar, frames } = bar;
    let scratch = tempdir().unwrap();
    let mut config = sources(preset, &["run.lockstep=true", "run.device=cpu", "run.threads=1", "run.seed=1"]);
    config.run.frames = frames;
    let stop = Stop::new();
    let reached = |status: &train::runtime::status::RunStatus| {
        if status.evaluation_score.is_some_and(|score| score >= bar) {
            stop.request();
        }
    };
    let (status, _) = train_watched(scratch.path(), "run", task, &config, &stop, reached).unwrap();
    println!("{task}: {status}");
    assert!(status.evaluation_score.is_some_and(|score| score >= bar), "{task}: {status}");
}
