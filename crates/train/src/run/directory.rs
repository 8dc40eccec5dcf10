//! The directory of a run that this process holds: created, resumed or started over.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::directory_error::DirectoryError;
use super::durable::{self, FileError};
use super::files::{DESCRIPTION_FILE, HISTORY_FILE, RunDescription, RunFiles};
use super::lock::RunLock;
use crate::config::CONFIG_FILE;

/// What to do with an existing run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExistingRun {
    /// Resume it.
    Resume,
    /// Move it aside and start over.
    MoveAside,
}

/// How a run was opened.
#[derive(Clone, Debug, PartialEq)]
pub enum OpenedRun {
    /// It is new.
    Created,
    /// It existed and resumes.
    Resumed,
    /// It is new, and the previous run is now in this directory.
    MovedAside(PathBuf),
}

/// Files of a run that were removed during training.
#[derive(Debug, Default, PartialEq)]
pub struct RestoredFiles {
    /// Names of those that were written again.
    pub files: Vec<&'static str>,
    /// Whether the directory of checkpoints was removed; it is empty now.
    pub lost_checkpoints: bool,
}

/// A run that this process holds.
#[derive(Debug)]
pub struct RunDirectory {
    /// Its paths.
    pub files: RunFiles,
    /// Its description when it was opened.
    pub description: RunDescription,
    lock: RunLock,
    /// Whether its directory was created for it.
    is_new: bool,
}

impl RunDirectory {
    /// Opens the run `name` in `root` and locks it. A new run gets `description` and `config`; an existing one keeps
    /// its own and must have the same task.
    pub fn open(
        root: &Path,
        name: &str,
        existing: ExistingRun,
        description: RunDescription,
        config: &str,
    ) -> Result<(Self, OpenedRun), DirectoryError> {
        let files = RunFiles::named(root, name)?;
        let is_new = create_run_directory(&files)?;
        if !files.description_file().exists() {
            // Leave nothing in a directory that is not a run, not even a lock.
            check_no_foreign_files(&files)?;
        }
        let lock = RunLock::acquire(&files.lock_file()).inspect_err(|_| {
            if is_new {
                // It stays if another process was quicker and uses it.
                let _ = fs::remove_dir(&files.path);
            }
        })?;
        let mut run = Self { files, description, lock, is_new };
        if !run.files.description_file().exists() {
            run.create(config)?;
            return Ok((run, OpenedRun::Created));
        }
        if existing == ExistingRun::MoveAside {
            return run.start_over(config);
        }
        run.resume()?;
        Ok((run, OpenedRun::Resumed))
    }

    fn create(&self, config: &str) -> Result<(), DirectoryError> {
        initialise_run(&self.files, &self.description, config).inspect_err(|_| {
            if self.is_new {
                // The first error says more than a failed cleanup.
                let _ = remove_created_files(&self.files, true);
            }
        })
    }

    /// Takes the description of the existing run in place of the requested one.
    fn resume(&mut self) -> Result<(), DirectoryError> {
        let requested = std::mem::replace(&mut self.description, self.files.description()?);
        if self.description.task != requested.task {
            let (name, known) = (self.files.name().to_owned(), self.description.task.clone());
            return Err(DirectoryError::OtherTask { name, known, given: requested.task });
        }
        Ok(create_subdirectories(&self.files)?)
    }

    /// Moves the run aside and creates a new one in its place; if that fails, the old one gets its name back.
    fn start_over(self, config: &str) -> Result<(Self, OpenedRun), DirectoryError> {
        let Self { files, description, lock, .. } = self;
        let aside = durable::set_aside(&files.path)?;
        // The lock moved with the old run's directory.
        drop(lock);
        let create = || -> Result<RunLock, DirectoryError> {
            fs::create_dir_all(&files.path).map_err(FileError::at("created", &files.path))?;
            let lock = RunLock::acquire(&files.lock_file())?;
            initialise_run(&files, &description, config)?;
            Ok(lock)
        };
        let lock = create().inspect_err(|_| {
            // The first error says more than a failed cleanup.
            let _ = remove_created_files(&files, true).and_then(|()| restore_name(&files, &aside));
        })?;
        Ok((Self { files, description, lock, is_new: true }, OpenedRun::MovedAside(aside)))
    }

    /// Undoes the [`open`](Self::open) of a new run that produced nothing.
    ///
    /// Removes its files, and its directory if that was created for it, and gives a run that was moved aside its name
    /// back.
    ///
    /// A run that existed before stays, and so does a directory with metrics, checkpoints or other files.
    pub fn undo_open(self, opened: &OpenedRun) -> Result<(), DirectoryError> {
        let files = &self.files;
        if *opened == OpenedRun::Resumed || !has_no_results(files)? {
            return Ok(());
        }
        remove_created_files(files, self.is_new)?;
        if let OpenedRun::MovedAside(old) = opened {
            restore_name(files, old)?;
        }
        Ok(durable::sync_directory_of(&files.path)?)
    }

    /// Records in `run.json` that the run has a checkpoint, so that missing checkpoints are noticed later. Call it only
    /// when the checkpoint is complete.
    ///
    /// Old checkpoints are removed only after a newer one is in place, and damaged ones are renamed only if an intact
    /// one stays. So a run that is recorded as saved but has no checkpoint lost them outside this program, even if it
    /// was killed. `best` proves nothing: it may come before the first checkpoint.
    pub fn note_saved(&self) -> Result<(), DirectoryError> {
        let known = self.files.description()?;
        if known.saved {
            return Ok(());
        }
        write_description(&self.files, &RunDescription { saved: true, ..known })
    }

    /// Fails if another process has taken the run's name.
    ///
    /// This happens if the directory was moved or its lock removed.
    pub fn check_held(&self) -> Result<(), DirectoryError> {
        match self.lock.is_lost(&self.files.lock_file()) {
            true => Err(DirectoryError::Lost { directory: self.files.path.to_path_buf() }),
            false => Ok(()),
        }
    }

    /// Writes `config.toml`, `run.json` and `history.jsonl` again if they were removed.
    ///
    /// Returns what was removed. A directory that was moved is left alone.
    pub fn restore_files(&self, config: &str, history: &[u8]) -> Result<RestoredFiles, DirectoryError> {
        let mut restored = RestoredFiles::default();
        if !self.files.path.exists() && !self.lock.is_removed() {
            return Ok(restored);
        }
        fs::create_dir_all(&self.files.path).map_err(FileError::at("created", &self.files.path))?;
        restored.lost_checkpoints = !self.files.checkpoints_directory().exists();
        create_subdirectories(&self.files)?;
        if !self.files.config_file().exists() {
            durable::replace(&self.files.config_file(), config.as_bytes())?;
            restored.files.push(CONFIG_FILE);
        }
        if !self.files.description_file().exists() {
            write_description(&self.files, &self.description)?;
            restored.files.push(DESCRIPTION_FILE);
        }
        if !history.is_empty() && !self.files.history_file().exists() {
            durable::replace(&self.files.history_file(), history)?;
            restored.files.push(HISTORY_FILE);
        }
        Ok(restored)
    }

    /// Replaces `config.toml` if it changed. The previous one is kept as `config.toml.1`, `.2` and so on.
    pub fn replace_config(&self, config: &str) -> Result<(), FileError> {
        let path = self.files.config_file();
        if path.exists() {
            if self.files.config()? == config {
                return Ok(());
            }
            let old = durable::next_free(&path)?;
            // A link, not a rename: there must always be a config.toml.
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

/// Creates a run's directory and returns whether it is new.
fn create_run_directory(files: &RunFiles) -> Result<bool, FileError> {
    let directory = &files.path;
    let root = directory.parent().map_or(Ok(()), fs::create_dir_all);
    match root.and_then(|()| fs::create_dir(directory)) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists && directory.is_dir() => Ok(false),
        Err(cause) => Err(FileError::at("created", directory)(cause)),
    }
}

/// Turns a locked directory into a run.
fn initialise_run(files: &RunFiles, description: &RunDescription, config: &str) -> Result<(), DirectoryError> {
    check_no_foreign_files(files)?;
    create_subdirectories(files)?;
    durable::replace(&files.config_file(), config.as_bytes())?;
    // Last, because this file makes the directory a run.
    write_description(files, description)?;
    Ok(durable::sync_directory_of(&files.path)?)
}

/// Removes what [`initialise_run`] and a start have created so far, and the directory if it is new.
fn remove_created_files(files: &RunFiles, is_new: bool) -> Result<(), DirectoryError> {
    let unless_gone = |path: &Path, removed: io::Result<()>| match removed {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(FileError::at("removed", path)(cause)),
        _ => Ok(()),
    };
    let remove = |path: PathBuf| unless_gone(&path, fs::remove_file(&path));
    // First what makes it a run: if the process is killed now, the next start completes the rest.
    remove(files.description_file())?;
    durable::list(&files.events_directory())?.into_iter().try_for_each(remove)?;
    for directory in files.subdirectories() {
        unless_gone(&directory, fs::remove_dir(&directory))?;
    }
    remove(files.metrics_file())?;
    files.initial_files().into_iter().try_for_each(remove)?;
    if is_new {
        unless_gone(&files.path, fs::remove_dir(&files.path))?;
    }
    Ok(())
}

/// Gives the run that was moved to `old` its name back.
fn restore_name(files: &RunFiles, old: &Path) -> Result<(), DirectoryError> {
    // Not while another process uses it there.
    let _held = RunLock::acquire(&RunFiles::in_directory(old).lock_file())?;
    Ok(fs::rename(old, &files.path).map_err(FileError::at("renamed", old))?)
}

fn create_subdirectories(files: &RunFiles) -> Result<(), FileError> {
    for directory in files.subdirectories() {
        fs::create_dir_all(&directory).map_err(FileError::at("created", &directory))?;
    }
    Ok(())
}

/// Refuses a directory without `run.json`, unless it is a run whose creation was interrupted.
fn check_no_foreign_files(files: &RunFiles) -> Result<(), DirectoryError> {
    if files.has_lost_description() {
        return Err(DirectoryError::Description { path: files.description_file(), cause: None });
    }
    let unfinished = [files.config_file(), files.description_file()].map(|file| durable::aside(&file));
    let own = [files.lock_file(), files.log_file(), files.config_file()].into_iter().chain(unfinished);
    let own: Vec<PathBuf> = own.chain(files.subdirectories()).collect();
    for path in durable::list(&files.path)? {
        if !own.contains(&path) || is_filled_directory(&path) {
            let found = durable::name_of(&path);
            return Err(DirectoryError::NotARun { directory: files.path.to_path_buf(), found });
        }
    }
    Ok(())
}

/// Returns whether a run contains only what every start creates: no metrics, checkpoints, videos or other files.
/// Without a row of metrics, events are empty too.
fn has_no_results(files: &RunFiles) -> Result<bool, FileError> {
    let initial = |path: &PathBuf| files.initial_files().contains(path) || *path == files.events_directory();
    let empty_file =
        |path: &Path| *path == files.metrics_file() && fs::metadata(path).is_ok_and(|file| file.len() == 0);
    let empty_directory = |path: &PathBuf| files.subdirectories().contains(path) && !is_filled_directory(path);
    let paths = durable::list(&files.path)?;
    Ok(paths.iter().all(|path| initial(path) || empty_file(path) || empty_directory(path)))
}

pub(super) fn is_filled_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut inside| inside.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::LockError;
    use crate::run::test_support::names;
    use tempfile::tempdir;

    fn open(root: &Path, existing: ExistingRun) -> Result<(RunDirectory, OpenedRun), DirectoryError> {
        RunDirectory::open(root, "pong", existing, RunDescription::new("pong", "cpu", 3), "seed = 3\n")
    }

    #[test]
    fn same_name_resumes_the_run() {
        let scratch = tempdir().unwrap();
        let root = scratch.path().join("runs");
        let (run, opened) = open(&root, ExistingRun::Resume).unwrap();
        assert_eq!(opened, OpenedRun::Created);
        assert_eq!(names(&run.files.path), ["checkpoints", "config.toml", "events", "lock", "run.json", "videos"]);
        assert_eq!(run.files.config().unwrap(), "seed = 3\n");
        assert_eq!(run.files.owner().unwrap().pid, std::process::id());
        let created = run.description.clone();
        drop(run);

        let other = RunDescription { preset: "tiny".to_owned(), seed: 4, ..created.clone() };
        let (run, opened) = RunDirectory::open(&root, "pong", ExistingRun::Resume, other, "seed = 4\n").unwrap();
        assert_eq!(opened, OpenedRun::Resumed);
        assert_eq!(run.description, created);
        assert_eq!(run.files.config().unwrap(), "seed = 3\n");
    }

    #[test]
    fn second_process_can_neither_open_nor_move_it() {
        let scratch = tempdir().unwrap();
        let _held = open(scratch.path(), ExistingRun::Resume).unwrap();
        for existing in [ExistingRun::Resume, ExistingRun::MoveAside] {
            let error = open(scratch.path(), existing).unwrap_err();
            assert!(matches!(error, DirectoryError::Lock(LockError::Held { .. })), "{error}");
        }
        assert_eq!(names(scratch.path()), ["pong"]);
    }

    #[test]
    fn fresh_start_moves_the_old_run_aside_and_deletes_nothing() {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        for (number, before) in [None, Some("pong.1"), Some("pong.2")].into_iter().enumerate() {
            let (run, opened) = open(root, ExistingRun::MoveAside).unwrap();
            match before {
                None => assert_eq!(opened, OpenedRun::Created),
                Some(before) => assert_eq!(opened, OpenedRun::MovedAside(root.join(before))),
            }
            assert!(!run.files.videos_directory().join("best").exists());
            fs::write(run.files.videos_directory().join("best"), [number as u8]).unwrap();
        }
        assert_eq!(names(scratch.path()), ["pong", "pong.1", "pong.2"]);
        for (name, number) in [("pong.1", 0), ("pong.2", 1), ("pong", 2)] {
            let run = RunFiles::find(root, name).unwrap();
            assert_eq!(fs::read(run.videos_directory().join("best")).unwrap(), [number]);
            assert_eq!(run.owner(), None);
        }
    }

    #[test]
    fn run_without_results_is_removed() {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        let (run, opened) = open(root, ExistingRun::Resume).unwrap();
        fs::write(run.files.metrics_file(), "").unwrap();
        fs::write(run.files.events_directory().join("events.out.tfevents.1"), "version").unwrap();
        run.undo_open(&opened).unwrap();
        assert_eq!(names(scratch.path()), Vec::<String>::new());

        // The directory existed before.
        let directory = root.join("pong");
        fs::create_dir(&directory).unwrap();
        let (run, opened) = open(root, ExistingRun::Resume).unwrap();
        run.undo_open(&opened).unwrap();
        assert_eq!(names(&directory), Vec::<String>::new());

        for precious in ["metrics.jsonl", "checkpoints/000000000100", "videos/best.gif", "thesis.tex"] {
            let (run, opened) = open(root, ExistingRun::MoveAside).unwrap();
            fs::write(run.files.path.join(precious), "precious").unwrap();
            let path = run.files.path.join(precious);
            run.undo_open(&opened).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
            assert!(path.parent().unwrap().exists() && root.join("pong/run.json").exists());
        }
        assert_eq!(names(scratch.path()), ["pong", "pong.1", "pong.2", "pong.3"]);
    }

    #[test]
    fn previous_run_stays_and_gets_its_name_back() {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        let (run, _) = open(root, ExistingRun::Resume).unwrap();
        fs::write(run.files.videos_directory().join("best"), "old").unwrap();
        drop(run);
        let (run, opened) = open(root, ExistingRun::Resume).unwrap();
        run.undo_open(&opened).unwrap();
        let (run, opened) = open(root, ExistingRun::MoveAside).unwrap();
        assert_eq!(names(scratch.path()), ["pong", "pong.1"]);
        run.undo_open(&opened).unwrap();
        assert_eq!(names(scratch.path()), ["pong"]);
        assert_eq!(fs::read_to_string(root.join("pong/videos/best")).unwrap(), "old");
        assert_eq!(open(root, ExistingRun::Resume).unwrap().1, OpenedRun::Resumed);

        // Another process trains it under its new name.
        let (run, opened) = open(root, ExistingRun::MoveAside).unwrap();
        let description = RunDescription::new("pong", "cpu", 3);
        let held = RunDirectory::open(root, "pong.1", ExistingRun::Resume, description, "").unwrap();
        run.undo_open(&opened).unwrap_err();
        assert_eq!(names(scratch.path()), ["pong.1"]);
        drop(held);
    }

    #[test]
    fn saved_stays_recorded() {
        let scratch = tempdir().unwrap();
        let (run, _) = open(scratch.path(), ExistingRun::Resume).unwrap();
        assert!(!run.description.saved);
        let created = run.description.clone();
        run.note_saved().unwrap();
        run.note_saved().unwrap();
        drop(run);
        let (run, _) = open(scratch.path(), ExistingRun::Resume).unwrap();
        assert_eq!(run.description, RunDescription { saved: true, ..created });
        // As an older version wrote it.
        let text = fs::read_to_string(run.files.description_file()).unwrap();
        fs::write(run.files.description_file(), text.replace(",\n  \"saved\": true", "")).unwrap();
        assert!(!run.files.description().unwrap().saved);
    }

    #[test]
    fn refuses_another_task() {
        let scratch = tempdir().unwrap();
        drop(open(scratch.path(), ExistingRun::Resume).unwrap());
        let description = RunDescription::new("breakout", "cpu", 3);
        let error = RunDirectory::open(scratch.path(), "pong", ExistingRun::Resume, description.clone(), "")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "run `pong` trains pong, not breakout");
        let (run, _) = RunDirectory::open(scratch.path(), "pong", ExistingRun::MoveAside, description, "").unwrap();
        assert_eq!(run.description.task, "breakout");
    }

    #[test]
    fn completes_an_interrupted_creation_but_leaves_other_directories_alone() {
        let scratch = tempdir().unwrap();
        let directory = scratch.path().join("pong");
        fs::create_dir_all(directory.join("checkpoints")).unwrap();
        for name in ["lock", "config.toml", "run.json.tmp"] {
            fs::write(directory.join(name), "{").unwrap();
        }
        let (run, opened) = open(scratch.path(), ExistingRun::Resume).unwrap();
        assert_eq!(opened, OpenedRun::Created);
        drop(run);

        fs::remove_file(directory.join("run.json")).unwrap();
        for precious in ["checkpoints/000000000100", "metrics.jsonl"] {
            fs::write(directory.join(precious), "precious").unwrap();
            for existing in [ExistingRun::Resume, ExistingRun::MoveAside] {
                let error = open(scratch.path(), existing).unwrap_err().to_string();
                assert!(error.contains("run.json is missing: restore it"), "{error}");
            }
            fs::remove_file(directory.join(precious)).unwrap();
        }
        let strange = scratch.path().join("notes");
        fs::create_dir(&strange).unwrap();
        fs::write(strange.join("thesis.tex"), "").unwrap();
        let description = RunDescription::new("pong", "cpu", 3);
        let error = RunDirectory::open(scratch.path(), "notes", ExistingRun::Resume, description, "").unwrap_err();
        assert!(error.to_string().contains("it contains `thesis.tex` but no run.json"), "{error}");
        assert_eq!(names(&strange), ["thesis.tex"]);
    }

    #[test]
    fn failed_fresh_start_gives_the_old_run_its_name_back() {
        let scratch = tempdir().unwrap();
        // All paths of a run up to `config.toml.tmp` are longer than the system allows.
        let longest = 4095;
        let mut root = scratch.path().to_path_buf();
        while root.as_os_str().len() + 200 < longest {
            root.push("x".repeat(150));
        }
        root.push("x".repeat(longest - "/pong/config.toml.tm".len() - root.as_os_str().len() - 1));
        let directory = root.join("pong");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("run.json"), "precious").unwrap();
        let error = open(&root, ExistingRun::MoveAside).unwrap_err().to_string();
        assert!(error.contains("config.toml cannot be written: "), "{error}");
        assert_eq!(names(&root), ["pong"]);
        assert_eq!(fs::read_to_string(directory.join("run.json")).unwrap(), "precious");
    }

    #[test]
    fn damaged_description_is_reported_and_fresh_start_helps() {
        let scratch = tempdir().unwrap();
        drop(open(scratch.path(), ExistingRun::Resume).unwrap());
        fs::write(scratch.path().join("pong/run.json"), "{\"task\": 3}").unwrap();
        let error = open(scratch.path(), ExistingRun::Resume).unwrap_err().to_string();
        assert!(error.contains("run.json is damaged (invalid type: integer `3`"), "{error}");
        assert!(error.ends_with(": restore it, or write it again as docs/runs.md shows"), "{error}");
        open(scratch.path(), ExistingRun::MoveAside).unwrap();
    }

    #[test]
    fn changed_config_keeps_the_previous_one() {
        let scratch = tempdir().unwrap();
        let (run, _) = open(scratch.path(), ExistingRun::Resume).unwrap();
        run.replace_config("seed = 3\n").unwrap();
        run.replace_config("seed = 4\n").unwrap();
        run.replace_config("seed = 5\n").unwrap();
        let text = |name| fs::read_to_string(run.files.path.join(name)).unwrap();
        assert_eq!(text("config.toml"), "seed = 5\n");
        assert_eq!(text("config.toml.1"), "seed = 3\n");
        assert_eq!(text("config.toml.2"), "seed = 4\n");
    }

    #[test]
    fn unwritable_root_is_reported() {
        let scratch = tempdir().unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        let error = open(&file, ExistingRun::Resume).unwrap_err().to_string();
        assert!(error.contains("file/pong cannot be created: "), "{error}");
    }
}
