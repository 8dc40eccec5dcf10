//! Reads one checkpoint: every hash is compared before the first byte is handed out.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};

use super::super::durable::{FileError, is_at};
use super::manifest::{self, FileEntry, MANIFEST, Manifest, ManifestProblem};
use super::{BUFFER, CheckpointError, hash_file};

/// Maximum size of a manifest that is read: a damaged one must not fill the memory.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// A verified checkpoint. Its files stay open, so they can be read even after it was removed.
#[derive(Debug)]
pub struct Checkpoint {
    /// The directory.
    pub path: PathBuf,
    manifest: Manifest,
    files: Vec<File>,
}

impl Checkpoint {
    /// Opens a checkpoint and compares the hash of every file.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_without(path, &[])
    }

    /// Opens a checkpoint except for some files, which are neither verified nor available.
    pub fn open_without(path: &Path, skipped: &[&str]) -> Result<Self, CheckpointError> {
        Directory::with(path, |directory| {
            let mut manifest = directory.manifest()?;
            manifest.files.retain(|entry| !skipped.contains(&entry.name.as_str()));
            let open = |entry: &FileEntry| directory.open_file(&entry.name);
            let mut files = manifest.files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            for (entry, file) in manifest.files.iter().zip(&mut files) {
                let (bytes, hash) = hash_file(file).map_err(FileError::at("read", &path.join(&entry.name)))?;
                let name = &entry.name;
                if bytes != entry.bytes {
                    return Err(directory.damaged(format!("its {name} has {bytes} bytes instead of {}", entry.bytes)));
                }
                if manifest::hash_text(hash) != entry.xxh3 {
                    return Err(directory.damaged(format!("the hash of its {name} is wrong")));
                }
            }
            Ok(Self { path: path.to_path_buf(), manifest, files })
        })
    }

    /// Frames played when it was saved.
    pub fn frames(&self) -> u64 {
        self.manifest.frames
    }

    /// Evaluation score of a best checkpoint.
    pub fn score(&self) -> Option<f64> {
        self.manifest.score
    }

    /// Names of the files that can be read, in the order they were written.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.iter().map(|entry| entry.name.as_str())
    }

    /// Whether there is such a file to read.
    pub fn has_file(&self, name: &str) -> bool {
        self.file_names().any(|known| known == name)
    }

    /// Returns a reader of one file. Several may be in use at once, on several threads.
    pub fn file(&self, name: &str) -> Result<impl Read + '_, CheckpointError> {
        let mut files = self.manifest.files.iter().zip(&self.files);
        if let Some((entry, file)) = files.find(|(entry, _)| entry.name == name) {
            return Ok(BufReader::with_capacity(BUFFER, FileReader { file, offset: 0, end: entry.bytes }));
        }
        let known = self.file_names().map(str::to_owned).collect();
        Err(CheckpointError::NoFile { path: self.path.clone(), name: name.to_owned(), known })
    }

    /// Reads one file into memory.
    pub fn file_bytes(&self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::new();
        self.file(name)?.read_to_end(&mut bytes).map_err(FileError::at("read", &self.path.join(name)))?;
        Ok(bytes)
    }
}

/// Reads the manifest only: enough to describe a checkpoint, not to use it.
pub(super) fn read_manifest(path: &Path) -> Result<Manifest, CheckpointError> {
    Directory::with(path, Directory::manifest)
}

/// An open directory, whose files are found even while another process renames it.
struct Directory<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Directory<'a> {
    /// Calls `read` with the directory at `path`, again if it was replaced or removed meanwhile.
    fn with<T>(path: &'a Path, read: impl Fn(&Self) -> Result<T, CheckpointError>) -> Result<T, CheckpointError> {
        loop {
            let directory = Self::open(path)?;
            match read(&directory) {
                Err(CheckpointError::Damaged { .. }) if !is_at(&directory.file, path) => {}
                outcome => return outcome,
            }
        }
    }

    fn open(path: &'a Path) -> Result<Self, CheckpointError> {
        match open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Ok(Self { path, file: file.into() }),
            Err(rustix::io::Errno::NOTDIR) => {
                let how = "it is not a directory".to_owned();
                Err(CheckpointError::Damaged { path: path.to_path_buf(), how })
            }
            Err(cause) => Err(FileError::at("opened", path)(cause.into()).into()),
        }
    }

    fn manifest(&self) -> Result<Manifest, CheckpointError> {
        let mut bytes = Vec::new();
        let read = self.open_file(MANIFEST)?.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes);
        read.map_err(FileError::at("read", &self.path.join(MANIFEST)))?;
        Manifest::parse(&bytes).map_err(|problem| match problem {
            ManifestProblem::Damaged(how) => self.damaged(how),
            ManifestProblem::Format(found) => CheckpointError::Format { path: self.path.to_path_buf(), found },
        })
    }

    fn open_file(&self, name: &str) -> Result<File, CheckpointError> {
        // Without NONBLOCK, opening a named pipe would wait for its writer.
        match openat(&self.file, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                match file.metadata() {
                    Ok(metadata) if metadata.is_file() => Ok(file),
                    Ok(_) => Err(self.damaged(format!("its {name} is not a file"))),
                    Err(cause) => Err(FileError::at("read", &self.path.join(name))(cause).into()),
                }
            }
            Err(rustix::io::Errno::NOENT) => Err(self.damaged(format!("its {name} is missing"))),
            Err(cause) => Err(FileError::at("opened", &self.path.join(name))(cause.into()).into()),
        }
    }

    fn damaged(&self, how: String) -> CheckpointError {
        CheckpointError::Damaged { path: self.path.to_path_buf(), how }
    }
}

/// Reads a file from its start without moving the file's own position.
struct FileReader<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let length = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        if length == 0 && wanted > 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        self.offset += length as u64;
        Ok(length)
    }
}
