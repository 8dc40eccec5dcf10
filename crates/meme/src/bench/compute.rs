//! Where a measurement computes.

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use tch::Device;

/// The processor, or the GPU.
#[derive(Clone, Copy, ValueEnum)]
pub enum ComputeDevice {
    Cpu,
    Cuda,
}

impl ComputeDevice {
    /// As libtorch names it, if it is there.
    pub fn libtorch(self) -> Result<Device> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda => torch_ext::gpu().map_err(|error| anyhow!("{error}; `--device cpu` measures without one")),
        }
    }
}
