//! Updates of small batches as CUDA graphs: a thousand small kernels, which take the host longer to launch than the GPU
//! to compute.
//!
//! There are two graphs, one before and one after the report of the previous update is read. Optimizers are not part of
//! them: how far they step depends on a count that the host keeps.

use tch::Tensor;
use torch_ext::Graph;

use super::Learner;
use super::report::StepReport;
use super::update::{PendingUpdate, UpdateResults};
use crate::Random;
use crate::batch::BatchTensors;
use crate::error::Result;
use crate::loss::running_sigmas;
use crate::nets::agent_net::DepthMask;

/// Updates of one size before its graphs are captured: libtorch and cuDNN have set themselves up by then.
const WARM_UP: usize = 3;

/// Maximum number of frames of a captured batch. Larger ones keep a GPU busy for longer than the host needs to
/// launch them, and a graph has memory of its own.
const MAX_FRAMES: i64 = 3072;

/// The graphs for batches of one size, once there have been a few of them.
#[derive(Debug, Default)]
pub(super) struct UpdateGraphs {
    /// Sequences and observations of the last batches, and how many there were.
    size: (i64, i64),
    seen: usize,
    /// Absent while an update replays them.
    pub captured: Option<CapturedUpdate>,
}

/// The graphs of an update with the memory that they read and write.
#[derive(Debug)]
pub(super) struct CapturedUpdate {
    passes: Graph,
    gradients: Graph,
    batch: BatchTensors,
    mask: Option<DepthMask>,
    /// max(σ_running, ε) of each value head.
    scales: Vec<Tensor>,
    results: UpdateResults,
}

impl Learner {
    /// The graphs to replay for an update of this batch; `None` where it is not captured, or not yet.
    pub(super) fn captured_update(
        &mut self,
        batch: &BatchTensors,
        mask: Option<&DepthMask>,
    ) -> Result<Option<CapturedUpdate>> {
        let size = batch.valid.size2()?;
        if self.folded_intrinsic.is_none() || size.0 * size.1 > MAX_FRAMES {
            return Ok(None);
        }
        if self.graphs.size != size {
            self.graphs = UpdateGraphs { size, ..UpdateGraphs::default() };
        }
        if self.graphs.seen < WARM_UP {
            self.graphs.seen += 1;
            return Ok(None);
        }
        let captured = self.graphs.captured.take();
        captured.map_or_else(|| self.capture(batch, mask), |captured| Ok(Some(captured)))
    }

    fn capture(&mut self, batch: &BatchTensors, mask: Option<&DepthMask>) -> Result<Option<CapturedUpdate>> {
        let Some(streams) = self.streams.clone() else { return Ok(None) };
        let mask = mask.map(DepthMask::empty_like).transpose()?;
        let (batch, scales) = (batch.empty_like()?, self.running_sigmas()?);
        // Derived when the target network changes, not at every update: not to be captured.
        self.target.weights(&self.networks.agent)?;
        // Memory of earlier updates is not used any more.
        torch_ext::release_unused_memory()?;
        streams.capture.scope(|| {
            let mut ignore = |_| ();
            let (passes, outputs) = Graph::capture(|| self.forward_passes(&batch, mask.as_ref(), &mut ignore))?;
            let (gradients, results) =
                Graph::capture(|| self.compute_gradients(outputs, &batch, &scales, &mut ignore))?;
            Ok(Some(CapturedUpdate { passes, gradients, batch, mask, scales, results }))
        })?
    }

    /// Does what [`begin_update`](Self::begin_update) does by replaying graphs.
    pub(super) fn replay(
        &mut self,
        captured: &mut CapturedUpdate,
        batch: &BatchTensors,
        mask: Option<&DepthMask>,
        random: Random,
    ) -> Result<(Option<StepReport>, PendingUpdate)> {
        self.target.weights(&self.networks.agent)?;
        captured.batch.copy_from(batch)?;
        if let (Some(own), Some(mask)) = (&mut captured.mask, mask) {
            own.copy_from(mask)?;
        }
        captured.passes.replay()?;
        let previous = self.finish()?;
        for (own, scale) in captured.scales.iter_mut().zip(&self.td_scales) {
            own.f_copy_(&running_sigmas(scale, self.device)?)?;
        }
        captured.gradients.replay()?;
        Ok((previous, self.apply(&captured.results, batch, random)?))
    }
}
