//! The scalar equations of the agent as an independent specification of the loss that trains.
//!
//! Each equation stands here once more, over slices, one step or one sequence of one policy at a time, and is tested with
//! literal numbers worked out by hand or by `tests/golden/math_literals.py`. `loss.rs` holds the loss over tensors against
//! them; `properties.rs` tries them, and the host-side statistics, on random inputs.

#![allow(clippy::unwrap_used)]

mod distillation;
mod loss;
mod moments;
mod policy;
mod priority;
mod properties;
mod rescaling;
mod returns;
mod rnd;
#[path = "../learner/setup.rs"]
#[expect(dead_code, reason = "the tests of the learner use the rest")]
mod setup;
mod traces;
mod trust_region;
