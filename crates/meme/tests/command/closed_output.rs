//! Commands whose output nobody reads any more: they end as if it had been read, and training goes on. One that can't be
//! written is a failure.

use std::fs::File;
use std::io::{self, Write};
use std::process::Stdio;

use crate::runs::{Runs, fails, meme};

/// What can be written to, and nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
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
fn a_report_that_there_is_no_room_for_is_a_failure_that_names_its_place() {
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
        let expected = "meme: standard output can't be written: No space left on device (os error 28)";
        assert_eq!(sentence, expected, "{arguments:?}");
    }
}

#[test]
fn training_does_not_need_anybody_who_listens() {
    let runs = Runs::new();
    for frames in [60, 120] {
        // The second time it also says what it goes on from.
        let output = runs.train(&["--frames", &frames.to_string()]).stderr(closed()).output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert!(runs.checkpoints().list().unwrap().last() >= Some(&frames));
    }
}

#[test]
fn training_does_not_wait_for_a_reader_that_has_stopped_reading() {
    let runs = Runs::new();
    let (reader, mut writer) = io::pipe().unwrap();
    // As much as a pipe holds.
    writer.write_all(&[b'.'; 1 << 16]).unwrap();
    let output = runs.train(&["--frames", "120"]).stderr(writer).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(runs.checkpoints().list().unwrap().last() >= Some(&120));
    drop(reader);
}

#[test]
fn a_complaint_that_nobody_hears_is_a_failure_and_no_panic() {
    let status = meme(&["eval", "run", "--runs", "there-are-none"]).stderr(closed()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
