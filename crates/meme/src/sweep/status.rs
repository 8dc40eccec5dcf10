//! `meme sweep status`: how far the runs of a sweep are.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use train::number_format::{duration, fixed};
use train::run::stop::Stop;

use super::args::StatusArgs;
use super::manifest::SweepDirectory;
use super::progress::{RunProgress, SweepState};
use crate::console::ProgressLine;
use crate::output::{self, Column};

const REFRESH: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct SweepStatus<'a> {
    name: &'a str,
    directory: String,
    runs: Vec<RunProgress>,
}

/// Prints the table; on a terminal it is refreshed until all runs have ended.
pub fn show(args: &StatusArgs) -> Result<()> {
    let directory = SweepDirectory::named(&args.runs.path, &args.name)?;
    let manifest = directory.open()?;
    if args.json {
        let runs = RunProgress::of_all(&directory, &manifest)?;
        let directory = directory.path().display().to_string();
        return output::print_json(&SweepStatus { name: &args.name, directory, runs });
    }
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        let stop = Stop::on_signals()?;
        let mut line = ProgressLine::new();
        loop {
            let runs = RunProgress::of_all(&directory, &manifest)?;
            if !runs.iter().any(|run| run.state == SweepState::Running) || stop.is_requested() {
                break;
            }
            line.show_lines(|| table(&runs).lines().map(str::to_owned).collect());
            stop.wait(REFRESH);
        }
        line.clear();
    }
    output::print(&table(&RunProgress::of_all(&directory, &manifest)?))
}

fn table(runs: &[RunProgress]) -> String {
    let columns: [Column<RunProgress>; 7] = [
        ("run", |run| run.name.clone()),
        ("state", |run| run.state.text().to_owned()),
        ("frames", |run| format!("{} of {}", output::grouped(run.frames), output::grouped(run.budget))),
        ("score", |run| run.score.map_or("-".to_owned(), |score| fixed(score, 1))),
        ("frames/s", |run| run.frames_per_second.map_or("-".to_owned(), |speed| format!("{speed:.0}"))),
        ("time left", |run| run.seconds_left.map_or("-".to_owned(), duration)),
        ("node", |run| if run.node.is_empty() { "-".to_owned() } else { run.node.clone() }),
    ];
    let mut text = output::table_of(runs, &columns, &[0, 1, 6]);
    let count = |state| runs.iter().filter(|run| run.state == state).count();
    let states = [
        SweepState::Finished,
        SweepState::Running,
        SweepState::Queued,
        SweepState::Interrupted,
        SweepState::Failed,
        SweepState::Waiting,
    ];
    let counts = states.into_iter().filter(|&state| count(state) > 0);
    let counts: Vec<String> = counts.map(|state| format!("{} {}", count(state), state.text())).collect();
    text += &format!("{}: {}\n", output::count_of(runs.len(), "run"), counts.join(", "));
    for run in runs {
        if let Some(failure) = &run.failure {
            let attempts = output::count_of(run.attempts as usize, "attempt");
            text += &format!("{} failed after {attempts}: {failure}\n", run.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_line_per_run_and_the_reason_of_each_failure() {
        let run = |name: &str, state| RunProgress {
            name: name.to_owned(),
            state,
            frames: 1200,
            budget: 200_000_000,
            score: None,
            frames_per_second: None,
            seconds_left: None,
            node: String::new(),
            attempts: 0,
            failure: None,
        };
        let (score, speed, left) = (Some(-20.96), Some(13_100.4), Some(15_300.0));
        let running = RunProgress {
            score,
            frames_per_second: speed,
            seconds_left: left,
            node: "gpu1".into(),
            ..run("pong-1", SweepState::Running)
        };
        let failed =
            RunProgress { attempts: 2, failure: Some("the disk is full".into()), ..run("pong-2", SweepState::Failed) };
        assert_eq!(
            table(&[running, failed]),
            "run     state                  frames  score  frames/s   time left  node\n\
             pong-1  running  1 200 of 200 000 000  -21.0     13100  4 h 15 min  gpu1\n\
             pong-2  failed   1 200 of 200 000 000      -         -           -  -\n\
             2 runs: 1 running, 1 failed\n\
             pong-2 failed after 2 attempts: the disk is full\n"
        );
    }
}
