//! The first messages that a newcomer sees: which preset is used, and errors in arguments.

use std::fs;
use std::process::Command;

use crate::runs::{Ended, Runs, after, ended, meme};

/// Standard error and exit code of a command.
fn messages(command: &mut Command) -> (String, Option<i32>) {
    let Ended { status, said, .. } = ended(command);
    (said, status.code())
}

#[test]
fn unsuitable_preset_is_reported_before_anything_starts() {
    let runs = Runs::new();
    let warning = "warning: preset paper is made for Atari games; use `--preset tiny` for tasks such as catch\n";
    // The paper's networks do not fit catch, so it ends at once.
    let (said, code) = messages(&mut runs.meme(&["train", "catch", "--preset", "paper", "--set", "run.device=cpu"]));
    assert!(said.starts_with(warning) && code == Some(1), "{said}");

    // A config file changes the preset that suits the environment, as `--set` does.
    let file = runs.directory().join("mine.toml");
    fs::write(&file, "learner.batch_size = 8\n").unwrap();
    let mut train = runs.meme(&["train", "catch", "--frames", "40", "--set", "run.device=cpu"]);
    let (said, code) = messages(train.arg("--config").arg(&file));
    let using = format!("using preset tiny below {} (for the built-in tasks)\n", file.display());
    assert!(said.starts_with(&using) && code == Some(0), "{said}");
    let config = fs::read_to_string(runs.directory().join("catch-tiny-1/config.toml")).unwrap();
    assert!(config.contains("batch_size = 8\n") && config.contains("trace = 20\n"), "{config}");
}

#[test]
fn default_preset_suits_the_environment_and_named_run_keeps_its_own() {
    let runs = Runs::new();
    let (said, code) = messages(&mut runs.meme(&["train", "catch", "--frames", "40"]));
    assert!(said.starts_with("using preset tiny (for the built-in tasks)\nstarting run catch-tiny-1 in "), "{said}");
    assert_eq!(code, Some(0), "{said}");
    let pong = ["train", "pong", "--name", "mine", "--frames", "400"];
    let (said, code) = messages(runs.meme(&pong).args(["--preset", "tiny"]));
    assert_eq!(code, Some(0), "{said}");
    // The default for a game is another one.
    let (said, code) = messages(&mut runs.meme(&pong));
    assert!(said.starts_with("run mine finished at ") && code == Some(0), "{said}");
}

#[test]
fn every_error_begins_with_the_word_error() {
    for (arguments, begins, code) in [
        (&["trian"][..], "error: unrecognized subcommand 'trian'\n", 2),
        (&["train", "catch", "--frames"], "error: a value is required for '--frames <FRAMES>'", 2),
        (&["train", "--resume", "x", "--size", "tiny"], "error: the argument '--resume <RUN>' cannot be used with", 2),
        (&["train", "ctach"], "error: unknown environment `ctach`: did you mean `catch`?\n", 1),
        (&["eval", "x", "--runs", "/nowhere"], "error: there is no run `x` in /nowhere, which does not exist;", 1),
    ] {
        let (said, ended) = messages(&mut meme(arguments));
        assert!(said.starts_with(begins) && ended == Some(code), "{arguments:?}: {said}");
    }
    let (help, code) = messages(&mut meme(&[]));
    assert!(help.starts_with("Trains human-level Atari agents") && code == Some(2), "{help}");
}

#[test]
fn invalid_value_of_an_option_is_reported_with_the_valid_ones() {
    let integer = |range: &str| format!("expected an integer {range}");
    let (seed, count) = (integer("from 0 to 4_294_967_295"), integer("from 1 to 4_294_967_295"));
    let frames = integer("from 1 to 1_000_000_000_000");
    for (command, option, value, reason) in [
        (&["train", "catch"][..], "--seed", "-1", &seed),
        (&["train", "catch"], "--seed", "4294967296", &seed),
        (&["train", "catch"], "--frames", "0", &frames),
        (&["train", "catch"], "--frames", "-1e6", &frames),
        (&["train", "catch"], "--frames", "many", &frames),
        (&["eval", "x"], "--seed", "-1", &seed),
        (&["eval", "x"], "--episodes", "0", &count),
        (&["record", "x"], "--episodes", "1.5", &count),
        (&["play", "catch"], "--episodes", "0", &count),
        (&["play", "catch"], "--seed", "-3", &seed),
        (&["bench", "system"], "--seconds", "-1", &count),
        (&["bench", "envs"], "--rounds", "few", &count),
        (&["bench", "system"], "--device", "gpu", &"expected cpu or cuda".to_owned()),
        (&["play", "catch"], "--policy", "best", &"expected random or noop".to_owned()),
    ] {
        let (said, code) = messages(&mut meme(&[command, &[option, value]].concat()));
        assert_eq!(said, format!("error: invalid value \"{value}\" for {option}: {reason}\n"), "{command:?}");
        assert_eq!(code, Some(2), "{command:?}");
    }
    let (said, _) = messages(&mut meme(&["eval", "x", "--checkpoint", "first"]));
    let reason = "expected best, last or a number of frames, such as 12_000_000, 12e6 or 12M";
    assert_eq!(said, format!("error: invalid value \"first\" for --checkpoint: {reason}\n"));
    // A setting is quoted as given.
    let (said, code) = messages(&mut meme(&["train", "catch", "--set", "run.frames=0"]));
    let reason = "run.frames is 0; it must be an integer from 1 to 1_000_000_000_000";
    assert_eq!(said, format!("error: --set run.frames=0: {reason}\n"));
    assert_eq!(code, Some(1));
}

#[test]
fn removed_working_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let command = meme(&["train", "catch"]);
    let path = directory.path().display();
    let (said, code) = messages(&mut after(&format!("cd {path} && rmdir {path}"), &command));
    assert_eq!(
        (said.as_str(), code),
        ("error: the current directory was removed; change to one that exists\n", Some(1))
    );
}
