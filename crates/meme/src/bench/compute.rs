//! Where a measurement computes.

use anyhow::{Result, bail};
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
            Self::Cuda if tch::Cuda::is_available() => Ok(Device::Cuda(0)),
            Self::Cuda => bail!("libtorch sees no CUDA device here; `meme doctor` says what is missing"),
        }
    }
}
