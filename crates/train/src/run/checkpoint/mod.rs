//! Checkpoints: directories that are complete or refused.
//!
//! A checkpoint is written aside, synced and renamed as a whole, so a directory under its final name is complete. The
//! hashes in its manifest detect what happens to it later; a reader compares them before it uses the first byte.

mod background;
pub mod contents;
mod manifest;
mod reader;
mod selector;
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::path::PathBuf;

use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

pub use background::BackgroundSave;
pub use reader::Checkpoint;
pub use selector::{CheckpointSelector, InvalidSelector};
pub use store::{CheckpointStore, Checkpoints, SavedCheckpoint};
pub use writer::CheckpointWriter;

use super::durable::FileError;

/// Bytes read or written at once.
const BUFFER: usize = 1 << 20;

/// Why a checkpoint could not be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The content is not what was written.
    #[error("checkpoint {} is damaged: {how}", path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// How the damage was noticed.
        how: String,
    },
    /// The checkpoint has a format that this program does not read.
    #[error(
        "checkpoint {} has format {found}, but this program reads format {}; use the version of meme that wrote it",
        path.display(),
        manifest::FORMAT
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The checkpoint is a single file, as older versions wrote them.
    #[error(
        "checkpoint {} is in the single-file format of an older version; use the version of meme that wrote it",
        path.display()
    )]
    OldFormat {
        /// The file.
        path: PathBuf,
    },
    /// The checkpoint has no such file.
    #[error("checkpoint {} has no {name}, only {}", path.display(), known.join(", "))]
    NoFile {
        /// The directory.
        path: PathBuf,
        /// The missing file.
        name: String,
        /// The files that it has.
        known: Vec<String>,
    },
    /// There is no checkpoint with that frame count.
    #[error("there is no checkpoint at {frames} frames in {}; {}", directory.display(), listed(known))]
    NotFound {
        /// The directory of checkpoints.
        directory: PathBuf,
        /// The requested frame count.
        frames: u64,
        /// Frame counts of the checkpoints that exist.
        known: Vec<u64>,
    },
    /// There are checkpoints, but none can be used.
    #[error("none of the {count} checkpoints in {} can be used{}", directory.display(), except_best(*best))]
    NoneUsable {
        /// The directory of checkpoints.
        directory: PathBuf,
        /// Number of checkpoints.
        count: usize,
        /// Whether there is a best checkpoint.
        best: bool,
    },
    /// The run was saved before, but its checkpoints are gone.
    #[error("the run was saved before, but {} has no checkpoint to resume from{}", directory.display(), except_best(*best))]
    Gone {
        /// The directory of checkpoints.
        directory: PathBuf,
        /// Whether there is a best checkpoint.
        best: bool,
    },
    /// The source of a file's bytes failed.
    #[error("cannot write {name} of the checkpoint: {cause}")]
    Write {
        /// The file.
        name: String,
        /// What failed.
        cause: String,
    },
    /// The saving thread could not be started.
    #[error("cannot start the checkpoint thread: {0}")]
    Thread(io::Error),
    /// The saving thread panicked.
    #[error("the thread that saves the checkpoint at {frames} frames panicked")]
    Panicked {
        /// Frames of the checkpoint.
        frames: u64,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl CheckpointError {
    /// Whether the disk was full.
    fn is_full_disk(&self) -> bool {
        let Self::File(FileError { cause, .. }) = self else { return false };
        matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

fn listed(frames: &[u64]) -> String {
    let frames: Vec<String> = frames.iter().map(u64::to_string).collect();
    if frames.is_empty() { "there are none yet".to_owned() } else { format!("there are: {}", frames.join(", ")) }
}

fn except_best(best: bool) -> &'static str {
    if best { ", only `best`, which can be played but not resumed from" } else { "" }
}

/// Returns the length and the hash of a file, reading from its current position.
fn hash_file(file: &mut File) -> io::Result<(u64, u64)> {
    let mut hash = Xxh3::new();
    let bytes = io::copy(&mut BufReader::with_capacity(BUFFER, file), &mut hash)?;
    Ok((bytes, hash.digest()))
}
