//! Environments in Python worker processes: ALE and Gymnasium.
//!
//! A worker steps its environments in one or two groups. Requests and replies are 16-byte messages over a socket
//! (`message`, `channel`). Actions, rewards and observations lie in shared memory (`shared_memory`, `layout`) and are
//! copied out, so that nothing refers to memory that another process may write. `process` starts and ends the Python
//! process, `worker` exchanges messages with it, and `worker_environments` replaces a worker that is lost. The Python
//! side is the package `meme_worker`; docs/environments.md describes the protocol.

mod channel;
mod config;
#[cfg(test)]
mod fuzz_tests;
mod hello;
mod layout;
mod message;
mod process;
mod shared_memory;
mod worker;
mod worker_environments;

pub use config::{AleOptions, Limits, WorkerConfig, check_ram};
pub use worker_environments::{MAX_REWARD, WorkerEnvironments};
