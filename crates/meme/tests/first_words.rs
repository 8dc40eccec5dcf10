//! What a newcomer is told first: which preset fits, and what is wrong with a command, always in the same form.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::process::{self, Command, Output};
use std::{env, fs};

/// What a command says on standard error, and how it ends.
fn told(arguments: &[&str]) -> (String, Option<i32>) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_meme")).args(arguments).output().unwrap();
    (String::from_utf8(stderr).unwrap(), status.code())
}

#[test]
fn a_preset_that_is_too_large_is_named_before_anything_starts() {
    let runs = env::temp_dir().join(format!("meme-first-words-{}", process::id()));
    let folder = runs.to_str().unwrap();
    let hint = "meme: preset paper is made for Atari games; for a task such as catch there is `--preset tiny`\n";
    // The paper's networks do not fit catch, so it ends at once.
    let (said, code) = told(&["train", "catch", "--set", "run.device=cpu", "--runs", folder]);
    assert!(said.starts_with(hint) && code == Some(1), "{said}");

    // A file of the user's has sizes of its own.
    fs::create_dir_all(&runs).unwrap();
    let file = runs.join("mine.toml");
    fs::write(&file, "run.device = \"cpu\"\n").unwrap();
    let (said, code) = told(&["train", "catch", "--config", file.to_str().unwrap(), "--runs", folder]);
    fs::remove_dir_all(&runs).unwrap();
    assert!(!said.contains("--preset tiny") && code == Some(1), "{said}");
}

#[test]
fn every_complaint_begins_with_the_programs_name() {
    for (arguments, begins, code) in [
        (&["trian"][..], "meme: unrecognized subcommand 'trian'\n", 2),
        (&["train", "catch", "--frames", "x"], "meme: invalid value 'x' for '--frames <FRAMES>': it must be", 2),
        (&["train", "ctach"], "meme: there is no environment `ctach`: did you mean `catch`?\n", 1),
        (&["eval", "x", "--runs", "/nowhere"], "meme: there is no run `x` in /nowhere; it holds none\n", 1),
    ] {
        let (said, ended) = told(arguments);
        assert!(said.starts_with(begins) && ended == Some(code), "{arguments:?}: {said}");
    }
    let (help, code) = told(&[]);
    assert!(help.starts_with("Trains human-level Atari agents") && code == Some(2), "{help}");
}
