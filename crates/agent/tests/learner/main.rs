//! The learner and acting as a whole: switches, failures and saving.

#![allow(clippy::unwrap_used)]

mod acting;
mod failures;
mod fused;
mod networks;
mod pending_update;
mod saving;
#[expect(dead_code, reason = "tests/specification uses the rest")]
mod setup;
mod switches;
