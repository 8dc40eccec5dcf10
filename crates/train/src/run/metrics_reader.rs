//! Reads `metrics.jsonl`, row by row or as a summary.

use std::borrow::Cow;
use std::fmt::{self, Formatter};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::durable::FileError;
use super::metrics::{FRAMES, MetricValue, MetricsError, NONFINITE, Row};
use super::metrics_tail::MetricsTail;
use crate::run::regular_file;

/// The metric that ranks runs: the mean score of a greedy evaluation.
pub const EVALUATION_SCORE: &str = "evaluation/score";
/// Mean score of the actors' episodes.
pub const ACTOR_SCORE: &str = "actor/score";
/// Emulator frames per second.
pub const SPEED: &str = "speed/frames_per_second";
/// The end of a metrics file that says how far a run is: dozens of rows.
const END: u64 = 256 << 10;
/// First bytes of a gzip file, with which no text starts.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The rows of a metrics file, compressed by gzip or not.
///
/// Omits a last line without its end, which is being written or was truncated by a crash. Any other invalid line is an
/// error, after which reading can continue.
pub struct Rows {
    reader: Box<dyn BufRead>,
    path: PathBuf,
    line: u64,
    text: Vec<u8>,
    failed: bool,
    selected: Option<&'static [&'static str]>,
}

impl Rows {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let mut file = BufReader::new(regular_file::open(path).map_err(FileError::at("opened", path))?);
        let packed = file.fill_buf().map_err(FileError::at("read", path))?.starts_with(&GZIP);
        let reader: Box<dyn BufRead> =
            if packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
        Ok(Self { reader, path: path.to_path_buf(), line: 0, text: Vec::new(), failed: false, selected: None })
    }

    /// Reads only these metrics, which is several times faster.
    pub fn only(self, metrics: &'static [&'static str]) -> Self {
        Self { selected: Some(metrics), ..self }
    }

    /// Reads the next complete line into `text`.
    fn next_line(&mut self) -> Result<bool, FileError> {
        self.text.clear();
        if self.failed {
            return Ok(false);
        }
        if let Err(cause) = self.reader.read_until(b'\n', &mut self.text) {
            self.failed = true;
            return Err(FileError::at("read", &self.path)(cause));
        }
        self.line += 1;
        Ok(self.text.last() == Some(&b'\n'))
    }

    fn parse(&self) -> Result<Row, MetricsError> {
        parse_row(&self.text, self.selected).map_err(|cause| MetricsError::Line {
            path: self.path.clone(),
            line: self.line,
            cause: cause.to_string(),
        })
    }
}

/// Parses a line, all of it or only the `selected` metrics.
pub(super) fn parse_row(text: &[u8], selected: Option<&'static [&'static str]>) -> Result<Row, serde_json::Error> {
    let mut line = serde_json::Deserializer::from_slice(text);
    let row = LineReader { selected }.deserialize(&mut line)?;
    line.end().map(|()| row)
}

impl Iterator for Rows {
    type Item = Result<Row, MetricsError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_line() {
            Ok(true) => Some(self.parse()),
            Ok(false) => None,
            Err(error) => Some(Err(error.into())),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LineValue {
    Scalar(Option<f64>),
    Vector(Vec<Option<f64>>),
    Unknown(IgnoredAny),
}

/// The name of a metric, borrowed from its line where it has no escapes: most are skipped.
#[derive(Deserialize)]
struct MetricName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a line of the file. Values of unknown kinds are skipped.
struct LineReader {
    selected: Option<&'static [&'static str]>,
}

impl<'de> DeserializeSeed<'de> for LineReader {
    type Value = Row;

    fn deserialize<D: Deserializer<'de>>(self, line: D) -> Result<Row, D::Error> {
        line.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LineReader {
    type Value = Row;

    fn expecting(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str("an object with frames")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut line: A) -> Result<Row, A::Error> {
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let mut frames = None;
        let mut row = Row::new(0);
        while let Some(MetricName(name)) = line.next_key()? {
            if name == FRAMES {
                frames = Some(line.next_value()?);
                continue;
            }
            if name == NONFINITE || self.selected.is_some_and(|selected| !selected.contains(&name.as_ref())) {
                line.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = match line.next_value()? {
                LineValue::Scalar(value) => MetricValue::Scalar(number(value)),
                LineValue::Vector(values) => MetricValue::Vector(values.into_iter().map(number).collect()),
                LineValue::Unknown(_) => continue,
            };
            row.values.insert(name.into_owned(), value);
        }
        row.frames = frames.ok_or_else(|| A::Error::missing_field(FRAMES))?;
        Ok(row)
    }
}

/// Progress, scores and speed of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricsSummary {
    /// Frames of the last row.
    pub frames: u64,
    /// Last evaluation score.
    pub last_evaluation: Option<f64>,
    /// Highest evaluation score.
    pub best_evaluation: Option<f64>,
    /// Frames per second, as last measured.
    pub frames_per_second: Option<f64>,
}

impl MetricsSummary {
    /// The metrics that [`add`](Self::add) reads.
    pub const METRICS: &[&str] = &[EVALUATION_SCORE, SPEED];

    /// Summarises a metrics file, which need not exist. Skips invalid lines.
    pub fn of(path: &Path) -> Result<Self, FileError> {
        Self::of_rows(MetricsTail::new(path, Some(Self::METRICS)))
    }

    /// Summarises the last rows of a metrics file, which need not exist.
    ///
    /// A whole one may have half a gigabyte.
    pub fn of_last_rows(path: &Path) -> Result<Self, FileError> {
        Self::of_rows(MetricsTail::from_end(path, Some(Self::METRICS), END))
    }

    fn of_rows(mut rows: MetricsTail) -> Result<Self, FileError> {
        let mut summary = Self::default();
        rows.refresh(|row| match row {
            None => summary = Self::default(),
            Some(row) => summary.add(&row),
        })?;
        Ok(summary)
    }

    /// Adds the next row.
    pub fn add(&mut self, row: &Row) {
        self.frames = row.frames;
        let finite = |metric| row.get(metric).filter(|value| value.is_finite());
        if let Some(score) = finite(EVALUATION_SCORE) {
            self.last_evaluation = Some(score);
            self.best_evaluation = Some(self.best_evaluation.map_or(score, |best| best.max(score)));
        }
        self.frames_per_second = finite(SPEED).or(self.frames_per_second);
    }

    /// Estimated seconds until `budget` frames are played, if the speed is known.
    pub fn seconds_left(&self, budget: u64) -> Option<f64> {
        let speed = self.frames_per_second.filter(|&speed| speed > 0.0)?;
        Some(budget.saturating_sub(self.frames) as f64 / speed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::run::test_support::random_bytes;
    use agent::Random;
    use rand::{RngExt, SeedableRng};
    use tempfile::tempdir;

    #[test]
    fn summary_has_the_last_and_the_best_evaluation() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        assert_eq!(MetricsSummary::of(&path).unwrap(), MetricsSummary::default());
        let text = "{\"frames\":4,\"evaluation/score\":-3.5}\n{\"frames\":8,\"evaluation/score\":20}\n\
                    {\"frames\":12,\"evaluation/score\":19.5,\"learner/loss\":1e-3}\nevaluation/score rubbish\n\
                    {\"frames\":14,\"evaluation/score\":null,\"nonfinite\":1}\n\
                    {\"frames\":15,\"evaluation/score\":[99]}\n{\"frames\":16,\"note\":\"text\"}\nrubbish\n";
        fs::write(&path, format!("{text}{{\"frames\":20,\"eval")).unwrap();
        let expected = MetricsSummary {
            frames: 16,
            last_evaluation: Some(19.5),
            best_evaluation: Some(20.0),
            frames_per_second: None,
        };
        assert_eq!(MetricsSummary::of(&path).unwrap(), expected);
    }

    #[test]
    fn last_rows_have_the_newest_of_each_value() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        assert_eq!(MetricsSummary::of_last_rows(&path).unwrap(), MetricsSummary::default());
        let mut text: String = (0..20_000).map(|i| format!("{{\"frames\":{i},\"filler\":\"{i:>40}\"}}\n")).collect();
        text += "{\"frames\":30000,\"evaluation/score\":1.5,\"speed/frames_per_second\":200}\n";
        text += "{\"frames\":30040,\"speed/frames_per_second\":250.5}\n{\"frames\":9";
        fs::write(&path, format!("{{\"frames\":0,\"evaluation/score\":7}}\n{text}")).unwrap();
        let expected = MetricsSummary {
            frames: 30_040,
            last_evaluation: Some(1.5),
            best_evaluation: Some(1.5),
            frames_per_second: Some(250.5),
        };
        assert_eq!(MetricsSummary::of_last_rows(&path).unwrap(), expected);
        assert_eq!(expected.seconds_left(55_090), Some(100.0));
        let whole = MetricsSummary { best_evaluation: Some(7.0), ..expected };
        assert_eq!(MetricsSummary::of(&path).unwrap(), whole);
    }

    #[test]
    fn values_of_an_unknown_kind_are_skipped() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        fs::write(&path, "{\"frames\":4,\"note\":\"text\",\"x\":1,\"deep\":[[1]],\"v\":[1,2.5]}\n").unwrap();
        let mut expected = Row::new(4);
        expected.scalar("x", 1.0).vector("v", [1.0, 2.5]);
        assert_eq!(Rows::open(&path).unwrap().map(Result::unwrap).collect::<Vec<_>>(), [expected.clone()]);
        expected.values.remove("x");
        let selected = Rows::open(&path).unwrap().only(&["v", "note", "missing"]);
        assert_eq!(selected.map(Result::unwrap).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn compressed_file_has_the_same_rows() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl.gz");
        let text: String = (0..500).map(|i| format!("{{\"frames\":{i},\"x\":{}}}\n", i * i % 83)).collect();
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(text.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        fs::write(&path, &packed).unwrap();
        let rows: Vec<_> = Rows::open(&path).unwrap().map(Result::unwrap).collect();
        let read = rows.iter().map(|row| (row.frames, row.get("x").unwrap()));
        assert!(read.eq((0..500).map(|i| (i, (i * i % 83) as f64))));

        // A truncated file is reported after the rows that can be read.
        fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let (rows, errors): (Vec<_>, Vec<_>) = Rows::open(&path).unwrap().partition(Result::is_ok);
        assert!(rows.len() < 500);
        assert!(matches!(errors[..], [Err(MetricsError::File(_))]), "{errors:?}");
    }

    #[test]
    fn random_bytes_are_errors_and_never_panic() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        let mut random = Random::seed_from_u64(5);
        for _ in 0..300 {
            let length = random.random_range(0..400);
            let mut bytes = random_bytes(&mut random, length);
            bytes.iter_mut().step_by(17).for_each(|byte| *byte = b'\n');
            fs::write(&path, &bytes).unwrap();
            let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(Rows::open(&path).unwrap().count(), lines);
            MetricsSummary::of(&path).unwrap();
        }
    }
}
