//! The checkpoints of a run: which there are, which to go on from, which to keep.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::durable::{self, FileError};
use super::reader::Checkpoint;
use super::writer::{CheckpointWriter, Progress};
use super::{CheckpointError, background};

const BEST: &str = "best.ckpt";
const ENDING: &str = ".ckpt";
const ASIDE: &str = ".tmp";
const DAMAGED: &str = ".damaged";

/// The checkpoints in a folder, for those who only read.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    left_out: Option<&'static str>,
}

impl Checkpoints {
    /// The checkpoints in `folder`, which need not exist.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), left_out: None }
    }

    /// The same for those who do not need that part, which may be most of a checkpoint: it is neither checked nor there
    /// to be read.
    pub fn without(self, part: &'static str) -> Self {
        Self { left_out: Some(part), ..self }
    }

    /// The frame counts of those that are there, ascending, damaged or not.
    pub fn list(&self) -> Result<Vec<u64>, CheckpointError> {
        let mut frames: Vec<u64> = self.names()?.iter().filter_map(|name| frames_of(name)).collect();
        frames.sort_unstable();
        Ok(frames)
    }

    fn names(&self) -> Result<Vec<String>, FileError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(FileError::at("listed", &self.folder)(cause)),
        };
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
        names.collect::<Result<_, _>>().map_err(FileError::at("listed", &self.folder))
    }

    /// The checkpoint taken at so many frames.
    pub fn at(&self, frames: u64) -> Result<Checkpoint, CheckpointError> {
        let path = self.path_of(frames);
        let Some(checkpoint) = found(Checkpoint::open_without(&path, self.left_out))? else {
            return Err(CheckpointError::NotThere { folder: self.folder.clone(), frames, known: self.list()? });
        };
        if checkpoint.frames() != frames {
            let how = format!("it was taken at {} frames, which its name does not say", checkpoint.frames());
            return Err(CheckpointError::Damaged { path, how });
        }
        Ok(checkpoint)
    }

    /// Whether the one taken at so many frames has that part. Only its index is looked at.
    pub fn has_part(&self, frames: u64, part: &str) -> Result<bool, CheckpointError> {
        Ok(Checkpoint::open_unchecked(&self.path_of(frames))?.part_names().any(|name| name == part))
    }

    /// The newest one that is whole, or `None` where there are none at all. Each damaged one on the way is told to
    /// `say`, a sentence each, with the one that takes its place. One of another format is not passed over, nor one
    /// that the system does not let us read just now: going on from an older one would throw away good training.
    pub fn newest_valid(&self, say: &mut dyn FnMut(&str)) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut damaged = Vec::new();
        let newest = self.newest(|_, error| damaged.push(error.to_string()));
        let instead = instead_of_it(&newest).map_or(String::new(), |name| format!("; {name} is used instead"));
        damaged.iter().for_each(|error| say(&format!("{error}{instead}")));
        newest
    }

    fn newest(&self, mut pass_over: impl FnMut(u64, &CheckpointError)) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut known = self.list()?;
        let count = known.len();
        while let Some(frames) = known.pop() {
            match self.at(frames) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                // Removed since it was listed, for newer ones by the process that trains: those are to be found then.
                Err(CheckpointError::NotThere { known: newer, .. }) if newer.last() > Some(&frames) => known = newer,
                // Still listed, so it is a link to what is away just now.
                Err(CheckpointError::NotThere { known: listed, .. }) if listed.contains(&frames) => {
                    return Err(FileError::at("read", &self.path_of(frames))(ErrorKind::NotFound.into()).into());
                }
                Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::NotThere { .. })) => {
                    pass_over(frames, &error);
                }
                Err(error) => return Err(error),
            }
        }
        match count {
            0 => Ok(None),
            count => {
                let best = self.best_path().exists();
                Err(CheckpointError::NoneValid { folder: self.folder.clone(), count, best })
            }
        }
    }

    /// The best one by evaluation, if one was kept.
    pub fn best(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        found(Checkpoint::open_without(&self.best_path(), self.left_out))
    }

    /// The error of a run that was saved and has none left to go on from.
    pub fn gone(&self) -> CheckpointError {
        CheckpointError::Gone { folder: self.folder.clone(), best: self.best_path().exists() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn path_of(&self, frames: u64) -> PathBuf {
        self.folder.join(format!("{frames:012}{ENDING}"))
    }

    fn best_path(&self) -> PathBuf {
        self.folder.join(BEST)
    }
}

/// The one that takes the place of damaged ones, if one is whole.
fn instead_of_it(newest: &Result<Option<Checkpoint>, CheckpointError>) -> Option<String> {
    newest.as_ref().ok()?.as_ref().map(|checkpoint| name_of(checkpoint.path()))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Renames a checkpoint that is damaged; its name then. One that was damaged under the same name before stays too.
fn set_damaged_aside(path: &Path) -> Result<String, FileError> {
    let aside = durable::with_suffix(path, DAMAGED);
    let aside = if aside.exists() { durable::next_free(&aside)? } else { aside };
    fs::rename(path, &aside).map_err(FileError::at("set aside", path))?;
    Ok(name_of(&aside))
}

/// The frames in a name such as `000012000000.ckpt`.
fn frames_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    let frames = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    (format!("{frames:012}") == digits).then_some(frames)
}

fn found(checkpoint: Result<Checkpoint, CheckpointError>) -> Result<Option<Checkpoint>, CheckpointError> {
    match checkpoint {
        Err(CheckpointError::File(error)) if error.cause.kind() == ErrorKind::NotFound => Ok(None),
        checkpoint => checkpoint.map(Some),
    }
}

/// A checkpoint that was saved.
#[derive(Debug)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Older ones that should have been removed and could not be.
    pub not_removed: Vec<FileError>,
    /// Older ones that would have been kept, had the disk had room for them.
    pub made_room: Vec<PathBuf>,
}

/// The checkpoints of the run that this process holds: it may write them. Clones share one store.
/// One save runs at a time; a save of the best may run beside it.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    checkpoints: Checkpoints,
    keep: usize,
    saving: Arc<Mutex<()>>,
    /// Apart from the other: keeping the best must not wait for gigabytes of replay.
    saving_best: Arc<Mutex<()>>,
}

impl CheckpointStore {
    /// Opens the folder, which only the owner of the run's lock may do: files that a crash left half-written are
    /// removed. The `keep` newest checkpoints stay when one is added, at least one.
    pub fn open(folder: &Path, keep: usize) -> Result<Self, CheckpointError> {
        fs::create_dir_all(folder).map_err(FileError::at("made", folder))?;
        let checkpoints = Checkpoints::in_folder(folder);
        for name in checkpoints.names()?.iter().filter(|name| name.ends_with(ASIDE)) {
            let path = folder.join(name);
            fs::remove_file(&path).map_err(FileError::at("removed", &path))?;
        }
        Ok(Self { checkpoints, keep: keep.max(1), saving: Arc::default(), saving_best: Arc::default() })
    }

    /// The same folder to read from.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// The checkpoint to go on from: the newest that is whole, `None` for a run that has none yet.
    ///
    /// Damaged ones on the way are renamed to `*.damaged`, or they would come before those that are saved next. Each is
    /// told to `say`, with the one that takes its place. Where none is whole, they keep their names.
    pub fn resume(&self, say: &mut dyn FnMut(&str)) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut damaged = Vec::new();
        let newest = self
            .checkpoints
            .newest(|frames, error| damaged.push((self.checkpoints.path_of(frames), error.to_string())));
        let instead = instead_of_it(&newest);
        for (path, error) in damaged {
            let Some(instead) = &instead else {
                say(&error);
                continue;
            };
            let aside = set_damaged_aside(&path)?;
            say(&format!("{error}; it is now {aside}, and {instead} is used instead"));
        }
        newest
    }

    /// Sets a best one aside that is damaged, and tells `say`: the score that it may still show would keep a lesser one,
    /// which could be played, from taking its place. One that can't be read just now stays.
    pub fn set_damaged_best_aside(&self, say: &mut dyn FnMut(&str)) -> Result<(), CheckpointError> {
        if let Err(error @ CheckpointError::Damaged { .. }) = self.checkpoints.best() {
            let aside = set_damaged_aside(&self.checkpoints.best_path())?;
            say(&format!("{error}; it is now {aside}, and the next evaluation takes its place"));
        }
        Ok(())
    }

    /// Saves a checkpoint taken at so many frames: `write` adds the parts, `progress` hears how far it is.
    ///
    /// It can run on any thread. When anything fails the older checkpoints are as they were and nothing is left of the
    /// attempt. Only after success are those beyond the number to keep removed. On a full disk all but the newest whole one
    /// make room, and it is tried once more: what was trained since is worth more than they are.
    pub fn save(
        &self,
        frames: u64,
        progress: &mut dyn FnMut(Progress),
        write: impl Fn(&mut CheckpointWriter) -> Result<(), CheckpointError>,
    ) -> Result<Saved, CheckpointError> {
        let _one_at_a_time = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.checkpoints.path_of(frames);
        let mut made_room = Vec::new();
        let bytes = match self.write(&path, frames, None, progress, &write) {
            Err(error) if error.is_full_disk() => {
                // Where it can't be made, the full disk is what is to be told.
                made_room = self.make_room().unwrap_or_default();
                if made_room.is_empty() {
                    return Err(error);
                }
                self.write(&path, frames, None, progress, &write)?
            }
            written => written?,
        };
        let not_removed = self.remove_old(frames)?;
        Ok(Saved { path, bytes, not_removed, made_room })
    }

    /// Keeps what `write` adds as the best so far, if `score` is above that of the one kept: `None` if not. It is a
    /// file of its own, replaced at once, so it may hold far less than a checkpoint to go on from.
    pub fn save_best(
        &self,
        frames: u64,
        score: f64,
        write: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError>,
    ) -> Result<Option<Saved>, CheckpointError> {
        let _one_at_a_time = self.saving_best.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.would_be_best(score)? {
            return Ok(None);
        }
        let path = self.checkpoints.best_path();
        let bytes = self.write(&path, frames, Some(score), &mut |_| {}, write)?;
        Ok(Some(Saved { path, bytes, not_removed: Vec::new(), made_room: Vec::new() }))
    }

    /// Whether `score` is above that of the best one kept.
    pub fn would_be_best(&self, score: f64) -> Result<bool, CheckpointError> {
        let known = match found(Checkpoint::open_unchecked(&self.checkpoints.best_path())) {
            Ok(best) => best.and_then(|best| best.score()),
            // It may be the better one, and readable the next time.
            Err(error @ CheckpointError::File(_)) => return Err(error),
            // One that makes no sense is no rival.
            Err(_) => None,
        };
        Ok(!score.is_nan() && known.is_none_or(|known| score > known))
    }

    /// Sets the best one aside, for a run that begins again: it is of an attempt that nothing else is left of. Where it
    /// is then, if there is one.
    pub fn set_best_aside(&self) -> Result<Option<PathBuf>, CheckpointError> {
        let path = self.checkpoints.best_path();
        Ok(if path.exists() { Some(durable::set_aside(&path)?) } else { None })
    }

    /// Saves on a thread of its own.
    pub fn save_in_background(
        &self,
        frames: u64,
        write: impl Fn(&mut CheckpointWriter) -> Result<(), CheckpointError> + Send + 'static,
    ) -> Result<background::Saving, CheckpointError> {
        background::Saving::start(self.clone(), frames, move |store, progress| store.save(frames, progress, write))
    }

    /// Keeps the best so far on a thread of its own.
    pub fn save_best_in_background(
        &self,
        frames: u64,
        score: f64,
        write: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError> + Send + 'static,
    ) -> Result<background::Saving<Option<Saved>>, CheckpointError> {
        background::Saving::start(self.clone(), frames, move |store, _| store.save_best(frames, score, write))
    }

    fn write(
        &self,
        path: &Path,
        frames: u64,
        score: Option<f64>,
        progress: &mut dyn FnMut(Progress),
        write: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError>,
    ) -> Result<u64, CheckpointError> {
        self.make_folder_again()?;
        let aside = durable::with_suffix(&path.with_extension(""), ASIDE);
        let mut writer = CheckpointWriter::create(path, aside, frames, score, progress)?;
        write(&mut writer)?;
        writer.finish()
    }

    /// Somebody may have removed it while the run went on; what is in memory can be saved all the same. A run whose own
    /// folder is gone gets none.
    fn make_folder_again(&self) -> Result<(), FileError> {
        let folder = &self.checkpoints.folder;
        match fs::create_dir(folder) {
            Ok(()) => durable::sync_folder_of(folder),
            Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(cause) => Err(FileError::at("made", folder)(cause)),
        }
    }

    /// Removes all that are older than the newest whole one.
    fn make_room(&self) -> Result<Vec<PathBuf>, CheckpointError> {
        let Some(newest) = self.checkpoints.newest(|_, _| {})? else { return Ok(Vec::new()) };
        let older = self.checkpoints.list()?.into_iter().filter(|&frames| frames < newest.frames());
        let removed = |frames| {
            let path = self.checkpoints.path_of(frames);
            fs::remove_file(&path).is_ok().then_some(path)
        };
        Ok(older.filter_map(removed).collect())
    }

    /// Removes all but the newest, and never the one just saved.
    fn remove_old(&self, saved: u64) -> Result<Vec<FileError>, CheckpointError> {
        let known = self.checkpoints.list()?;
        let old = known.iter().rev().skip(self.keep).filter(|&&frames| frames != saved);
        let remove = |&frames: &u64| {
            let path = self.checkpoints.path_of(frames);
            fs::remove_file(&path).map_err(FileError::at("removed", &path)).err()
        };
        Ok(old.filter_map(remove).collect())
    }
}
