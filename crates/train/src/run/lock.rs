//! A lock on a run, which the kernel releases however the process ends.
//!
//! The lock is an advisory file lock, so a killed process leaves none behind. The text in the file only names the owner
//! in messages.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, process, thread};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::clock;
use super::durable::{FileError, is_at};
use crate::run::regular_file;

/// How long to wait for a held lock: `meme runs` holds locks for a moment while it reads.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long to wait for a killed owner: the kernel frees its memory before its lock, which takes seconds for a large
/// replay.
const EXIT_PATIENCE: Duration = Duration::from_secs(60);

/// The process that holds a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Owner {
    /// Its process id.
    pub pid: u32,
    /// The machine it runs on.
    pub host: String,
    /// When it took the run, in seconds since 1970.
    pub started_unix: u64,
}

impl Owner {
    fn this_process() -> Self {
        Self { pid: process::id(), host: host(), started_unix: clock::unix_seconds() as u64 }
    }

    fn read(mut file: &File) -> Option<Self> {
        let mut text = String::new();
        file.rewind().ok()?;
        file.take(4096).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether it has ended or is ending: such a process has no command line.
    fn is_ending(&self) -> bool {
        let command_line = Path::new("/proc").join(self.pid.to_string()).join("cmdline");
        self.host == host()
            && Path::new("/proc/self").exists()
            && fs::read(command_line).map_or(true, |text| text.is_empty())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// Returns this machine's name.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// Why a run cannot be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds it. `python/meme_cluster/train.py` recognises the message.
    #[error(
        "the run in {} is in use by {}",
        directory.display(),
        owner.as_ref().map_or("another process".to_owned(), Owner::to_string)
    )]
    Held {
        /// The run's directory.
        directory: PathBuf,
        /// The owner, if it could be read.
        owner: Option<Owner>,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A lock held by this process until it is dropped or the process ends.
#[derive(Debug)]
pub struct RunLock {
    file: File,
}

impl RunLock {
    /// Takes the lock at `path`. The file is created if necessary and stays.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        Self::acquire_within(PATIENCE, path)
    }

    fn acquire_within(patience: Duration, path: &Path) -> Result<Self, LockError> {
        let start = Instant::now();
        regular_file::refuse_other_types(path).map_err(FileError::at("opened", path))?;
        loop {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(path);
            let file = file.map_err(FileError::at("opened", path))?;
            match file.try_lock() {
                // The directory was moved aside between opening and locking, so this is the old run's lock.
                Ok(()) if !is_at(&file, path) => continue,
                Ok(()) => {
                    let mut lock = Self { file };
                    if let Err(cause) = lock.sign() {
                        // Safe while the lock is held.
                        let _ = fs::remove_file(path);
                        return Err(FileError::at("written", path)(cause).into());
                    }
                    return Ok(lock);
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(cause)) => return Err(FileError::at("locked", path)(cause).into()),
            }
            let owner = Owner::read(&file);
            let ending = owner.as_ref().is_some_and(Owner::is_ending);
            if start.elapsed() > if ending { EXIT_PATIENCE } else { patience } {
                return Err(LockError::Held { directory: path.parent().unwrap_or(path).to_path_buf(), owner });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether `path` names another lock now.
    ///
    /// It does if the directory was moved and its name taken, or the lock was removed and created again.
    pub fn is_lost(&self, path: &Path) -> bool {
        path.exists() && !is_at(&self.file, path)
    }

    /// Whether the lock file was removed. One that was moved still has a name.
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|file| std::os::unix::fs::MetadataExt::nlink(&file) == 0)
    }

    fn sign(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(format!("{}\n", serde_json::to_string(&Owner::this_process())?).as_bytes())
    }

    /// Returns the owner of the lock at `path`; `None` if the lock is free.
    ///
    /// The owner has pid 0 if it could not be read.
    pub fn holder(path: &Path) -> Option<Owner> {
        let file = regular_file::open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                Some(Owner::read(&file).unwrap_or(Owner { pid: 0, host: host(), started_unix: 0 }))
            }
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Closing alone would not release it while a process that is being spawned still has this file open.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn second_owner_is_refused_with_the_name_of_the_first() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("lock");
        let lock = RunLock::acquire(&path).unwrap();
        assert_eq!(RunLock::holder(&path).unwrap().pid, process::id());
        let error = RunLock::acquire(&path).unwrap_err().to_string();
        let directory = scratch.path().display();
        assert_eq!(error, format!("the run in {directory} is in use by process {} on {}", process::id(), host()));
        drop(lock);
        assert_eq!(RunLock::holder(&path), None);
        RunLock::acquire(&path).unwrap();
    }

    #[test]
    fn meme_cluster_recognises_the_message_of_a_held_run() {
        let error = LockError::Held { directory: "runs/pong".into(), owner: None }.to_string();
        let (start, end) = ("the run in ", " is in use by ");
        assert!(error.starts_with(start) && error.contains(end), "{error}");
        let script = include_str!("../../../../python/meme_cluster/train.py");
        assert!(script.contains(&format!("error: {start}.*{end}")));
    }

    #[test]
    fn lock_is_lost_when_another_is_in_its_place() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("lock");
        let lock = RunLock::acquire(&path).unwrap();
        assert!(!lock.is_lost(&path));
        fs::remove_file(&path).unwrap();
        assert!(!lock.is_lost(&path), "it is not taken");
        let other = RunLock::acquire(&path).unwrap();
        assert!(lock.is_lost(&path) && !other.is_lost(&path));
    }

    #[test]
    fn file_of_a_dead_process_is_not_a_lock() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("lock");
        for text in [&br#"{"pid":4194999,"host":"elsewhere","started_unix":1}"#[..], b"", b"\xff rubbish"] {
            fs::write(&path, text).unwrap();
            assert_eq!(RunLock::holder(&path), None);
            let lock = RunLock::acquire(&path).unwrap();
            assert_eq!(RunLock::holder(&path).unwrap().pid, process::id());
            drop(lock);
        }
    }

    #[test]
    fn lock_with_invalid_text_is_still_held() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("lock");
        let _lock = RunLock::acquire(&path).unwrap();
        fs::write(&path, "rubbish").unwrap();
        assert_eq!(RunLock::holder(&path).unwrap().pid, 0);
        assert!(RunLock::acquire(&path).unwrap_err().to_string().contains("in use by another process"));
    }

    #[test]
    fn brief_readers_do_not_lock_out_the_owner() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("lock");
        let looking = File::create(&path).unwrap();
        looking.lock_shared().unwrap();
        let opener = thread::spawn(move || RunLock::acquire_within(EXIT_PATIENCE, &path));
        thread::sleep(Duration::from_millis(100));
        drop(looking);
        opener.join().unwrap().unwrap();
    }

    #[test]
    fn only_a_living_process_is_not_ending() {
        let owner = |pid| Owner { pid, host: host(), started_unix: 0 };
        assert!(!owner(process::id()).is_ending());
        assert!(owner(u32::MAX).is_ending());
        assert!(!Owner { host: "elsewhere".to_owned(), ..owner(u32::MAX) }.is_ending());
    }
}
