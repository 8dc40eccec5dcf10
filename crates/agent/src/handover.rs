//! Synchronisation of tensors computed by one thread and used by another.

use tch::Device;
use torch_ext::{Event, Stream};

use crate::error::Result;

/// A point in a thread's work on a device; on a CPU it is always reached.
#[derive(Debug)]
pub struct Handover(Option<Event>);

impl Handover {
    /// Marks the end of the work that this thread has queued so far.
    pub fn mark(device: Device) -> Result<Self> {
        if !torch_ext::serves(device) {
            return Ok(Self(None));
        }
        let mut event = Event::new()?;
        event.record(&Stream::current()?)?;
        Ok(Self(Some(event)))
    }

    /// Whether the device has reached it.
    pub fn is_reached(&self) -> Result<bool> {
        self.0.as_ref().map_or(Ok(true), |event| Ok(event.done()?))
    }

    /// Waits until the device has reached it.
    pub fn wait(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |event| Ok(event.synchronize()?))
    }
}
