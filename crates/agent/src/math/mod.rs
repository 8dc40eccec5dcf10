//! Every equation of the agent, one function each, over slices and small arrays.
//!
//! The doc-comment of a function holds its equation and the place in "Human-level Atari 200x faster" it comes from.
//! Nothing here knows of tensors, threads or files. Actors and the learner's host side run the bandit, the ladders, the
//! episodic memory and all statistics as they stand here; what is of a whole batch (traces, returns, trust region,
//! distillation, priorities) runs as tensors, in [`crate::loss`], and `tests/learner/specification.rs` holds that
//! against the functions here. Per-step quantities are `f32`, as the networks give them;
//! statistics that live for a whole run are `f64`.
//!
//! Sections of the paper are named by their titles; A1, A2, B1, B2 and D are the labels that its section "MEME:
//! Improving the data efficiency of Agent57" gives to its parts. Where the paper has a misprint, the equation is the
//! corrected one and the comment says so. The literal numbers of the tests are worked out by hand or by
//! `tests/golden/math_literals.py`, never by the code they test.

pub mod bandit;
pub mod distillation;
pub mod episodic_memory;
pub mod ladders;
pub mod mixture;
pub mod moments;
pub mod ngu;
pub mod policy;
pub mod priority;
pub mod rescaling;
pub mod returns;
pub mod rnd;
pub mod td_scale;
pub mod traces;
pub mod trust_region;
