//! Saves while training continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::{CheckpointError, CheckpointStore, SavedCheckpoint};

/// A save on its own thread. If dropped, it continues unobserved.
#[derive(Debug)]
pub struct BackgroundSave<S = SavedCheckpoint> {
    thread: JoinHandle<Result<S, CheckpointError>>,
    frames: u64,
    bytes: Arc<AtomicU64>,
}

impl<S: Send + 'static> BackgroundSave<S> {
    /// Starts `save`, which reports how many bytes it has written.
    pub(super) fn start(
        store: CheckpointStore,
        frames: u64,
        save: impl FnOnce(&CheckpointStore, &mut dyn FnMut(u64)) -> Result<S, CheckpointError> + Send + 'static,
    ) -> Result<Self, CheckpointError> {
        let bytes = Arc::new(AtomicU64::new(0));
        let save = {
            let bytes = Arc::clone(&bytes);
            move || {
                let saved = save(&store, &mut |written| bytes.store(written, Ordering::Relaxed));
                // The snapshot that was saved consisted of many pieces of several megabytes each.
                torch_ext::give_back_free_memory();
                saved
            }
        };
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(save);
        Ok(Self { thread: thread.map_err(CheckpointError::Thread)?, frames, bytes })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether `finish` returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the save and returns its outcome.
    pub fn finish(self) -> Result<S, CheckpointError> {
        self.thread.join().unwrap_or(Err(CheckpointError::Panicked { frames: self.frames }))
    }
}
