//! `meme train`, killed at random moments: the same command always resumes from the last checkpoint.

use std::env;
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::runs::{FOREVER, Runs, Started, works};

/// Most rows of metrics between two checkpoints, on average. A row is due every 0.05 seconds and a checkpoint every
/// 0.6, which is 12 rows and as many as training writes while a slow disk saves. A busy machine writes fewer.
const ROWS: usize = 72;
/// Intervals that every other process completes.
const INTERVALS: usize = 4;

fn start(runs: &Runs, frames: &str) -> Started {
    runs.start(&mut runs.train(&["--frames", frames, "--set", "checkpoint.every_minutes=0.01"]))
}

/// State of the run according to `meme runs`.
fn state(runs: &Runs) -> String {
    let printed = works(&mut runs.meme(&["runs", "--json"])).printed;
    serde_json::from_str::<Value>(&printed).unwrap()[0]["state"].as_str().unwrap().to_owned()
}

fn newest(runs: &Runs) -> Option<u64> {
    runs.checkpoints().list().unwrap().last().copied()
}

#[test]
fn killed_run_resumes_from_its_last_checkpoint() {
    let runs = Runs::new();
    let kills = if env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 50 } else { 5 };
    // Random moments, different in each test run; the seed is printed.
    let mut moment = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    println!("seed of the moments: {moment}");
    let mut last = None;
    let mut advances = 0;
    // What the next start reports about frames lost by the kill.
    let mut lost = String::new();
    let mut kills_that_cost = 0;
    for kill in 0..kills {
        let mut process = start(&runs, FOREVER);
        if let Some(last) = last {
            process.wait_until_said(&format!("resuming from {last} frames{lost}\n"));
        }
        if kill % 2 == 0 {
            saves_at_every_interval(&runs, &mut process, last, kill);
            assert_eq!(state(&runs), "running");
        }
        // The others are killed at any moment, even during a save.
        moment = moment.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        thread::sleep(Duration::from_millis(u64::from(moment >> 16) % 1_500));
        if kill % 2 == 0 {
            // Unless a save ends at this moment, the kill costs frames.
            process.wait_until("a row after the checkpoint", || runs.rows().last().copied() > newest(&runs));
        }
        assert!(process.is_running(), "kill {kill}: {}", process.said());
        process.kill();

        let newest = newest(&runs);
        assert!(newest >= last, "kill {kill}: {newest:?} after {last:?}");
        advances += usize::from(newest > last);
        assert_eq!(state(&runs), "cut_off");
        last = newest;
        lost = match runs.rows().last().copied().unwrap_or(0).saturating_sub(newest.unwrap_or(0)) {
            0 => String::new(),
            frames => format!("; about {frames} frames after that save will be played again"),
        };
        kills_that_cost += usize::from(!lost.is_empty());
    }
    assert!(kills_that_cost > 0);
    assert!(advances > kills / 3, "{advances} of {kills}");

    // A last start finishes the run.
    let frames = last.unwrap() + 200;
    let end = start(&runs, &frames.to_string()).end();
    assert!(end.status.success(), "{}", end.said);
    assert_eq!(state(&runs), "finished");
    let newest = runs.checkpoints().newest_intact(&mut |sentence| panic!("{sentence}")).unwrap().unwrap();
    assert!(newest.frames() >= frames);
    let rows = runs.rows();
    assert!(rows.is_sorted(), "{rows:?}");
}

/// A kill loses everything since the newest checkpoint, so one must be written at every interval.
fn saves_at_every_interval(runs: &Runs, process: &mut Started, last: Option<u64>, kill: usize) {
    let mut known = last;
    let mut next = || {
        process.wait_until("a checkpoint", || newest(runs) > known);
        known = newest(runs);
        runs.rows().len()
    };
    let first = next();
    let rows = (0..INTERVALS).fold(first, |_, _| next()) - first;
    assert!(rows < ROWS * INTERVALS, "kill {kill}: {rows} rows between {INTERVALS} checkpoints");
}
