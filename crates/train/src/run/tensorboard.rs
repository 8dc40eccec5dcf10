//! Writes the metrics as TensorBoard event files.
//!
//! A file is a sequence of records: length (u64), checksum of it, a protocol buffer of type `Event`, checksum of
//! that; all little-endian, the checksums CRC-32C and masked.

use std::path::{Path, PathBuf};
use std::{fs, process};

use crc::{CRC_32_ISCSI, Crc};
use prost::Message;

use super::append::AppendFile;
use super::durable::FileError;
use super::metrics::{MetricValue, Row};
use super::{clock, lock};

/// CRC-32C (Castagnoli).
const CRC_32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Writes one event file. Each start of a run writes its own; TensorBoard joins those of a directory.
#[derive(Debug)]
pub struct TensorBoardWriter {
    file: AppendFile,
}

impl TensorBoardWriter {
    /// Starts a new file in `directory`.
    ///
    /// `frames` is the frame count of the checkpoint that the run resumes from, or `None` for a new run.
    ///
    /// Declares what earlier files hold after the checkpoint void, so that TensorBoard too shows one value per frame
    /// count.
    pub fn create(directory: &Path, checkpoint: Option<u64>) -> Result<Self, FileError> {
        fs::create_dir_all(directory).map_err(FileError::at("created", directory))?;
        let path = unused_name(directory);
        let mut writer = Self { file: AppendFile::open(&path)? };
        let now = clock::unix_seconds();
        writer.file.append(&record(&version_event(now)))?;
        writer.file.append(&record(&start_event(now, checkpoint.map_or(0, |frames| frames.saturating_add(1)))))?;
        Ok(writer)
    }

    /// Appends a row. A vector becomes one curve per entry: `bandit/pulls/00`, `bandit/pulls/01`.
    pub fn append(&mut self, row: &Row) -> Result<(), FileError> {
        self.file.append(&record(&row_event(clock::unix_seconds(), row)))
    }
}

/// TensorBoard recognises files by `tfevents` in the name and reads them in the order of their names. The number in the
/// name is larger than that of every existing file, even if the clock was set back.
fn unused_name(directory: &Path) -> PathBuf {
    const PREFIX: &str = "events.out.tfevents.";
    let numbers = fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix(PREFIX)?.split('.').next()?.parse::<u64>().ok()
    });
    let number = numbers.max().map_or(0, |number| number.saturating_add(1)).max(clock::unix_seconds() as u64);
    directory.join(format!("{PREFIX}{number:010}.{}.{}", lock::host(), process::id()))
}

// Only the fields that are written, of TensorBoard's `event.proto` and `summary.proto`.

#[derive(Clone, PartialEq, prost::Message)]
struct Event {
    #[prost(double, optional, tag = "1")]
    wall_time: Option<f64>,
    #[prost(int64, optional, tag = "2")]
    step: Option<i64>,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SessionLog {
    /// 1 is START.
    #[prost(int32, tag = "1")]
    status: i32,
}

fn version_event(wall_time: f64) -> Vec<u8> {
    let file_version = Some("brain.Event:2".to_owned());
    Event { wall_time: Some(wall_time), file_version, ..Event::default() }.encode_to_vec()
}

/// A session log with status START, which declares everything from this step on void.
fn start_event(wall_time: f64, step: u64) -> Vec<u8> {
    let (step, session_log) = (Some(step as i64), Some(SessionLog { status: 1 }));
    Event { wall_time: Some(wall_time), step, session_log, ..Event::default() }.encode_to_vec()
}

fn row_event(wall_time: f64, row: &Row) -> Vec<u8> {
    let mut values = Vec::new();
    let mut put = |tag: String, value: f64| values.push(SummaryValue { tag, simple_value: Some(value as f32) });
    for (name, value) in &row.values {
        match value {
            MetricValue::Scalar(value) => put(name.clone(), *value),
            MetricValue::Vector(values) => {
                values.iter().enumerate().for_each(|(i, value)| put(format!("{name}/{i:02}"), *value));
            }
        }
    }
    let (step, summary) = (Some(row.frames as i64), Some(Summary { values }));
    Event { wall_time: Some(wall_time), step, summary, ..Event::default() }.encode_to_vec()
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(event.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(event);
    record.extend(masked_crc(event).to_le_bytes());
    record
}

/// The masked checksum of a record, so that checksums of data with checksums in it stay meaningful.
fn masked_crc(bytes: &[u8]) -> u32 {
    CRC_32C.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::test_support::names;
    use tempfile::tempdir;

    #[test]
    fn record_is_framed_as_documented() {
        // The first 12 bytes of every event file that starts with a 24-byte version event.
        let event = version_event(1.5);
        let expected = b"\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0dbrain.Event:2";
        assert_eq!(event, expected);
        let record = record(&event);
        assert_eq!(record[..12], [0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(record[12..36], *expected);
        assert_eq!(record.len(), 40);
    }

    #[test]
    fn row_is_one_event_with_one_value_per_curve() {
        let mut row = Row::new(300);
        row.scalar("loss", 0.5).vector("q", [1.0, f64::NAN]);
        let mut expected = b"\x09\0\0\0\0\0\0\0\x40\x10\xac\x02\x2a\x27".to_vec();
        expected.extend(b"\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f");
        expected.extend(b"\x0a\x0b\x0a\x04q/00\x15\0\0\x80\x3f");
        expected.extend(b"\x0a\x0b\x0a\x04q/01\x15\0\0\xc0\x7f");
        assert_eq!(row_event(2.0, &row), expected);
    }

    #[test]
    fn resumed_run_voids_what_came_after_its_checkpoint() {
        assert_eq!(start_event(2.0, 129), b"\x09\0\0\0\0\0\0\0\x40\x10\x81\x01\x3a\x02\x08\x01");
    }

    #[test]
    fn file_is_a_sequence_of_records_and_later_files_sort_last() {
        let scratch = tempdir().unwrap();
        fs::write(scratch.path().join("events.out.tfevents.9999999990.host.1"), "").unwrap();
        let mut writer = TensorBoardWriter::create(scratch.path(), Some(128)).unwrap();
        for frames in [200, 1 << 40] {
            writer.append(Row::new(frames).scalar("x", 1.0)).unwrap();
        }
        TensorBoardWriter::create(scratch.path(), None).unwrap();
        let names = names(scratch.path());
        assert_eq!(names.len(), 3);
        assert!(names[1].starts_with("events.out.tfevents.9999999991."), "{names:?}");
        assert!(names[2].starts_with("events.out.tfevents.9999999992."), "{names:?}");

        let bytes = fs::read(scratch.path().join(&names[1])).unwrap();
        let mut rest = &bytes[..];
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let event = &rest[12..12 + length];
            assert_eq!(record(event), rest[..16 + length]);
            steps.push((event[9] == 2 << 3).then(|| event[10]));
            rest = &rest[16 + length..];
        }
        assert_eq!(steps, [None, Some(0x81), Some(0xc8), Some(0x80)]);
    }
}
