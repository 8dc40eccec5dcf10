//! Tensors that one thread computes on a device and another goes on with.

use tch::Device;
use torch_ext::{Event, Stream};

use crate::error::Result;

/// A mark in a thread's work on a device. Where there is nothing to wait for, on a CPU, it is reached from the start.
#[derive(Debug)]
pub struct Handover(Option<Event>);

impl Handover {
    /// Marks all that this thread has given to the device so far.
    pub fn mark(device: Device) -> Result<Self> {
        if !device.is_cuda() || !torch_ext::available() {
            return Ok(Self(None));
        }
        let mut event = Event::new()?;
        event.record(&Stream::current()?)?;
        Ok(Self(Some(event)))
    }

    /// Whether the device has come that far.
    pub fn is_reached(&self) -> Result<bool> {
        match &self.0 {
            Some(event) => Ok(event.done()?),
            None => Ok(true),
        }
    }

    /// Waits until it has.
    pub fn wait(&self) -> Result<()> {
        match &self.0 {
            Some(event) => Ok(event.synchronize()?),
            None => Ok(()),
        }
    }
}
