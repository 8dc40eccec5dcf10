//! The MEME agent: networks, loss, learner step, acting, intrinsic reward and bandit. No threads, and no files but tensors.

pub mod acting;
pub mod bandit;
pub mod batch;
pub mod config;
pub mod error;
pub mod handover;
pub mod intrinsic;
pub mod learner;
pub mod loader;
pub mod loss;
pub mod moments;
pub mod nets;
pub mod networks;
pub mod observation;
pub mod optimizer;
pub mod policy_family;
pub mod random_batch;
pub mod rescaling;
pub mod sliding_window;
mod streams;
pub mod tensor_file;
pub mod weights;

pub use acting::{ActingNetwork, ActingOutput, ActingRow, RecurrentStates};
pub use config::AgentConfig;
pub use error::{AgentError, Result};
pub use learner::{Learner, LearnerState, StepReport};
pub use networks::{NetworkParameters, Networks};
pub use observation::{ObservationKind, ObservationPart, ObservationSpec};
/// The agent's random generator, repeatable from a seed and saved with the learner.
pub use rand_xoshiro::Xoshiro256PlusPlus as Random;
pub use random_batch::random_batch;
pub use replay::SequenceBatch;
pub use tensor_file::NamedTensors;
pub use torch_ext::gpu;
