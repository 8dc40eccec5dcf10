//! The folder of a run, held by this process: made, continued or started over.

use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::durable::{self, FileError};
use super::files::{RunDescription, RunFiles};
use super::lock::{LockError, RunLock};
use crate::suggestion::{did_you_mean, suggest_word};

/// Why a run can't be opened.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The name is none for a folder.
    #[error("a run can't be named {name:?}: {why}")]
    Name {
        /// The name that was given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process has taken the folder.
    #[error(
        "another run has taken {} since this one was moved or lost its `lock`, so nothing is written there; give the \
         other another name, and this one its folder back",
        folder.display()
    )]
    Lost {
        /// Where it was.
        folder: PathBuf,
    },
    /// No run of that name.
    #[error(
        "there is no run `{name}` in {}; {}{}",
        std::path::absolute(root).as_deref().unwrap_or(root).display(),
        match known.as_slice() {
            [] if !root.exists() => "there is no such folder; --runs names another".to_owned(),
            [] => "it holds none; --runs names another folder".to_owned(),
            known => format!("there are: {}", known.join(", ")),
        },
        did_you_mean(suggest_word(name, known.iter().map(String::as_str)))
    )]
    NoSuchRun {
        /// Where it was looked for.
        root: PathBuf,
        /// The name that was given.
        name: String,
        /// The runs that are there.
        known: Vec<String>,
    },
    /// The folder holds something else.
    #[error("{} has no run.json but holds `{found}`, so it is no run; give another --name", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// One of the things in it that no run has.
        found: String,
    },
    /// `run.json` is lost or can't be understood.
    #[error(
        "{} is {}, and without it nobody knows what the run is of: put it back, or write it anew as docs/runs.md shows",
        path.display(),
        cause.as_ref().map_or("missing".to_owned(), |cause| format!("damaged ({cause})"))
    )]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong in it; nothing where it is not there.
        cause: Option<String>,
    },
    /// The run is of another task.
    #[error("the run `{name}` is of {known}, not of {given}; give another --name, or --fresh to start over")]
    OtherTask {
        /// The run.
        name: String,
        /// The task it is of.
        known: String,
        /// The task that was asked for.
        given: String,
    },
    /// Another process has it, or the lock can't be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file or folder can't be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What to do with a run that is there already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Go on with it.
    Continue,
    /// Set it aside, whole, and start over.
    Fresh,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Opening {
    /// There was none of that name.
    Created,
    /// It goes on.
    Continued,
    /// The run before it is now in this folder.
    SetAside(PathBuf),
}

/// A run that this process holds.
#[derive(Debug)]
pub struct RunDirectory {
    files: RunFiles,
    description: RunDescription,
    lock: RunLock,
    /// Whether its folder was made for it.
    is_new: bool,
}

impl RunDirectory {
    /// Takes the run `name` in `root`. A new one gets `description` and `config`; one that goes on keeps its own, and
    /// must be of the same task.
    pub fn open(
        root: &Path,
        name: &str,
        start: Start,
        description: RunDescription,
        config: &str,
    ) -> Result<(Self, Opening), DirectoryError> {
        let files = RunFiles::named(root, name)?;
        let is_new = make_folder(&files)?;
        if !files.description_file().exists() {
            // Nothing is left in a folder that is not ours, not even a lock.
            refuse_strangers(&files)?;
        }
        let lock = RunLock::acquire(&files.lock_file()).inspect_err(|_| {
            if is_new {
                // It stays where somebody else was quicker and has it.
                let _ = fs::remove_dir(files.folder());
            }
        })?;
        if !files.description_file().exists() {
            if let Err(error) = make(&files, &description, config) {
                if is_new {
                    // Why it can't be made says more than that it could not be taken back.
                    let _ = unmake(&files, true);
                }
                return Err(error);
            }
            return Ok((Self { files, description, lock, is_new }, Opening::Created));
        }
        if start == Start::Continue {
            let known = files.description()?;
            if known.task != description.task {
                let (name, known, given) = (name.to_owned(), known.task, description.task);
                return Err(DirectoryError::OtherTask { name, known, given });
            }
            make_folders(&files)?;
            return Ok((Self { files, description: known, lock, is_new }, Opening::Continued));
        }
        let aside = durable::set_aside(files.folder())?;
        // Its lock went with the old run's folder.
        drop(lock);
        let made = || -> Result<RunLock, DirectoryError> {
            fs::create_dir_all(files.folder()).map_err(FileError::at("made", files.folder()))?;
            let lock = RunLock::acquire(&files.lock_file())?;
            make(&files, &description, config)?;
            Ok(lock)
        };
        match made() {
            Ok(lock) => Ok((Self { files, description, lock, is_new: true }, Opening::SetAside(aside))),
            Err(error) => {
                // Why it can't be made says more than that it could not be taken back.
                let _ = unmake(&files, true).and_then(|()| give_name_back(&files, &aside));
                Err(error)
            }
        }
    }

    /// Takes back the making of a run in which nothing came about, `opening` being what [`open`](Self::open) made of
    /// it: its files go, with the folder if that was made for it, and the run that was set aside for it has its name again.
    /// A folder in which something was measured, saved or put by somebody stays, and so does a run that was there before.
    pub fn take_back(self, opening: &Opening) -> Result<(), DirectoryError> {
        let files = &self.files;
        if *opening == Opening::Continued || !is_as_made(files)? {
            return Ok(());
        }
        unmake(files, self.is_new)?;
        if let Opening::SetAside(old) = opening {
            give_name_back(files, old)?;
        }
        Ok(durable::sync_folder_of(files.folder())?)
    }

    /// The paths in it.
    pub fn files(&self) -> &RunFiles {
        &self.files
    }

    /// What it is of: as it was created, where it goes on.
    pub fn description(&self) -> &RunDescription {
        &self.description
    }

    /// Notes in `run.json` that there is a checkpoint to go on from, so that one that is gone later is missed. Call it
    /// only when the checkpoint is on the disk under its name.
    ///
    /// Old checkpoints are removed after a newer one is in place, and damaged ones are renamed only where a whole one
    /// stays. So however the process ends, also by `kill -9` at any moment, a run that is noted as saved and has no
    /// numbered checkpoint lost them to somebody else. `best.ckpt` can't tell that: it may come before the first.
    pub fn note_saved(&self) -> Result<(), DirectoryError> {
        let known = self.files.description()?;
        if known.saved {
            return Ok(());
        }
        write_description(&self.files, &RunDescription { saved: true, ..known })
    }

    /// Refuses to write where the run no longer is: its folder was moved, or its lock removed, and another process has
    /// taken its name.
    pub fn check_held(&self) -> Result<(), DirectoryError> {
        match self.lock.is_lost(&self.files.lock_file()) {
            true => Err(DirectoryError::Lost { folder: self.files.folder().to_path_buf() }),
            false => Ok(()),
        }
    }

    /// Replaces `config.toml`, for a run that goes on with other settings. The one before is kept as `config.toml.1`,
    /// `.2` and so on; a text that is there already changes nothing.
    pub fn replace_config(&self, config: &str) -> Result<(), FileError> {
        let path = self.files.config_file();
        if path.exists() {
            if self.files.config()? == config {
                return Ok(());
            }
            let old = durable::next_free(&path)?;
            // A link and not a rename: at every moment there is a config.toml.
            fs::hard_link(&path, &old).map_err(FileError::at("linked", &old))?;
        }
        durable::replace(&path, config.as_bytes())
    }
}

fn write_description(files: &RunFiles, description: &RunDescription) -> Result<(), DirectoryError> {
    let path = files.description_file();
    let text =
        serde_json::to_string_pretty(description).map_err(|cause| FileError::at("written", &path)(cause.into()))?;
    Ok(durable::replace(&path, format!("{text}\n").as_bytes())?)
}

/// Makes the folder of a run, where there is none; whether that was so.
fn make_folder(files: &RunFiles) -> Result<bool, FileError> {
    let folder = files.folder();
    let root = folder.parent().map_or(Ok(()), fs::create_dir_all);
    match root.and_then(|()| fs::create_dir(folder)) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(false),
        Err(cause) => Err(FileError::at("made", folder)(cause)),
    }
}

/// Makes a run of a folder that is held.
fn make(files: &RunFiles, description: &RunDescription, config: &str) -> Result<(), DirectoryError> {
    refuse_strangers(files)?;
    make_folders(files)?;
    durable::replace(&files.config_file(), config.as_bytes())?;
    // The folder is a run from here on: all that must be there before is there.
    write_description(files, description)?;
    Ok(durable::sync_folder_of(files.folder())?)
}

/// Removes what [`make`] and a start have made, as far as they came; the folder too, if it is theirs.
fn unmake(files: &RunFiles, is_new: bool) -> Result<(), DirectoryError> {
    let unless_gone = |path: &Path, removed: io::Result<()>| match removed {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(FileError::at("removed", path)(cause)),
        _ => Ok(()),
    };
    let remove = |path: PathBuf| unless_gone(&path, fs::remove_file(&path));
    // First what makes it a run: what a kill leaves of the rest is a making that was cut off, and is completed.
    remove(files.description_file())?;
    if files.events_folder().exists() {
        entries(&files.events_folder())?.iter().try_for_each(|entry| remove(entry.path()))?;
    }
    for folder in made_folders(files) {
        unless_gone(&folder, fs::remove_dir(&folder))?;
    }
    [files.metrics_file(), files.config_file(), files.lock_file()].into_iter().try_for_each(remove)?;
    if is_new {
        unless_gone(files.folder(), fs::remove_dir(files.folder()))?;
    }
    Ok(())
}

/// Lets the run that was set aside in `old` have the name that is free again.
fn give_name_back(files: &RunFiles, old: &Path) -> Result<(), DirectoryError> {
    // Not from under somebody who has found it there.
    let _held = RunLock::acquire(&RunFiles::in_folder(old).lock_file())?;
    Ok(fs::rename(old, files.folder()).map_err(FileError::at("given its name back", old))?)
}

fn made_folders(files: &RunFiles) -> [PathBuf; 3] {
    [files.events_folder(), files.checkpoints_folder(), files.videos_folder()]
}

fn make_folders(files: &RunFiles) -> Result<(), FileError> {
    for folder in made_folders(files) {
        fs::create_dir_all(&folder).map_err(FileError::at("made", &folder))?;
    }
    Ok(())
}

/// A folder without `run.json` is one whose making was cut off, or a run that lost it, or it is not ours.
fn refuse_strangers(files: &RunFiles) -> Result<(), DirectoryError> {
    if files.has_lost_description() {
        return Err(DirectoryError::Description { path: files.description_file(), cause: None });
    }
    const OURS: [&str; 7] =
        ["lock", "config.toml", "config.toml.tmp", "run.json.tmp", "events", "checkpoints", "videos"];
    for entry in entries(files.folder())? {
        let name = entry.file_name();
        let ours = OURS.iter().any(|ours| name == *ours);
        if !ours || is_filled_folder(&entry.path()) {
            let found = name.to_string_lossy().into_owned();
            return Err(DirectoryError::NoRun { folder: files.folder().to_path_buf(), found });
        }
    }
    Ok(())
}

/// Whether a run has nothing in it but what every start makes: no row of metrics, no checkpoint, no video, no stranger.
/// Without a row, events have none either.
fn is_as_made(files: &RunFiles) -> Result<bool, FileError> {
    let made = [files.description_file(), files.config_file(), files.lock_file(), files.events_folder()];
    let empty_file =
        |path: &Path| *path == files.metrics_file() && fs::metadata(path).is_ok_and(|file| file.len() == 0);
    let empty_folder = |path: &Path| made_folders(files).iter().any(|made| made == path) && !is_filled_folder(path);
    let entries = entries(files.folder())?;
    Ok(entries.iter().map(DirEntry::path).all(|path| made.contains(&path) || empty_file(&path) || empty_folder(&path)))
}

pub(super) fn is_filled_folder(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut inside| inside.next().is_some())
}

fn entries(folder: &Path) -> Result<Vec<DirEntry>, FileError> {
    fs::read_dir(folder).and_then(Iterator::collect).map_err(FileError::at("listed", folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::{Scratch, names};

    fn open(root: &Path, start: Start) -> Result<(RunDirectory, Opening), DirectoryError> {
        RunDirectory::open(root, "pong", start, RunDescription::new("pong", "cpu", 3), "seed = 3\n")
    }

    #[test]
    fn the_same_name_goes_on_with_what_was_there() {
        let scratch = Scratch::new();
        let root = scratch.path().join("runs");
        let (run, opening) = open(&root, Start::Continue).unwrap();
        assert_eq!(opening, Opening::Created);
        assert_eq!(names(run.files().folder()), ["checkpoints", "config.toml", "events", "lock", "run.json", "videos"]);
        assert_eq!(run.files().config().unwrap(), "seed = 3\n");
        assert_eq!(run.files().owner().unwrap().pid, std::process::id());
        let created = run.description().clone();
        drop(run);

        let other = RunDescription { preset: "tiny".to_owned(), seed: 4, ..created.clone() };
        let (run, opening) = RunDirectory::open(&root, "pong", Start::Continue, other, "seed = 4\n").unwrap();
        assert_eq!(opening, Opening::Continued);
        assert_eq!(*run.description(), created);
        assert_eq!(run.files().config().unwrap(), "seed = 3\n");
    }

    #[test]
    fn two_can_not_have_it_nor_set_it_aside() {
        let scratch = Scratch::new();
        let _held = open(scratch.path(), Start::Continue).unwrap();
        for start in [Start::Continue, Start::Fresh] {
            let error = open(scratch.path(), start).unwrap_err();
            assert!(matches!(error, DirectoryError::Lock(LockError::Held { .. })), "{error}");
        }
        assert_eq!(scratch.names(), ["pong"]);
    }

    #[test]
    fn fresh_sets_the_old_aside_and_deletes_nothing() {
        let scratch = Scratch::new();
        let root = scratch.path();
        for (number, before) in [None, Some("pong.1"), Some("pong.2")].into_iter().enumerate() {
            let (run, opening) = open(root, Start::Fresh).unwrap();
            match before {
                None => assert_eq!(opening, Opening::Created),
                Some(before) => assert_eq!(opening, Opening::SetAside(root.join(before))),
            }
            assert!(!run.files().videos_folder().join("best").exists());
            fs::write(run.files().videos_folder().join("best"), [number as u8]).unwrap();
        }
        assert_eq!(scratch.names(), ["pong", "pong.1", "pong.2"]);
        for (name, number) in [("pong.1", 0), ("pong.2", 1), ("pong", 2)] {
            let run = RunFiles::find(root, name).unwrap();
            assert_eq!(fs::read(run.videos_folder().join("best")).unwrap(), [number]);
            assert_eq!(run.owner(), None);
        }
    }

    #[test]
    fn a_making_that_came_to_nothing_is_taken_back() {
        let scratch = Scratch::new();
        let root = scratch.path();
        let (run, opening) = open(root, Start::Continue).unwrap();
        fs::write(run.files().metrics_file(), "").unwrap();
        fs::write(run.files().events_folder().join("events.out.tfevents.1"), "version").unwrap();
        run.take_back(&opening).unwrap();
        assert_eq!(scratch.names(), Vec::<String>::new());

        // Somebody has made the folder beforehand.
        let folder = root.join("pong");
        fs::create_dir(&folder).unwrap();
        let (run, opening) = open(root, Start::Continue).unwrap();
        run.take_back(&opening).unwrap();
        assert_eq!(names(&folder), Vec::<String>::new());

        for precious in ["metrics.jsonl", "checkpoints/000000000100.ckpt", "videos/best.gif", "thesis.tex"] {
            let (run, opening) = open(root, Start::Fresh).unwrap();
            fs::write(run.files().folder().join(precious), "precious").unwrap();
            let path = run.files().folder().join(precious);
            run.take_back(&opening).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
            assert!(path.parent().unwrap().exists() && root.join("pong/run.json").exists());
        }
        assert_eq!(scratch.names(), ["pong", "pong.1", "pong.2", "pong.3"]);
    }

    #[test]
    fn what_was_there_before_is_not_taken_back_but_has_its_name_again() {
        let scratch = Scratch::new();
        let root = scratch.path();
        let (run, _) = open(root, Start::Continue).unwrap();
        fs::write(run.files().videos_folder().join("best"), "old").unwrap();
        drop(run);
        let (run, opening) = open(root, Start::Continue).unwrap();
        run.take_back(&opening).unwrap();
        let (run, opening) = open(root, Start::Fresh).unwrap();
        assert_eq!(scratch.names(), ["pong", "pong.1"]);
        run.take_back(&opening).unwrap();
        assert_eq!(scratch.names(), ["pong"]);
        assert_eq!(fs::read_to_string(root.join("pong/videos/best")).unwrap(), "old");
        assert_eq!(open(root, Start::Continue).unwrap().1, Opening::Continued);

        // Somebody trains it under its new name.
        let (run, opening) = open(root, Start::Fresh).unwrap();
        let description = RunDescription::new("pong", "cpu", 3);
        let held = RunDirectory::open(root, "pong.1", Start::Continue, description, "").unwrap();
        run.take_back(&opening).unwrap_err();
        assert_eq!(scratch.names(), ["pong.1"]);
        drop(held);
    }

    #[test]
    fn that_a_run_was_saved_stays_noted() {
        let scratch = Scratch::new();
        let (run, _) = open(scratch.path(), Start::Continue).unwrap();
        assert!(!run.description().saved);
        let created = run.description().clone();
        run.note_saved().unwrap();
        run.note_saved().unwrap();
        drop(run);
        let (run, _) = open(scratch.path(), Start::Continue).unwrap();
        assert_eq!(*run.description(), RunDescription { saved: true, ..created });
        // As a version before this one wrote it.
        let text = fs::read_to_string(run.files().description_file()).unwrap();
        fs::write(run.files().description_file(), text.replace(",\n  \"saved\": true", "")).unwrap();
        assert!(!run.files().description().unwrap().saved);
    }

    #[test]
    fn another_task_is_refused() {
        let scratch = Scratch::new();
        drop(open(scratch.path(), Start::Continue).unwrap());
        let description = RunDescription::new("breakout", "cpu", 3);
        let error = RunDirectory::open(scratch.path(), "pong", Start::Continue, description.clone(), "")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the run `pong` is of pong, not of breakout; give another --name, or --fresh to start over");
        let (run, _) = RunDirectory::open(scratch.path(), "pong", Start::Fresh, description, "").unwrap();
        assert_eq!(run.description().task, "breakout");
    }

    #[test]
    fn a_creation_that_was_cut_off_is_completed_but_a_strange_folder_is_left_alone() {
        let scratch = Scratch::new();
        let folder = scratch.path().join("pong");
        fs::create_dir_all(folder.join("checkpoints")).unwrap();
        for name in ["lock", "config.toml", "run.json.tmp"] {
            fs::write(folder.join(name), "{").unwrap();
        }
        let (run, opening) = open(scratch.path(), Start::Continue).unwrap();
        assert_eq!(opening, Opening::Created);
        drop(run);

        fs::remove_file(folder.join("run.json")).unwrap();
        for precious in ["checkpoints/000000000100.ckpt", "metrics.jsonl"] {
            fs::write(folder.join(precious), "precious").unwrap();
            for start in [Start::Continue, Start::Fresh] {
                let error = open(scratch.path(), start).unwrap_err().to_string();
                assert!(error.contains("run.json is missing, and without it nobody knows"), "{error}");
            }
            fs::remove_file(folder.join(precious)).unwrap();
        }
        let strange = scratch.path().join("notes");
        fs::create_dir(&strange).unwrap();
        fs::write(strange.join("thesis.tex"), "").unwrap();
        let description = RunDescription::new("pong", "cpu", 3);
        let error = RunDirectory::open(scratch.path(), "notes", Start::Continue, description, "").unwrap_err();
        assert!(error.to_string().contains("holds `thesis.tex`, so it is no run"), "{error}");
        assert_eq!(names(&strange), ["thesis.tex"]);
    }

    #[test]
    fn a_fresh_start_that_fails_half_way_leaves_the_old_run_its_name() {
        let scratch = Scratch::new();
        // Longer paths than the system takes: those of all that a run has, up to `config.toml.tmp`.
        let longest = 4095;
        let mut root = scratch.path().to_path_buf();
        while root.as_os_str().len() + 200 < longest {
            root.push("x".repeat(150));
        }
        root.push("x".repeat(longest - "/pong/config.toml.tm".len() - root.as_os_str().len() - 1));
        let folder = root.join("pong");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("run.json"), "precious").unwrap();
        let error = open(&root, Start::Fresh).unwrap_err().to_string();
        assert!(error.contains("config.toml can't be written: "), "{error}");
        assert_eq!(names(&root), ["pong"]);
        assert_eq!(fs::read_to_string(folder.join("run.json")).unwrap(), "precious");
    }

    #[test]
    fn a_damaged_description_is_named_and_fresh_helps() {
        let scratch = Scratch::new();
        drop(open(scratch.path(), Start::Continue).unwrap());
        fs::write(scratch.path().join("pong/run.json"), "{\"task\": 3}").unwrap();
        let error = open(scratch.path(), Start::Continue).unwrap_err().to_string();
        assert!(error.contains("run.json is damaged (invalid type: integer `3`"), "{error}");
        assert!(error.ends_with(": put it back, or write it anew as docs/runs.md shows"), "{error}");
        open(scratch.path(), Start::Fresh).unwrap();
    }

    #[test]
    fn a_changed_config_keeps_the_one_before() {
        let scratch = Scratch::new();
        let (run, _) = open(scratch.path(), Start::Continue).unwrap();
        run.replace_config("seed = 3\n").unwrap();
        run.replace_config("seed = 4\n").unwrap();
        run.replace_config("seed = 5\n").unwrap();
        let text = |name| fs::read_to_string(run.files().folder().join(name)).unwrap();
        assert_eq!(text("config.toml"), "seed = 5\n");
        assert_eq!(text("config.toml.1"), "seed = 3\n");
        assert_eq!(text("config.toml.2"), "seed = 4\n");
    }

    #[test]
    fn a_root_that_can_not_be_written_gives_a_sentence() {
        let scratch = Scratch::new();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        let error = open(&file, Start::Continue).unwrap_err().to_string();
        assert!(error.contains("file/pong can't be made: "), "{error}");
    }
}
