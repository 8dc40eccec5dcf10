//! Asynchronous copies to and from the GPU.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use tch::{Device, Tensor};

use crate::driver::driver;
use crate::error::{Error, Result};
use crate::memory::{PinnedBytes, PinnedPart};
use crate::shim;
use crate::stream::{Event, Stream};

/// Copies a host tensor to `device`, for later work of the current stream.
///
/// libtorch's own copy would wait for all earlier work of the stream.
pub fn upload(host: &Tensor, device: Device) -> Result<Tensor> {
    if !crate::serves(device) {
        return Ok(host.f_to_device(device)?);
    }
    let mut copy = ptr::null_mut();
    // SAFETY: a live tensor; the shim writes one pointer.
    shim::check(unsafe { shim::tx_upload(shim::raw(host), &mut copy) })?;
    // SAFETY: made by the shim for us.
    Ok(unsafe { shim::take(copy) })
}

/// A copy of a tensor to the host in progress.
#[derive(Debug)]
pub struct Download {
    values: Tensor,
    /// `None` if the values are on the host already.
    arrived: Option<Event>,
}

impl Download {
    /// Begins to copy the values of the tensor at this point of the current stream.
    pub fn begin(tensor: &Tensor) -> Result<Self> {
        if !crate::serves(tensor.device()) {
            return Ok(Self { values: tensor.f_to_device(Device::Cpu)?, arrived: None });
        }
        let mut copy = ptr::null_mut();
        // SAFETY: a live tensor; the shim writes one pointer.
        shim::check(unsafe { shim::tx_download(shim::raw(tensor), &mut copy) })?;
        // SAFETY: made by the shim for us.
        let values = unsafe { shim::take(copy) };
        let mut arrived = Event::new()?;
        arrived.record(&Stream::current()?)?;
        Ok(Self { values, arrived: Some(arrived) })
    }

    /// Waits for the values.
    pub fn finish(self) -> Result<Tensor> {
        if let Some(arrived) = self.arrived {
            arrived.synchronize()?;
        }
        Ok(self.values)
    }
}

fn bytes_of(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.kind().elt_size_in_bytes()
}

fn check(tensor: &Tensor, bytes: usize) -> Result<()> {
    if bytes_of(tensor) == bytes && tensor.is_contiguous() && tensor.device().is_cuda() {
        return Ok(());
    }
    let layout = if tensor.is_contiguous() { "" } else { ", not contiguous" };
    let found = format!("{} bytes on {:?}{layout}", bytes_of(tensor), tensor.device());
    Err(Error::Shape { what: "a tensor to be copied", found, expected: format!("{bytes} contiguous bytes on a GPU") })
}

/// Bytes to be sent.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// Bytes of the buffer.
    Own(Range<usize>),
    /// Bytes of other pinned memory, whose owner gets no unique access until they have arrived.
    Of(&'a Arc<PinnedPart>, Range<usize>),
}

/// Bytes of one piece of memory, and their offset in a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    memory: *const u8,
    offset: usize,
    bytes: usize,
    to: usize,
}

impl Run {
    fn is_followed_by(&self, next: &Self) -> bool {
        let side_by_side = self.offset + self.bytes == next.offset && self.to + self.bytes == next.to;
        self.memory == next.memory && side_by_side
    }
}

/// Joins pieces that are adjacent on both sides: any copy takes a microsecond or two before its first byte.
fn joined(pieces: impl Iterator<Item = Run>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for piece in pieces {
        match runs.last_mut() {
            Some(last) if last.is_followed_by(&piece) => last.bytes += piece.bytes,
            _ => runs.push(piece),
        }
    }
    runs
}

/// Pinned memory that is filled, sent, and filled again.
#[derive(Debug)]
pub struct UploadBuffer {
    bytes: PinnedBytes,
    sent: Event,
    pending: bool,
    /// Memory of others that is still being copied.
    held: Vec<Arc<PinnedPart>>,
}

impl UploadBuffer {
    /// Allocates memory for this many bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self { bytes: PinnedBytes::zeroed(bytes)?, sent: Event::new()?, pending: false, held: Vec::new() })
    }

    /// Returns the bytes to be filled, once the previous ones have arrived.
    pub fn fill(&mut self) -> Result<&mut [u8]> {
        self.settle()?;
        Ok(&mut self.bytes)
    }

    /// Waits until everything sent has arrived; its owners may then write to that memory again.
    pub fn settle(&mut self) -> Result<()> {
        if self.pending {
            self.sent.synchronize()?;
            self.pending = false;
        }
        self.held.clear();
        Ok(())
    }

    /// Makes a stream's later work wait for everything sent.
    pub fn block(&self, stream: &Stream) -> Result<()> {
        if self.pending { self.sent.block(stream) } else { Ok(()) }
    }

    /// Sends a part of the buffer to a tensor of that size, on the current stream.
    pub fn send(&mut self, range: Range<usize>, to: &Tensor) -> Result<()> {
        check(to, range.len())?;
        self.send_pieces(&[(Piece::Own(range), 0)], to)
    }

    /// Sends pieces, each to its byte offset in a tensor, on the current stream.
    pub fn send_pieces(&mut self, pieces: &[(Piece<'_>, usize)], to: &Tensor) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let locate = |(piece, to): &(Piece<'_>, usize)| match piece {
            Piece::Own(range) => {
                let bytes = self.bytes[range.clone()].len();
                Run { memory: self.bytes.as_ptr(), offset: range.start, bytes, to: *to }
            }
            Piece::Of(part, range) => {
                let (memory, start) = part.place();
                Run { memory, offset: start + range.start, bytes: part[range.clone()].len(), to: *to }
            }
        };
        let runs = joined(pieces.iter().map(locate));
        let end = runs.iter().map(|run| run.to + run.bytes).max().unwrap_or(0);
        check(to, bytes_of(to).max(end))?;
        let (driver, stream) = (driver()?, Stream::current()?);
        let raw = stream.raw()?;
        self.pending = true;
        for (piece, _) in pieces {
            if let Piece::Of(part, _) = piece
                && !self.held.last().is_some_and(|last| Arc::ptr_eq(last, part))
            {
                self.held.push(Arc::clone(part));
            }
        }
        let tensor = to.data_ptr() as u64;
        let mut copied = Ok(());
        for Run { memory, offset, bytes, to } in runs {
            // SAFETY: both sides have this many bytes: slicing above checked the host, `check` the tensor. The host's
            // bytes are not written before the event below is reached: `fill` waits for it before it returns those of
            // the buffer, and the others cannot be borrowed uniquely while `held` shares them. The tensor's memory is
            // kept by the order of the stream, or by the owner of buffer and tensor, who drops the buffer first.
            copied = copied
                .and_then(|()| unsafe { driver.upload(tensor + to as u64, memory.add(offset).cast(), bytes, raw) });
        }
        // Even if a copy failed, earlier ones are in progress.
        self.sent.record(&stream)?;
        copied
    }
}

impl Drop for UploadBuffer {
    fn drop(&mut self) {
        // Memory must outlive its copies; if waiting fails, the GPU is lost.
        let _ = self.settle();
    }
}

/// Pinned memory to which the GPU writes.
#[derive(Debug)]
pub struct DownloadBuffer {
    bytes: PinnedBytes,
    arrived: Event,
    pending: bool,
}

impl DownloadBuffer {
    /// Allocates memory for this many bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self { bytes: PinnedBytes::zeroed(bytes)?, arrived: Event::new()?, pending: false })
    }

    /// Begins to copy the contents of a tensor at this point of the current stream.
    pub fn receive(&mut self, from: &Tensor, range: Range<usize>) -> Result<()> {
        check(from, range.len())?;
        let stream = Stream::current()?;
        let (driver, raw) = (driver()?, stream.raw()?);
        let to = self.bytes[range.clone()].as_mut_ptr();
        self.pending = true;
        // SAFETY: both sides have this many bytes, and the host's are not read before the event below is reached.
        unsafe { driver.download(to.cast(), from.data_ptr() as u64, range.len(), raw)? };
        self.arrived.record(&stream)
    }

    /// Returns the bytes, once all copies have arrived.
    pub fn read(&mut self) -> Result<&[u8]> {
        if self.pending {
            self.arrived.synchronize()?;
            self.pending = false;
        }
        Ok(&self.bytes)
    }
}

impl Drop for DownloadBuffer {
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
    fn joins_neighbours_in_one_memory() {
        let (here, there) = ([0u8; 1], [0u8; 1]);
        let run = |memory: &[u8; 1], offset, bytes, to| Run { memory: memory.as_ptr(), offset, bytes, to };
        let pieces = [
            run(&here, 0, 8, 100),
            run(&here, 8, 4, 108),
            run(&there, 12, 4, 112),
            run(&there, 20, 4, 116),
            run(&there, 24, 1, 120),
        ];
        let together = [run(&here, 0, 12, 100), run(&there, 12, 4, 112), run(&there, 20, 5, 116)];
        assert_eq!(joined(pieces.into_iter()), together);
        // Pieces are joined only if they are adjacent on both sides, in order.
        let apart = [run(&here, 0, 4, 100), run(&here, 4, 4, 108), run(&here, 8, 4, 104)];
        assert_eq!(joined(apart.into_iter()), apart);
        let backwards = [run(&here, 8, 4, 8), run(&here, 0, 8, 0)];
        assert_eq!(joined(backwards.into_iter()), backwards);
        // Of two pieces for one place, the later one is copied later.
        let twice = [run(&here, 0, 4, 100), run(&there, 0, 4, 100)];
        assert_eq!(joined(twice.into_iter()), twice);
        assert_eq!(joined([].into_iter()), []);
    }
}
