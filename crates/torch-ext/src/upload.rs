//! Bytes on their way to and from the GPU, while the processor does other things.

use std::ops::Range;

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
