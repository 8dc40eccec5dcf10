//! What an agent computes: equations, networks, loss and learner step. No I/O and no threads.

pub mod acting;
pub mod batch;
pub mod config;
pub mod error;
pub mod handover;
pub mod learner;
pub mod loader;
pub mod loss;
pub mod math;
pub mod nets;
pub mod networks;
pub mod observation;
pub mod optimizer;
pub mod owned_batch;
pub mod random;
mod rescaling;
pub mod tensor_file;
pub mod weights;

pub use acting::{ActingNetwork, ActingOutput, ActingRow, RecurrentStates};
pub use batch::Batch;
pub use config::{AgentConfig, NetworkPreset};
pub use error::{AgentError, Result};
pub use learner::{Learner, StepReport};
pub use networks::{NetworkParameters, Networks};
pub use observation::{ObservationKind, ObservationSpec};
pub use owned_batch::OwnedBatch;
pub use tensor_file::TensorFile;
pub use torch_ext::gpu;
