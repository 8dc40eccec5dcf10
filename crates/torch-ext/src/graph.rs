//! CUDA graphs: a recorded piece of work that is launched again with one call.

use std::ffi::c_void;
use std::ptr;

use crate::error::Result;
use crate::shim;

/// A recorded piece of work. Replaying it reads and writes the same memory as when it was recorded.
#[derive(Debug)]
pub struct Graph(*mut c_void);

// SAFETY: libtorch's graph may be replayed from any thread, by one at a time, which `&mut` ensures.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` gives to the current stream, which must not be the default stream. Nothing runs.
    ///
    /// `work` has run before on this stream, so that everything it sets up once is there; it must not wait for the
    /// GPU. Tensors that it makes keep their memory as long as the graph lives.
    pub fn record<T, E: From<crate::Error>>(
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<(Self, T), E> {
        let mut graph = ptr::null_mut();
        // SAFETY: the shim writes one pointer.
        shim::check(unsafe { shim::tx_graph_begin(&mut graph) })?;
        let graph = Self(graph);
        let result = work();
        // Recording has to be ended in any case, or the stream could not be used any more.
        // SAFETY: a live graph.
        let ended = shim::check(unsafe { shim::tx_graph_end(graph.0) });
        let result = result?;
        ended?;
        Ok((graph, result))
    }

    /// Gives the recorded work to the current stream.
    pub fn replay(&mut self) -> Result<()> {
        // SAFETY: a live graph whose recording has ended.
        shim::check(unsafe { shim::tx_graph_replay(self.0) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by the shim, freed once.
        unsafe { shim::tx_graph_free(self.0) }
    }
}
