//! What a newcomer is told first: which preset fits, and what is wrong with a command, always in the same form.

use std::fs;
use std::process::Command;

use crate::runs::{Ended, Runs, ended, meme};

/// What a command says on standard error, and how it ends.
fn told(command: &mut Command) -> (String, Option<i32>) {
    let Ended { status, said, .. } = ended(command);
    (said, status.code())
}

#[test]
fn a_preset_that_is_too_large_is_named_before_anything_starts() {
    let runs = Runs::new();
    let hint = "meme: preset paper is made for Atari games; for a task such as catch there is `--preset tiny`\n";
    // The paper's networks do not fit catch, so it ends at once.
    let (said, code) = told(&mut runs.meme(&["train", "catch", "--set", "run.device=cpu"]));
    assert!(said.starts_with(hint) && code == Some(1), "{said}");

    // A file of the user's has sizes of its own.
    let file = runs.folder().join("mine.toml");
    fs::write(&file, "run.device = \"cpu\"\n").unwrap();
    let (said, code) = told(runs.meme(&["train", "catch"]).arg("--config").arg(file));
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
        let (said, ended) = told(&mut meme(arguments));
        assert!(said.starts_with(begins) && ended == Some(code), "{arguments:?}: {said}");
    }
    let (help, code) = told(&mut meme(&[]));
    assert!(help.starts_with("Trains human-level Atari agents") && code == Some(2), "{help}");
}
