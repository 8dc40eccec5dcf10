//! `meme train` where files can't grow: training goes on without a checkpoint, says so, and saves once it can again.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::{env, fs, process};

use train::run::Rows;
use train::run::checkpoint::Checkpoints;

/// A folder that is removed at the end.
struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Trains for so many frames; no file may become longer than `limit` blocks of 1024 bytes. The signal that would end the
/// process is ignored, so that writing fails as it does on a full disk.
fn train(root: &Root, frames: u64, limit: &str) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"", "bash", limit]);
    command.arg(env!("CARGO_BIN_EXE_meme"));
    command.args(["train", "catch", "--preset", "tiny", "--name", "run", "--frames", &frames.to_string(), "--runs"]);
    command.arg(&root.0);
    for setting in [
        "run.device=cpu",
        "run.threads=1",
        "actors.environments=4",
        "actors.environments_per_worker=4",
        "replay.minimum_fill=20",
        "metrics.interval_seconds=0.5",
        "checkpoint.every_minutes=0.01",
    ] {
        command.args(["--set", setting]);
    }
    command.output().unwrap()
}

#[test]
fn training_goes_on_without_saving_and_saves_once_it_can() {
    let root = Root(env::temp_dir().join(format!("meme-full-disk-{}", process::id())));
    fs::create_dir_all(&root.0).unwrap();
    let checkpoints = Checkpoints::in_folder(&root.0.join("run/checkpoints"));
    assert!(train(&root, 100, "unlimited").status.success());
    let held = checkpoints.list().unwrap();

    // Room for metrics, none for a checkpoint.
    let output = train(&root, 800, "128");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("saving failed, and training goes on: "), "{said}");
    assert!(said.contains("the end of the run could not be saved, and will be trained again"), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(checkpoints.list().unwrap(), held, "{said}");
    let rows: Vec<u64> =
        Rows::open(&root.0.join("run/metrics.jsonl")).unwrap().map(|row| row.unwrap().frames).collect();
    assert!(rows.is_sorted() && rows.last() >= Some(&800), "{rows:?}");

    // With room again, it goes on from what it has.
    let output = train(&root, 800, "unlimited");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("going on from {} frames", held.last().unwrap())), "{said}");
    assert!(checkpoints.newest_valid(&mut |sentence| panic!("{sentence}")).unwrap().unwrap().frames() >= 800);
}
