//! `meme train`, killed at random moments: the same command always goes on from the last checkpoint.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use std::{env, process};

use train::run::Rows;
use train::run::checkpoint::Checkpoints;

/// Time between two checkpoints.
const INTERVAL: Duration = Duration::from_millis(600);
/// What a save may take beside that, on a busy machine with a slow disk.
const SLOW_SAVE: Duration = Duration::from_secs(3);
/// Intervals that every other process sees the end of.
const INTERVALS: u32 = 4;

struct Run {
    root: PathBuf,
}

impl Run {
    fn start(&self, frames: u64) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meme"));
        command.args(["train", "catch", "--preset", "tiny", "--name", "run", "--frames", &frames.to_string()]);
        command.arg("--runs").arg(&self.root);
        for setting in [
            "run.device=cpu",
            "run.threads=1",
            "actors.environments=4",
            "actors.environments_per_worker=4",
            "evaluation.evaluators=1",
            "replay.minimum_fill=20",
            "metrics.interval_seconds=0.05",
            "checkpoint.every_minutes=0.01",
        ] {
            command.args(["--set", setting]);
        }
        let said = File::create(self.root.join("said")).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.root.join("said")).unwrap()
    }

    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::in_folder(&self.root.join("run/checkpoints"))
    }

    fn newest(&self) -> Option<u64> {
        self.checkpoints().list().unwrap().last().copied()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn wait_until(what: &str, process: &mut Child, said: impl Fn() -> String, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(process.try_wait().unwrap().is_none(), "ended before {what}: {}", said());
        assert!(begun.elapsed() < Duration::from_secs(120), "waited too long for {what}: {}", said());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Enough frames that the run would take for ever.
const FOR_EVER: u64 = 1_000_000_000;

#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint() {
    let root = env::temp_dir().join(format!("meme-killed-{}", process::id()));
    fs::create_dir_all(&root).unwrap();
    let run = Run { root };
    let kills = if env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 50 } else { 5 };
    // Moments that differ from one test to the next, and are said if it fails.
    let mut moment = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    println!("the first moment is {moment}");
    let mut last = None;
    let mut advances = 0;
    for kill in 0..kills {
        let mut process = run.start(FOR_EVER);
        if let Some(last) = last {
            let expected = format!("going on from {last} frames");
            wait_until(&expected, &mut process, || run.said(), || run.said().contains(&expected));
        }
        if kill % 2 == 0 {
            saves_at_every_interval(&run, &mut process, last, kill);
        }
        // The others are killed at any moment, a save under way included.
        moment = moment.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        thread::sleep(Duration::from_millis(u64::from(moment >> 16) % 1_500));
        assert!(process.try_wait().unwrap().is_none(), "kill {kill}: {}", run.said());
        process.kill().unwrap();
        process.wait().unwrap();

        let newest = run.newest();
        assert!(newest >= last, "kill {kill}: {newest:?} after {last:?}");
        advances += usize::from(newest > last);
        last = newest;
    }
    assert!(advances > kills / 3, "{advances} of {kills}");

    // And it ends well when there is an end.
    let frames = last.unwrap() + 200;
    let mut process = run.start(frames);
    assert!(process.wait().unwrap().success(), "{}", run.said());
    let newest = run.checkpoints().newest_valid(&mut |sentence| panic!("{sentence}")).unwrap().unwrap();
    assert!(newest.frames() >= frames);
    let rows: Vec<u64> =
        Rows::open(&run.root.join("run/metrics.jsonl")).unwrap().map(|row| row.unwrap().frames).collect();
    assert!(rows.is_sorted(), "{rows:?}");
}

/// A kill costs what was trained since the newest checkpoint, so checkpoints must not stop coming: the newest advances as
/// often as intervals pass.
fn saves_at_every_interval(run: &Run, process: &mut Child, last: Option<u64>, kill: usize) {
    let mut newest = last;
    let mut next = || {
        wait_until("a checkpoint", process, || run.said(), || run.newest() > newest);
        newest = run.newest();
    };
    next();
    let first = Instant::now();
    (0..INTERVALS).for_each(|_| next());
    let interval = first.elapsed() / INTERVALS;
    assert!(interval < INTERVAL + SLOW_SAVE, "kill {kill}: {interval:?} between two checkpoints");
}
