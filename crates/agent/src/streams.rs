//! Concurrent work on a GPU.

use torch_ext::{Event, Stream};

use crate::error::Result;

/// Work on another stream that the current one has yet to join.
#[must_use = "`join` makes the current stream wait for the work"]
pub struct Fork(Option<Event>);

/// Runs work on the stream `side`, after everything queued on the current one.
///
/// Without a side stream, on a CPU, runs it at once.
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
    /// Makes the current stream wait for the forked work.
    pub fn join(self) -> Result<()> {
        self.0.map_or(Ok(()), |ended| Ok(ended.block(&Stream::current()?)?))
    }
}
