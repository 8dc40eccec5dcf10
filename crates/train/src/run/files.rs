//! Paths of a run's files, and the list of runs, for readers.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::clock;
use super::directory;
use super::directory_error::DirectoryError;
use super::durable::{self, FileError};
use super::lock::{Owner, RunLock};
use crate::config::CONFIG_FILE;
use crate::run::regular_file;

/// Name of the file that makes a directory a run.
pub(super) const DESCRIPTION_FILE: &str = "run.json";
/// Name of a run's history.
pub(super) const HISTORY_FILE: &str = "history.jsonl";

/// Contents of `run.json`, written when the run is created and again when it is first saved.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunDescription {
    /// The game or task.
    pub task: String,
    /// The preset that the config started from.
    pub preset: String,
    /// The seed of everything random in it.
    pub seed: u64,
    /// The version of the program that created it.
    pub version: String,
    /// When it was created, in seconds since 1970.
    pub created_unix: u64,
    /// Whether it has been saved.
    #[serde(default)]
    pub saved: bool,
}

impl RunDescription {
    /// A run created now by this version.
    pub fn new(task: &str, preset: &str, seed: u64) -> Self {
        Self {
            task: task.to_owned(),
            preset: preset.to_owned(),
            seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created_unix: clock::unix_seconds() as u64,
            saved: false,
        }
    }
}

/// Paths in a run's directory. Reading needs no lock.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFiles {
    /// The run's directory.
    pub path: PathBuf,
}

impl RunFiles {
    /// The run `name` in `root`, which need not exist.
    pub fn named(root: &Path, name: &str) -> Result<Self, DirectoryError> {
        check_name(name)?;
        Ok(Self { path: root.join(name) })
    }

    /// The run in `directory`, which need not be a run.
    pub fn in_directory(directory: &Path) -> Self {
        Self { path: directory.to_path_buf() }
    }

    /// Finds the run `name`, which must exist.
    pub fn find(root: &Path, name: &str) -> Result<Self, DirectoryError> {
        let files = Self::named(root, name)?;
        if files.is_run() {
            return Ok(files);
        }
        let known = Self::all(root)?.iter().map(|run| run.name().to_owned()).collect();
        Err(DirectoryError::NoSuchRun { root: root.to_path_buf(), name: name.to_owned(), known })
    }

    /// Returns all runs in `root`, which need not exist, sorted by name.
    pub fn all(root: &Path) -> Result<Vec<Self>, FileError> {
        let runs = durable::list(root)?.into_iter().map(|path| Self { path });
        // A directory whose name is not UTF-8 has no name here.
        Ok(runs.filter(|run| !run.name().is_empty() && run.is_run()).collect())
    }

    /// Whether this is a run's directory.
    ///
    /// True even if its `run.json` is unreadable or lost; reading that reports it.
    pub fn is_run(&self) -> bool {
        match fs::metadata(self.description_file()) {
            Ok(_) => true,
            Err(cause) => cause.kind() == ErrorKind::PermissionDenied || self.has_lost_description(),
        }
    }

    /// The run's name.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// `config.toml`: the effective config.
    pub fn config_file(&self) -> PathBuf {
        self.path.join(CONFIG_FILE)
    }

    /// `run.json`: task, preset and seed.
    pub fn description_file(&self) -> PathBuf {
        self.path.join(DESCRIPTION_FILE)
    }

    /// `metrics.jsonl`: one line per measurement.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// `history.jsonl`: starts, resumes and changed settings.
    pub fn history_file(&self) -> PathBuf {
        self.path.join(HISTORY_FILE)
    }

    /// `events/`: the metrics for TensorBoard.
    pub fn events_directory(&self) -> PathBuf {
        self.path.join("events")
    }

    /// `checkpoints/`: everything needed to resume.
    pub fn checkpoints_directory(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// `videos/`: recorded episodes.
    pub fn videos_directory(&self) -> PathBuf {
        self.path.join("videos")
    }

    /// `log.txt`: messages of training, with their times.
    pub fn log_file(&self) -> PathBuf {
        self.path.join("log.txt")
    }

    /// `lock`: held by the process that trains.
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Files that every start creates, `run.json` first; a resumed run adds its metrics.
    pub(super) fn initial_files(&self) -> [PathBuf; 5] {
        [self.description_file(), self.history_file(), self.config_file(), self.log_file(), self.lock_file()]
    }

    /// Directories that every run has.
    pub(super) fn subdirectories(&self) -> [PathBuf; 3] {
        [self.events_directory(), self.checkpoints_directory(), self.videos_directory()]
    }

    /// Reads `run.json`.
    pub fn description(&self) -> Result<RunDescription, DirectoryError> {
        let path = self.description_file();
        let text = match regular_file::read(&path) {
            Ok(text) => text,
            Err(_) if self.has_lost_description() => return Err(DirectoryError::Description { path, cause: None }),
            Err(cause) => return Err(FileError::at("read", &path)(cause).into()),
        };
        serde_json::from_slice(&text)
            .map_err(|cause| DirectoryError::Description { path, cause: Some(cause.to_string()) })
    }

    /// Whether it is a run without its `run.json`: it has metrics or checkpoints, which come only after that file.
    pub(super) fn has_lost_description(&self) -> bool {
        let used = self.metrics_file().exists() || directory::is_filled_directory(&self.checkpoints_directory());
        used && !self.description_file().exists()
    }

    /// Reads the run's config.
    pub fn config(&self) -> Result<String, FileError> {
        let path = self.config_file();
        regular_file::open(&path).and_then(io::read_to_string).map_err(FileError::at("read", &path))
    }

    /// Returns the process that trains it now, if any.
    pub fn owner(&self) -> Option<Owner> {
        RunLock::holder(&self.lock_file())
    }
}

/// Checks that a name is a single path component and easy to type.
fn check_name(name: &str) -> Result<(), DirectoryError> {
    let refuse = |why| Err(DirectoryError::Name { name: name.to_owned(), why });
    match name {
        "" => refuse("it is empty"),
        _ if name.len() > 200 => refuse("it is longer than 200 bytes"),
        _ if name.contains(['/', '\\']) => refuse("a slash would make it more than one directory"),
        _ if name.starts_with('.') => refuse("it starts with a dot"),
        _ if name.starts_with('-') => refuse("it starts with a dash, like an option"),
        _ if name.contains(char::is_control) => refuse("it has a control character in it"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn names_are_single_path_components() {
        for name in ["pong", "pong.1", "gym:CartPole-v1", "seed 3", "été", "a".repeat(200).as_str()] {
            assert_eq!(RunFiles::named(Path::new("runs"), name).unwrap().name(), name);
        }
        for name in ["", ".", "..", ".hidden", "-x", "a/b", "/", "a\\b", "a\nb", "a\0", "a".repeat(201).as_str()] {
            let error = RunFiles::named(Path::new("runs"), name).unwrap_err().to_string();
            assert!(error.starts_with("a run cannot be named"), "{name:?}: {error}");
        }
        let error = RunFiles::named(Path::new("runs"), "").unwrap_err().to_string();
        assert_eq!(error, "a run cannot be named \"\": it is empty");
    }

    #[test]
    fn lists_runs_and_suggests_them_for_an_unknown_name() {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        assert_eq!(RunFiles::all(&root.join("none")).unwrap(), []);
        for name in ["pong", "catch"] {
            let run = RunFiles::named(root, name).unwrap();
            fs::create_dir(&run.path).unwrap();
            let text = serde_json::to_vec(&RunDescription::new(name, "tiny", 7)).unwrap();
            fs::write(run.description_file(), text).unwrap();
        }
        fs::create_dir(root.join("notes")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        let names: Vec<_> = RunFiles::all(root).unwrap().iter().map(|run| run.name().to_owned()).collect();
        assert_eq!(names, ["catch", "pong"]);

        let description = RunFiles::find(root, "pong").unwrap().description().unwrap();
        assert_eq!((description.task.as_str(), description.preset.as_str(), description.seed), ("pong", "tiny", 7));
        let error = RunFiles::find(root, "pnog").unwrap_err().to_string();
        let there = format!("in {}; there are: catch, pong", root.display());
        assert_eq!(error, format!("there is no run `pnog` {there}; did you mean pong?"));
        let error = RunFiles::find(root, "breakout").unwrap_err().to_string();
        assert_eq!(error, format!("there is no run `breakout` {there}"));
    }
}
