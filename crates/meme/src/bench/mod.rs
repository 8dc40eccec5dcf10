//! `meme bench`: the speed of each part, next to a plain baseline measured in the same run.

mod envs;
mod inference;
mod intrinsic;
mod learner;
mod measure;
mod replay;
mod system;
mod text;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use tch::Device;

use crate::config::ConfigArgs;
use crate::options;

/// Subcommands of `meme bench`.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Environment workers, compared with a plain ale-py loop
    Envs(envs::EnvsArgs),
    /// Network steps for many environments, alone or next to a running learner
    Inference(inference::InferenceArgs),
    /// Episodic memory: nearest-neighbour queries, compared with a linear scan
    Intrinsic(intrinsic::IntrinsicArgs),
    /// Learner updates, and where their time goes
    Learner(learner::LearnerArgs),
    /// Replay: memory per step, insertion and sampling, compared with an uncompressed ring buffer
    Replay(replay::ReplayArgs),
    /// Complete training, and where each role's time goes
    System(system::SystemArgs),
}

/// Runs a benchmark and prints its results.
pub fn run(command: BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Envs(args) => envs::run(&args),
        BenchCommand::Inference(args) => inference::run(&args),
        BenchCommand::Intrinsic(args) => intrinsic::run(&args),
        BenchCommand::Learner(args) => learner::run(&args),
        BenchCommand::Replay(args) => replay::run(&args),
        BenchCommand::System(args) => system::run(&args),
    }
}

/// Arguments that choose networks to measure and a device.
#[derive(Args)]
struct NetworkArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Number of actions
    #[arg(long, default_value_t = 18, value_parser = options::count::<usize>())]
    actions: usize,
    /// Device to compute on
    #[arg(long, value_enum, default_value_t = BenchDevice::Cpu)]
    device: BenchDevice,
}

/// The device to compute on.
#[derive(Clone, Copy, ValueEnum)]
enum BenchDevice {
    Cpu,
    Cuda,
}

impl BenchDevice {
    /// Returns the libtorch device; fails if there is no GPU.
    fn libtorch(self) -> Result<Device> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda => {
                torch_ext::gpu().context("--device cuda needs a GPU (use --device cpu to measure without one)")
            }
        }
    }
}

/// Returns the largest GPU memory in tensors so far, or `None` on the CPU.
fn peak_gpu_bytes(device: Device) -> Result<Option<u64>> {
    Ok(if device.is_cuda() { Some(torch_ext::memory_statistics()?.peak_allocated) } else { None })
}
