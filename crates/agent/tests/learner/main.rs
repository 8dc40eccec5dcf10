//! The learner and acting as a whole: switches, failures, saving, and the equations as their specification.

#![allow(clippy::unwrap_used)]

mod acting;
mod failures;
mod networks;
mod saving;
mod setup;
mod specification;
mod switches;
mod under_way;
