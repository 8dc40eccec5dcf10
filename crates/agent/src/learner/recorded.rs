//! Updates of small batches as recorded graphs: a thousand small kernels, which a processor takes longer to give out than
//! a GPU to compute.
//!
//! There are two, one before and one after the report of the update before is read. Optimizers are not in them: how far
//! they step depends on a count of the host's.

use tch::Tensor;
use torch_ext::Graph;

use super::Learner;
use super::report::StepReport;
use super::update::{Found, UnderWay};
use crate::batch::BatchTensors;
use crate::error::Result;
use crate::loss::least_scales;
use crate::nets::agent_net::Keep;
use crate::random::Random;

/// After how many updates of one size the next one is recorded: what libtorch and cuDNN set up once is there by then.
const WARM_UP: usize = 3;

/// Frames of the largest batches that are recorded. Larger ones keep a GPU busy for longer than a processor needs, and
/// what is recorded has memory of its own.
const MOST_FRAMES: i64 = 3072;

/// The recorded update of one size of batches, when there have been a few of them.
#[derive(Debug, Default)]
pub(super) struct RecordedUpdate {
    /// Sequences and observations of the batches that came last, and how many came.
    size: (i64, i64),
    seen: usize,
    recording: Option<Recording>,
}

#[derive(Debug)]
pub(super) struct Recording {
    passes: Graph,
    gradients: Graph,
    /// What they read,
    input: Input,
    /// and what the second one writes, besides the gradients.
    found: Found,
}

#[derive(Debug)]
struct Input {
    batch: BatchTensors,
    keep: Option<Keep>,
    /// The least σ_j of each value head.
    scales: Vec<Tensor>,
}

impl RecordedUpdate {
    /// After [`recording`](Learner::recording).
    pub fn put_back(&mut self, recording: Recording) {
        self.recording = Some(recording);
    }
}

impl Learner {
    /// What to replay for an update of this batch; nothing where the update is not, or not yet, to be recorded.
    pub(super) fn recording(&mut self, batch: &BatchTensors, keep: Option<&Keep>) -> Result<Option<Recording>> {
        let size = batch.valid.size2()?;
        if self.intrinsic_forms.is_none() || size.0 * size.1 > MOST_FRAMES {
            return Ok(None);
        }
        if self.recorded.size != size {
            self.recorded = RecordedUpdate { size, ..RecordedUpdate::default() };
        }
        if self.recorded.seen < WARM_UP {
            self.recorded.seen += 1;
            return Ok(None);
        }
        let recording = self.recorded.recording.take();
        recording.map_or_else(|| self.record(batch, keep), |recording| Ok(Some(recording)))
    }

    fn record(&mut self, batch: &BatchTensors, keep: Option<&Keep>) -> Result<Option<Recording>> {
        let Some(streams) = self.streams.clone() else { return Ok(None) };
        let keep = keep.map(Keep::room).transpose()?;
        let input = Input { batch: batch.room()?, keep, scales: self.least_scales()? };
        // Derived now and then, not at every update: that is not to be recorded.
        self.target.weights(&self.networks.agent)?;
        // Those of the updates before are not used any more.
        torch_ext::release_unused_memory()?;
        streams.recording.scope(|| {
            let mut nobody = |_| ();
            let (passes, said) = Graph::record(|| self.passes(&input.batch, input.keep.as_ref(), &mut nobody))?;
            let (gradients, found) =
                Graph::record(|| self.find_gradients(said, &input.batch, &input.scales, &mut nobody))?;
            Ok(Some(Recording { passes, gradients, input, found }))
        })?
    }

    /// Begins an update as [`begin`](Self::begin) does.
    pub(super) fn replay(
        &mut self,
        recording: &mut Recording,
        batch: &BatchTensors,
        keep: Option<&Keep>,
        random: Random,
    ) -> Result<Option<StepReport>> {
        let Recording { passes, gradients, input, found } = recording;
        self.target.weights(&self.networks.agent)?;
        input.batch.take_over(batch)?;
        if let (Some(place), Some(keep)) = (&mut input.keep, keep) {
            place.take_over(keep)?;
        }
        passes.replay()?;
        let before = self.finish()?;
        for (place, scale) in input.scales.iter_mut().zip(&self.td_scales) {
            place.f_copy_(&least_scales(scale, self.device)?)?;
        }
        gradients.replay()?;
        let report = self.apply(found, batch)?;
        self.under_way = Some(UnderWay { report, random });
        Ok(before)
    }
}
