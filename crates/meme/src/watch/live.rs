//! What is known about the runs; new rows are read at most every two seconds.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use train::run::{EVALUATION_SCORE, MetricsSummary, MetricsTail, Row, RunFiles};

use crate::locked::locked;
use crate::plot::checks::{ENOUGH, checks};
use crate::plot::curves::Curves;
use crate::plot::page::run_charts;
use crate::report::game;
use crate::run_args::run_config;
use crate::runs::{RunState, RunSummary, summary};
use crate::watch::thinned::Thinned;

/// How long what was read is good for.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum number of rows that charts are drawn from; a chart shows far fewer points.
const MAX_ROWS: usize = 1000;
/// Maximum number of scores of the small curve in the list.
const MAX_SCORES: usize = 60;
/// Maximum number of runs whose charts are kept.
const MAX_HISTORIES: usize = 4;

/// The runs below a directory.
pub struct LiveRuns {
    root: PathBuf,
    metrics: Mutex<BTreeMap<String, RunMetrics>>,
    histories: Mutex<VecDeque<History>>,
}

/// A run in the list.
#[derive(Clone, Debug, Serialize)]
pub struct ListedRun {
    #[serde(flatten)]
    summary: RunSummary,
    /// Frames to train for.
    budget: Option<u64>,
    human_normalised: Option<f64>,
    human_score: Option<f64>,
    random_score: Option<f64>,
    frames_per_second: Option<f64>,
    /// Estimated time to the end, if the run trains.
    seconds_left: Option<f64>,
    /// The evaluation's scores so far, thinned.
    scores: Vec<f64>,
}

/// What the list shows of a run's metrics.
struct RunMetrics {
    tail: MetricsTail,
    summary: MetricsSummary,
    scores: Thinned<f64>,
    read: Option<(Instant, ListedRun)>,
}

/// A run's metrics for its charts.
struct History {
    name: String,
    tail: MetricsTail,
    rows: Thinned<Row>,
    /// Grows with the charts.
    version: u64,
    drawn: Option<LiveCharts>,
    read: Option<Instant>,
}

/// The charts of a run.
#[derive(Clone, Serialize)]
pub struct LiveCharts {
    version: u64,
    /// One SVG document each.
    charts: Vec<String>,
    /// Warnings of the health checks; `None` if there are too few rows to judge.
    warnings: Option<Vec<String>>,
}

impl LiveRuns {
    /// The runs below `root`, whose path must not contain links.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), metrics: Mutex::default(), histories: Mutex::default() }
    }

    /// Finds a run by its name, or by that of its sweep and its own. Its directory must be below that of the runs, also
    /// after following links.
    pub fn find(&self, name: &str) -> Option<RunFiles> {
        let mut directory = self.root.clone();
        let parts: Vec<&str> = name.split('/').collect();
        if parts.len() > 2 {
            return None;
        }
        for part in parts {
            directory = RunFiles::named(&directory, part).ok()?.path;
        }
        let real = directory.canonicalize().ok()?;
        let run = RunFiles::in_directory(&directory);
        (real.starts_with(&self.root) && real != self.root && run.is_run()).then_some(run)
    }

    /// All runs with their names, those of sweeps included.
    fn all(&self) -> Result<Vec<(String, RunFiles)>> {
        let mut runs: Vec<(String, RunFiles)> = Vec::new();
        for entry in std::fs::read_dir(&self.root)?.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            match self.find(&name) {
                Some(run) => runs.push((name, run)),
                None if entry.path().join("sweep.json").is_file() => {
                    let below = RunFiles::all(&entry.path())?.into_iter().map(|run| format!("{name}/{}", run.name()));
                    runs.extend(below.filter_map(|name| Some((name.clone(), self.find(&name)?))));
                }
                None => {}
            }
        }
        runs.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(runs)
    }

    /// The runs; one that cannot be read is left out.
    pub fn list(&self) -> Result<Vec<ListedRun>> {
        let runs = self.all()?;
        let mut metrics = locked(&self.metrics);
        metrics.retain(|name, _| runs.iter().any(|(known, _)| known == name));
        let listed = runs.iter().filter_map(|(name, run)| listed(&mut metrics, name, run).ok());
        Ok(listed.collect())
    }

    /// One run as in the list.
    pub fn one(&self, run: &RunFiles, name: &str) -> Result<ListedRun> {
        listed(&mut locked(&self.metrics), name, run)
    }

    /// The charts of a run, unless they are still those with this version.
    pub fn charts(&self, run: &RunFiles, name: &str, version: Option<u64>) -> Result<Option<LiveCharts>> {
        let mut histories = locked(&self.histories);
        let mut history = match histories.iter().position(|history| history.name == name) {
            Some(index) => histories.remove(index),
            None => None,
        }
        .unwrap_or_else(|| History::new(name, run));
        let outcome = history.refresh(run, version);
        // The one that was asked for last is dropped last.
        histories.push_front(history);
        histories.truncate(MAX_HISTORIES);
        outcome
    }
}

/// Returns a run's entry in the list, which is as old as [`FRESH`] at most.
fn listed(known: &mut BTreeMap<String, RunMetrics>, name: &str, run: &RunFiles) -> Result<ListedRun> {
    let RunMetrics { tail, summary: metrics, scores, read } =
        known.entry(name.to_owned()).or_insert_with(|| RunMetrics {
            tail: MetricsTail::new(&run.metrics_file(), Some(MetricsSummary::METRICS)),
            summary: MetricsSummary::default(),
            scores: Thinned::new(MAX_SCORES),
            read: None,
        });
    if let Some((_, listed)) = read.as_ref().filter(|(read, _)| read.elapsed() < FRESH) {
        return Ok(listed.clone());
    }
    tail.refresh(|row| match row {
        None => {
            *metrics = MetricsSummary::default();
            scores.clear();
        }
        Some(row) => {
            metrics.add(&row);
            if let Some(score) = row.get(EVALUATION_SCORE).filter(|score| score.is_finite()) {
                scores.push(score);
            }
        }
    })?;
    let mut summary = summary(run, metrics)?;
    // With that of its sweep.
    summary.name = name.to_owned();
    let budget = run_config(run).map(|config| config.run.frames).ok();
    let running = summary.state == RunState::Running;
    let game = game(&summary.task);
    let listed = ListedRun {
        budget,
        human_normalised: game.zip(summary.last_evaluation).map(|(game, score)| game.normalised(score)),
        human_score: game.map(|game| game.human),
        random_score: game.map(|game| game.random),
        frames_per_second: metrics.frames_per_second.filter(|_| running),
        seconds_left: budget.filter(|_| running).and_then(|budget| metrics.seconds_left(budget)),
        scores: scores.kept().to_vec(),
        summary,
    };
    *read = Some((Instant::now(), listed.clone()));
    Ok(listed)
}

impl ListedRun {
    /// Frame count of the newest checkpoint.
    pub fn newest_checkpoint(&self) -> Option<u64> {
        self.summary.checkpoints.last().copied()
    }

    /// The preset that the run started from.
    pub fn preset(&self) -> &str {
        &self.summary.preset
    }
}

impl History {
    fn new(name: &str, run: &RunFiles) -> Self {
        Self {
            name: name.to_owned(),
            tail: MetricsTail::new(&run.metrics_file(), None),
            rows: Thinned::new(MAX_ROWS),
            version: 0,
            drawn: None,
            read: None,
        }
    }

    fn refresh(&mut self, run: &RunFiles, version: Option<u64>) -> Result<Option<LiveCharts>> {
        if self.read.is_none_or(|read| read.elapsed() >= FRESH) {
            let before = self.rows.seen();
            let mut restarted = false;
            self.tail.refresh(|row| match row {
                None => {
                    restarted = true;
                    self.rows.clear();
                }
                Some(row) => self.rows.push(row),
            })?;
            if self.rows.seen() != before || restarted || self.drawn.is_none() {
                self.version += 1;
                self.drawn = Some(self.draw(run)?);
            }
            self.read = Some(Instant::now());
        }
        Ok(self.drawn.clone().filter(|charts| version != Some(charts.version)))
    }

    fn draw(&self, run: &RunFiles) -> Result<LiveCharts> {
        let curves = Curves::of_run(run, self.rows.kept().to_vec())?;
        let charts = run_charts(&curves)?.iter().map(|chart| chart.document()).collect();
        let warnings = checks(&curves).into_iter().map(|check| check.sentence).collect();
        let warnings = (self.rows.kept().len() >= ENOUGH).then_some(warnings);
        Ok(LiveCharts { version: self.version, charts, warnings })
    }
}
