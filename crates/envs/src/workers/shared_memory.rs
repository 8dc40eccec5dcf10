//! Memory that a worker writes and we copy from. Unsafe code of this crate is here and in `process_group` alone.
//!
//! The memory is an anonymous file (memfd) of fixed size: it is sealed against shrinking before it is mapped, so that
//! no worker can make an access fail by cutting it. No reference into it is ever made, because the worker may write at
//! any time; bytes are copied out and checked afterwards.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

/// An anonymous file, still empty, to be handed to a worker and mapped by [`SharedMemory::map`].
pub fn anonymous_file() -> io::Result<File> {
    // SAFETY: the name is a valid C string, and memfd_create touches no memory of ours.
    let fd = unsafe { libc::memfd_create(c"meme-worker".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A shared mapping of a whole anonymous file.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all access goes through copies of bytes.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Gives `file` its final size, all zero, and maps it.
    pub fn map(file: File, length: usize) -> io::Result<Self> {
        file.set_len(0)?;
        file.set_len(length as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: F_ADD_SEALS takes an integer and touches no memory.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { file, start, length })
    }

    /// The file behind it, to hand to a worker.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: the range is inside the mapping, `out` is ours alone, so they cannot overlap. A worker may write
        // meanwhile; that can tear the bytes, which any value of u8 allows for.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: as in `read`, the other way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len()) }
    }

    /// Copies bytes from one place to another.
    ///
    /// # Panics
    /// If a range is not inside the memory.
    pub fn copy(&mut self, from: usize, to: usize, length: usize) {
        self.check(from, length);
        self.check(to, length);
        // SAFETY: both ranges are inside the mapping; `ptr::copy` allows them to overlap.
        unsafe { std::ptr::copy(self.start.as_ptr().add(from), self.start.as_ptr().add(to), length) }
    }

    fn check(&self, offset: usize, length: usize) {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "{length} bytes at {offset} are not inside the {} bytes of shared memory", self.length);
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped, and nothing refers to it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_by_both_sides() {
        let mut memory = SharedMemory::map(anonymous_file().unwrap(), 100).unwrap();
        let other = memory.file().try_clone().unwrap();
        memory.write(97, b"xyz");
        memory.copy(97, 0, 3);
        let mut seen = [0; 3];
        std::os::unix::fs::FileExt::read_exact_at(&other, &mut seen, 0).unwrap();
        assert_eq!(&seen, b"xyz");
        std::os::unix::fs::FileExt::write_all_at(&other, b"abc", 50).unwrap();
        memory.read(50, &mut seen);
        assert_eq!(&seen, b"abc");
    }

    #[test]
    fn the_size_is_final() {
        let memory = SharedMemory::map(anonymous_file().unwrap(), 100).unwrap();
        assert!(memory.file().set_len(10).is_err());
        assert!(memory.file().set_len(1000).is_err());
    }

    #[test]
    fn what_the_file_held_before_is_gone() {
        let file = anonymous_file().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"printed too early", 0).unwrap();
        let memory = SharedMemory::map(file, 32).unwrap();
        let mut seen = [1; 32];
        memory.read(0, &mut seen);
        assert_eq!(seen, [0; 32]);
    }

    #[test]
    #[should_panic(expected = "not inside the 100 bytes")]
    fn a_range_outside_is_refused() {
        let memory = SharedMemory::map(anonymous_file().unwrap(), 100).unwrap();
        memory.read(98, &mut [0; 3]);
    }
}
