//! What libtorch's Rust bindings lack: streams, CUDA graphs, custom kernels, and the fused operations of the learner.
//!
//! Streams, graphs and kernels need an NVIDIA GPU and libtorch's CUDA part, which is loaded when both are there;
//! [`available`] returns whether they are.
//! Each fused operation has a plain version in the `agent` crate, which runs on any device and serves as its reference
//! in tests. Uploads, signals and messages of fatal errors work everywhere. All unsafe code is here, except for the
//! shared memory of `envs`.

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
pub use fatal::install_terminate_handler;
pub use graph::Graph;
pub use memory::{
    MemoryStatistics, PinnedBytes, PinnedPart, give_back_free_memory, memory_statistics, release_unused_memory,
};
pub use stream::{Event, Priority, Stream};

/// Lets libtorch use TF32 for f32 matrix products and benchmark cuDNN's algorithms once per shape.
///
/// TF32 has 10-bit factors and f32 sums. Batches have the same few shapes throughout, so benchmarking pays.
pub fn prefer_speed() -> Result<()> {
    // SAFETY: no arguments.
    shim::check(unsafe { shim::tx_prefer_speed() })
}

/// Runs `work` without libtorch's warnings.
///
/// This is for those that repeat with every call and that no one can act on.
pub fn silently<T>(work: impl FnOnce() -> T) -> T {
    let silence = |silent: bool| {
        // SAFETY: takes only a number. Without CUDA there are no warnings to silence.
        let _ = shim::check(unsafe { shim::tx_silence(silent.into()) });
    };
    silence(true);
    let result = work();
    silence(false);
    result
}

/// Returns the GPU, or why there is no usable one.
pub fn gpu() -> Result<tch::Device> {
    shim::functions()?;
    if !tch::Cuda::is_available() {
        // A request for memory makes libtorch report why not.
        driver::adopt_context()?;
    }
    Ok(tch::Device::Cuda(0))
}

/// Returns whether the kernels of this crate serve a device: a GPU that they support.
pub fn serves(device: tch::Device) -> bool {
    device.is_cuda() && available()
}

/// Returns whether this machine has a GPU that the kernels support, and libtorch its CUDA part.
pub fn available() -> bool {
    shim::functions().is_ok()
        && tch::Cuda::is_available()
        && driver::driver().and_then(|d| d.compute_capability()).is_ok_and(|found| found >= module::MIN_CAPABILITY)
}
