//! What is said where a GPU is asked for and none can be used.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::{env, fs, process};

/// A folder that is removed at the end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("meme-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn train(&self, settings: &[&str]) -> Output {
        let mut command = meme();
        command.args(["train", "catch", "--preset", "tiny", "--name", "run", "--frames", "60", "--runs"]).arg(&self.0);
        for setting in ["run.threads=1", "actors.environments=4", "actors.environments_per_worker=4"] {
            command.args(["--set", setting]);
        }
        for setting in settings {
            command.args(["--set", setting]);
        }
        command.output().unwrap()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program on a machine without a GPU, whatever this one has.
fn meme() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meme"));
    command.env("CUDA_VISIBLE_DEVICES", "");
    command
}

/// What it said last; it must have failed with one sentence.
fn sentence(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked") && !said.contains("frame #"), "{said}");
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_gpu_that_is_not_there_is_told_before_a_run_begins() {
    let root = Root::new("no-gpu");
    let said = sentence(&root.train(&["run.device=cuda"]));
    assert!(said.starts_with("meme: run.device is cuda, but "), "{said}");
    assert!(said.contains("`--set run.device=cpu`"), "{said}");
    assert!(!root.0.join("run").exists());
    // The name is free for the run that does without.
    assert!(root.train(&["run.device=cpu"]).status.success());
}

#[test]
fn a_measurement_on_no_gpu_says_how_to_do_without() {
    for part in ["inference", "learner"] {
        let output = meme().args(["bench", part, "--device", "cuda", "--preset", "tiny"]).output().unwrap();
        let said = sentence(&output);
        assert!(said.contains("--device cpu"), "{said}");
    }
}

#[test]
fn there_is_one_gpu_and_it_has_no_number() {
    let said = sentence(&Root::new("gpu-7").train(&["run.device=cuda:7"]));
    assert!(said.contains("run.device") && said.contains("cuda"), "{said}");
}
