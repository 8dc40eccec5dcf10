//! The device that the networks run on.

use crate::config::{Config, Device};
use crate::error::{Result, TrainError};

/// Returns the device of the networks. Lockstep repeats bit for bit on the CPU only.
pub fn device(config: &Config) -> Result<tch::Device> {
    match config.run.device {
        Device::Cpu => Ok(tch::Device::Cpu),
        Device::Auto if config.run.lockstep => Ok(tch::Device::Cpu),
        Device::Auto => Ok(agent::gpu().unwrap_or(tch::Device::Cpu)),
        Device::Cuda => agent::gpu().map_err(|error| TrainError::NoGpu { reason: error.to_string() }),
    }
}
