//! CUDA graphs: captured work that one call launches again.

use std::ffi::c_void;
use std::ptr;

use crate::error::Result;
use crate::shim;

/// Captured work. A replay reads and writes the same memory as the capture.
#[derive(Debug)]
pub struct Graph(*mut c_void);

// SAFETY: any thread may replay the graph, one at a time, which `&mut` ensures.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `work` submits to the current stream, without running it.
    ///
    /// The current stream must not be the default stream.
    ///
    /// `work` must have run before on this stream, so that its one-time setup is done, and must not wait for the GPU.
    /// Tensors that it creates keep their memory as long as the graph lives.
    pub fn capture<T, E: From<crate::Error>>(
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<(Self, T), E> {
        let mut graph = ptr::null_mut();
        // SAFETY: the shim writes one pointer.
        shim::check(unsafe { shim::tx_graph_begin(&mut graph) })?;
        let graph = Self(graph);
        let result = work();
        // The capture must end in any case, or the stream could no longer be used.
        // SAFETY: a live graph.
        let ended = shim::check(unsafe { shim::tx_graph_end(graph.0) });
        let result = result?;
        ended?;
        Ok((graph, result))
    }

    /// Submits the captured work to the current stream.
    pub fn replay(&mut self) -> Result<()> {
        // SAFETY: a live graph whose capture has ended.
        shim::check(unsafe { shim::tx_graph_replay(self.0) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by the shim, freed once.
        unsafe { shim::tx_graph_free(self.0) }
    }
}
