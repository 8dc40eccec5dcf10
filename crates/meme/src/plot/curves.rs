//! What a run has measured, as curves over frames.

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
        let task = task.map(str::to_owned).or(description.map(|description| description.task));
        Ok(Self { name, task, config, file, rows })
    }

    #[cfg(test)]
    pub fn of_rows(rows: Vec<Row>) -> Self {
        Self { name: "run".to_owned(), task: None, config: None, file: PathBuf::from("metrics.jsonl"), rows }
    }

    /// The Atari game that was trained on.
    pub fn game(&self) -> Option<&'static Game> {
        match self.task.as_deref()?.parse() {
            Ok(EnvId::Atari(rom)) => envs::games::game(&rom),
            _ => None,
        }
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

/// What a run's folder says of it.
fn described(folder: &Path) -> Result<(RunDescription, Config)> {
    let root = folder.parent().unwrap_or(Path::new("."));
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let run = RunFiles::find(root, name).with_context(|| format!("{} is no run's folder", folder.display()))?;
    Ok((run.description()?, Config::read(&run.config_file())?))
}
