//! Arguments of `meme sweep` and its subcommands.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};

use super::axes::{Games, SweepFile};
use super::manifest::{Manifest, SweepDirectory};
use super::ray::RayArgs;
use crate::run_args::RunsDir;
use crate::{console, options, output};

/// Arguments of `meme sweep`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    #[command(subcommand)]
    pub command: Option<SweepCommand>,
    #[command(flatten)]
    pub start: StartArgs,
}

/// Subcommands of `meme sweep`.
#[derive(Subcommand)]
pub enum SweepCommand {
    /// Show the runs of a sweep: state, frames, score, speed, time left and node
    Status(StatusArgs),
    /// Train one run of a sweep on this machine; the back ends call it
    Run(SweepRunArgs),
}

/// Arguments of `meme sweep NAME`.
#[derive(Args)]
pub struct StartArgs {
    /// Name of the sweep and of its directory under --runs; reusing a name resumes that sweep
    #[arg(required = true)]
    pub name: Option<String>,
    /// TOML file with the axes of the sweep, for example one of configs/sweeps
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// What to play: all (the 57 games), a list such as pong,boxing, or @FILE with one name per line
    #[arg(long, value_name = "GAMES")]
    pub games: Option<String>,
    /// Seeds of each game, such as 1-3 or 1,5,7
    #[arg(long)]
    pub seeds: Option<String>,
    /// Preset of the runs
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Set a field in every run, for example learner.batch_size=32; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// Emulator frames of each run
    #[arg(long, value_parser = options::field("run.frames"))]
    pub frames: Option<u64>,
    /// Where to train the runs
    #[arg(long, value_name = "BACKEND", default_value = "local")]
    pub on: Backend,
    /// An sbatch option without its dashes, such as partition=gpu or time=24:00:00; may be repeated
    #[arg(long, value_name = "OPTION")]
    pub slurm: Vec<String>,
    #[command(flatten)]
    pub ray: RayArgs,
    /// Runs to train at the same time [default: one per GPU, or one]
    #[arg(long, value_parser = options::count::<usize>())]
    pub jobs: Option<usize>,
    /// How often to try a run again after a failure
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub retries: u32,
    /// Print the runs, or the script for SLURM, and start nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub runs: RunsDir,
}

/// What places the runs.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Backend {
    /// This machine
    Local,
    /// A job array
    Slurm,
    /// A Ray cluster
    Ray,
}

/// Arguments of `meme sweep status`.
#[derive(Args)]
pub struct StatusArgs {
    /// Name of the sweep
    pub name: String,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub runs: RunsDir,
}

/// Arguments of `meme sweep run`.
#[derive(Args)]
pub struct SweepRunArgs {
    /// Name of the sweep
    pub name: String,
    /// The run: its name, or its number counted from 0
    pub run: String,
    /// Id of the sweep, to notice that this machine has another directory
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub runs: RunsDir,
}

impl StartArgs {
    /// The manifest of the sweep: new, as it was, or with more runs.
    pub fn manifest(&self, name: &str, directory: &SweepDirectory) -> Result<Manifest> {
        let known = directory.read()?;
        let describes = self.file.is_some() || self.games.is_some() || self.preset.is_some();
        if let Some(known) = &known
            && !describes
            && self.set.is_empty()
            && self.seeds.is_none()
            && self.frames.is_none()
        {
            return Ok(known.clone());
        }
        if known.is_none() && directory.run_exists() {
            bail!("{} is a run; choose another name for the sweep", directory.path().display());
        }
        let mut file = self.file.as_deref().map_or(Ok(SweepFile::default()), SweepFile::read)?;
        file.games = self.games.clone().map(Games::Text).or(file.games);
        file.seeds = self.seeds.clone().or(file.seeds);
        file.preset = self.preset.clone().or(file.preset);
        let mut set = self.set.clone();
        set.extend(self.frames.map(|frames| format!("run.frames={frames}")));
        let plan = file.plan(remote::random_hex::<8>().context("cannot draw a random id")?, &set)?;
        let Some(mut known) = known else { return Ok(plan) };
        let added = known
            .extend(plan)
            .map_err(|error| anyhow!("sweep {name} exists, and {error}; use its settings, or choose another name"))?;
        if added > 0 {
            console::message(format_args!("adding {} to sweep {name}", output::count_of(added, "run")));
        }
        Ok(known)
    }
}
