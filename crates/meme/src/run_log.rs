//! `log.txt` of the run that this process trains: its messages, with their times.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;
use train::run::AppendFile;

static LOG: OnceLock<Mutex<AppendFile>> = OnceLock::new();

/// Appends all later messages to a file. A run without its log is better than none: failures are ignored.
pub fn open(path: &Path) {
    if let Ok(file) = AppendFile::open(path) {
        let _ = LOG.set(Mutex::new(file));
    }
}

/// Appends a message, if there is a log.
pub fn add(text: &str) {
    if let Some(log) = LOG.get() {
        let line = format!("{} {text}\n", format_rfc3339_seconds(SystemTime::now()));
        let _ = log.lock().unwrap_or_else(PoisonError::into_inner).append(line.as_bytes());
    }
}
