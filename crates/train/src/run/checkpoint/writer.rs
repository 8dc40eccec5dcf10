//! Writes one checkpoint into a directory aside, which becomes the checkpoint at the end or disappears.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use agent::{AgentError, NamedTensors, tensor_file};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use xxhash_rust::xxh3::Xxh3;

use super::super::durable::{self, FileError};
use super::manifest::{self, FileEntry, MANIFEST, Manifest};
use super::store::{REPLACED, remove};
use super::{BUFFER, CheckpointError, hash_file};

/// Bytes between two progress reports.
const REPORT_EVERY: u64 = 8 << 20;
/// Bytes between two syncs. A single sync of gigabytes would hold up every other writer of the disk for seconds.
const SYNC_EVERY: u64 = 256 << 20;

/// Receives the files of one checkpoint, on any thread.
pub struct CheckpointWriter<'a> {
    aside: PathBuf,
    path: PathBuf,
    manifest: Manifest,
    bytes: u64,
    finished: bool,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> CheckpointWriter<'a> {
    pub(super) fn create(
        path: &Path,
        aside: PathBuf,
        frames: u64,
        score: Option<f64>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Result<Self, CheckpointError> {
        fs::create_dir(&aside).map_err(FileError::at("created", &aside))?;
        let (path, manifest) = (path.to_path_buf(), Manifest::new(frames, score));
        Ok(Self { aside, path, manifest, bytes: 0, finished: false, progress })
    }

    /// Adds a file whose bytes `write` streams. If that fails, so does the checkpoint.
    pub fn file<E: Into<Box<dyn Error + Send + Sync>>>(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), CheckpointError> {
        let path = self.aside.join(name);
        let file = File::create_new(&path).map_err(FileError::at("created", &path))?;
        let mut writer = FileWriter {
            file: BufWriter::with_capacity(BUFFER, file),
            hash: Xxh3::new(),
            bytes: 0,
            before: self.bytes,
            failure: None,
            progress: self.progress,
        };
        let outcome = write(&mut writer);
        let FileWriter { file, hash, bytes, failure, .. } = writer;
        // The disk's error says more than what the caller made of it.
        if let Some(cause) = failure {
            return Err(FileError::at("written", &path)(cause).into());
        }
        outcome.map_err(|cause| CheckpointError::Write { name: name.to_owned(), cause: cause.into().to_string() })?;
        let synced = file.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all());
        synced.map_err(FileError::at("written", &path))?;
        self.add(name, bytes, hash.digest());
        Ok(())
    }

    /// Adds a safetensors file.
    pub fn tensors(&mut self, name: &str, tensors: &NamedTensors) -> Result<(), CheckpointError> {
        let path = self.aside.join(name);
        tensor_file::write(tensors, &path).map_err(|error| match error {
            AgentError::Io(cause) => FileError::at("written", &path)(cause).into(),
            other => CheckpointError::Write { name: name.to_owned(), cause: other.to_string() },
        })?;
        let synced = File::open(&path).and_then(|mut file| {
            file.sync_all()?;
            hash_file(&mut file)
        });
        let (bytes, hash) = synced.map_err(FileError::at("written", &path))?;
        self.add(name, bytes, hash);
        Ok(())
    }

    fn add(&mut self, name: &str, bytes: u64, hash: u64) {
        self.bytes += bytes;
        (self.progress)(self.bytes);
        self.manifest.files.push(FileEntry { name: name.to_owned(), bytes, xxh3: manifest::hash_text(hash) });
    }

    /// Completes the directory and gives it its name. Returns its size in bytes.
    pub(super) fn finish(mut self) -> Result<u64, CheckpointError> {
        let path = self.aside.join(MANIFEST);
        let text = self.manifest.to_text().and_then(|text| {
            let mut file = File::create_new(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            Ok(text)
        });
        let text = text.map_err(FileError::at("written", &path))?;
        durable::sync_directory_of(&path)?;
        let replaces = self.path.symlink_metadata().is_ok();
        let renamed = if replaces { exchange(&self.aside, &self.path) } else { fs::rename(&self.aside, &self.path) };
        renamed.map_err(FileError::at("renamed", &self.aside))?;
        self.finished = true;
        durable::sync_directory_of(&self.path)?;
        if replaces {
            // A leftover is removed when the run is opened the next time.
            let _ = remove(&self.aside);
        }
        Ok(self.bytes + text.len() as u64)
    }
}

impl Drop for CheckpointWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // A leftover is removed when the run is opened the next time.
            let _ = remove(&self.aside);
        }
    }
}

/// Exchanges the names of two directories, as one operation where the file system can.
fn exchange(aside: &Path, path: &Path) -> io::Result<()> {
    renameat_with(CWD, aside, CWD, path, RenameFlags::EXCHANGE).or_else(|_| exchange_stepwise(aside, path))
}

/// Exchanges two names in three renames. After a crash, opening the store restores what was replaced.
pub(super) fn exchange_stepwise(aside: &Path, path: &Path) -> io::Result<()> {
    let replaced = durable::with_suffix(path, REPLACED);
    fs::rename(path, &replaced)?;
    fs::rename(aside, path).inspect_err(|_| {
        let _ = fs::rename(&replaced, path);
    })?;
    fs::rename(&replaced, aside)
}

/// Hashes and counts the bytes of a file.
struct FileWriter<'w> {
    file: BufWriter<File>,
    hash: Xxh3,
    bytes: u64,
    /// Bytes of the files before it.
    before: u64,
    failure: Option<io::Error>,
    progress: &'w mut dyn FnMut(u64),
}

impl FileWriter<'_> {
    fn pass_on(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.hash.update(&bytes[..length]);
        let before = self.bytes;
        self.bytes += length as u64;
        if self.bytes / SYNC_EVERY > before / SYNC_EVERY {
            self.file.flush()?;
            self.file.get_ref().sync_data()?;
        }
        if self.bytes / REPORT_EVERY > before / REPORT_EVERY {
            (self.progress)(self.before + self.bytes);
        }
        Ok(length)
    }
}

impl Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass_on(bytes).map_err(|cause| {
            let copy = io::Error::new(cause.kind(), cause.to_string());
            if cause.kind() != io::ErrorKind::Interrupted {
                self.failure = Some(cause);
            }
            copy
        })
    }

    /// Does nothing: the file is flushed at its end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
