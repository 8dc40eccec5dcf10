//! Checkpoints: named parts in one file that is whole or refused.
//!
//! A file is written aside, synced and renamed, so under its final name it is complete; its hashes catch what disks
//! do to it later. A reader checks those of all parts that it may read before it hands out the first byte.

mod background;
mod format;
mod reader;
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::io::ErrorKind;
use std::path::PathBuf;

use thiserror::Error;

pub use background::Saving;
pub use reader::{Checkpoint, PartReader};
pub use store::{CheckpointStore, Checkpoints, Saved};
pub use writer::{CheckpointWriter, Progress};

use super::durable::FileError;

/// Why a checkpoint could not be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The content is not what was written.
    #[error("checkpoint {} is damaged: {how}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage was seen.
        how: String,
    },
    /// A checkpoint, but in a format that this program does not read.
    #[error(
        "checkpoint {} has format {found}, and this program reads format {}; use the version of meme that wrote it",
        path.display(),
        format::VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The checkpoint has no such part.
    #[error("checkpoint {} has no part `{name}`, only {}", path.display(), known.join(", "))]
    NoPart {
        /// The file.
        path: PathBuf,
        /// The part that was asked for.
        name: String,
        /// The parts it has.
        known: Vec<String>,
    },
    /// No checkpoint of that frame count.
    #[error("there is no checkpoint at {frames} frames in {}; {}", folder.display(), listed(known))]
    NotThere {
        /// Where it was looked for.
        folder: PathBuf,
        /// The frame count that was asked for.
        frames: u64,
        /// Those that are there.
        known: Vec<u64>,
    },
    /// Checkpoints are there, and none can be used.
    #[error(
        "none of the {count} checkpoints in {} can be used{}; --fresh sets the run aside and starts over",
        folder.display(),
        if *best { ", only best.ckpt, which `--checkpoint best` plays" } else { "" }
    )]
    NoneValid {
        /// The folder.
        folder: PathBuf,
        /// How many are there.
        count: usize,
        /// Whether the best one is there.
        best: bool,
    },
    /// The run was saved, and what it would go on from is not there any more.
    #[error(
        "the run was saved before, but {} holds no checkpoint to go on from any more{}; put them back, or --fresh sets \
         the run aside and starts over",
        folder.display(),
        if *best { ", only best.ckpt, which can be played (`--checkpoint best`) but not trained on" } else { "" }
    )]
    Gone {
        /// Where they were.
        folder: PathBuf,
        /// Whether the best one is there.
        best: bool,
    },
    /// A part's name is taken or is none.
    #[error("a checkpoint can't have a part named {name:?}: {why}")]
    PartName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What gives a part its bytes failed.
    #[error("part `{name}` of the checkpoint could not be written: {cause}")]
    Part {
        /// The part.
        name: String,
        /// What failed, in words.
        cause: String,
    },
    /// The thread that saves ended by a panic.
    #[error("the thread that saves the checkpoint at {frames} frames ended by a panic")]
    Panicked {
        /// The checkpoint it was to save.
        frames: u64,
    },
    /// The file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl CheckpointError {
    /// Whether there was no room left to write to.
    fn is_full_disk(&self) -> bool {
        let Self::File(FileError { cause, .. }) = self else { return false };
        matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

fn listed(frames: &[u64]) -> String {
    let frames: Vec<String> = frames.iter().map(u64::to_string).collect();
    if frames.is_empty() { "there is none yet".to_owned() } else { format!("there are: {}", frames.join(", ")) }
}
