//! Environments in Python worker processes: ALE and Gymnasium.
//!
//! A worker steps its environments in one or two groups. Requests and replies are 16-byte messages over a socket
//! (`message`, `channel`); actions, rewards and observations lie in shared memory (`shared_memory`, `layout`) and are
//! copied out, so that nothing here ever refers to memory that another process may write. `process` starts and ends the
//! Python process and what it has started (`process_group`), `worker` is the conversation with one, and `set` keeps the
//! environments going when a worker is lost. The Python side is the package `meme_worker`; `docs/environments.md`
//! describes what the two say to each other.

mod channel;
mod config;
#[cfg(test)]
mod fuzz;
mod hello;
mod layout;
mod message;
mod process;
mod set;
mod shared_memory;
mod worker;

pub use config::{AleOptions, Limits, WorkerConfig, check_ram};
pub use set::WorkerEnvironments;
