//! Writes `metrics.jsonl`: one JSON object per line, with frames as the x axis.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use super::append::AppendFile;
use super::durable::FileError;

/// Key of the x axis.
pub(super) const FRAMES: &str = "frames";
/// Key that counts the values of a row that are not finite and therefore null.
pub(super) const NONFINITE: &str = "nonfinite";

/// Why metrics cannot be written or read.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// A row has fewer frames than the previous one.
    #[error("cannot write a row of metrics at {frames} frames after one at {last} frames")]
    WentBack {
        /// The row's frames.
        frames: u64,
        /// Frames of the previous row.
        last: u64,
    },
    /// A metric has a reserved name.
    #[error("a metric cannot be named {name:?}: the name must not be empty, `{FRAMES}` or `{NONFINITE}`")]
    Name {
        /// The name.
        name: String,
    },
    /// A line is not a row of metrics.
    #[error("line {line} of {} is not a row of metrics: {cause}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        cause: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A measurement: one number, or one per policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MetricValue {
    /// One number.
    Scalar(f64),
    /// Several numbers, such as one per policy.
    Vector(Vec<f64>),
}

impl MetricValue {
    fn nonfinite(&self) -> usize {
        match self {
            Self::Scalar(value) => usize::from(!value.is_finite()),
            Self::Vector(values) => values.iter().filter(|value| !value.is_finite()).count(),
        }
    }
}

/// All measurements of one moment of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Emulator frames played so far.
    pub frames: u64,
    /// Values by name. A value that was not finite is NaN after it was read from a file.
    pub values: BTreeMap<String, MetricValue>,
}

impl Row {
    /// An empty row.
    pub fn new(frames: u64) -> Self {
        Self { frames, values: BTreeMap::new() }
    }

    /// Adds a number, or replaces the one of that name.
    pub fn scalar(&mut self, name: impl Into<String>, value: f64) -> &mut Self {
        self.values.insert(name.into(), MetricValue::Scalar(value));
        self
    }

    /// Adds several numbers under one name.
    pub fn vector(&mut self, name: impl Into<String>, values: impl Into<Vec<f64>>) -> &mut Self {
        self.values.insert(name.into(), MetricValue::Vector(values.into()));
        self
    }

    /// Returns the number of that name, if there is one.
    pub fn get(&self, name: &str) -> Option<f64> {
        match self.values.get(name)? {
            MetricValue::Scalar(value) => Some(*value),
            MetricValue::Vector(_) => None,
        }
    }

    /// Counts the values that are NaN or infinite.
    pub fn nonfinite(&self) -> usize {
        self.values.values().map(MetricValue::nonfinite).sum()
    }
}

/// Serializes the row as one flat map. JSON has no NaN, so values that are not finite become null.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(FRAMES, &self.frames)?;
        let nonfinite = self.nonfinite();
        if nonfinite > 0 {
            map.serialize_entry(NONFINITE, &nonfinite)?;
        }
        for (name, value) in &self.values {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Repairs of a metrics file when a run resumes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricsRepair {
    /// Bytes of a last line that a crash truncated.
    pub torn_bytes: u64,
    /// Rows later than the checkpoint, now in `metrics.dropped.jsonl`.
    pub dropped_rows: u64,
    /// Frames of the last of them.
    pub dropped_to: u64,
}

/// Appends rows to `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsWriter {
    file: AppendFile,
    last: u64,
}

impl MetricsWriter {
    /// Opens the file to resume from a checkpoint with that many frames, or to start (`None`).
    ///
    /// Rows later than the checkpoint, which training will reach again, move to `metrics.dropped.jsonl`, so that there
    /// is one value per frame count. A row at the checkpoint's frame count stays, since it was written before the
    /// checkpoint. A crash in here leaves the moved rows in both files at worst, and the next opening moves them again.
    pub fn open(path: &Path, checkpoint: Option<u64>) -> Result<(Self, MetricsRepair), MetricsError> {
        let mut file = AppendFile::open(path)?;
        let found = scan(path, checkpoint)?;
        let torn_bytes = file.length - found.whole;
        let repair = MetricsRepair { torn_bytes, dropped_rows: found.later_rows, dropped_to: found.latest };
        if found.keep < found.whole {
            let mut dropped = AppendFile::open(&path.with_extension("dropped.jsonl"))?;
            dropped.append(&file.read(found.keep..found.whole)?)?;
            dropped.sync()?;
        }
        if found.keep < file.length {
            file.cut(found.keep)?;
            file.sync()?;
        }
        Ok((Self { file, last: found.last }, repair))
    }

    /// Appends one row, in one write. Frames must not decrease.
    pub fn append(&mut self, row: &Row) -> Result<(), MetricsError> {
        if row.frames < self.last {
            return Err(MetricsError::WentBack { frames: row.frames, last: self.last });
        }
        if let Some(name) = row.values.keys().find(|name| ["", FRAMES, NONFINITE].contains(&name.as_str())) {
            return Err(MetricsError::Name { name: name.clone() });
        }
        let mut line =
            serde_json::to_vec(row).map_err(|cause| FileError::at("written", &self.file.path)(cause.into()))?;
        line.push(b'\n');
        self.file.append(&line)?;
        self.last = row.frames;
        Ok(())
    }

    /// Syncs all rows to disk; called before a checkpoint, which relies on them.
    pub fn sync(&self) -> Result<(), MetricsError> {
        Ok(self.file.sync()?)
    }
}

/// Where to cut a metrics file.
#[derive(Default)]
struct Found {
    /// Bytes in complete lines.
    whole: u64,
    /// Bytes of lines up to the checkpoint.
    keep: u64,
    /// Frames of the last row that stays.
    last: u64,
    /// Lines from `keep` on.
    later_rows: u64,
    /// Frames of the last of them.
    latest: u64,
}

#[derive(Deserialize)]
struct FramesOnly {
    frames: u64,
}

fn scan(path: &Path, checkpoint: Option<u64>) -> Result<Found, FileError> {
    let mut reader = BufReader::new(File::open(path).map_err(FileError::at("opened", path))?);
    let mut found = Found::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(FileError::at("read", path))? as u64;
        if line.last() != Some(&b'\n') {
            return Ok(found);
        }
        found.whole += length;
        // An invalid line stays where it is: its frames are unknown.
        let frames = serde_json::from_slice::<FramesOnly>(&line).ok().map(|row| row.frames);
        let later = frames.is_some_and(|frames| checkpoint.is_none_or(|checkpoint| frames > checkpoint));
        if later || found.later_rows > 0 {
            found.later_rows += 1;
            found.latest = frames.unwrap_or(found.latest);
        } else {
            found.keep = found.whole;
            found.last = frames.unwrap_or(found.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run::Rows;
    use agent::Random;
    use rand::{RngExt, SeedableRng};
    use tempfile::tempdir;

    fn row(frames: u64) -> Row {
        let mut row = Row::new(frames);
        row.scalar("learner/loss", frames as f64 * 0.1).vector("bandit/pulls", [1.0, 2.5]);
        row
    }

    fn frames(path: &Path) -> Vec<u64> {
        Rows::open(path).unwrap().map(|row| row.unwrap().frames).collect()
    }

    #[test]
    fn row_is_one_line_with_frames_first() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let (mut writer, repair) = MetricsWriter::open(&path, None).unwrap();
        assert_eq!(repair, MetricsRepair::default());
        let mut row = Row::new(4000);
        row.scalar("loss", 0.1).scalar("a \"b\"\n", -2e300).vector("sigma", [1.0, f64::NAN, 0.5]);
        row.scalar("q/max", f64::INFINITY).scalar("q/min", f64::NEG_INFINITY).scalar("loss", 0.25);
        writer.append(&row).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"frames\":4000,\"nonfinite\":3,\"a \\\"b\\\"\\n\":-2e+300,\"loss\":0.25,\"q/max\":null,\"q/min\":null,\
             \"sigma\":[1.0,null,0.5]}\n"
        );
        writer.append(&Row::new(4000)).unwrap();
        let rows: Vec<_> = Rows::open(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows[0].get("loss"), Some(0.25));
        assert_eq!(rows[0].get("a \"b\"\n"), Some(-2e300));
        assert!(rows[0].get("q/max").unwrap().is_nan());
        assert_eq!(rows[0].nonfinite(), 3);
        assert_eq!(rows[1], Row::new(4000));
    }

    #[test]
    fn numbers_are_read_back_exactly() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        let mut random = Random::seed_from_u64(1);
        let written: Vec<Row> = (0..500)
            .map(|frames| {
                let mut number =
                    || Some(f64::from_bits(random.random::<u64>())).filter(|x| x.is_finite()).unwrap_or(0.0);
                let mut row = Row::new(frames);
                row.scalar("x", number()).vector("y", [number(), number()]);
                row
            })
            .collect();
        for row in &written {
            writer.append(row).unwrap();
        }
        let read: Vec<_> = Rows::open(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, written);
    }

    #[test]
    fn refuses_decreasing_frames_and_reserved_names() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        writer.append(&row(8)).unwrap();
        let error = writer.append(&row(7)).unwrap_err().to_string();
        assert_eq!(error, "cannot write a row of metrics at 7 frames after one at 8 frames");
        for name in ["frames", "nonfinite", ""] {
            let mut row = row(9);
            row.scalar(name, 1.0);
            assert!(matches!(writer.append(&row), Err(MetricsError::Name { .. })), "{name:?}");
        }
        writer.append(&row(8)).unwrap();
        drop(writer);
        assert_eq!(frames(&path), [8, 8]);
        let (mut writer, _) = MetricsWriter::open(&path, Some(8)).unwrap();
        assert!(matches!(writer.append(&row(7)), Err(MetricsError::WentBack { .. })));
    }

    #[test]
    fn rows_after_the_checkpoint_move_aside() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        for frames in [0, 4, 8, 12] {
            writer.append(&row(frames)).unwrap();
        }
        drop(writer);
        let (mut writer, repair) = MetricsWriter::open(&path, Some(4)).unwrap();
        assert_eq!(repair, MetricsRepair { torn_bytes: 0, dropped_rows: 2, dropped_to: 12 });
        writer.append(&row(6)).unwrap();
        drop(writer);
        assert_eq!(frames(&path), [0, 4, 6]);
        let dropped = scratch.path().join("metrics.dropped.jsonl");
        assert_eq!(frames(&dropped), [8, 12]);

        let (_, repair) = MetricsWriter::open(&path, Some(100)).unwrap();
        assert_eq!(repair, MetricsRepair::default());
        // A run that was killed before its first checkpoint starts again.
        let (mut writer, repair) = MetricsWriter::open(&path, None).unwrap();
        assert_eq!((repair.dropped_rows, repair.dropped_to), (3, 6));
        writer.append(&row(0)).unwrap();
        assert_eq!(frames(&path), [0]);
        assert_eq!(frames(&dropped), [8, 12, 0, 4, 6]);
    }

    #[test]
    fn truncated_last_lines_are_removed() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        writer.append(&row(4)).unwrap();
        writer.append(&row(8)).unwrap();
        drop(writer);
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let rows = if length == whole.len() { 2 } else { usize::from(length >= first) };
            assert_eq!(frames(&path).len(), rows);
            let (mut writer, repair) = MetricsWriter::open(&path, Some(8)).unwrap();
            let kept = [0, first, whole.len()][rows];
            assert_eq!(repair, MetricsRepair { torn_bytes: (length - kept) as u64, ..MetricsRepair::default() });
            writer.append(&row(9)).unwrap();
            assert_eq!(frames(&path).len(), rows + 1);
        }
    }

    #[test]
    fn damaged_line_in_the_middle_is_reported_and_stays() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        fs::write(&path, b"{\"frames\":4}\n{\"frames\":\xff}\n[]\n{\"frames\":8}\n{\"frames\":12}\n").unwrap();
        let (_, repair) = MetricsWriter::open(&path, Some(8)).unwrap();
        assert_eq!(repair, MetricsRepair { torn_bytes: 0, dropped_rows: 1, dropped_to: 12 });
        let rows: Vec<_> = Rows::open(&path).unwrap().collect();
        let errors: Vec<_> = rows.iter().filter_map(|row| row.as_ref().err()).map(ToString::to_string).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(errors.len(), 2);
        assert!(
            errors[0].starts_with(&format!("line 2 of {} is not a row of metrics: ", path.display())),
            "{}",
            errors[0]
        );
    }

    #[test]
    fn readers_see_complete_rows_while_they_are_written() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(move || {
                for frames in 0..2000 {
                    let mut row = row(frames);
                    row.vector("long", vec![0.123456789; frames as usize % 700]);
                    writer.append(&row).unwrap();
                }
            });
            let mut seen = 0;
            while !writing.is_finished() {
                let rows: Vec<_> = Rows::open(&path).unwrap().map(Result::unwrap).collect();
                assert!(rows.len() >= seen);
                assert!(rows.iter().enumerate().all(|(i, row)| row.frames == i as u64));
                seen = rows.len();
            }
        });
        assert_eq!(frames(&path).len(), 2000);
    }
}
