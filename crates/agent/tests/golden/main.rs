//! The agent against an independent PyTorch implementation: see `tests/golden/README.md` at the root of the repository.

#![allow(clippy::unwrap_used)]

mod agents;
mod fixtures;
mod forward;
mod learner_steps;
mod losses;
