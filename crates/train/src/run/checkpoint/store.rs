//! The checkpoints of a run: which exist, which to resume from, which to keep.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::durable::{self, FileError, name_of};
use super::background::BackgroundSave;
use super::reader::{Checkpoint, read_manifest};
use super::writer::CheckpointWriter;
use super::{CheckpointError, contents};

const BEST: &str = "best";
/// Suffix of a directory that is being written or removed.
const ASIDE: &str = ".tmp";
/// Suffix of a checkpoint between the two renames that replace it.
pub(super) const REPLACED: &str = ".replaced";
const DAMAGED: &str = ".damaged";
/// Suffix of checkpoints up to format 6, which were single files.
const OLD: &str = ".ckpt";

/// The checkpoints in a directory, for readers.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    pub(super) directory: PathBuf,
    skipped: &'static [&'static str],
}

impl Checkpoints {
    /// The checkpoints in `directory`, which need not exist.
    pub fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), skipped: &[] }
    }

    /// Skips the files that only training needs, which are most of a checkpoint.
    ///
    /// They are not even verified.
    pub fn for_playing(self) -> Self {
        Self { skipped: &contents::FOR_TRAINING, ..self }
    }

    /// Returns the frame counts of all checkpoints, ascending, damaged or not.
    pub fn list(&self) -> Result<Vec<u64>, CheckpointError> {
        let mut frames: Vec<u64> = self.names()?.iter().filter_map(|name| frames_of(name)).collect();
        frames.sort_unstable();
        Ok(frames)
    }

    fn names(&self) -> Result<Vec<String>, FileError> {
        Ok(durable::list(&self.directory)?.iter().map(|path| name_of(path)).collect())
    }

    /// Opens the checkpoint with that frame count.
    pub fn at(&self, frames: u64) -> Result<Checkpoint, CheckpointError> {
        let path = self.path_of(frames);
        let Some(checkpoint) = found(Checkpoint::open_without(&path, self.skipped))? else {
            self.refuse_old_format()?;
            return Err(CheckpointError::NotFound { directory: self.directory.clone(), frames, known: self.list()? });
        };
        if checkpoint.frames() != frames {
            let how = format!("it was saved at {} frames, which is not its name", checkpoint.frames());
            return Err(CheckpointError::Damaged { path, how });
        }
        Ok(checkpoint)
    }

    /// Whether the checkpoint with that frame count has that file, according to its manifest.
    pub fn has_file(&self, frames: u64, name: &str) -> Result<bool, CheckpointError> {
        Ok(read_manifest(&self.path_of(frames))?.files.iter().any(|entry| entry.name == name))
    }

    /// Opens the newest intact checkpoint; `None` if there are none at all. Reports each damaged one to `warn`.
    ///
    /// A checkpoint of another format, or one that the system cannot read at the moment, is an error: an older one in
    /// its place would discard good training.
    pub fn newest_intact(&self, warn: &mut dyn FnMut(&str)) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut damaged = Vec::new();
        let newest = self.newest(|_, error| damaged.push(error.to_string()));
        let instead = substitute(&newest).map_or(String::new(), |name| format!("; using {name} instead"));
        damaged.iter().for_each(|error| warn(&format!("{error}{instead}")));
        newest
    }

    fn newest(&self, mut on_damaged: impl FnMut(u64, &CheckpointError)) -> Result<Option<Checkpoint>, CheckpointError> {
        self.refuse_old_format()?;
        let mut known = self.list()?;
        let count = known.len();
        while let Some(frames) = known.pop() {
            match self.at(frames) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                // The training process has replaced it by newer ones since it was listed.
                Err(CheckpointError::NotFound { known: newer, .. }) if newer.last() > Some(&frames) => known = newer,
                // Still listed, so it is a link whose target is not available.
                Err(CheckpointError::NotFound { known: listed, .. }) if listed.contains(&frames) => {
                    return Err(FileError::at("read", &self.path_of(frames))(ErrorKind::NotFound.into()).into());
                }
                Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::NotFound { .. })) => {
                    on_damaged(frames, &error);
                }
                Err(error) => return Err(error),
            }
        }
        if count == 0 {
            return Ok(None);
        }
        Err(CheckpointError::NoneUsable { directory: self.directory.clone(), count, best: self.has_best() })
    }

    /// Opens the checkpoint with the best evaluation, if there is one.
    pub fn best(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        let best = found(Checkpoint::open_without(&self.best_path(), self.skipped))?;
        if best.is_none() {
            self.refuse_old_format()?;
        }
        Ok(best)
    }

    /// Returns the error of a run that was saved but has no checkpoint left to resume from.
    pub fn gone(&self) -> CheckpointError {
        let gone = || CheckpointError::Gone { directory: self.directory.clone(), best: self.has_best() };
        self.refuse_old_format().err().unwrap_or_else(gone)
    }

    fn refuse_old_format(&self) -> Result<(), CheckpointError> {
        let names = self.names()?;
        let old = |name: &&String| name.strip_suffix(OLD).is_some_and(is_checkpoint);
        match names.iter().filter(old).max() {
            Some(name) => Err(CheckpointError::OldFormat { path: self.directory.join(name) }),
            None => Ok(()),
        }
    }

    fn path_of(&self, frames: u64) -> PathBuf {
        self.directory.join(format!("{frames:012}"))
    }

    fn best_path(&self) -> PathBuf {
        self.directory.join(BEST)
    }

    fn has_best(&self) -> bool {
        self.best_path().exists()
    }
}

/// Name of the checkpoint that is used in place of damaged ones.
fn substitute(newest: &Result<Option<Checkpoint>, CheckpointError>) -> Option<String> {
    newest.as_ref().ok()?.as_ref().map(|checkpoint| name_of(&checkpoint.path))
}

/// Renames a damaged checkpoint and returns its new name. An earlier one of the same name stays.
fn set_damaged_aside(path: &Path) -> Result<String, FileError> {
    let aside = durable::with_suffix(path, DAMAGED);
    let aside = if aside.exists() { durable::next_free(&aside)? } else { aside };
    fs::rename(path, &aside).map_err(FileError::at("renamed", path))?;
    Ok(name_of(&aside))
}

/// Returns the frames of a name such as `000012000000`.
fn frames_of(name: &str) -> Option<u64> {
    let frames = name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok())??;
    (format!("{frames:012}") == name).then_some(frames)
}

fn is_checkpoint(name: &str) -> bool {
    name == BEST || frames_of(name).is_some()
}

/// Turns the error of a missing checkpoint into `None`.
fn found<T>(checkpoint: Result<T, CheckpointError>) -> Result<Option<T>, CheckpointError> {
    match checkpoint {
        Err(CheckpointError::File(error)) if error.cause.kind() == ErrorKind::NotFound => Ok(None),
        checkpoint => checkpoint.map(Some),
    }
}

/// Removes a directory with everything in it, or whatever else has that name.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Renames a checkpoint before removing it: readers must not find half of it.
fn retire(path: &Path) -> Result<(), FileError> {
    let aside = durable::with_suffix(path, ASIDE);
    fs::rename(path, &aside).and_then(|()| remove(&aside)).map_err(FileError::at("removed", path))
}

/// Result of a successful save.
#[derive(Debug)]
pub struct SavedCheckpoint {
    /// The directory.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Errors from removing older checkpoints.
    pub not_removed: Vec<FileError>,
    /// Older checkpoints that were removed only because the disk was full.
    pub made_room: Vec<PathBuf>,
}

/// The checkpoints of a run that this process holds and may write. Clones share one store.
///
/// Saves run one at a time; a save of the best may run at the same time.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    /// The same directory, for reading.
    pub checkpoints: Checkpoints,
    keep: usize,
    saving: Arc<Mutex<()>>,
    /// Separate, so that keeping the best does not wait for gigabytes of replay.
    saving_best: Arc<Mutex<()>>,
}

impl CheckpointStore {
    /// Opens the directory and removes what a crash left half-written.
    ///
    /// Only the owner of the run's lock may do this. Each save keeps the `keep` newest checkpoints, at least one.
    pub fn open(directory: &Path, keep: usize) -> Result<Self, CheckpointError> {
        fs::create_dir_all(directory).map_err(FileError::at("created", directory))?;
        let checkpoints = Checkpoints::in_directory(directory);
        for name in checkpoints.names()? {
            let path = directory.join(&name);
            let replaced =
                name.strip_suffix(REPLACED).filter(|name| is_checkpoint(name)).map(|name| directory.join(name));
            if let Some(original) = replaced.filter(|original| original.symlink_metadata().is_err()) {
                fs::rename(&path, &original).map_err(FileError::at("renamed", &path))?;
            } else if [ASIDE, REPLACED].iter().any(|end| name.strip_suffix(end).is_some_and(is_checkpoint)) {
                remove(&path).map_err(FileError::at("removed", &path))?;
            }
        }
        Ok(Self { checkpoints, keep: keep.max(1), saving: Arc::default(), saving_best: Arc::default() })
    }

    /// Opens the newest intact checkpoint, to resume from it; `None` for a run without checkpoints.
    ///
    /// Renames damaged ones to `*.damaged`, or they would count as newer than those that are saved next, and reports
    /// them to `warn`. If none is intact, all keep their names.
    pub fn resume(&self, warn: &mut dyn FnMut(&str)) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut damaged = Vec::new();
        let newest = self
            .checkpoints
            .newest(|frames, error| damaged.push((self.checkpoints.path_of(frames), error.to_string())));
        let instead = substitute(&newest);
        for (path, error) in damaged {
            let Some(instead) = &instead else {
                warn(&error);
                continue;
            };
            let aside = set_damaged_aside(&path)?;
            warn(&format!("{error}; renamed it to {aside}, using {instead} instead"));
        }
        newest
    }

    /// Renames a damaged best checkpoint and reports it to `warn`.
    ///
    /// Its score, which may still be readable, would keep a lower one from taking its place. One that cannot be read at
    /// the moment stays.
    pub fn set_damaged_best_aside(&self, warn: &mut dyn FnMut(&str)) -> Result<(), CheckpointError> {
        if let Err(error @ CheckpointError::Damaged { .. }) = self.checkpoints.best() {
            let aside = set_damaged_aside(&self.checkpoints.best_path())?;
            warn(&format!("{error}; renamed it to {aside}, the next evaluation replaces it"));
        }
        Ok(())
    }

    /// Saves a checkpoint: `write` adds the files, `progress` receives the bytes written so far. Any thread may save.
    ///
    /// A failed save leaves nothing behind and keeps the older checkpoints; only a successful one removes those beyond
    /// the number to keep. On a full disk, all but the newest intact one are removed for a second attempt: recent
    /// training is worth more.
    pub fn save(
        &self,
        frames: u64,
        progress: &mut dyn FnMut(u64),
        write: impl Fn(&mut CheckpointWriter) -> Result<(), CheckpointError>,
    ) -> Result<SavedCheckpoint, CheckpointError> {
        let _one_at_a_time = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.checkpoints.path_of(frames);
        let mut made_room = Vec::new();
        let bytes = match self.write(&path, frames, None, progress, &write) {
            Err(error) if error.is_full_disk() => {
                // If no room can be made, the full disk is the error to report.
                made_room = self.make_room().unwrap_or_default();
                if made_room.is_empty() {
                    return Err(error);
                }
                self.write(&path, frames, None, progress, &write)?
            }
            written => written?,
        };
        let not_removed = self.remove_old(frames)?;
        Ok(SavedCheckpoint { path, bytes, not_removed, made_room })
    }

    /// Saves what `write` adds as the best so far; `None` if `score` is not above that of the present best.
    pub fn save_best(
        &self,
        frames: u64,
        score: f64,
        write: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError>,
    ) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        let _one_at_a_time = self.saving_best.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.would_be_best(score)? {
            return Ok(None);
        }
        let path = self.checkpoints.best_path();
        let bytes = self.write(&path, frames, Some(score), &mut |_| {}, write)?;
        Ok(Some(SavedCheckpoint { path, bytes, not_removed: Vec::new(), made_room: Vec::new() }))
    }

    /// Whether `score` is above that of the best checkpoint.
    pub fn would_be_best(&self, score: f64) -> Result<bool, CheckpointError> {
        let known = match found(read_manifest(&self.checkpoints.best_path())) {
            Ok(best) => best.and_then(|best| best.score),
            // It may be the better one, and readable the next time.
            Err(error @ CheckpointError::File(_)) => return Err(error),
            Err(_) => None,
        };
        Ok(!score.is_nan() && known.is_none_or(|known| score > known))
    }

    /// Renames the best checkpoint of a run that starts over, and returns its new path if there is one.
    pub fn set_best_aside(&self) -> Result<Option<PathBuf>, CheckpointError> {
        let path = self.checkpoints.best_path();
        Ok(if path.exists() { Some(durable::set_aside(&path)?) } else { None })
    }

    /// Saves on its own thread.
    pub fn save_in_background(
        &self,
        frames: u64,
        write: impl Fn(&mut CheckpointWriter) -> Result<(), CheckpointError> + Send + 'static,
    ) -> Result<BackgroundSave, CheckpointError> {
        BackgroundSave::start(self.clone(), frames, move |store, progress| store.save(frames, progress, write))
    }

    /// Saves the best on its own thread.
    pub fn save_best_in_background(
        &self,
        frames: u64,
        score: f64,
        write: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError> + Send + 'static,
    ) -> Result<BackgroundSave<Option<SavedCheckpoint>>, CheckpointError> {
        BackgroundSave::start(self.clone(), frames, move |store, _| store.save_best(frames, score, write))
    }

    fn write(
        &self,
        path: &Path,
        frames: u64,
        score: Option<f64>,
        progress: &mut dyn FnMut(u64),
        write: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError>,
    ) -> Result<u64, CheckpointError> {
        self.restore_directory()?;
        let mut writer = CheckpointWriter::create(path, durable::with_suffix(path, ASIDE), frames, score, progress)?;
        write(&mut writer)?;
        writer.finish()
    }

    /// Creates the directory again if it was removed during the run, but not that of the run itself.
    fn restore_directory(&self) -> Result<(), FileError> {
        let directory = &self.checkpoints.directory;
        match fs::create_dir(directory) {
            Ok(()) => durable::sync_directory_of(directory),
            Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(cause) => Err(FileError::at("created", directory)(cause)),
        }
    }

    /// Removes all that are older than the newest intact one, and returns those.
    fn make_room(&self) -> Result<Vec<PathBuf>, CheckpointError> {
        let Some(newest) = self.checkpoints.newest(|_, _| {})? else { return Ok(Vec::new()) };
        let older = self.checkpoints.list()?.into_iter().filter(|&frames| frames < newest.frames());
        let removed = |frames| {
            let path = self.checkpoints.path_of(frames);
            retire(&path).is_ok().then_some(path)
        };
        Ok(older.filter_map(removed).collect())
    }

    /// Removes all but the newest, and never the one just saved.
    fn remove_old(&self, saved: u64) -> Result<Vec<FileError>, CheckpointError> {
        let known = self.checkpoints.list()?;
        let old = known.iter().rev().skip(self.keep).filter(|&&frames| frames != saved);
        Ok(old.filter_map(|&frames| retire(&self.checkpoints.path_of(frames)).err()).collect())
    }
}
