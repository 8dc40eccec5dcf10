//! The agent against an independent PyTorch implementation: see `tests/golden/README.md` at the root of the repository.

mod fixtures;
mod forward;
mod learner_steps;
mod losses;
