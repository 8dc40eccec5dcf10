//! What an agent computes: equations, networks, loss and learner step. No I/O and no threads.

pub mod math;
