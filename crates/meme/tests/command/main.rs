//! The program as a user runs it: its messages, its files, and how it handles faults.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

mod closed_output;
mod eval_and_record;
mod first_messages;
mod full_disk;
mod killed_runs;
mod log_format;
mod no_gpu;
mod openmp;
mod remote_actors;
mod run_lifecycle;
mod runs;
mod signals;
mod slurm;
mod sweep;
