//! The intrinsic reward of Never Give Up: episodic novelty times life-long novelty.

mod episodic_memory;
mod episodic_novelty;
mod lifelong_novelty;

pub use episodic_memory::{EpisodicMemory, EpisodicMemoryError, nearest_by_scan};
pub use episodic_novelty::{DistanceMean, EpisodicNovelty, Kernel, ngu_reward};
pub use lifelong_novelty::multiplier_of_error;
