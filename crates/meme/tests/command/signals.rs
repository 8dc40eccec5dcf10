//! Signals: a run ends in order, and no computing thread receives them.

use std::fs;

use crate::runs::{FOREVER, Runs, Started, after};

/// Starts a run of two workers that ignores a signal, and waits until it has learned something.
fn start(runs: &Runs, ignored: &str) -> Started {
    let command = runs.train(&["--frames", FOREVER, "--set", "actors.environments=8"]);
    let mut process = runs.start(&mut after(&format!("trap '' {ignored}"), &command));
    let rows = || fs::read_to_string(runs.file("metrics.jsonl")).unwrap_or_default();
    process.wait_until("it learns", || rows().contains("\"learner/loss\":"));
    process
}

/// Exit code and number of checkpoints at the end.
fn end(runs: &Runs, process: Started) -> (Option<i32>, usize) {
    (process.end().status.code(), runs.checkpoints().list().unwrap().len())
}

#[test]
fn one_thread_receives_all_signals() {
    let runs = Runs::new();
    let process = start(&runs, "PIPE");
    let wanted: u64 = [1, 2, 10, 12, 15].iter().map(|signal| 1 << (signal - 1)).sum();
    let mut takers = vec![];
    for thread in fs::read_dir(format!("/proc/{}/task", process.id())).unwrap() {
        // A thread may have ended meanwhile.
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let refused = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
        if refused & wanted != wanted {
            takers.push((field("Name:"), refused & wanted));
        }
    }
    assert_eq!(takers, [("signals".to_owned(), 0)]);
}

#[test]
fn hangup_saves_the_run_unless_ignored() {
    let runs = Runs::new();
    let closed = start(&runs, "PIPE");
    closed.send("HUP");
    assert_eq!(end(&runs, closed), (Some(0), 1));

    let runs = Runs::new();
    let mut nohup = start(&runs, "HUP");
    nohup.send("HUP");
    let rows = runs.rows().len();
    nohup.wait_until("it ignores SIGHUP", || runs.rows().len() > rows + 20);
    nohup.send("TERM");
    assert_eq!(end(&runs, nohup), (Some(0), 1));
}

/// SLURM sends them as warnings before it ends a job.
#[test]
fn user_signals_save_and_training_continues() {
    let runs = Runs::new();
    let mut process = start(&runs, "PIPE");
    for (saved, signal) in [(1, "USR1"), (2, "USR2")] {
        process.send(signal);
        process.wait_until("a checkpoint", || runs.checkpoints().list().unwrap().len() == saved);
    }
    assert!(process.is_running());
    process.send("TERM");
    let ended = process.end();
    assert_eq!(ended.status.code(), Some(0));
    let sentence = "saving a checkpoint because of SIGUSR1 or SIGUSR2; training continues\n";
    assert_eq!(ended.said.matches(sentence).count(), 2, "{}", ended.said);
}
