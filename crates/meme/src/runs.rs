//! `meme runs`: which runs there are, how far each has come and how well it plays.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use train::numbers::{fixed, rounded};
use train::run::checkpoint::Checkpoints;
use train::run::{MetricsSummary, RunFiles, clock};
use train::saving;

use crate::chosen_run::{RUNS, run_config};
use crate::output;
use crate::preset::FIRST_RUN;

/// Options of `meme runs`.
#[derive(Args)]
pub struct RunsArgs {
    /// Where runs are
    #[arg(long, value_name = "FOLDER", default_value = RUNS)]
    runs: PathBuf,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    name: String,
    task: String,
    preset: String,
    seed: u64,
    version: String,
    frames: u64,
    last_evaluation: Option<f64>,
    best_evaluation: Option<f64>,
    /// Frame counts of the checkpoints that are there.
    checkpoints: Vec<u64>,
    state: State,
    /// The process that trains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    created_unix: u64,
    age_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    /// All its frames are played, and its end is saved.
    Finished,
    /// By a signal; its end is saved.
    Stopped,
    /// Killed or failed: what was played after the last checkpoint is lost.
    CutOff,
}

/// Prints the runs. One that can't be read is told of on standard error and does not hide the others.
pub fn run(args: &RunsArgs) -> Result<()> {
    let runs = RunFiles::all(&args.runs)?;
    let mut reports = Vec::new();
    for run in &runs {
        match report(run) {
            Ok(report) => reports.push(report),
            Err(error) => output::say(format_args!("meme: run `{}` is left out: {error:#}", run.name())),
        }
    }
    if args.json {
        output::print_json(&reports)
    } else if runs.is_empty() {
        output::print(&none(&args.runs))
    } else {
        output::print(&table(&reports))
    }
}

fn none(root: &Path) -> String {
    let folder = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
    let why = if root.exists() { "" } else { ", which is not there" };
    format!("There are no runs in {}{why}. `{FIRST_RUN}` starts one in the folder `runs` here.\n", folder.display())
}

fn report(run: &RunFiles) -> Result<Report> {
    let description = run.description()?;
    let metrics = MetricsSummary::of(&run.metrics_file())?;
    let owner = run.owner();
    Ok(Report {
        name: run.name().to_owned(),
        task: description.task,
        preset: description.preset,
        seed: description.seed,
        version: description.version,
        frames: metrics.frames,
        last_evaluation: metrics.last_evaluation.map(rounded),
        best_evaluation: metrics.best_evaluation.map(rounded),
        checkpoints: Checkpoints::in_folder(&run.checkpoints_folder()).list()?,
        state: match owner {
            Some(_) => State::Running,
            None if saving::end_is_saved(run, metrics.frames)? => {
                // A config that can't be read is told of by those who need it.
                let is_finished = run_config(run).is_ok_and(|config| metrics.frames >= config.run.frames);
                if is_finished { State::Finished } else { State::Stopped }
            }
            None => State::CutOff,
        },
        pid: owner.map(|owner| owner.pid),
        created_unix: description.created_unix,
        // A clock that was set back makes no run older than nothing.
        age_seconds: (clock::unix_seconds() as u64).saturating_sub(description.created_unix),
    })
}

fn table(reports: &[Report]) -> String {
    let heading = ["name", "task", "preset", "frames", "last eval", "best eval", "state", "age"].map(str::to_owned);
    let score = |score: Option<f64>| score.map_or("-".to_owned(), |score| fixed(score, 1));
    let rows = reports.iter().map(|report| {
        [
            report.name.clone(),
            report.task.clone(),
            report.preset.clone(),
            output::grouped(report.frames),
            score(report.last_evaluation),
            score(report.best_evaluation),
            match report.state {
                State::Running => "running".to_owned(),
                State::Finished => "finished".to_owned(),
                State::Stopped => "stopped".to_owned(),
                State::CutOff => "cut off".to_owned(),
            },
            age(report.age_seconds),
        ]
    });
    let rows: Vec<[String; 8]> = [heading].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Numbers to the right, words to the left.
            text += &match column {
                3..=5 | 7 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            };
            text += if column < 7 { "  " } else { "\n" };
        }
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use train::run::{EVALUATION_SCORE, MetricsWriter, Row, RunDescription, RunDirectory, Start};

    use super::*;

    #[test]
    fn a_run_is_reported_running_and_then_cut_off() {
        let root = env::temp_dir().join(format!("meme-runs-{}", process::id()));
        let description = RunDescription::new("pong", "cpu", 3);
        let (held, _) = RunDirectory::open(&root, "first", Start::Continue, description, "").unwrap();
        let (mut metrics, _) = MetricsWriter::open(&held.files().metrics_file(), None).unwrap();
        for (frames, score) in [(4000, -20.0), (8000, 14.75), (12_000, 0.9900000000000001)] {
            metrics.append(Row::new(frames).scalar(EVALUATION_SCORE, score)).unwrap();
        }
        metrics.append(&Row::new(12_345_678)).unwrap();
        let files = RunFiles::find(&root, "first").unwrap();
        let running = report(&files).unwrap();
        assert_eq!((running.state, running.pid), (State::Running, Some(process::id())));
        assert_eq!((running.frames, running.seed), (12_345_678, 3));
        assert_eq!((running.last_evaluation, running.best_evaluation), (Some(0.99), Some(14.75)));
        drop(held);
        let cut_off = report(&files).unwrap();
        assert_eq!((cut_off.state, cut_off.pid), (State::CutOff, None));

        fs::write(files.description_file(), "{").unwrap();
        let error = report(&files).unwrap_err().to_string();
        assert!(error.contains("run.json is damaged"), "{error}");
        run(&RunsArgs { runs: root.clone(), json: false }).unwrap();
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn where_there_is_no_run_one_is_suggested_that_any_machine_can_train() {
        let said = none(Path::new("/nowhere"));
        let why = "There are no runs in /nowhere, which is not there.";
        assert_eq!(said, format!("{why} `meme train catch` starts one in the folder `runs` here.\n"));
    }

    #[test]
    fn columns_line_up() {
        let report = |name: &str, frames, last_evaluation, state, age_seconds| Report {
            name: name.to_owned(),
            task: "pong".to_owned(),
            preset: "cpu".to_owned(),
            seed: 1,
            version: "0.1.0".to_owned(),
            frames,
            last_evaluation,
            best_evaluation: last_evaluation,
            checkpoints: Vec::new(),
            state,
            pid: None,
            created_unix: 0,
            age_seconds,
        };
        let reports = [
            report("pong", 0, None, State::Stopped, 119),
            report("a-longer-name", 200_000_000, Some(-20.96), State::Running, 7199),
            report("nothing", 0, Some(-0.04), State::CutOff, 0),
        ];
        assert_eq!(
            table(&reports),
            "name           task  preset       frames  last eval  best eval  state        age\n\
             pong           pong  cpu               0          -          -  stopped    119 s\n\
             a-longer-name  pong  cpu     200 000 000      -21.0      -21.0  running  119 min\n\
             nothing        pong  cpu               0        0.0        0.0  cut off      0 s\n"
        );
    }

    #[test]
    fn ages_are_in_the_unit_that_fits() {
        let ages = [0, 119, 120, 7199, 7200, 172_799, 172_800, 86_400 * 400].map(age);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d", "400 d"]);
    }
}
