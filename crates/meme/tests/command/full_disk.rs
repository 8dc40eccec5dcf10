//! `meme train` on a full disk: training continues without a checkpoint, warns, and saves once there is space again. A
//! new run that cannot be created leaves nothing behind.

use std::fs;

use crate::runs::{Ended, Runs, after, ended};

/// Trains for `frames`; no file may grow beyond `limit` blocks of 1024 bytes. The signal that would end the process is
/// ignored, so that writing fails as it does on a full disk.
fn train(runs: &Runs, frames: &str, limit: &str) -> Ended {
    let settings = ["--set", "metrics.interval_seconds=0.5", "--set", "checkpoint.every_minutes=0.002"];
    let command = runs.train(&[&["--frames", frames], &settings[..]].concat());
    ended(&mut after(&format!("trap '' XFSZ; ulimit -f {limit}"), &command))
}

#[test]
fn training_continues_without_saving_and_saves_once_there_is_space() {
    let runs = Runs::new();
    let checkpoints = runs.checkpoints();
    assert!(train(&runs, "100", "unlimited").status.success());
    let held = checkpoints.list().unwrap();

    // Space for metrics, but not for a checkpoint.
    let Ended { status, said, .. } = train(&runs, "2000", "128");
    assert!(!status.success(), "{said}");
    assert!(said.contains("saving failed, training continues: "), "{said}");
    let end = |from: &str| format!("cannot save the end of the run, which will be trained again from {from}: ");
    assert!(said.contains(&end(&format!("its checkpoint at {} frames", held.last().unwrap()))), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(checkpoints.list().unwrap(), held, "{said}");
    let rows = runs.rows();
    assert!(rows.is_sorted() && rows.last() >= Some(&2000), "{rows:?}");

    // A run that could save nothing says that it will start from the beginning.
    let unsaved = Runs::new();
    let Ended { status, said, .. } = train(&unsaved, "100", "128");
    assert!(!status.success() && said.contains(&end("the beginning")), "{said}");

    // With space again, it resumes from the checkpoint it has.
    let Ended { status, said, .. } = train(&runs, "2000", "unlimited");
    assert!(status.success(), "{said}");
    assert!(said.contains(&format!("resuming from {} frames", held.last().unwrap())), "{said}");
    assert!(checkpoints.newest_intact(&mut |sentence| panic!("{sentence}")).unwrap().unwrap().frames() >= 2000);
}

#[test]
fn metrics_that_cannot_be_written_are_reported_once_and_not_at_every_row() {
    let runs = Runs::new();
    assert!(train(&runs, "100", "unlimited").status.success());
    let rows = runs.rows().len();
    // Space for a few more rows, of dozens.
    let limit = fs::metadata(runs.file("metrics.jsonl")).unwrap().len() / 1024 + 16;
    let settings = ["--set", "metrics.interval_seconds=0.001"];
    let command = runs.train(&[&["--frames", "2000"], &settings[..]].concat());
    let Ended { said, .. } = ended(&mut after(&format!("trap '' XFSZ; ulimit -f {limit}"), &command));
    assert!((rows + 1..rows + 30).contains(&runs.rows().len()), "{said}");
    let reports = said.matches("cannot write metrics, training continues: ").count();
    // A shorter row may still fit, after which the next one is news; so is the second of two files.
    assert!((1..10).contains(&reports), "{said}");
}

#[test]
fn start_without_space_for_the_runs_files_leaves_nothing_behind() {
    let runs = Runs::new();
    // No space for the lock, then space for the lock but not for the config.
    for (limit, file) in [("0", "lock"), ("1", "config.toml")] {
        let expected =
            format!("error: {} cannot be written: File too large (os error 27)\n", runs.file(file).display());
        let Ended { status, said, .. } = train(&runs, "100", limit);
        assert_eq!((status.code(), said), (Some(1), expected.clone()));
        assert_eq!(fs::read_dir(runs.directory()).unwrap().count(), 0);

        // A directory that existed before stays.
        fs::create_dir(runs.file("")).unwrap();
        assert_eq!(train(&runs, "100", limit).said, expected);
        fs::remove_dir_all(runs.file("")).unwrap();
    }
}
