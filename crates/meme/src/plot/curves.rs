//! What a run has measured, as curves over frames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use envs::EnvId;
use envs::games::Game;
use train::config::{ActionSet, Config};
use train::run::{MetricsError, Row, Rows, Value};

use super::chart::Points;
use crate::chosen_run::{find_run, run_config};
use crate::output;

/// The metrics of one run.
#[derive(Debug)]
pub struct Curves {
    /// The run's name, or the file's.
    pub name: String,
    /// What was trained on, where that is known.
    pub task: Option<String>,
    /// Its config, where that is known.
    pub config: Option<Config>,
    /// The file.
    pub file: PathBuf,
    rows: Vec<Row>,
}

impl Curves {
    /// Reads the metrics of a run, by its name in `root` or its folder, or a metrics file on its own, of `game`.
    pub fn read(root: &Path, which: &str, game: Option<&EnvId>) -> Result<Self> {
        let path = Path::new(which);
        // A pipe is a file too.
        if path.exists() && !path.is_dir() && !root.join(which).is_dir() {
            let rows = rows(path)?;
            if rows.is_empty() {
                bail!("{} has no row of metrics yet", path.display());
            }
            let task = game.map(EnvId::to_string);
            return Ok(Self { name: which.to_owned(), task, config: None, file: path.to_path_buf(), rows });
        }
        let run = find_run(root, which)?;
        let (name, file, task) = (run.name().to_owned(), run.metrics_file(), run.description()?.task);
        if let Some(game) = game.filter(|game| game.to_string() != task) {
            bail!("run {name} is of {task}, not of {game}; leave out --game");
        }
        let config = run_config(&run)?;
        let rows = if file.exists() { rows(&file)? } else { Vec::new() };
        if rows.is_empty() {
            bail!("run {name} has measured nothing yet; a row comes every metrics.interval_seconds of training");
        }
        Ok(Self { name, task: Some(task), config: Some(config), file, rows })
    }

    #[cfg(test)]
    pub fn of_rows(rows: Vec<Row>) -> Self {
        Self { name: "run".to_owned(), task: None, config: None, file: PathBuf::from("metrics.jsonl"), rows }
    }

    /// The Atari game that was trained on.
    pub fn game(&self) -> Option<&'static Game> {
        self.task.as_deref()?.parse::<EnvId>().ok()?.game()
    }

    /// Actions to choose from, where a game's are known.
    pub fn actions(&self) -> Option<usize> {
        let set = self.config.as_ref().map_or(ActionSet::Full, |config| config.env.action_set);
        let game = self.game()?;
        Some(match set {
            ActionSet::Full => 18,
            ActionSet::Minimal => game.minimal_actions,
        })
    }

    /// Frames of the last row.
    pub fn frames(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.frames)
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// A number over frames; empty if no row has it.
    pub fn scalar(&self, metric: &str) -> Points {
        self.rows.iter().filter_map(|row| Some((row.frames as f64, row.get(metric)?))).collect()
    }

    /// Numbers over frames, a curve for each policy; none if no row has them.
    pub fn vector(&self, metric: &str) -> Vec<Points> {
        let mut curves: Vec<Points> = Vec::new();
        for row in &self.rows {
            let Some(Value::Vector(values)) = row.values.get(metric) else { continue };
            curves.resize(curves.len().max(values.len()), Vec::new());
            for (curve, &value) in curves.iter_mut().zip(values) {
                curve.push((row.frames as f64, value));
            }
        }
        curves
    }
}

/// All rows. Lines that are none are passed over with a sentence, unless there is nothing else.
fn rows(file: &Path) -> Result<Vec<Row>> {
    let (mut rows, mut foreign) = (Vec::new(), Vec::new());
    for row in Rows::open(file)? {
        match row {
            Ok(row) => rows.push(row),
            Err(error @ MetricsError::Line { .. }) => foreign.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(first) = foreign.first() {
        if rows.is_empty() {
            bail!("{first}");
        }
        let others = match foreign.len() - 1 {
            0 => "it is passed over".to_owned(),
            others => format!("it and {others} more are passed over"),
        };
        output::say(format_args!("meme: {first}; {others}"));
    }
    check_of_one_run(file, &rows)?;
    Ok(rows)
}

/// A metric with several values, such as one a policy, has as many in every row of a run. A file that was put together of
/// two runs may not.
fn check_of_one_run(file: &Path, rows: &[Row]) -> Result<()> {
    let mut first = BTreeMap::new();
    for row in rows {
        for (metric, value) in &row.values {
            let Value::Vector(values) = value else { continue };
            let (count, frames) = *first.entry(metric).or_insert((values.len(), row.frames));
            if values.len() != count {
                bail!(
                    "{} is not of one run: {metric} has {count} values at {frames} frames and {} at {}",
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
    use std::{env, fs, process};

    use super::*;

    #[test]
    fn rows_of_two_runs_in_one_file_are_refused() {
        let file = env::temp_dir().join(format!("meme-two-runs-{}.jsonl", process::id()));
        let which = file.to_str().unwrap();
        let read = |rows: &str| {
            fs::write(&file, rows).unwrap();
            Curves::read(Path::new("runs"), which, None)
        };
        let row = |frames: u64, pulls: &str| format!("{{\"frames\":{frames},\"bandit/pulls\":[{pulls}]}}\n");
        let one = read(&(row(100, "3,4") + "{\"frames\":150}\n" + &row(200, "5,4")));
        let two = read(&(row(100, "3,4") + &row(200, "5,4") + &row(50, "1,1,1")));
        let marred = read(&(row(100, "3,4") + "<<<<<<< HEAD\n" + &row(200, "5,4")));
        let foreign = read("<html>\n");
        fs::remove_file(&file).unwrap();
        assert_eq!(one.unwrap().vector("bandit/pulls").len(), 2);
        assert_eq!(marred.unwrap().rows().len(), 2);
        assert!(foreign.unwrap_err().to_string().contains("line 1"));
        let complaint = format!("{which} is not of one run: bandit/pulls has 2 values at 100 frames and 3 at 50");
        assert_eq!(two.unwrap_err().to_string(), complaint);
    }
}
