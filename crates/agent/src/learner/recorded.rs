//! Losses and gradients of action prediction and RND as one recorded graph: hundreds of small kernels, which a processor
//! takes longer to give out than a GPU to compute.

use torch_ext::Graph;

use super::intrinsic::{IntrinsicInput, IntrinsicLoss};
use crate::error::Result;

/// After how many updates of one size the next one is recorded: what libtorch and cuDNN set up once is there by then.
const WARM_UP: usize = 3;

/// Work on inputs of one size, recorded when it has been done a few times.
#[derive(Debug, Default)]
pub struct RecordedIntrinsic {
    /// Of the inputs that came last, and how many of them.
    size: [i64; 2],
    seen: usize,
    recording: Option<Recording>,
}

#[derive(Debug)]
struct Recording {
    graph: Graph,
    /// Where the graph reads,
    input: IntrinsicInput,
    /// and what it writes, besides the gradients.
    loss: IntrinsicLoss,
}

impl RecordedIntrinsic {
    /// Does the work, on the current stream, which is always the same and not the default one. It reads and writes the
    /// same memory each time, its input aside. What it returns holds until the next time.
    pub fn run(
        &mut self,
        input: IntrinsicInput,
        work: impl FnOnce(&IntrinsicInput) -> Result<IntrinsicLoss>,
    ) -> Result<IntrinsicLoss> {
        if self.size != input.size() {
            *self = Self { size: input.size(), ..Self::default() };
        }
        if self.seen < WARM_UP {
            self.seen += 1;
            return work(&input);
        }
        let Recording { graph, input: place, loss } = match &mut self.recording {
            Some(recording) => recording,
            empty => {
                let place = input.room()?;
                let (graph, loss) = Graph::record(|| work(&place))?;
                empty.insert(Recording { graph, input: place, loss })
            }
        };
        place.take_over(&input)?;
        graph.replay()?;
        Ok(loss.shallow_clone())
    }
}
