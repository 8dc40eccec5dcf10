//! Signals end a run in order, and reach no thread that computes.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(120);

/// A run in a folder of its own, which goes with it.
struct Run {
    process: Child,
    runs: PathBuf,
}

impl Run {
    /// Starts one, and waits until it has learned something.
    fn start(name: &str, ignored: &str) -> Self {
        let runs = std::env::temp_dir().join(format!("meme-signals-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&runs);
        let script = format!(
            "trap '' {ignored}; exec {:?} train catch --preset tiny --name run --runs {runs:?} --frames 1000000000 \
             --set run.device=cpu --set run.threads=1 --set replay.minimum_fill=20 --set metrics.interval_seconds=0.1",
            env!("CARGO_BIN_EXE_meme")
        );
        let process = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let run = Self { process: process.unwrap(), runs };
        let rows = || fs::read_to_string(run.runs.join("run/metrics.jsonl")).unwrap_or_default();
        wait_until("it learns", || rows().contains("\"learner/loss\":"));
        run
    }

    fn send(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for its end and tells its status and how many checkpoints there are to go on from.
    fn end(&mut self) -> (Option<i32>, usize) {
        let mut status = None;
        wait_until("it ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        let checkpoints = fs::read_dir(self.runs.join("run/checkpoints")).unwrap();
        let numbered = |path: &Path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().parse::<u64>().is_ok());
        (
            status.and_then(|status| status.code()),
            checkpoints.filter(|file| numbered(&file.as_ref().unwrap().path())).count(),
        )
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.runs);
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "waited in vain until {what}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_thread_takes_all_signals() {
    let run = Run::start("threads", "USR2");
    let wanted: u64 = [1, 2, 15].iter().map(|signal| 1 << (signal - 1)).sum();
    let mut takers = vec![];
    for thread in fs::read_dir(format!("/proc/{}/task", run.process.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let refused = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
        if refused & wanted != wanted {
            takers.push((field("Name:"), refused & wanted));
        }
    }
    assert_eq!(takers, [("signals".to_owned(), 0)]);
}

#[test]
fn a_closed_terminal_saves_unless_it_is_to_be_ignored() {
    let mut closed = Run::start("closed", "USR2");
    closed.send("HUP");
    assert_eq!(closed.end(), (Some(0), 1));

    let mut nohup = Run::start("nohup", "HUP");
    nohup.send("HUP");
    sleep(Duration::from_secs(1));
    assert!(nohup.process.try_wait().unwrap().is_none(), "it was to ignore that");
    nohup.send("TERM");
    assert_eq!(nohup.end(), (Some(0), 1));
}
