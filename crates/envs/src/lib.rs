//! What an agent acts in: worker processes that step ALE or Gymnasium environments, and built-in tasks.
//!
//! The actor code sees one small trait, [`Environments`], whichever of these is behind it, and no tensors.

mod environments;

pub use environments::{Ending, EnvError, EnvSpec, Environments, EpisodeEnd, ObservationKind, Step};
