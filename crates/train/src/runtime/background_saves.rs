//! The checkpoints that are written while training continues: the newest and the best.

use crate::error::Result;
use crate::roles::evaluation_rounds::{EvaluationReport, MeanScore};
use crate::run::RunDirectory;
use crate::run::checkpoint::contents::TrainingSnapshot;
use crate::run::checkpoint::{BackgroundSave, CheckpointError, CheckpointStore, SavedCheckpoint};
use crate::runtime::metrics_accumulator::MetricsAccumulator;
use crate::runtime::trainer::ProgressDisplay;

/// Checkpoints being saved in the background, at most one of each kind.
pub(super) struct BackgroundSaves<'a> {
    directory: &'a RunDirectory,
    pub(super) store: CheckpointStore,
    newest: Option<BackgroundSave>,
    best: Option<BackgroundSave<Option<SavedCheckpoint>>>,
}

impl<'a> BackgroundSaves<'a> {
    /// Opens the checkpoints of a run, of which the newest `keep` stay.
    pub(super) fn open(directory: &'a RunDirectory, keep: usize) -> Result<Self> {
        let store = CheckpointStore::open(&directory.files.checkpoints_directory(), keep)?;
        Ok(Self { directory, store, newest: None, best: None })
    }

    /// Returns whether a checkpoint is being saved; the best does not count.
    pub(super) fn is_saving(&self) -> bool {
        self.newest.is_some()
    }

    /// Returns whether a checkpoint is being saved and [`finish`](Self::finish) would wait for it.
    pub(super) fn is_writing(&self) -> bool {
        self.newest.as_ref().is_some_and(|saving| !saving.is_finished())
    }

    /// Bytes written of the checkpoint that is being saved.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.newest.as_ref().map(BackgroundSave::bytes)
    }

    /// Begins to write a snapshot, with the metrics of the same moment.
    pub(super) fn begin(&mut self, snapshot: TrainingSnapshot, metrics: MetricsAccumulator) -> Result<()> {
        let frames = snapshot.frames;
        let saving = self.store.save_in_background(frames, move |checkpoint| snapshot.write(&metrics, checkpoint))?;
        self.newest = Some(saving);
        Ok(())
    }

    /// Waits for the checkpoint that is being saved, if there is one.
    pub(super) fn finish(&mut self) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        self.newest.take().map(BackgroundSave::finish).transpose()
    }

    /// Begins to save the agent that was evaluated, if it is the best so far.
    pub(super) fn begin_best(&mut self, evaluated: EvaluationReport) -> Result<()> {
        let EvaluationReport { scores, frames, agent, .. } = evaluated;
        let score = MeanScore::of(&scores).lower_bound();
        if self.store.would_be_best(score)? {
            let save = self.store.save_best_in_background(frames, score, move |checkpoint| agent.write(checkpoint));
            self.best = Some(save?);
        }
        Ok(())
    }

    /// Concludes the save of the best if it has finished, or with `wait` once it has.
    pub(super) fn finish_best(&mut self, wait: bool) -> Result<()> {
        if let Some(saving) = self.best.take_if(|saving| wait || saving.is_finished()) {
            saving.finish()?;
        }
        Ok(())
    }

    /// Shows what a save removed and could not remove, and records that the run has a checkpoint.
    pub(super) fn report(&self, saved: &SavedCheckpoint, display: &mut dyn ProgressDisplay) {
        saved.not_removed.iter().for_each(|error| display.warn(&error.to_string()));
        for path in &saved.made_room {
            let (removed, saved) = (path.display(), saved.path.display());
            display.warn(&format!("the disk is full: removed {removed} to make room for {saved}"));
        }
        self.note_saved(display);
    }

    /// Records that the run has a checkpoint. A failure is reported, and the next save tries again.
    pub(super) fn note_saved(&self, display: &mut dyn ProgressDisplay) {
        if let Err(error) = self.directory.note_saved() {
            display.warn(&format!("cannot record that the run has a checkpoint: {error}"));
        }
    }
}
