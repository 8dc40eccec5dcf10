//! A stream of bytes in checksummed blocks, so that damaged data is never parsed.
//!
//! A block is its length (u32), the XXH3 hash of its content seeded with the block's number (u64), and the content;
//! integers are little-endian. An empty block ends the stream, and nothing may follow it.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::SnapshotError;

/// Bytes of content of all blocks but the last two.
const BLOCK: usize = 1 << 20;

/// Writes a stream; [`finish`](Self::finish) ends it.
pub(super) struct BlockWriter<W> {
    file: W,
    block: Vec<u8>,
    number: u64,
}

impl<W: Write> BlockWriter<W> {
    pub(super) fn new(file: W) -> Self {
        Self { file, block: Vec::with_capacity(BLOCK), number: 0 }
    }

    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.write_block()?;
            }
        }
        Ok(())
    }

    /// Ends the stream and returns the file.
    pub(super) fn finish(mut self) -> io::Result<W> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        self.write_block()?;
        Ok(self.file)
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.file.write_all(&(self.block.len() as u32).to_le_bytes())?;
        self.file.write_all(&xxh3_64_with_seed(&self.block, self.number).to_le_bytes())?;
        self.file.write_all(&self.block)?;
        self.number += 1;
        self.block.clear();
        Ok(())
    }
}

/// Bytes before the content of a block.
const HEAD: usize = 12;

/// Reads a stream; returns only checked bytes.
pub(super) struct BlockReader<R> {
    file: R,
    block: Vec<u8>,
    at: usize,
    number: u64,
    ended: bool,
}

pub(super) type Parsed<T> = Result<T, SnapshotError>;

impl<R: Read> BlockReader<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, block: Vec::new(), at: 0, number: 0, ended: false }
    }

    pub(super) fn take(&mut self, mut out: &mut [u8]) -> Parsed<()> {
        while !out.is_empty() {
            if self.at == self.block.len() {
                self.read_block()?;
                if self.ended {
                    return Err(SnapshotError::Incomplete);
                }
            }
            let n = out.len().min(self.block.len() - self.at);
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&self.block[self.at..self.at + n]);
            self.at += n;
            out = later;
        }
        Ok(())
    }

    /// Refuses a stream that continues.
    pub(super) fn finish(mut self) -> Parsed<()> {
        if self.at == self.block.len() && !self.ended {
            self.read_block()?;
        }
        match self.file.read(&mut [0]) {
            Ok(0) if self.ended => Ok(()),
            Ok(_) => Err(SnapshotError::Trailing),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    fn read_block(&mut self) -> Parsed<()> {
        let mut head = [0; HEAD];
        self.file.read_exact(&mut head).map_err(|error| self.unreadable(error))?;
        let length = u32::from_le_bytes(std::array::from_fn(|i| head[i])) as usize;
        let hash = u64::from_le_bytes(std::array::from_fn(|i| head[4 + i]));
        self.block.resize(length.min(BLOCK), 0);
        if let Err(error) = self.file.read_exact(&mut self.block) {
            return Err(self.unreadable(error));
        }
        if length > BLOCK || xxh3_64_with_seed(&self.block, self.number) != hash {
            return Err(SnapshotError::Checksum { block: self.number });
        }
        self.at = 0;
        self.number += 1;
        self.ended = length == 0;
        Ok(())
    }

    fn unreadable(&self, error: io::Error) -> SnapshotError {
        let block = self.number;
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SnapshotError::CutOff { block },
            _ => SnapshotError::Read { block, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(content: &[u8]) -> Vec<u8> {
        let mut writer = BlockWriter::new(Vec::new());
        writer.put(content).unwrap();
        writer.finish().unwrap()
    }

    fn read(file: &[u8], length: usize) -> Parsed<Vec<u8>> {
        let mut reader = BlockReader::new(file);
        let mut content = vec![0; length];
        reader.take(&mut content)?;
        reader.finish()?;
        Ok(content)
    }

    #[test]
    fn reads_back_streams_of_any_length() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
            let content: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            assert!(read(&stream(&content), length).unwrap() == content, "{length}");
        }
    }

    #[test]
    fn notices_missing_and_extra_bytes() {
        let mut file = stream(&[7; 100]);
        assert!(matches!(read(&file, 99), Err(SnapshotError::Trailing)));
        assert!(matches!(read(&file, 101), Err(SnapshotError::Incomplete)));
        assert!(matches!(read(&file[..file.len() - 1], 100), Err(SnapshotError::CutOff { block: 1 })));
        assert!(matches!(read(&file[..50], 100), Err(SnapshotError::CutOff { block: 0 })));
        file.push(0);
        assert!(matches!(read(&file, 100), Err(SnapshotError::Trailing)));
    }

    #[test]
    fn notices_swapped_blocks() {
        let mut content = vec![1; BLOCK];
        content.extend_from_slice(&[2; BLOCK]);
        let file = stream(&content);
        let (one, rest) = file.split_at(HEAD + BLOCK);
        let (two, end) = rest.split_at(HEAD + BLOCK);
        let swapped = read(&[two, one, end].concat(), 2 * BLOCK);
        assert!(matches!(swapped, Err(SnapshotError::Checksum { block: 0 })));
    }
}
