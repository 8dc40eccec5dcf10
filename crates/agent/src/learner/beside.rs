//! Work of an update that need not wait for the rest, on a stream of its own.

use std::sync::Arc;

use tch::Device;
use torch_ext::{Event, Priority, Stream};

use crate::error::Result;

/// A stream for such work, where there are streams.
pub fn beside_stream(device: Device) -> Result<Option<Arc<Stream>>> {
    let fast = device.is_cuda() && torch_ext::available();
    Ok(if fast { Some(Arc::new(Stream::new(Priority::Normal)?)) } else { None })
}

/// Work that was given to the other stream.
pub struct Joined {
    ended: Option<Event>,
}

/// Gives work to the other stream, to begin when the current one has come to this point; on a CPU there is only one
/// order.
pub fn beside<T>(side: Option<&Stream>, work: impl FnOnce() -> Result<T>) -> Result<(T, Joined)> {
    let Some(side) = side else { return Ok((work()?, Joined { ended: None })) };
    let mut forked = Event::new()?;
    forked.record(&Stream::current()?)?;
    forked.block(side)?;
    let result = side.scope(work)??;
    let mut ended = Event::new()?;
    ended.record(side)?;
    Ok((result, Joined { ended: Some(ended) }))
}

impl Joined {
    /// Lets the current stream wait for that work.
    pub fn join(self) -> Result<()> {
        match self.ended {
            Some(ended) => Ok(ended.block(&Stream::current()?)?),
            None => Ok(()),
        }
    }
}
