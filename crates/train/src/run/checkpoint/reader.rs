//! Reading one checkpoint: all that can be read of it is checked before any of it is handed out.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::super::durable::FileError;
use super::CheckpointError;
use super::format::{self, FOOTER, Footer, HEADER, Index, PartEntry};
use crate::plain_file;

const BUFFER: usize = 1 << 20;

/// A checkpoint that has been checked. The file stays open, so its parts can be read even after it was removed.
#[derive(Debug)]
pub struct Checkpoint {
    file: File,
    path: PathBuf,
    index: Index,
    /// A part that was not checked, and that is as if it were not there.
    left_out: Option<&'static str>,
}

impl Checkpoint {
    /// Opens a checkpoint and reads it through once, to compare every hash.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_without(path, None)
    }

    /// The same, but a part that is not needed is neither checked nor there to be read.
    pub fn open_without(path: &Path, left_out: Option<&'static str>) -> Result<Self, CheckpointError> {
        let checkpoint = Self { left_out, ..Self::open_unchecked(path)? };
        let longest = checkpoint.parts().map(|(part, _)| part.length).max().unwrap_or(0);
        let mut buffer = vec![0; longest.clamp(1, BUFFER as u64) as usize];
        for (part, offset) in checkpoint.parts() {
            checkpoint.check_part(part, offset, &mut buffer)?;
        }
        Ok(checkpoint)
    }

    /// The parts that are there to be read, and where each begins.
    fn parts(&self) -> impl Iterator<Item = (&PartEntry, u64)> {
        let mut end = HEADER as u64;
        let placed = self.index.parts.iter().map(move |part| {
            let begin = end;
            end += part.length;
            (part, begin)
        });
        placed.filter(|(part, _)| Some(part.name.as_str()) != self.left_out)
    }

    /// Header, index and footer only: enough to say what it is, not to read from it.
    pub(super) fn open_unchecked(path: &Path) -> Result<Self, CheckpointError> {
        let read = |cause| CheckpointError::from(FileError::at("read", path)(cause));
        let damaged = |how| CheckpointError::Damaged { path: path.to_path_buf(), how };
        if let Some(what) = plain_file::other_than_a_file(path) {
            return Err(damaged(format!("it is {what}, not a file")));
        }
        let file = File::open(path).map_err(FileError::at("opened", path))?;
        let length = file.metadata().map_err(read)?.len();
        if length < (HEADER + FOOTER) as u64 {
            return Err(damaged(format!("its {length} bytes are too few for a checkpoint")));
        }
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(read)?;
        format::check_header(path, &header)?;
        let mut footer = [0; FOOTER];
        file.read_exact_at(&mut footer, length - FOOTER as u64).map_err(read)?;
        let footer = Footer::parse(&footer, length).map_err(damaged)?;
        let mut index = vec![0; footer.length as usize];
        file.read_exact_at(&mut index, footer.offset).map_err(read)?;
        let index = footer.parse_index(&header, &index).map_err(damaged)?;
        Ok(Self { file, path: path.to_path_buf(), index, left_out: None })
    }

    fn check_part(&self, part: &PartEntry, offset: u64, buffer: &mut [u8]) -> Result<(), CheckpointError> {
        let mut range = Range { file: &self.file, offset, end: offset + part.length };
        let mut hash = Xxh3::new();
        loop {
            match range.read(buffer) {
                Ok(0) => break,
                Ok(length) => hash.update(&buffer[..length]),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(FileError::at("read", &self.path)(cause).into()),
            }
        }
        if format::hash_text(hash.digest()) != part.hash {
            let how = format!("the hash of its part `{}` is wrong", part.name);
            return Err(CheckpointError::Damaged { path: self.path.clone(), how });
        }
        Ok(())
    }

    /// Frames played when it was taken.
    pub fn frames(&self) -> u64 {
        self.index.frames
    }

    /// The evaluation score it was kept for, where it was.
    pub fn score(&self) -> Option<f64> {
        self.index.score
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its parts, in order.
    pub fn part_names(&self) -> impl Iterator<Item = &str> {
        self.parts().map(|(part, _)| part.name.as_str())
    }

    /// A reader of one part. Several may be used at once, on several threads.
    pub fn part(&self, name: &str) -> Result<PartReader<'_>, CheckpointError> {
        if let Some((part, offset)) = self.parts().find(|(part, _)| part.name == name) {
            let range = Range { file: &self.file, offset, end: offset + part.length };
            return Ok(PartReader { length: part.length, reader: BufReader::with_capacity(BUFFER, range) });
        }
        let known = self.part_names().map(str::to_owned).collect();
        Err(CheckpointError::NoPart { path: self.path.clone(), name: name.to_owned(), known })
    }

    /// A small part, whole.
    pub fn part_bytes(&self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        let mut reader = self.part(name)?;
        // It grows as it is read: where there is no memory for it, that is an error and not the end of the process.
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(FileError::at("read", &self.path))?;
        Ok(bytes)
    }
}

/// The bytes of one part, and no more.
#[derive(Debug)]
pub struct PartReader<'a> {
    length: u64,
    reader: BufReader<Range<'a>>,
}

impl PartReader<'_> {
    /// The part's length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// A stretch of a file, read without moving the file's own position.
#[derive(Debug)]
struct Range<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let length = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        if length == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        self.offset += length as u64;
        Ok(length)
    }
}
