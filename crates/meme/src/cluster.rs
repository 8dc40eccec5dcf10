//! `meme cluster`: one run on several machines of a Ray cluster.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use train::run::stop::Stop;

use crate::sweep::ray::{self, RayArgs};

/// Subcommands of `meme cluster`.
#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Train with actors on other nodes of a Ray cluster; the options of `meme train` follow
    Train(ClusterTrainArgs),
}

/// Arguments of `meme cluster train`.
#[derive(Args)]
pub struct ClusterTrainArgs {
    /// Nodes with actors, and environments on each of them
    #[arg(long, value_name = "NODESxENVS")]
    actors: String,
    #[command(flatten)]
    ray: RayArgs,
    /// The game, task or gym:ENV_ID, and any options of `meme train`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "GAME ...")]
    train: Vec<String>,
}

/// Runs a subcommand and passes on the learner's exit status.
pub fn run(command: &ClusterCommand) -> Result<ExitCode> {
    let ClusterCommand::Train(args) = command;
    let stop = Stop::on_signals()?;
    let mut driver = args.ray.driver("train")?;
    driver.args(["--actors", &args.actors, "--"]).args(&args.train);
    let status = ray::run(driver, &stop)?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
