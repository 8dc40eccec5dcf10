//! Why a run cannot be opened, created or written.

use std::path::PathBuf;

use thiserror::Error;

use super::durable::FileError;
use super::lock::LockError;
use crate::suggestion::{did_you_mean, suggest_word};

/// Why a run cannot be opened, created or written.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The name is not valid for a directory.
    #[error("a run cannot be named {name:?}: {why}")]
    Name {
        /// The given name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process has taken the directory.
    #[error(
        "another run uses {} since this one was moved or lost its `lock`, so nothing is written there; rename the \
         other run, and move this one back",
        directory.display()
    )]
    Lost {
        /// Its former place.
        directory: PathBuf,
    },
    /// There is no run of that name.
    #[error(
        "there is no run `{name}` in {}{}{}",
        std::path::absolute(root).as_deref().unwrap_or(root).display(),
        match known.as_slice() {
            [] if !root.exists() => ", which does not exist".to_owned(),
            [] => ", which contains no runs".to_owned(),
            known => format!("; there are: {}", known.join(", ")),
        },
        did_you_mean(suggest_word(name, known.iter().map(String::as_str)))
    )]
    NoSuchRun {
        /// Directory of runs.
        root: PathBuf,
        /// The given name.
        name: String,
        /// The runs in it.
        known: Vec<String>,
    },
    /// The directory contains something else.
    #[error("{} is not a run: it contains `{found}` but no run.json", directory.display())]
    NotARun {
        /// The directory.
        directory: PathBuf,
        /// Something in it that no run has.
        found: String,
    },
    /// `run.json` is missing or damaged.
    #[error(
        "{} is {}: restore it, or write it again as docs/runs.md shows",
        path.display(),
        cause.as_ref().map_or("missing".to_owned(), |cause| format!("damaged ({cause})"))
    )]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; `None` if it is missing.
        cause: Option<String>,
    },
    /// The run trains another task.
    #[error("run `{name}` trains {known}, not {given}")]
    OtherTask {
        /// The run.
        name: String,
        /// The run's task.
        known: String,
        /// The requested task.
        given: String,
    },
    /// Another process holds the run, or the lock cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}
