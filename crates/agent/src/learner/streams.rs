//! A learner's streams on a GPU: what need not wait for the rest of an update has one of its own.

use std::sync::Arc;

use tch::Device;
use torch_ext::{Event, Priority, Stream};

use crate::error::Result;

/// A learner's streams besides the current one.
#[derive(Debug)]
pub struct Streams {
    /// For work beside the rest of an update.
    pub side: Stream,
    /// What is given to it is recorded, not done.
    pub recording: Stream,
}

impl Streams {
    /// Those of a learner on this device, where there are streams.
    pub fn new(device: Device) -> Result<Option<Arc<Self>>> {
        if !(device.is_cuda() && torch_ext::available()) {
            return Ok(None);
        }
        let [side, recording] = [(); 2].map(|()| Stream::new(Priority::Normal));
        Ok(Some(Arc::new(Self { side: side?, recording: recording? })))
    }
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
