//! Follows `metrics.jsonl` as it grows, without reading anything twice.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::durable::FileError;
use super::metrics::Row;
use super::metrics_reader::parse_row;
use super::regular_file;

/// Maximum number of bytes that are read at a time.
const PART: u64 = 8 << 20;

/// A reader that remembers how far it has come.
#[derive(Debug)]
pub struct MetricsTail {
    path: PathBuf,
    selected: Option<&'static [&'static str]>,
    offset: u64,
    /// The last complete line. If it is not there any more, the file was rewritten.
    last_line: Vec<u8>,
}

impl MetricsTail {
    /// A reader at the beginning of a file, which need not exist.
    ///
    /// It reads all metrics or only those `selected`.
    pub fn new(path: &Path, selected: Option<&'static [&'static str]>) -> Self {
        Self { path: path.to_path_buf(), selected, offset: 0, last_line: Vec::new() }
    }

    /// A reader of the last bytes of a file, in which the first line may be a part of one.
    pub fn from_end(path: &Path, selected: Option<&'static [&'static str]>, bytes: u64) -> Self {
        let length = fs::metadata(path).map_or(0, |file| file.len());
        Self { offset: length.saturating_sub(bytes), ..Self::new(path, selected) }
    }

    /// Passes new rows to `each`, and `None` first if all rows come again.
    ///
    /// They do if the file was rewritten: a run that resumes from an earlier frame drops rows. Skips invalid lines, and
    /// a last one without its end.
    pub fn refresh(&mut self, mut each: impl FnMut(Option<Row>)) -> Result<(), FileError> {
        let at = |what| FileError::at(what, &self.path);
        let mut file = match regular_file::open(&self.path) {
            Ok(file) => file,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(at("opened")(cause)),
        };
        if !self.is_continued(&mut file).map_err(at("read"))? {
            (self.offset, self.last_line) = (0, Vec::new());
            each(None);
        }
        loop {
            let mut part = Vec::new();
            file.seek(SeekFrom::Start(self.offset)).map_err(at("read"))?;
            let read = file.by_ref().take(PART).read_to_end(&mut part).map_err(at("read"))?;
            let Some(end) = part.iter().rposition(|&byte| byte == b'\n') else { return Ok(()) };
            part.truncate(end + 1);
            for line in part.split_inclusive(|&byte| byte == b'\n') {
                if let Ok(row) = parse_row(line, self.selected) {
                    each(Some(row));
                }
            }
            let last = part.split_inclusive(|&byte| byte == b'\n').next_back();
            (self.offset, self.last_line) = (self.offset + part.len() as u64, last.unwrap_or_default().to_vec());
            if (read as u64) < PART {
                return Ok(());
            }
        }
    }

    fn is_continued(&self, file: &mut File) -> std::io::Result<bool> {
        if file.metadata()?.len() < self.offset {
            return Ok(false);
        }
        let mut there = vec![0; self.last_line.len()];
        file.seek(SeekFrom::Start(self.offset - self.last_line.len() as u64))?;
        file.read_exact(&mut there)?;
        Ok(there == self.last_line)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn new_rows_come_once_and_rewritten_files_from_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        let mut tail = MetricsTail::new(&path, Some(&["x"]));
        let mut read = || {
            let mut seen = Vec::new();
            tail.refresh(|row| seen.push(row.map(|row| (row.frames, row.get("x"))))).unwrap();
            seen
        };
        assert_eq!(read(), []);
        fs::write(&path, "{\"frames\":1,\"x\":5,\"y\":1}\nrubbish\n{\"frames\":2}\n{\"fra").unwrap();
        assert_eq!(read(), [Some((1, Some(5.0))), Some((2, None))]);
        assert_eq!(read(), []);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"mes\":3}\n").unwrap();
        assert_eq!(read(), [Some((3, None))]);
        // Rows were dropped, and others of the same length have taken their place.
        fs::write(&path, "{\"frames\":1,\"x\":5,\"y\":1}\nrubbish\n{\"frames\":2}\n{\"frames\":9}\n{\"frames\":9}\n")
            .unwrap();
        assert_eq!(read(), [None, Some((1, Some(5.0))), Some((2, None)), Some((9, None)), Some((9, None))]);
        fs::write(&path, "{\"frames\":1}\n").unwrap();
        assert_eq!(read(), [None, Some((1, None))]);
    }
}
