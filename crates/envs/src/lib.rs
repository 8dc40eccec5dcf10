//! Environments: worker processes that step ALE or Gymnasium, and built-in tasks.
//!
//! Actors see all of them through one small trait, [`Environments`]. The crate knows no tensors.

mod env_id;
mod environments;
mod error;
pub mod games;
mod make;
mod saved;
pub mod seeds;
mod shrunk;
mod tasks;
mod view;
mod workers;

pub use env_id::EnvId;
pub use environments::{
    Ending, EnvSpec, Environments, EpisodeEnd, ObservationKind, ObservationPart, RenderedPicture, Step,
};
pub use error::{EnvError, NameHint, WorkerEnd};
pub use make::{make, make_all};
pub use tasks::{TaskError, names as task_names};
pub use view::View;
pub use workers::{AleOptions, Limits, MAX_REWARD, WorkerConfig, WorkerEnvironments, check_ram};
