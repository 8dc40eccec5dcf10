//! What a run has measured, as curves over frames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use envs::EnvId;
use envs::games::Game;
use train::config::{ActionSet, Config};
use train::run::{Row, Rows, RunDescription, RunFiles, Value};

use super::chart::Points;

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
    /// Reads the metrics of the run `which` in `root`, or of a run's folder, or a metrics file on its own.
    pub fn read(root: &Path, which: &str, task: Option<&str>) -> Result<Self> {
        let path = Path::new(which);
        let (name, file, folder) = if path.is_dir() {
            (which.trim_end_matches('/').to_owned(), path.join("metrics.jsonl"), Some(path.to_path_buf()))
        } else if path.exists() {
            (which.to_owned(), path.to_path_buf(), None)
        } else {
            let run = RunFiles::find(root, which)?;
            (which.to_owned(), run.metrics_file(), Some(run.folder().to_path_buf()))
        };
        let known = folder.as_deref().map(described).transpose()?;
        let (description, config) =
            known.map_or((None, None), |(description, config)| (Some(description), Some(config)));
        let rows = Rows::open(&file)?.collect::<Result<Vec<_>, _>>()?;
        if rows.is_empty() {
            bail!("{} has no row of metrics yet", file.display());
        }
        check_of_one_run(&file, &rows)?;
        let task = task.map(str::to_owned).or(description.map(|description| description.task));
        Ok(Self { name, task, config, file, rows })
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

/// What a run's folder says of it.
fn described(folder: &Path) -> Result<(RunDescription, Config)> {
    let root = folder.parent().unwrap_or(Path::new("."));
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let run = RunFiles::find(root, name).with_context(|| format!("{} is no run's folder", folder.display()))?;
    Ok((run.description()?, Config::read(&run.config_file())?))
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
        fs::remove_file(&file).unwrap();
        assert_eq!(one.unwrap().vector("bandit/pulls").len(), 2);
        let complaint = format!("{which} is not of one run: bandit/pulls has 2 values at 100 frames and 3 at 50");
        assert_eq!(two.unwrap_err().to_string(), complaint);
    }
}
