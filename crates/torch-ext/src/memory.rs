//! Memory of the GPU, as counted by libtorch's allocator, and pinned memory of the host.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::driver::{adopt_context, driver};
use crate::error::Result;
use crate::shim;

/// Bytes of the GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Bytes in tensors.
    pub allocated: u64,
    /// The most bytes ever in tensors.
    pub peak_allocated: u64,
    /// Bytes held by libtorch, in tensors or in its cache.
    pub reserved: u64,
    /// The most bytes ever held by libtorch.
    pub peak_reserved: u64,
}

/// Returns libtorch's use of the GPU's memory.
pub fn memory_statistics() -> Result<MemoryStatistics> {
    let mut s = MemoryStatistics::default();
    // SAFETY: the shim writes four numbers.
    let text =
        unsafe { shim::tx_memory(&mut s.allocated, &mut s.peak_allocated, &mut s.reserved, &mut s.peak_reserved) };
    shim::check(text)?;
    Ok(s)
}

/// Returns libtorch's unused memory to the GPU.
pub fn release_unused_memory() -> Result<()> {
    // SAFETY: no arguments.
    shim::check(unsafe { shim::tx_release_unused_memory() })
}

/// Returns freed host memory to the system.
///
/// The C library keeps free blocks between others, even of some megabytes once it has seen such a block freed.
pub fn give_back_free_memory() {
    // SAFETY: may be called at any time, from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Page-locked host memory, from which the GPU copies at full speed without the processor.
#[derive(Debug)]
pub struct PinnedBytes {
    start: *mut u8,
    length: usize,
}

// SAFETY: it owns its memory, as a boxed slice does.
unsafe impl Send for PinnedBytes {}
// SAFETY: as above.
unsafe impl Sync for PinnedBytes {}

impl PinnedBytes {
    /// Allocates this many zeroed bytes.
    pub fn zeroed(length: usize) -> Result<Self> {
        if length == 0 {
            return Ok(Self { start: std::ptr::NonNull::dangling().as_ptr(), length });
        }
        adopt_context()?;
        let start: *mut u8 = driver()?.allocate_host(length)?.cast();
        // SAFETY: the driver allocated `length` bytes.
        unsafe { start.write_bytes(0, length) };
        Ok(Self { start, length })
    }
}

impl Deref for PinnedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes that belong to self.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl DerefMut for PinnedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

/// A part of a shared piece of pinned memory, which lives as long as any of its parts.
#[derive(Debug)]
pub struct PinnedPart {
    /// Never borrowed as bytes, since other parts have other owners.
    whole: Arc<PinnedBytes>,
    range: Range<usize>,
}

impl PinnedPart {
    /// Allocates zeroed parts of these lengths, one after the other in one piece of memory.
    pub fn allocate(lengths: &[usize]) -> Result<Vec<Self>> {
        let whole = Arc::new(PinnedBytes::zeroed(lengths.iter().sum())?);
        let mut end = 0;
        let part = |&length: &usize| {
            let range = end..end + length;
            end = range.end;
            Self { whole: Arc::clone(&whole), range }
        };
        Ok(lengths.iter().map(part).collect())
    }

    /// Returns the piece of memory and the offset of this part in it.
    pub(crate) fn place(&self) -> (*const u8, usize) {
        (self.whole.start, self.range.start)
    }
}

impl Deref for PinnedPart {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the whole, which lives as long as self, and overlaps no other part.
        unsafe { std::slice::from_raw_parts(self.whole.start.add(self.range.start), self.range.len()) }
    }
}

impl DerefMut for PinnedPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.whole.start.add(self.range.start), self.range.len()) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        if self.length > 0
            && let Ok(driver) = driver()
        {
            driver.free_host(self.start.cast::<c_void>());
        }
    }
}
