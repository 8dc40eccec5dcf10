//! A file that grows by whole records.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::durable::FileError;
use crate::run::regular_file;

/// Appends records, each in one write. A record that fails half-way, as on a full disk, is removed.
#[derive(Debug)]
pub(super) struct AppendFile {
    file: File,
    pub(super) path: PathBuf,
    /// Length of the complete records.
    pub(super) length: u64,
    /// Whether part of a record may follow after `length`.
    torn: bool,
}

impl AppendFile {
    /// Opens or creates the file.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let open = || OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = regular_file::refuse_other_types(path).and_then(|()| open());
        let file = file.map_err(FileError::at("opened", path))?;
        let length = file.metadata().map_err(FileError::at("read", path))?.len();
        Ok(Self { file, path: path.to_path_buf(), length, torn: false })
    }

    pub(super) fn append(&mut self, record: &[u8]) -> Result<(), FileError> {
        if self.is_removed() {
            self.write_again()?;
        }
        if self.torn {
            self.cut(self.length)?;
        }
        self.torn = true;
        if let Err(cause) = self.file.write_all(record) {
            // If this fails too, the next call tries again before it writes.
            let _ = self.cut(self.length);
            return Err(FileError::at("written", &self.path)(cause));
        }
        self.torn = false;
        self.length += record.len() as u64;
        Ok(())
    }

    /// Whether the file was removed. One that was moved still has a name.
    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Writes the records of a removed file, which can still be read, to a new one.
    fn write_again(&mut self) -> Result<(), FileError> {
        let records = self.read(0..self.length)?;
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(FileError::at("created", directory))?;
        }
        let mut again = Self::open(&self.path)?;
        again.cut(0)?;
        again.append(&records)?;
        *self = again;
        Ok(())
    }

    /// Reads complete records.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Vec<u8>, FileError> {
        let mut records = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut records, range.start).map_err(FileError::at("read", &self.path))?;
        Ok(records)
    }

    /// Cuts the file to its first `length` bytes.
    pub(super) fn cut(&mut self, length: u64) -> Result<(), FileError> {
        self.file.set_len(length).map_err(FileError::at("shortened", &self.path))?;
        self.length = length;
        self.torn = false;
        Ok(())
    }

    /// Syncs all records to disk.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        self.file.sync_data().map_err(FileError::at("synced to disk", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_file_is_written_again_but_a_moved_one_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("run");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("records");
        let mut file = AppendFile::open(&path).unwrap();
        file.append(b"one\n").unwrap();
        fs::remove_dir_all(&directory).unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let moved = scratch.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        file.append(b"three\n").unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\nthree\n");
    }
}
