//! The program as a user starts it: what it says, what it leaves behind, and how it takes what happens to it.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod closed_output;
mod eval_and_record;
mod first_words;
mod full_disk;
mod killed_runs;
mod life_of_a_run;
mod no_gpu;
mod runs;
mod short_waits;
mod signals;
