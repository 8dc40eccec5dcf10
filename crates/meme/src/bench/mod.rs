//! `meme bench`: how fast each part is, beside a plain way of doing the same thing in the same run.

mod compute;
mod envs;
mod inference;
mod intrinsic;
mod learner;
mod measure;
mod replay;
mod system;

use anyhow::Result;
use clap::Subcommand;

/// The parts that can be measured.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Environment workers, beside a bare ale-py loop with the same preprocessing
    Envs(envs::EnvsArgs),
    /// One step of many environments through the networks, alone or beside a learner
    Inference(inference::InferenceArgs),
    /// Episodic memory: nearest neighbours, beside a plain scan
    Intrinsic(intrinsic::IntrinsicArgs),
    /// One update of the learner, and where its time goes
    Learner(learner::LearnerArgs),
    /// Replay: bytes a step, inserting and sampling, beside an uncompressed ring
    Replay(replay::ReplayArgs),
    /// All of training together, and where each role's time goes
    System(system::SystemArgs),
}

/// Measures one part and prints what was found.
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
