//! Streams of the GPU: work on one runs in order, work on two may overlap.

use std::ffi::c_void;
use std::ptr;

use tch::Tensor;

use crate::error::Result;
use crate::shim;

/// Priority of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Like the default stream.
    Normal,
    /// Before all others.
    High,
}

/// A stream of libtorch's pool.
#[derive(Debug)]
pub struct Stream(*mut c_void);

// SAFETY: CUDA and libtorch allow any thread to use a stream.
unsafe impl Send for Stream {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Stream {}

impl Stream {
    /// Takes a stream from libtorch's pool.
    pub fn new(priority: Priority) -> Result<Self> {
        let mut stream = ptr::null_mut();
        // SAFETY: the shim writes one pointer.
        shim::check(unsafe { shim::tx_stream_new((priority == Priority::High).into(), &mut stream) })?;
        Ok(Self(stream))
    }

    /// Returns the current stream of this thread.
    pub fn current() -> Result<Self> {
        let mut stream = ptr::null_mut();
        // SAFETY: the shim writes one pointer.
        shim::check(unsafe { shim::tx_stream_current(&mut stream) })?;
        Ok(Self(stream))
    }

    /// Runs `work` with this as the current stream of this thread.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let before = Self::current()?;
        // SAFETY: both are live streams.
        shim::check(unsafe { shim::tx_stream_set(self.0) })?;
        let result = work();
        // SAFETY: as above.
        shim::check(unsafe { shim::tx_stream_set(before.0) })?;
        Ok(result)
    }

    /// Waits until all work submitted so far is done.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: a live stream.
        shim::check(unsafe { shim::tx_stream_synchronize(self.0) })
    }

    /// Records the use of a tensor of another stream, so that its memory is not reused too early.
    pub fn uses(&self, tensor: &Tensor) -> Result<()> {
        // SAFETY: a live stream and tensor.
        shim::check(unsafe { shim::tx_stream_uses(self.0, shim::raw(tensor)) })
    }

    /// Returns CUDA's handle.
    pub(crate) fn raw(&self) -> Result<*mut c_void> {
        let mut raw = ptr::null_mut();
        // SAFETY: a live stream; the shim writes one pointer.
        shim::check(unsafe { shim::tx_stream_raw(self.0, &mut raw) })?;
        Ok(raw)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by the shim, freed once; the pool keeps the stream itself.
        unsafe { shim::tx_stream_free(self.0) }
    }
}

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event(*mut c_void);

// SAFETY: CUDA allows any thread to use an event; libtorch's object only changes through `&mut`.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event that orders streams.
    pub fn new() -> Result<Self> {
        Self::create(false)
    }

    /// Creates an event for measuring time.
    pub fn timing() -> Result<Self> {
        Self::create(true)
    }

    fn create(timing: bool) -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: the shim writes one pointer.
        shim::check(unsafe { shim::tx_event_new(timing.into(), &mut event) })?;
        Ok(Self(event))
    }

    /// Records the current point of a stream.
    pub fn record(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: a live event and stream.
        shim::check(unsafe { shim::tx_event_record(self.0, stream.0) })
    }

    /// Makes a stream's later work wait for the event.
    pub fn block(&self, stream: &Stream) -> Result<()> {
        // SAFETY: a live event and stream.
        shim::check(unsafe { shim::tx_event_block(self.0, stream.0) })
    }

    /// Waits for the event.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: a live event.
        shim::check(unsafe { shim::tx_event_synchronize(self.0) })
    }

    /// Returns whether the event has been reached.
    pub fn done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: a live event; the shim writes one number.
        shim::check(unsafe { shim::tx_event_done(self.0, &mut done) })?;
        Ok(done != 0)
    }

    /// Returns the time to a later event; both have been reached and were made by [`timing`](Self::timing).
    pub fn milliseconds_until(&self, end: &Event) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: live events; the shim writes one number.
        shim::check(unsafe { shim::tx_event_milliseconds(self.0, end.0, &mut milliseconds) })?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by the shim, freed once.
        unsafe { shim::tx_event_free(self.0) }
    }
}
