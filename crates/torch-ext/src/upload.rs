//! Bytes on their way to and from the GPU, while the processor does other things.

use std::ops::Range;
use std::thread;

use tch::Tensor;

use crate::driver::driver;
use crate::error::{Error, Result};
use crate::memory::PinnedBytes;
use crate::stream::{Event, Stream};

fn check(tensor: &Tensor, bytes: usize) -> Result<()> {
    let found = tensor.numel() * tensor.kind().elt_size_in_bytes();
    if found == bytes && tensor.is_contiguous() {
        return Ok(());
    }
    let expected = format!("contiguous and of {bytes} bytes");
    Err(Error::Shape { what: "a tensor to be copied", found: format!("of {found} bytes"), expected })
}

/// From this many bytes on, pieces are copied by several threads: one alone does not reach the memory's speed.
const BYTES_A_THREAD: usize = 1 << 20;
/// More don't make it faster.
const MOST_THREADS: usize = 4;

/// Copies pieces of one length side by side.
pub fn copy_pieces(pieces: &[&[u8]], to: &mut [u8]) {
    let length = pieces.first().map_or(1, |piece| piece.len()).max(1);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = (pieces.len() * length / BYTES_A_THREAD).min(MOST_THREADS).min(cores / 2).max(1);
    let share = pieces.len().div_ceil(threads).max(1);
    let copy = |pieces: &[&[u8]], to: &mut [u8]| {
        for (piece, to) in pieces.iter().zip(to.chunks_exact_mut(length)) {
            to.copy_from_slice(piece);
        }
    };
    thread::scope(|scope| {
        let mut shares = pieces.chunks(share).zip(to.chunks_mut(share * length));
        let own = shares.next();
        for (pieces, to) in shares {
            scope.spawn(move || copy(pieces, to));
        }
        if let Some((pieces, to)) = own {
            copy(pieces, to);
        }
    });
}

/// Pinned memory that is filled, sent, and filled again.
#[derive(Debug)]
pub struct Outbox {
    bytes: PinnedBytes,
    sent: Event,
    pending: bool,
}

impl Outbox {
    /// Memory for this many bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self { bytes: PinnedBytes::zeroed(bytes)?, sent: Event::new()?, pending: false })
    }

    /// The bytes, to be filled; waits until what was sent before has arrived.
    pub fn fill(&mut self) -> Result<&mut [u8]> {
        if self.pending {
            self.sent.synchronize()?;
            self.pending = false;
        }
        Ok(&mut self.bytes)
    }

    /// Sends a part to a tensor of its size, on the current stream.
    pub fn send(&mut self, range: Range<usize>, to: &Tensor) -> Result<()> {
        check(to, range.len())?;
        let stream = Stream::current()?;
        let from = self.bytes[range.clone()].as_ptr();
        // SAFETY: both sides have this many bytes. The host's are not written before the event below is reached, since
        // `fill` waits for it and nothing else gives them out; the tensor's memory is kept by the stream's order.
        unsafe { driver()?.upload(to.data_ptr() as u64, from.cast(), range.len(), stream.raw()?)? };
        self.sent.record(&stream)?;
        self.pending = true;
        Ok(())
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if self.pending {
            // What is still on its way must not lose its memory; if waiting fails, the GPU is gone.
            let _ = self.sent.synchronize();
        }
    }
}

/// Pinned memory that the GPU writes to.
#[derive(Debug)]
pub struct Inbox {
    bytes: PinnedBytes,
    arrived: Event,
    pending: bool,
}

impl Inbox {
    /// Memory for this many bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self { bytes: PinnedBytes::zeroed(bytes)?, arrived: Event::new()?, pending: false })
    }

    /// Asks for the contents of a tensor, as they will be at this point of the current stream.
    pub fn receive(&mut self, from: &Tensor, range: Range<usize>) -> Result<()> {
        check(from, range.len())?;
        let stream = Stream::current()?;
        let to = self.bytes[range.clone()].as_mut_ptr();
        // SAFETY: both sides have this many bytes. The host's are not given out before the event below is reached.
        unsafe { driver()?.download(to.cast(), from.data_ptr() as u64, range.len(), stream.raw()?)? };
        self.arrived.record(&stream)?;
        self.pending = true;
        Ok(())
    }

    /// The bytes; waits until everything asked for is there.
    pub fn read(&mut self) -> Result<&[u8]> {
        if self.pending {
            self.arrived.synchronize()?;
            self.pending = false;
        }
        Ok(&self.bytes)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.pending {
            let _ = self.arrived.synchronize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_land_side_by_side_whoever_copies_them() {
        for (count, length) in [(0, 7), (3, 5), (700, 4096), (5, 1 << 20)] {
            let pieces: Vec<Vec<u8>> = (0..count).map(|i| (0..length).map(|j| (i * 31 + j) as u8).collect()).collect();
            let mut to = vec![0; count * length];
            copy_pieces(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut to);
            assert!(to == pieces.concat(), "{count} pieces of {length}");
        }
    }
}
