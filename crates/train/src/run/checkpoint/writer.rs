//! Writing one checkpoint: part after part into a file aside, which becomes the checkpoint at the end or disappears.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::super::durable::{self, FileError};
use super::CheckpointError;
use super::format::{self, Index, PartEntry};

/// Bytes between two reports of progress.
const REPORT_EVERY: u64 = 8 << 20;
/// Bytes between two syncs: one sync of gigabytes at the end would hold up every other writer of the disk for seconds.
const SYNC_EVERY: u64 = 256 << 20;
const BUFFER: usize = 1 << 20;

/// How far a save has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Bytes of the whole file so far.
    pub bytes: u64,
}

/// Takes the parts of one checkpoint. It may be used on any thread; parts are written in the order of the calls.
pub struct CheckpointWriter<'a> {
    file: BufWriter<File>,
    aside: PathBuf,
    path: PathBuf,
    index: Index,
    bytes: u64,
    synced: u64,
    finished: bool,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> CheckpointWriter<'a> {
    pub(super) fn create(
        path: &Path,
        aside: PathBuf,
        frames: u64,
        score: Option<f64>,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, CheckpointError> {
        let file = File::create(&aside).map_err(FileError::at("made", &aside))?;
        let mut writer = Self {
            file: BufWriter::with_capacity(BUFFER, file),
            aside,
            path: path.to_path_buf(),
            index: Index { frames, score, parts: Vec::new() },
            bytes: format::HEADER as u64,
            synced: 0,
            finished: false,
            progress,
        };
        let header = writer.file.write_all(&format::header());
        header.map_err(FileError::at("written", &writer.aside))?;
        Ok(writer)
    }

    /// Adds a part: `write` streams its bytes, as many as it likes. When it fails, so does the checkpoint.
    pub fn part<E: Into<Box<dyn Error + Send + Sync>>>(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), CheckpointError> {
        let refuse = |why| Err(CheckpointError::PartName { name: name.to_owned(), why });
        if name.is_empty() {
            return refuse("it is empty");
        }
        if self.index.parts.iter().any(|part| part.name == name) {
            return refuse("there is one already");
        }
        let start = self.bytes;
        let mut part = PartWriter { checkpoint: self, hash: Xxh3::new(), reported: start, failure: None };
        let outcome = write(&mut part);
        let PartWriter { hash, failure, .. } = part;
        // What the disk said is worth more than what the part's owner made of it, and must not get lost in there.
        if let Some(cause) = failure {
            return Err(FileError::at("written", &self.aside)(cause).into());
        }
        outcome.map_err(|cause| CheckpointError::Part { name: name.to_owned(), cause: cause.into().to_string() })?;
        (self.progress)(Progress { bytes: self.bytes });
        let hash = format::hash_text(hash.digest());
        self.index.parts.push(PartEntry { name: name.to_owned(), length: self.bytes - start, hash });
        Ok(())
    }

    /// Adds a part that is in memory already.
    pub fn part_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.part(name, |part| part.write_all(bytes))
    }

    /// Completes the file and gives it its name. Returns its length.
    pub(super) fn finish(mut self) -> Result<u64, CheckpointError> {
        let aside = self.aside.clone();
        let written = FileError::at("written", &aside);
        let ending = format::ending(&self.index, self.bytes).map_err(io::Error::from);
        let whole = ending.and_then(|ending| {
            self.file.write_all(&ending)?;
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            fs::rename(&aside, &self.path)?;
            Ok(self.bytes + ending.len() as u64)
        });
        let whole = whole.map_err(written)?;
        self.finished = true;
        durable::sync_folder_of(&self.path)?;
        Ok(whole)
    }
}

impl Drop for CheckpointWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // What can't be removed now is removed when the run is opened the next time.
            let _ = fs::remove_file(&self.aside);
        }
    }
}

/// Hashes and counts what goes into a part.
struct PartWriter<'w, 'a> {
    checkpoint: &'w mut CheckpointWriter<'a>,
    hash: Xxh3,
    reported: u64,
    failure: Option<io::Error>,
}

impl PartWriter<'_, '_> {
    fn pass_on(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let checkpoint = &mut *self.checkpoint;
        let length = checkpoint.file.write(bytes)?;
        self.hash.update(&bytes[..length]);
        checkpoint.bytes += length as u64;
        if checkpoint.bytes - checkpoint.synced >= SYNC_EVERY {
            checkpoint.file.flush()?;
            checkpoint.file.get_ref().sync_data()?;
            checkpoint.synced = checkpoint.bytes;
        }
        if checkpoint.bytes - self.reported >= REPORT_EVERY {
            (checkpoint.progress)(Progress { bytes: checkpoint.bytes });
            self.reported = checkpoint.bytes;
        }
        Ok(length)
    }
}

impl Write for PartWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass_on(bytes).map_err(|cause| {
            let copy = io::Error::new(cause.kind(), cause.to_string());
            if cause.kind() != io::ErrorKind::Interrupted {
                self.failure = Some(cause);
            }
            copy
        })
    }

    /// The file is flushed at its end; a part has nothing to gain from it earlier.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
