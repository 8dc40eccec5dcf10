//! Reads `metrics.jsonl`, row by row or as a summary.

use std::fmt::{self, Formatter};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::durable::FileError;
use super::metrics::{FRAMES, MetricValue, MetricsError, NONFINITE, Row};
use crate::run::regular_file;

/// The metric that ranks runs: the mean score of a greedy evaluation.
pub const EVALUATION_SCORE: &str = "evaluation/score";
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
        while let Some(name) = line.next_key::<String>()? {
            if name == FRAMES {
                frames = Some(line.next_value()?);
                continue;
            }
            if name == NONFINITE || self.selected.is_some_and(|selected| !selected.contains(&name.as_str())) {
                line.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = match line.next_value()? {
                LineValue::Scalar(value) => MetricValue::Scalar(number(value)),
                LineValue::Vector(values) => MetricValue::Vector(values.into_iter().map(number).collect()),
                LineValue::Unknown(_) => continue,
            };
            row.values.insert(name, value);
        }
        row.frames = frames.ok_or_else(|| A::Error::missing_field(FRAMES))?;
        Ok(row)
    }
}

/// The part of a line that a summary needs. The rest, half a gigabyte in a long run, is skipped.
#[derive(Deserialize)]
struct Standing {
    frames: u64,
    // The name is [`EVALUATION_SCORE`], which the attribute cannot refer to.
    #[serde(rename = "evaluation/score")]
    evaluation: Option<LineValue>,
}

/// Progress and scores of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricsSummary {
    /// Frames of the last row.
    pub frames: u64,
    /// Last evaluation score.
    pub last_evaluation: Option<f64>,
    /// Highest evaluation score.
    pub best_evaluation: Option<f64>,
}

impl MetricsSummary {
    /// Summarises a metrics file, which need not exist. Skips invalid lines.
    pub fn of(path: &Path) -> Result<Self, FileError> {
        let mut summary = Self::default();
        let mut rows = match Rows::open(path) {
            Ok(rows) => rows,
            Err(error) if error.cause.kind() == ErrorKind::NotFound => return Ok(summary),
            Err(error) => return Err(error),
        };
        while rows.next_line()? {
            let Ok(Standing { frames, evaluation }) = serde_json::from_slice(&rows.text) else { continue };
            summary.frames = frames;
            if let Some(LineValue::Scalar(Some(score))) = evaluation {
                summary.last_evaluation = Some(score);
                summary.best_evaluation = Some(summary.best_evaluation.map_or(score, |best| best.max(score)));
            }
        }
        Ok(summary)
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
        let summary = MetricsSummary::of(&path).unwrap();
        assert_eq!(summary, MetricsSummary { frames: 16, last_evaluation: Some(19.5), best_evaluation: Some(20.0) });
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
