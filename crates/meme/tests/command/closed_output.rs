//! Output that is closed, full or not read: a closed pipe is not a failure and never stops training, a full disk is.

use std::fs::File;
use std::io::{self, Write};
use std::process::Stdio;

use crate::runs::{Runs, fails, meme};

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn closed_reader_of_a_report_is_not_a_failure() {
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
fn report_that_cannot_be_written_is_an_error() {
    let commands: [&[&str]; 5] = [
        &["games"],
        &["config", "show", "--json"],
        &["runs", "--runs", "there-are-none"],
        &["play", "catch"],
        &["train", "--help"],
    ];
    for arguments in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let sentence = fails(meme(arguments).stdout(full));
        let expected = "error: cannot write to standard output: No space left on device (os error 28)";
        assert_eq!(sentence, expected, "{arguments:?}");
    }
}

#[test]
fn training_does_not_need_standard_error() {
    let runs = Runs::new();
    for frames in [60, 120] {
        // The second time it also reports what it resumes from.
        let output = runs.train(&["--frames", &frames.to_string()]).stderr(closed()).output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert!(runs.checkpoints().list().unwrap().last() >= Some(&frames));
    }
}

#[test]
fn training_does_not_wait_for_a_stalled_reader() {
    let runs = Runs::new();
    let (reader, mut writer) = io::pipe().unwrap();
    // Fills the pipe.
    writer.write_all(&[b'.'; 1 << 16]).unwrap();
    let output = runs.train(&["--frames", "120"]).stderr(writer).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(runs.checkpoints().list().unwrap().last() >= Some(&120));
    drop(reader);
}

#[test]
fn error_with_closed_standard_error_is_a_failure_without_a_panic() {
    let status = meme(&["eval", "run", "--runs", "there-are-none"]).stderr(closed()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
