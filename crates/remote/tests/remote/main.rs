//! Actors and a learner that talk over loopback: training, saving, refusing, fuzzing.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

mod fuzz;
mod refusals;
mod support;
mod training;
