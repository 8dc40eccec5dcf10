//! Saving while training goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::super::durable::FileError;
use super::{CheckpointError, CheckpointStore, Progress, Saved};

/// A save on a thread of its own. Dropped, it goes on and nobody hears of its end.
#[derive(Debug)]
pub struct Saving<S = Saved> {
    thread: JoinHandle<Result<S, CheckpointError>>,
    frames: u64,
    bytes: Arc<AtomicU64>,
}

impl<S: Send + 'static> Saving<S> {
    /// Lets `save` save what was taken at so many frames; it tells how far it is.
    pub(super) fn start(
        store: CheckpointStore,
        frames: u64,
        save: impl FnOnce(&CheckpointStore, &mut dyn FnMut(Progress)) -> Result<S, CheckpointError> + Send + 'static,
    ) -> Result<Self, CheckpointError> {
        let bytes = Arc::new(AtomicU64::new(0));
        let folder = store.checkpoints().clone();
        let save = {
            let bytes = Arc::clone(&bytes);
            move || {
                let saved = save(&store, &mut |progress| bytes.store(progress.bytes, Ordering::Relaxed));
                // What was saved was a copy, in many pieces of megabytes.
                torch_ext::give_back_free_memory();
                saved
            }
        };
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(save);
        let thread = thread.map_err(FileError::at("written by a thread of its own", folder.folder()))?;
        Ok(Self { thread, frames, bytes })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether `finish` returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end and says how it went.
    pub fn finish(self) -> Result<S, CheckpointError> {
        self.thread.join().unwrap_or(Err(CheckpointError::Panicked { frames: self.frames }))
    }
}
