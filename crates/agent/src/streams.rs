//! Work beside other work on a GPU.

use torch_ext::{Event, Stream};

use crate::error::Result;

/// Work on another stream that the current one has not waited for yet.
#[must_use = "the current stream has to wait for the other one by `join`"]
pub struct Fork(Option<Event>);

/// Gives work to the stream `side`, to begin when the current one has come to this point.
///
/// Without a side stream, on a CPU, the work is done at once.
pub fn fork<T>(side: Option<&Stream>, work: impl FnOnce() -> Result<T>) -> Result<(T, Fork)> {
    let Some(side) = side else { return Ok((work()?, Fork(None))) };
    let mut forked = Event::new()?;
    forked.record(&Stream::current()?)?;
    forked.block(side)?;
    let result = side.scope(work)??;
    let mut ended = Event::new()?;
    ended.record(side)?;
    Ok((result, Fork(Some(ended))))
}

impl Fork {
    /// Lets the current stream wait for the forked work.
    pub fn join(self) -> Result<()> {
        match self.0 {
            Some(ended) => Ok(ended.block(&Stream::current()?)?),
            None => Ok(()),
        }
    }
}
