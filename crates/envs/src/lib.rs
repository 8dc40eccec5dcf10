//! What an agent acts in: worker processes that step ALE or Gymnasium environments, and built-in tasks.
//!
//! The actor code sees one small trait, [`Environments`], whichever of these is behind it, and no tensors.

mod env_id;
mod environments;
mod error;
pub mod games;
mod make;
mod saved;
pub mod seeds;
mod tasks;
mod workers;

pub use env_id::EnvId;
pub use environments::{Ending, EnvSpec, Environments, EpisodeEnd, ObservationKind, Step};
pub use error::EnvError;
pub use make::{make, make_all};
pub use tasks::TaskError;
pub use workers::{AleOptions, Limits, WorkerConfig, WorkerEnvironments, check_ram};
