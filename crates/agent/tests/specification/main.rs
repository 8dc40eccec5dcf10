//! The scalar equations of the agent as an independent specification of the loss that trains.
//!
//! Each equation is written again over slices, for one step or one sequence of one policy, and tested with literals
//! computed by hand or by `tests/golden/math_literals.py`. `loss.rs` compares the loss over tensors with them;
//! `properties.rs` tests them and the host-side statistics on random inputs.

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
