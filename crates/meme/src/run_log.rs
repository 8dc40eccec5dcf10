//! `log.txt` of the run that this process trains: its messages, with their times.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;

static LOG: OnceLock<File> = OnceLock::new();

/// Appends all later messages to a file. A run without its log is better than none: failures are ignored.
pub fn open(path: &Path) {
    if let Ok(file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = LOG.set(file);
    }
}

/// Appends a message, if there is a log.
pub fn add(text: &str) {
    if let Some(mut log) = LOG.get() {
        let _ = log.write_all(format!("{} {text}\n", format_rfc3339_seconds(SystemTime::now())).as_bytes());
    }
}
