//! What a checkpoint holds: everything, so that a run goes on as if it had never stopped.

use std::io::Write;

use agent::TensorFile;
use replay::{ReplayConfig, Restored, Snapshot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};
use crate::roles::actor::SavedActor;
use crate::roles::bandit::BanditState;
use crate::roles::inference::SavedStates;
use crate::roles::learner_loop::LearnerLoop;
use crate::roles::training_agent::TrainedDistances;
use crate::run::RunFiles;
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointWriter, Checkpoints};
use crate::runtime::metrics_accumulator::MetricsAccumulator;
use crate::runtime::status::RunStatus;

const LEARNER: &str = "learner";
const EMBEDDING: &str = "embedding";
const ACTING: &str = "acting";
/// What is remembered, by far the largest part.
pub(crate) const REPLAY: &str = "replay";
const PLAY: &str = "play";
const METRICS: &str = "metrics";
/// How the run stood when it ended, in the checkpoint of its end only.
const END: &str = "end";

/// A copy of everything that continues, taken while all parts are at rest; writing it need not hold them up.
pub struct Copied {
    frames: u64,
    learner: TensorFile,
    embedding: TensorFile,
    replay: Snapshot,
    play: Play,
    acting: Option<TensorFile>,
    end: Option<RunStatus>,
}

/// All that is neither learner nor replay.
#[derive(Serialize, Deserialize)]
pub struct Play {
    /// Every environment's recurrent state.
    pub states: SavedStates,
    /// The bandit.
    pub bandit: BanditState,
    /// The usual distances.
    pub distances: TrainedDistances,
    /// The actors.
    pub actors: Vec<SavedActor>,
    /// The evaluators.
    pub evaluators: Vec<SavedActor>,
}

impl Copied {
    /// A copy of these parts, all of the same moment.
    pub fn new(frames: u64, learner_loop: &LearnerLoop, replay: Snapshot, play: Play) -> Result<Self> {
        let (learner, embedding) = (learner_loop.learner().save()?, learner_loop.save_embedding()?);
        Ok(Self { frames, learner, embedding, replay, play, acting: None, end: None })
    }

    /// With the parameters that decide, which may be older than the learner's. Without them a run that goes on acts on
    /// the learner's own, beside the f that was held: as good, but not the same bit for bit, and at full size hundreds
    /// of megabytes less.
    pub fn acting_on(self, published: TensorFile) -> Self {
        Self { acting: Some(published), ..self }
    }

    /// As the end of a run that stands so. A run at rest has no speed.
    pub fn ending(self, status: &RunStatus) -> Self {
        let end = RunStatus { frames_per_second: 0.0, updates_per_second: 0.0, ..status.clone() };
        Self { end: Some(end), ..self }
    }

    /// Emulator frames that the actors had played.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes the copy as the parts of a checkpoint, beside the metrics of the same moment.
    pub fn write(
        &self,
        metrics: &MetricsAccumulator,
        checkpoint: &mut CheckpointWriter,
    ) -> Result<(), CheckpointError> {
        let Self { learner, embedding, replay, play, acting, end, .. } = self;
        checkpoint.part(METRICS, |out| postcard::to_io(metrics, out).map(drop))?;
        checkpoint.part(LEARNER, |mut out: &mut dyn Write| learner.write_to(&mut out))?;
        checkpoint.part(EMBEDDING, |mut out: &mut dyn Write| embedding.write_to(&mut out))?;
        if let Some(acting) = acting {
            checkpoint.part(ACTING, |mut out: &mut dyn Write| acting.write_to(&mut out))?;
        }
        if let Some(end) = end {
            checkpoint.part(END, |out| serde_json::to_writer(out, end))?;
        }
        checkpoint.part(PLAY, |out| postcard::to_io(play, out).map(drop))?;
        checkpoint.part(REPLAY, |mut out: &mut dyn Write| replay.write_to(&mut out))
    }
}

/// The learner of a checkpoint.
pub fn learner(checkpoint: &Checkpoint) -> Result<TensorFile> {
    Ok(TensorFile::read_from(&mut checkpoint.part(LEARNER)?)?)
}

/// The f that was acted with.
pub fn embedding(checkpoint: &Checkpoint) -> Result<TensorFile> {
    Ok(TensorFile::read_from(&mut checkpoint.part(EMBEDDING)?)?)
}

/// The parameters that decided, where they were kept.
pub fn acting(checkpoint: &Checkpoint) -> Result<Option<TensorFile>> {
    if checkpoint.part_names().all(|name| name != ACTING) {
        return Ok(None);
    }
    Ok(Some(TensorFile::read_from(&mut checkpoint.part(ACTING)?)?))
}

/// How the run stood, if the checkpoint is that of its end.
pub fn end(checkpoint: &Checkpoint) -> Result<Option<RunStatus>> {
    if checkpoint.part_names().all(|name| name != END) {
        return Ok(None);
    }
    let end = serde_json::from_slice(&checkpoint.part_bytes(END)?);
    end.map(Some).map_err(|error| TrainError::Part { part: END, reason: error.to_string() })
}

/// Whether a run that nobody trains was brought to its end, finished or stopped, `played` being the frames of its last
/// row: its newest checkpoint is that of an end, and nothing was played after it. One that was killed or failed has
/// newer rows, or a checkpoint from the midst of training, or none. A checkpoint that can't be read is no end.
pub fn end_is_saved(run: &RunFiles, played: u64) -> Result<bool> {
    let checkpoints = Checkpoints::in_folder(&run.checkpoints_folder());
    let newest = checkpoints.list()?.pop();
    Ok(newest.is_some_and(|frames| frames >= played && checkpoints.has_part(frames, END).unwrap_or(false)))
}

/// All that is neither learner nor replay.
pub fn play(checkpoint: &Checkpoint) -> Result<Play> {
    decode(checkpoint, PLAY)
}

/// Replay and its writers, in the order of the actors' environments; it must fit `config`.
pub fn replay(checkpoint: &Checkpoint, config: &ReplayConfig) -> Result<Restored> {
    let restored = Snapshot::restore_from(checkpoint.part(REPLAY)?, config);
    restored.map_err(|error| TrainError::Part { part: REPLAY, reason: error.to_string() })
}

/// The metrics accumulator.
pub fn metrics(checkpoint: &Checkpoint) -> Result<MetricsAccumulator> {
    decode(checkpoint, METRICS)
}

/// A part that `postcard` wrote.
pub(crate) fn decode<T: DeserializeOwned>(checkpoint: &Checkpoint, part: &'static str) -> Result<T> {
    let bytes = checkpoint.part_bytes(part)?;
    let broken = |reason: &str| TrainError::Part { part, reason: reason.to_owned() };
    // Its hash is right, so that these are the bytes that were written.
    postcard::from_bytes(&bytes).map_err(|error| match error {
        // A value's own type refused it, and postcard does not pass on why. An episodic memory does that without room.
        postcard::Error::SerdeDeCustom => {
            broken("there is not enough memory for it, or another version of meme wrote it in another form")
        }
        _ => broken("another version of meme wrote it in another form"),
    })
}

#[cfg(test)]
mod tests {
    use agent::intrinsic::EpisodicMemory;

    use super::*;
    use crate::run::checkpoint::CheckpointStore;
    use crate::run::scratch::Scratch;

    #[test]
    fn too_little_memory_is_not_told_as_another_form() {
        let scratch = Scratch::new();
        let store = CheckpointStore::open(scratch.path(), 1).unwrap();
        let refused = |bytes: &[u8]| {
            store.save(1, &mut |_| {}, |checkpoint| checkpoint.part_bytes(PLAY, bytes)).unwrap();
            decode::<EpisodicMemory>(&store.checkpoints().at(1).unwrap(), PLAY).unwrap_err().to_string()
        };
        let memory = postcard::to_stdvec(&EpisodicMemory::new(16, 2).unwrap()).unwrap();
        // Entries that no machine has room for, of two dimensions, none of them filled.
        let large = postcard::to_stdvec(&(1_usize << 58, 2_usize, Vec::<f32>::new())).unwrap();
        let form = "another version of meme wrote it in another form";
        let begins = "the checkpoint's part `play` can't be used:";
        assert_eq!(refused(&large), format!("{begins} there is not enough memory for it, or {form}"));
        assert_eq!(refused(&memory[..memory.len() - 1]), format!("{begins} {form}"));
    }
}
