//! `log.txt` of the run that this process trains: its messages, with their times.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;

static LOG: OnceLock<Mutex<RunLog>> = OnceLock::new();

/// Appends all later messages to a file. A run without its log is better than none: failures are ignored.
pub fn open(path: &Path) {
    if let Ok(log) = RunLog::open(path) {
        let _ = LOG.set(Mutex::new(log));
    }
}

/// Appends a message, if there is a log.
pub fn add(text: &str) {
    if let Some(log) = LOG.get() {
        let _ = log.lock().unwrap_or_else(PoisonError::into_inner).add(text);
    }
}

struct RunLog {
    path: PathBuf,
    file: File,
}

impl RunLog {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    fn add(&mut self, text: &str) -> io::Result<()> {
        // Without its directory it stays removed: a start that fails leaves nothing behind.
        if self.file.metadata()?.nlink() == 0
            && let Ok(file) = OpenOptions::new().create_new(true).append(true).open(&self.path)
        {
            self.file = file;
            self.write("warning: log.txt was removed during training; earlier messages are lost")?;
        }
        self.write(text)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(format!("{} {text}\n", format_rfc3339_seconds(SystemTime::now())).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn removed_log_is_begun_again_if_its_directory_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("run");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("log.txt");
        let mut log = RunLog::open(&path).unwrap();
        log.add("first").unwrap();
        fs::remove_dir_all(&directory).unwrap();
        log.add("second").unwrap();
        assert!(!directory.exists());
        fs::create_dir(&directory).unwrap();
        log.add("third").unwrap();
        log.add("fourth").unwrap();
        let lines = fs::read_to_string(&path).unwrap();
        let messages: Vec<_> = lines.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        let lost = "warning: log.txt was removed during training; earlier messages are lost";
        assert_eq!(messages, [lost, "third", "fourth"]);
    }

    #[test]
    fn file_that_took_the_place_of_a_removed_log_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log.txt");
        let mut log = RunLog::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        log.add("ours").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }
}
