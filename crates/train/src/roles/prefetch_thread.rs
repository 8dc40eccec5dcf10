//! The thread that prefetches batches ahead of the learner.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use replay::{Replay, ReplayError};

use crate::error::{Result, TrainError};
use crate::roles::batch_prefetch::{BatchPrefetch, PrefetchedBatch};
use crate::roles::run_control::{POLL, RunControl};
use crate::roles::timesheet::{Activity, Stopwatch};

/// Fills empty batches and passes them to the learner.
pub(crate) struct PrefetchThread {
    pub(crate) prefetch: BatchPrefetch,
    pub(crate) replay: Arc<Replay>,
    pub(crate) control: Arc<RunControl>,
    pub(crate) empty: Receiver<PrefetchedBatch>,
    pub(crate) filled: SyncSender<PrefetchedBatch>,
    pub(crate) stopwatch: Stopwatch,
}

impl PrefetchThread {
    /// Runs until the run stops.
    pub(crate) fn run(mut self) -> Result<()> {
        while let Ok(mut batch) = self.empty.recv() {
            self.stopwatch.lap(Activity::WaitingForLearner);
            loop {
                if self.control.is_stopping() {
                    return Ok(());
                }
                match self.fill(&mut batch) {
                    Ok(true) => break,
                    Ok(false) | Err(TrainError::Replay(ReplayError::Timeout { .. })) => {}
                    Err(TrainError::Replay(ReplayError::Stopped)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if self.filled.send(batch).is_err() {
                return Ok(());
            }
            self.stopwatch.lap(Activity::WaitingForLearner);
        }
        Ok(())
    }

    /// Fills a batch, once replay holds enough sequences; returns whether it did.
    fn fill(&mut self, batch: &mut PrefetchedBatch) -> Result<bool> {
        let waited = self.replay.limiter.wait_to_sample(batch.arrays.sequences.len() as u64, POLL);
        self.stopwatch.lap(Activity::WaitingForInserts);
        waited?;
        let filled = self.prefetch.draw(batch, POLL);
        self.stopwatch.lap(Activity::Working);
        filled
    }
}
