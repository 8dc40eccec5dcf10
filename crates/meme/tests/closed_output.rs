//! Commands whose output nobody reads any more: they end as if it had been read, and training goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::{env, fs, io, process};

use train::run::checkpoint::Checkpoints;

/// A folder that is removed at the end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("meme-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What can be written to, and nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn meme(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meme"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn train(root: &Root, frames: &str) -> Output {
    let mut command = meme(&["train", "catch", "--preset", "tiny", "--name", "run", "--frames", frames]);
    command.arg("--runs").arg(&root.0);
    for setting in ["run.device=cpu", "run.threads=1", "actors.environments=4", "actors.environments_per_worker=4"] {
        command.args(["--set", setting]);
    }
    command.stderr(closed()).output().unwrap()
}

#[test]
fn a_report_that_is_not_read_to_its_end_is_no_failure() {
    let commands: [&[&str]; 6] = [
        &["games"],
        &["games", "--json"],
        &["config", "show"],
        &["runs", "--runs", "there-are-none"],
        &["play", "catch"],
        &["--help"],
    ];
    for arguments in commands {
        let output = meme(arguments).stdout(closed()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {:?} {said}", output.status);
    }
}

#[test]
fn training_does_not_need_anybody_who_listens() {
    let root = Root::new("unheard");
    let checkpoints = Checkpoints::in_folder(&root.0.join("run/checkpoints"));
    for frames in [60, 120] {
        // The second time it also says what it goes on from.
        let output = train(&root, &frames.to_string());
        assert!(output.status.success(), "{:?}", output.status);
        assert!(checkpoints.list().unwrap().last() >= Some(&frames));
    }
}

#[test]
fn a_complaint_that_nobody_hears_is_a_failure_and_no_panic() {
    let status = meme(&["eval", "run", "--runs", "there-are-none"]).stderr(closed()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
