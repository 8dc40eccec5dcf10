//! What libtorch lacks through its Rust bindings: streams, CUDA graphs, kernels of our own, and the fused pieces of the
//! learner that are made of them.
//!
//! Streams, graphs and kernels need an NVIDIA GPU and the `cuda` feature; [`available`] says whether both are there. Each
//! fused piece has a plain version in the `agent` crate, which runs on any device and is what it is tested against.
//! Uploads, signals and what is said at a fatal error work anywhere. This is the one crate with unsafe code besides the
//! shared memory and the process groups of the environments.

mod autograd;
mod copy;
mod cudnn;
mod driver;
mod error;
mod fatal;
mod graph;
mod library;
mod memory;
mod module;
mod operand;
mod shim;
mod stream;

pub mod adamw;
pub mod lstm;
pub mod lstm_cell;
pub mod nf_torso;
pub mod relu_dgrad;
pub mod returns;
pub mod signals;
pub mod upload;

pub use copy::copy_all;
pub use error::{Error, Result};
pub use fatal::end_in_a_sentence;
pub use graph::Graph;
pub use memory::{
    MemoryStatistics, PinnedBytes, PinnedPart, give_back_free_memory, memory_statistics, release_unused_memory,
};
pub use stream::{Event, Priority, Stream};

/// Lets libtorch use tensor cores for f32 matrix products (factors of 10 bits, sums in f32), and try cuDNN's algorithms
/// once for each shape: batches have the same few shapes all along.
pub fn prefer_speed() -> Result<()> {
    // SAFETY: no arguments.
    shim::check(unsafe { shim::tx_prefer_speed() })
}

/// Runs something whose warnings by libtorch, told at every call, nobody can do anything about.
pub fn silently<T>(work: impl FnOnce() -> T) -> T {
    let silence = |silent: bool| {
        // SAFETY: a number. Without CUDA there is nothing that warns, and nothing to be silenced.
        let _ = shim::check(unsafe { shim::tx_silence(silent.into()) });
    };
    silence(true);
    let result = work();
    silence(false);
    result
}

/// The GPU, or why there is none to be used.
pub fn gpu() -> Result<tch::Device> {
    if cfg!(not(feature = "cuda")) {
        return Err(Error::NotBuilt);
    }
    if !tch::Cuda::is_available() {
        // Asked for memory there, libtorch says why not.
        driver::adopt_context()?;
    }
    Ok(tch::Device::Cuda(0))
}

/// Whether this build has CUDA and this machine a GPU that the kernels run on.
pub fn available() -> bool {
    cfg!(feature = "cuda")
        && tch::Cuda::is_available()
        && driver::driver().and_then(|d| d.compute_capability()).is_ok_and(|found| found >= module::LEAST_CAPABILITY)
}
