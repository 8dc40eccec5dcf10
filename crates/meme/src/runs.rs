//! `meme runs`: all runs with their progress and scores.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use train::number_format::{duration, fixed, rounded};
use train::run::checkpoint::{Checkpoints, contents};
use train::run::{MetricsSummary, RunFiles, clock};

use crate::console;
use crate::output::{self, Column};
use crate::preset::FIRST_RUN;
use crate::run_args::{RUNS, RunsDir, run_config};

/// Arguments of `meme runs`.
#[derive(Args)]
pub struct RunsArgs {
    #[command(flatten)]
    runs: RunsDir,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// What a list of runs shows of each.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    pub name: String,
    pub task: String,
    pub preset: String,
    seed: u64,
    version: String,
    pub frames: u64,
    pub last_evaluation: Option<f64>,
    best_evaluation: Option<f64>,
    /// Frame counts of the checkpoints.
    pub checkpoints: Vec<u64>,
    pub state: RunState,
    /// The process that trains the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    created_unix: u64,
    age_seconds: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    /// All frames are played, and the end is saved.
    Finished,
    /// Ended by a signal; the end is saved.
    Stopped,
    /// Killed or failed: everything after the last checkpoint is lost.
    CutOff,
}

impl RunState {
    /// How far a run is after `frames` of its budget.
    pub fn of(run: &RunFiles, is_running: bool, frames: u64, budget: impl FnOnce() -> Option<u64>) -> Result<Self> {
        Ok(match is_running {
            true => Self::Running,
            false if !contents::end_is_saved(run, frames)? => Self::CutOff,
            false if budget().is_some_and(|budget| frames >= budget) => Self::Finished,
            false => Self::Stopped,
        })
    }

    fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::CutOff => "cut off",
        }
    }
}

/// Prints the runs. Skips those that cannot be read, with a warning.
pub fn run(args: &RunsArgs) -> Result<()> {
    let runs = RunFiles::all(&args.runs.path)?;
    let mut reports = Vec::new();
    for run in &runs {
        match report(run) {
            Ok(report) => reports.push(report),
            Err(error) => console::warn(format_args!("skipped run {}: {error:#}", run.name())),
        }
    }
    if args.json {
        output::print_json(&reports)
    } else if runs.is_empty() {
        output::print(&none(&args.runs.path))
    } else {
        output::print(&table(&reports))
    }
}

fn none(root: &Path) -> String {
    let directory = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
    let why = if root.exists() { "" } else { " (no such directory)" };
    format!("No runs in {}{why}. `{FIRST_RUN}` starts one in ./{RUNS}.\n", directory.display())
}

fn report(run: &RunFiles) -> Result<RunSummary> {
    summary(run, &MetricsSummary::of(&run.metrics_file())?)
}

/// Summarises a run whose metrics are known.
pub fn summary(run: &RunFiles, metrics: &MetricsSummary) -> Result<RunSummary> {
    let description = run.description()?;
    let owner = run.owner();
    // Commands that need the config report it if it is damaged.
    let budget = || run_config(run).ok().map(|config| config.run.frames);
    Ok(RunSummary {
        name: run.name().to_owned(),
        task: description.task,
        preset: description.preset,
        seed: description.seed,
        version: description.version,
        frames: metrics.frames,
        last_evaluation: metrics.last_evaluation.map(rounded),
        best_evaluation: metrics.best_evaluation.map(rounded),
        checkpoints: Checkpoints::in_directory(&run.checkpoints_directory()).list()?,
        state: RunState::of(run, owner.is_some(), metrics.frames, budget)?,
        pid: owner.map(|owner| owner.pid),
        created_unix: description.created_unix,
        // The clock may have been set back.
        age_seconds: (clock::unix_seconds() as u64).saturating_sub(description.created_unix),
    })
}

fn table(reports: &[RunSummary]) -> String {
    let columns: [Column<RunSummary>; 9] = [
        ("name", |run| run.name.clone()),
        ("task", |run| run.task.clone()),
        ("preset", |run| run.preset.clone()),
        ("seed", |run| run.seed.to_string()),
        ("frames", |run| output::grouped(run.frames)),
        ("last eval", |run| score(run.last_evaluation)),
        ("best eval", |run| score(run.best_evaluation)),
        ("state", |run| run.state.text().to_owned()),
        ("age", |run| duration(run.age_seconds as f64)),
    ];
    output::table_of(reports, &columns, &[0, 1, 2, 7])
}

fn score(score: Option<f64>) -> String {
    score.map_or("-".to_owned(), |score| fixed(score, 2))
}

#[cfg(test)]
mod tests {
    use std::{fs, process};

    use train::run::{EVALUATION_SCORE, ExistingRun, MetricsWriter, Row, RunDescription, RunDirectory};

    use super::*;

    #[test]
    fn run_is_reported_as_running_and_then_as_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let description = RunDescription::new("pong", "cpu", 3);
        let (held, _) = RunDirectory::open(root, "first", ExistingRun::Resume, description, "").unwrap();
        let (mut metrics, _) = MetricsWriter::open(&held.files.metrics_file(), None).unwrap();
        for (frames, score) in [(4000, -20.0), (8000, 14.75), (12_000, 0.9900000000000001)] {
            metrics.append(Row::new(frames).scalar(EVALUATION_SCORE, score)).unwrap();
        }
        metrics.append(&Row::new(12_345_678)).unwrap();
        let files = RunFiles::find(root, "first").unwrap();
        let running = report(&files).unwrap();
        assert_eq!((running.state, running.pid), (RunState::Running, Some(process::id())));
        assert_eq!((running.frames, running.seed), (12_345_678, 3));
        assert_eq!((running.last_evaluation, running.best_evaluation), (Some(0.99), Some(14.75)));
        drop(held);
        let cut_off = report(&files).unwrap();
        assert_eq!((cut_off.state, cut_off.pid), (RunState::CutOff, None));

        fs::write(files.description_file(), "{").unwrap();
        let error = report(&files).unwrap_err().to_string();
        assert!(error.contains("run.json is damaged"), "{error}");
        run(&RunsArgs { runs: RunsDir { path: root.to_owned() }, json: false }).unwrap();
    }

    #[test]
    fn empty_list_suggests_a_first_run() {
        let said = none(Path::new("/nowhere"));
        assert_eq!(said, "No runs in /nowhere (no such directory). `meme train catch` starts one in ./runs.\n");
    }

    #[test]
    fn columns_are_aligned() {
        let report = |name: &str, frames, last_evaluation, state, age_seconds| RunSummary {
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
            report("pong", 0, None, RunState::Stopped, 119),
            report("a-longer-name", 200_000_000, Some(-20.96), RunState::Running, 7199),
            report("nothing", 0, Some(-0.04), RunState::CutOff, 0),
        ];
        assert_eq!(
            table(&reports),
            "name           task  preset  seed       frames  last eval  best eval  state        age\n\
             pong           pong  cpu        1            0          -          -  stopped    119 s\n\
             a-longer-name  pong  cpu        1  200 000 000     -20.96     -20.96  running  119 min\n\
             nothing        pong  cpu        1            0      -0.04      -0.04  cut off      0 s\n"
        );
    }
}
