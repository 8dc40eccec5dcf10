//! The runs of a report: read from their directories, and sorted into cohorts that may be pooled.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result, bail};
use envs::EnvId;
use envs::games::Game;
use train::config::Config;
use train::run::{EVALUATION_SCORE, MetricValue, Row, Rows, RunDescription, RunFiles};

use crate::chart::{Points, value_at};
use crate::output::grouped;
use crate::run_args::run_config;
use crate::settings::{PRESET, SEED, Settings, TASK, distinguishing, label};

const EVALUATED_AT: &str = "evaluation/frames";
const SECONDS: &str = "speed/seconds";
const TRACE: &str = "policy/trace_coefficient";

/// Part of a run in which trace coefficients are averaged. The paper has 200 to 250 million of 1 billion frames.
const TRACE_WINDOW: (f64, f64) = (0.2, 0.25);

/// A run with all that the report needs of it.
#[derive(Clone, Debug)]
pub struct ReportedRun {
    pub name: String,
    pub task: String,
    pub seed: u64,
    pub settings: Settings,
    /// The sweep's name for its settings, if it has one.
    pub variant: Option<String>,
    /// Probability of sticky actions.
    pub sticky: f64,
    /// Frames that its score stands for.
    pub frames: u64,
    /// Evaluation score over frames, up to these frames.
    pub scores: Points,
    /// Training time up to these frames; unknown in lockstep.
    pub seconds: Option<f64>,
    /// Mean trace coefficient of each policy.
    pub traces: Vec<f64>,
}

/// A run that the report leaves out, and why.
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

impl ReportedRun {
    /// Reads a run up to `budget` frames, or to its end if that is earlier.
    fn read(run: &RunFiles, budget: Option<u64>) -> Result<Self> {
        let (description, config) = (run.description()?, run_config(run)?);
        let file = run.metrics_file();
        let rows = match file.exists() {
            true => Rows::open(&file)?
                .only(&[EVALUATION_SCORE, EVALUATED_AT, SECONDS, TRACE])
                .collect::<Result<Vec<_>, _>>()?,
            false => Vec::new(),
        };
        Self::new(run.name(), &description, &config, rows, budget)
    }

    /// Takes what it needs from the rows of a run.
    pub fn new(
        name: &str,
        description: &RunDescription,
        config: &Config,
        mut rows: Vec<Row>,
        budget: Option<u64>,
    ) -> Result<Self> {
        let reached = rows.last().map_or(0, |row| row.frames);
        let frames = match budget {
            Some(budget) if reached < budget => {
                bail!("it was trained for {} frames, not for {}", grouped(reached), grouped(budget))
            }
            Some(budget) => budget,
            // The last frames overshoot the budget a little, and differently in every run.
            None => reached.min(config.run.frames),
        };
        // The row that completes the frames may be a little beyond them.
        let last = rows.iter().position(|row| row.frames >= frames).map_or(rows.len(), |last| last + 1);
        rows.truncate(last);
        let curve = |metric: &str| -> Points {
            let points = rows.iter().filter_map(|row| Some((row.frames as f64, row.get(metric)?)));
            points.filter(|(_, value)| value.is_finite()).collect()
        };
        // At the frames of the evaluated parameters, which are known a little later.
        let at = |row: &Row| row.get(EVALUATED_AT).filter(|at| at.is_finite()).unwrap_or(row.frames as f64);
        let mut scores: Points = rows.iter().filter_map(|row| Some((at(row), row.get(EVALUATION_SCORE)?))).collect();
        scores.retain(|(_, score)| score.is_finite());
        // Rows repeat the last evaluation until the next one.
        scores.dedup_by_key(|(at, _)| *at);
        if scores.is_empty() {
            bail!("it has no evaluation score yet");
        }
        let (from, to) = (TRACE_WINDOW.0 * frames as f64, TRACE_WINDOW.1 * frames as f64);
        let traces = means(rows.iter().filter(|row| (from..=to).contains(&(row.frames as f64))));
        Ok(Self {
            name: name.to_owned(),
            task: description.task.clone(),
            seed: description.seed,
            settings: Settings::new(description, config)?,
            variant: None,
            sticky: config.env.sticky_probability,
            frames,
            scores,
            seconds: curve(SECONDS).last().map(|(_, seconds)| *seconds),
            traces,
        })
    }

    /// Its score at the end.
    pub fn score(&self) -> f64 {
        self.scores.last().map_or(f64::NAN, |(_, score)| *score)
    }

    /// Its score at a number of frames.
    pub fn score_at(&self, frames: f64) -> f64 {
        value_at(&self.scores, frames)
    }

    /// Frames of the first evaluation above human level, if there is one.
    pub fn frames_to_human(&self) -> Option<f64> {
        let human = game(&self.task)?.human;
        self.scores.iter().find(|(_, score)| *score > human).map(|(frames, _)| *frames)
    }
}

/// Each policy's mean trace coefficient.
fn means<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<f64> {
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for row in rows {
        let Some(MetricValue::Vector(values)) = row.values.get(TRACE) else { continue };
        sums.resize(sums.len().max(values.len()), (0.0, 0.0));
        for ((sum, count), value) in sums.iter_mut().zip(values).filter(|(_, value)| value.is_finite()) {
            (*sum, *count) = (*sum + value, *count + 1.0);
        }
    }
    sums.into_iter().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum / count).collect()
}

/// Returns the Atari game of a task.
pub fn game(task: &str) -> Option<&'static Game> {
    task.parse::<EnvId>().ok()?.game()
}

/// Reads the runs with all cores. Those that cannot be read or have nothing to report yet are left out.
pub fn read(runs: &[RunFiles], budget: Option<u64>) -> (Vec<ReportedRun>, Vec<LeftOut>) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = |runs: &[RunFiles]| -> Vec<Result<ReportedRun>> {
        runs.iter().map(|run| ReportedRun::read(run, budget)).collect()
    };
    let read: Vec<Result<ReportedRun>> = thread::scope(|scope| {
        let parts = runs.chunks(runs.len().div_ceil(threads).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || each(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let (mut records, mut left_out) = (Vec::new(), Vec::new());
    for (run, read) in runs.iter().zip(read) {
        match read {
            Ok(record) => records.push(record),
            Err(error) => left_out.push(LeftOut { name: run.name().to_owned(), why: format!("{error:#}") }),
        }
    }
    (records, left_out)
}

/// Runs with the same settings and frames: they may be pooled.
#[derive(Debug)]
pub struct Cohort {
    /// What distinguishes it from the other cohorts.
    pub label: String,
    pub frames: u64,
    /// Probability of sticky actions.
    pub sticky: f64,
    /// Runs by task, sorted by seed.
    pub tasks: BTreeMap<String, Vec<ReportedRun>>,
}

impl Cohort {
    /// Sorts runs into cohorts: a run belongs to one if it differs in nothing but task and seed. Refuses runs that are
    /// the same in all of these.
    pub fn sort(runs: Vec<ReportedRun>) -> Result<Vec<Self>> {
        let mut cohorts: Vec<(Settings, Self)> = Vec::new();
        for run in runs {
            let belongs = |(settings, cohort): &&mut (Settings, Self)| {
                cohort.frames == run.frames && settings.same_but(&run.settings, &[TASK, SEED, PRESET])
            };
            let cohort = match cohorts.iter_mut().find(belongs) {
                Some((_, cohort)) => cohort,
                None => {
                    let (frames, sticky) = (run.frames, run.sticky);
                    let empty = Self { label: String::new(), frames, sticky, tasks: BTreeMap::new() };
                    cohorts.push((run.settings.clone(), empty));
                    &mut cohorts.last_mut().context("a cohort was just added")?.1
                }
            };
            let runs = cohort.tasks.entry(run.task.clone()).or_default();
            if let Some(same) = runs.iter().find(|other| other.seed == run.seed) {
                bail!(
                    "runs {} and {} have the same task, settings, frames and seed ({}); leave one of them out",
                    same.name,
                    run.name,
                    run.seed
                );
            }
            runs.push(run);
            runs.sort_by_key(|run| run.seed);
        }
        let keys = distinguishing(cohorts.iter().map(|(settings, _)| settings));
        let keys: Vec<&str> = keys.into_iter().filter(|key| ![TASK, SEED].contains(key)).collect();
        let by_frames = cohorts.iter().any(|(_, cohort)| cohort.frames != cohorts[0].1.frames);
        for (settings, cohort) in &mut cohorts {
            let keys = if keys.is_empty() { &[PRESET][..] } else { &keys };
            let frames = if by_frames { format!(", {} frames", grouped(cohort.frames)) } else { String::new() };
            // A sweep that names its variants knows better what they are about.
            let mut variants = cohort.tasks.values().flatten().map(|run| run.variant.as_ref());
            let variant = variants.next().flatten().filter(|first| variants.all(|other| other == Some(*first)));
            cohort.label = variant.cloned().unwrap_or_else(|| label(settings, keys)) + &frames;
        }
        Ok(cohorts.into_iter().map(|(_, cohort)| cohort).collect())
    }

    /// Its Atari games, each with its runs.
    pub fn games(&self) -> impl Iterator<Item = (&'static Game, &[ReportedRun])> {
        self.tasks.iter().filter_map(|(task, runs)| Some((game(task)?, &runs[..])))
    }

    /// Smallest number of seeds of a game.
    pub fn seeds(&self) -> usize {
        self.games().map(|(_, runs)| runs.len()).min().unwrap_or(0)
    }

    /// Frames from which on every run has a score.
    pub fn first_scores(&self) -> f64 {
        let runs = self.tasks.values().flatten();
        runs.filter_map(|run| run.scores.first()).map(|(frames, _)| *frames).fold(0.0, f64::max)
    }

    /// Whether actions are sticky.
    pub fn is_sticky(&self) -> bool {
        self.sticky > 0.0
    }
}
