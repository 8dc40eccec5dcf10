//! `history.jsonl`: when a run started and resumed, and which settings it changed on the way.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Value;

use super::clock;
use super::durable::FileError;
use crate::config::Difference;
use crate::run::regular_file;

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When, in seconds since 1970.
    pub time_unix: u64,
    /// What happened.
    pub event: HistoryEvent,
    /// The run's frames at that time.
    pub frames: u64,
    /// The settings that changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
    /// The run and checkpoint whose weights it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// What happened to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryEvent {
    /// It started, or started again without a checkpoint.
    Started,
    /// It resumed from a checkpoint.
    Resumed,
}

/// A setting that changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingChange {
    /// The field.
    pub field: String,
    /// Its value before.
    pub before: Value,
    /// Its value from then on.
    pub now: Value,
}

impl From<&Difference> for SettingChange {
    fn from(Difference { path, left, right }: &Difference) -> Self {
        Self { field: (*path).to_owned(), before: left.clone(), now: right.clone() }
    }
}

impl HistoryEntry {
    /// An entry of now, without changes.
    pub fn new(event: HistoryEvent, frames: u64) -> Self {
        Self { time_unix: clock::unix_seconds() as u64, event, frames, changes: Vec::new(), from: None }
    }

    /// Appends the entry to the history.
    pub fn append(&self, path: &Path) -> Result<(), FileError> {
        let line = serde_json::to_string(self).map_err(|cause| FileError::at("written", path)(cause.into()))?;
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).map_err(FileError::at("opened", path))?;
        file.write_all(format!("{line}\n").as_bytes()).map_err(FileError::at("written", path))
    }
}

/// Reads a history; a missing file has no entries, and damaged lines are skipped.
pub fn read(path: &Path) -> Result<Vec<HistoryEntry>, FileError> {
    match regular_file::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
        }
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(FileError::at("read", path)(cause)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn appended_entries_are_read_back_and_damaged_lines_skipped() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("history.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        let started =
            HistoryEntry { from: Some("pong@best".to_owned()), ..HistoryEntry::new(HistoryEvent::Started, 0) };
        started.append(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap() + "{\"time_unix\": 1\n";
        fs::write(&path, text).unwrap();
        let change = Difference { path: "replay.samples_per_insert", left: 6.0.into(), right: 3.0.into() };
        let changes = vec![SettingChange::from(&change)];
        let resumed = HistoryEntry { changes, ..HistoryEntry::new(HistoryEvent::Resumed, 4000) };
        resumed.append(&path).unwrap();
        assert_eq!(read(&path).unwrap(), [started, resumed]);
        let last = fs::read_to_string(&path).unwrap().lines().last().unwrap().to_owned();
        let tail = "\"event\":\"resumed\",\"frames\":4000,\"changes\":[{\"field\":\"replay.samples_per_insert\",\
                    \"before\":6.0,\"now\":3.0}]}";
        assert!(last.ends_with(tail), "{last}");
    }
}
