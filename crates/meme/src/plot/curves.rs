//! The metrics of a run as curves over emulator frames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use config_schema::text::written;
use envs::EnvId;
use envs::games::Game;
use train::config::{ActionSet, Config};
use train::run::history::{self, HistoryEntry};
use train::run::{MetricValue, MetricsError, Row, Rows, RunFiles};

use crate::chart::{Mark, Points};
use crate::console;
use crate::output::and_more;
use crate::run_args::{find_run, run_config};
use crate::settings::{Settings, short_path};

/// The metrics of one run.
#[derive(Debug)]
pub struct Curves {
    /// The run's name, or the path of a metrics file.
    pub name: String,
    /// The environment, if known.
    pub task: Option<String>,
    /// The run's config; unknown for a metrics file without its run.
    pub config: Option<Config>,
    /// What distinguishes it from other runs; unknown for a metrics file without its run.
    pub settings: Option<Settings>,
    /// Its starts and resumes; unknown for a metrics file without its run.
    history: Vec<HistoryEntry>,
    /// The metrics file.
    pub file: PathBuf,
    rows: Vec<Row>,
}

impl Curves {
    /// Reads a run, given by its name in `root` or by its directory, or a single metrics file of `game`.
    pub fn read(root: &Path, which: &str, game: Option<&EnvId>) -> Result<Self> {
        let path = Path::new(which);
        // Not `is_file`: a pipe is fine too.
        if path.exists() && !path.is_dir() && !root.join(which).is_dir() {
            let rows = rows(path)?;
            if rows.is_empty() {
                bail!("{} contains no metrics yet", path.display());
            }
            let task = game.map(EnvId::to_string);
            let (name, file) = (which.to_owned(), path.to_path_buf());
            return Ok(Self { name, task, config: None, settings: None, history: Vec::new(), file, rows });
        }
        let run = find_run(root, which)?;
        let (name, file, task) = (run.name(), run.metrics_file(), run.description()?.task);
        if let Some(game) = game.filter(|game| game.to_string() != task) {
            bail!("run {name} was trained on {task}, not on {game}; omit --game");
        }
        let rows = if file.exists() { rows(&file)? } else { Vec::new() };
        if rows.is_empty() {
            bail!("run {name} has no metrics yet; one row is written every metrics.interval_seconds of training");
        }
        Self::of_run(&run, rows)
    }

    /// Takes rows that were read from a run's metrics.
    pub fn of_run(run: &RunFiles, rows: Vec<Row>) -> Result<Self> {
        let (description, config) = (run.description()?, run_config(run)?);
        let settings = Some(Settings::new(&description, &config)?);
        let (name, task, config) = (run.name().to_owned(), Some(description.task), Some(config));
        let history = history::read(&run.history_file())?;
        Ok(Self { name, task, config, settings, history, file: run.metrics_file(), rows })
    }

    #[cfg(test)]
    pub fn from_rows(rows: Vec<Row>) -> Self {
        let (name, file) = ("run".to_owned(), PathBuf::from("metrics.jsonl"));
        Self { name, task: None, config: None, settings: None, history: Vec::new(), file, rows }
    }

    /// The Atari game that the run was trained on.
    pub fn game(&self) -> Option<&'static Game> {
        self.task.as_deref()?.parse::<EnvId>().ok()?.game()
    }

    /// Number of actions, if the run was trained on an Atari game.
    pub fn actions(&self) -> Option<usize> {
        let set = self.config.as_ref().map_or(ActionSet::Full, |config| config.env.action_set);
        let game = self.game()?;
        Some(match set {
            ActionSet::Full => 18,
            ActionSet::Minimal => game.minimal_actions,
        })
    }

    /// Returns a mark for each resume that changed settings, in the order of frames.
    pub fn change_marks(&self) -> Vec<Mark> {
        change_marks(&self.history)
    }

    /// Whether a resume changed a setting.
    pub fn has_changed(&self, field: &str) -> bool {
        self.history.iter().flat_map(|entry| &entry.changes).any(|change| change.field == field)
    }

    /// Frame count of the last row.
    pub fn frames(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.frames)
    }

    /// The rows of the metrics file.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns a scalar metric; empty if no row has it.
    pub fn scalar(&self, metric: &str) -> Points {
        self.rows.iter().filter_map(|row| Some((row.frames as f64, row.get(metric)?))).collect()
    }

    /// Returns a vector metric as one curve per element; empty if no row has it.
    pub fn vector(&self, metric: &str) -> Vec<Points> {
        let mut curves: Vec<Points> = Vec::new();
        for row in &self.rows {
            let Some(MetricValue::Vector(values)) = row.values.get(metric) else { continue };
            curves.resize(curves.len().max(values.len()), Vec::new());
            for (curve, &value) in curves.iter_mut().zip(values) {
                curve.push((row.frames as f64, value));
            }
        }
        curves
    }
}

/// Returns a mark for each resume that changed settings, in the order of frames.
///
/// A later resume from an earlier frame keeps the change and discards the metrics after that frame, so the change is
/// marked there. A change at frame 0 holds for the whole run and needs no mark, nor does a longer run, which every
/// curve shows.
fn change_marks(history: &[HistoryEntry]) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut frames = u64::MAX;
    for entry in history.iter().rev() {
        frames = frames.min(entry.frames);
        let changes: Vec<_> = entry.changes.iter().filter(|change| change.field != "run.frames").collect();
        if let [first, others @ ..] = &changes[..]
            && frames > 0
        {
            let more = and_more(others.len());
            let [before, now] = [&first.before, &first.now].map(written);
            let label = format!("{} {before} → {now}{more}", short_path(&first.field));
            marks.push(Mark { x: frames as f64, label });
        }
    }
    marks.reverse();
    marks
}

/// Reads all rows. Skips malformed lines with a warning, unless all lines are malformed.
fn rows(file: &Path) -> Result<Vec<Row>> {
    let (mut rows, mut malformed) = (Vec::new(), Vec::new());
    for row in Rows::open(file)? {
        match row {
            Ok(row) => rows.push(row),
            Err(error @ MetricsError::Line { .. }) => malformed.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(first) = malformed.first() {
        if rows.is_empty() {
            bail!("{first}");
        }
        let more = and_more(malformed.len() - 1);
        console::warn(format_args!("{first}; skipped this line{more}"));
    }
    check_single_run(file, &rows)?;
    Ok(rows)
}

/// Checks that vector metrics have the same length in all rows, which a file pasted together from two runs may not.
fn check_single_run(file: &Path, rows: &[Row]) -> Result<()> {
    let mut first = BTreeMap::new();
    for row in rows {
        for (metric, value) in &row.values {
            let MetricValue::Vector(values) = value else { continue };
            let (count, frames) = *first.entry(metric).or_insert((values.len(), row.frames));
            if values.len() != count {
                bail!(
                    "{} mixes several runs: {metric} has {count} values at {frames} frames and {} at {}",
                    file.display(),
                    values.len(),
                    row.frames
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::run::history::{HistoryEvent, SettingChange};

    use super::*;

    #[test]
    fn marks_are_where_the_metrics_continue_with_changed_settings() {
        let entry = |event, frames, fields: &[&str]| {
            let change =
                |field: &&str| SettingChange { field: (*field).to_owned(), before: 6.0.into(), now: 3.0.into() };
            HistoryEntry { changes: fields.iter().map(change).collect(), ..HistoryEntry::new(event, frames) }
        };
        let history = [
            entry(HistoryEvent::Started, 0, &[]),
            // The run started over after this, with the changed setting.
            entry(HistoryEvent::Resumed, 9000, &["replay.samples_per_insert"]),
            entry(HistoryEvent::Started, 0, &["learner.publish_every"]),
            entry(HistoryEvent::Resumed, 2000, &["run.frames", "replay.samples_per_insert"]),
            entry(HistoryEvent::Resumed, 3000, &["run.frames"]),
            entry(HistoryEvent::Resumed, 5000, &["agent.optimizer.learning_rate", "learner.publish_every"]),
            entry(HistoryEvent::Resumed, 4000, &[]),
        ];
        let mark = |x, label: &str| Mark { x, label: label.to_owned() };
        let insert = mark(2000.0, "replay.samples_per_insert 6.0 → 3.0");
        let rate = mark(4000.0, "optimizer.learning_rate 6.0 → 3.0 and 1 more");
        assert_eq!(change_marks(&history), [insert, rate]);
    }

    #[test]
    fn file_with_rows_of_two_runs_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("metrics.jsonl");
        let which = file.to_str().unwrap();
        let read = |rows: &str| {
            fs::write(&file, rows).unwrap();
            Curves::read(Path::new("runs"), which, None)
        };
        let row = |frames: u64, pulls: &str| format!("{{\"frames\":{frames},\"bandit/pulls\":[{pulls}]}}\n");
        let one = read(&(row(100, "3,4") + "{\"frames\":150}\n" + &row(200, "5,4")));
        let two = read(&(row(100, "3,4") + &row(200, "5,4") + &row(50, "1,1,1")));
        let damaged = read(&(row(100, "3,4") + "<<<<<<< HEAD\n" + &row(200, "5,4")));
        let malformed = read("<html>\n");
        assert_eq!(one.unwrap().vector("bandit/pulls").len(), 2);
        assert_eq!(damaged.unwrap().rows().len(), 2);
        assert!(malformed.unwrap_err().to_string().contains("line 1"));
        let complaint = format!("{which} mixes several runs: bandit/pulls has 2 values at 100 frames and 3 at 50");
        assert_eq!(two.unwrap_err().to_string(), complaint);
    }
}
