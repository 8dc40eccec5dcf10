//! Writes the metrics as TensorBoard event files.
//!
//! A file is a sequence of records: length (u64), checksum of it, a protocol buffer of type `Event`, checksum of
//! that; all little-endian, the checksums CRC-32C and masked. Only these fields are written:
//! ```text
//! Event      { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//!              SessionLog session_log = 7; }
//! Summary    { repeated Value value = 1; }
//! Value      { string tag = 1; float simple_value = 2; }
//! SessionLog { SessionStatus status = 1; }   START is 1
//! ```

use std::path::{Path, PathBuf};
use std::{fs, process};

use crc::{CRC_32_ISCSI, Crc};

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
    /// Starts a new file in `directory`, to resume from a checkpoint with `frames` frames, or to start (`None`).
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

fn version_event(wall_time: f64) -> Vec<u8> {
    let mut event = event_at(wall_time);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

/// A session log with status START, which declares everything from this step on void.
fn start_event(wall_time: f64, step: u64) -> Vec<u8> {
    let mut event = event_at(wall_time);
    put_number(&mut event, 2, step);
    put_bytes(&mut event, 7, &[0x08, 1]);
    event
}

fn row_event(wall_time: f64, row: &Row) -> Vec<u8> {
    let mut summary = Vec::new();
    let mut put_scalar = |tag: &str, value: f64| {
        let mut message = Vec::with_capacity(tag.len() + 8);
        put_bytes(&mut message, 1, tag.as_bytes());
        message.push(2 << 3 | FIXED_32);
        message.extend((value as f32).to_le_bytes());
        put_bytes(&mut summary, 1, &message);
    };
    for (name, value) in &row.values {
        match value {
            MetricValue::Scalar(value) => put_scalar(name, *value),
            MetricValue::Vector(values) => {
                values.iter().enumerate().for_each(|(i, value)| put_scalar(&format!("{name}/{i:02}"), *value));
            }
        }
    }
    let mut event = event_at(wall_time);
    put_number(&mut event, 2, row.frames);
    put_bytes(&mut event, 5, &summary);
    event
}

// The wire types of protocol buffers.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

fn event_at(wall_time: f64) -> Vec<u8> {
    let mut event = vec![1 << 3 | FIXED_64];
    event.extend(wall_time.to_le_bytes());
    event
}

fn put_number(message: &mut Vec<u8>, field: u8, number: u64) {
    message.push(field << 3 | VARINT);
    put_varint(message, number);
}

fn put_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | BYTES);
    put_varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
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
