//! Memory shared with a worker. All unsafe code of this crate is here.
//!
//! The memory is an anonymous file (memfd) of fixed size. It is sealed before it is mapped: a worker that shrank it
//! would make our next access fail. The worker may write at any time, so no reference into the memory is ever made;
//! bytes are copied out first and checked afterwards.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Creates an empty anonymous file to pass to a worker and map with [`SharedMemory::map`].
pub fn anonymous_file() -> io::Result<File> {
    Ok(memfd_create("meme-worker", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// A shared mapping of a whole anonymous file.
#[derive(Debug)]
pub struct SharedMemory {
    /// The mapped file, to pass to a worker.
    pub file: File,
    map: MmapRaw,
}

impl SharedMemory {
    /// Sets the final size of `file`, zeroes it and maps it.
    pub fn map(file: File, length: usize) -> io::Result<Self> {
        file.set_len(0)?;
        file.set_len(length as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapRaw::map_raw(&file)?;
        Ok(Self { file, map })
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.range(offset, out.len());
        // SAFETY: the source is inside the mapping; `out` is exclusively ours, so the two cannot overlap. A worker
        // that writes at the same time can tear the bytes, but every u8 is valid.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.range(offset, bytes.len());
        // SAFETY: as in `read`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes within the memory.
    ///
    /// # Panics
    /// If a range is not inside the memory.
    pub fn copy(&mut self, from: usize, to: usize, length: usize) {
        let (from, to) = (self.range(from, length), self.range(to, length));
        // SAFETY: both ranges are inside the mapping; `ptr::copy` allows them to overlap.
        unsafe { std::ptr::copy(from, to, length) }
    }

    /// The start of a range, which is checked to be inside the memory.
    fn range(&self, offset: usize, length: usize) -> *mut u8 {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.map.len());
        assert!(inside, "{length} bytes at {offset} are not inside the {} bytes of shared memory", self.map.len());
        // SAFETY: the offset is at most the length of the mapping.
        unsafe { self.map.as_mut_ptr().add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn both_sides_see_what_the_other_writes() {
        let mut memory = SharedMemory::map(anonymous_file().unwrap(), 100).unwrap();
        let other = memory.file.try_clone().unwrap();
        memory.write(97, b"xyz");
        memory.copy(97, 0, 3);
        let mut seen = [0; 3];
        other.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"xyz");
        other.write_all_at(b"abc", 50).unwrap();
        memory.read(50, &mut seen);
        assert_eq!(&seen, b"abc");
    }

    #[test]
    fn size_cannot_change() {
        let memory = SharedMemory::map(anonymous_file().unwrap(), 100).unwrap();
        assert!(memory.file.set_len(10).is_err());
        assert!(memory.file.set_len(1000).is_err());
    }

    #[test]
    fn mapping_discards_previous_content() {
        let file = anonymous_file().unwrap();
        file.write_all_at(b"printed too early", 0).unwrap();
        let memory = SharedMemory::map(file, 32).unwrap();
        let mut seen = [1; 32];
        memory.read(0, &mut seen);
        assert_eq!(seen, [0; 32]);
    }

    #[test]
    #[should_panic(expected = "not inside the 100 bytes")]
    fn panics_on_range_outside_memory() {
        let memory = SharedMemory::map(anonymous_file().unwrap(), 100).unwrap();
        memory.read(98, &mut [0; 3]);
    }
}
