//! `meme sweep`: many runs, on this machine or on a cluster.

mod axes;
mod estimate;
mod local;
pub mod manifest;
mod progress;
pub mod ray;
mod slurm;
mod status;
mod task;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use train::run::stop::Stop;

use self::axes::{Games, SweepFile};
use self::estimate::SweepEstimate;
use self::manifest::{Manifest, SweepDirectory, SweepRun};
use self::progress::{RunProgress, SweepState};
use self::ray::RayArgs;
use self::slurm::SlurmArray;
use self::task::Outcome;
use crate::console::{self, ProgressLine};
use crate::options;
use crate::output;
use crate::run_args::RUNS;

/// Exit status of `meme sweep run` after a stop signal: the run is saved, and another attempt continues it.
/// `python/meme_cluster/sweep.py` has the same number.
const INTERRUPTED: u8 = 75;

/// Arguments of `meme sweep`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    #[command(flatten)]
    start: StartArgs,
}

/// Subcommands of `meme sweep`.
#[derive(Subcommand)]
enum SweepCommand {
    /// Show the runs of a sweep: state, frames, score, speed, time left and node
    Status(StatusArgs),
    /// Train one run of a sweep on this machine; the back ends call it
    Run(SweepRunArgs),
}

/// Arguments of `meme sweep NAME`.
#[derive(Args)]
struct StartArgs {
    /// Name of the sweep, and of its directory among the runs; the same name again resumes it
    #[arg(required = true)]
    name: Option<String>,
    /// TOML file with the axes of the sweep, for example one of configs/sweeps
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// What to play: all (the 57 games), a list such as pong,boxing, or @FILE with one name on each line
    #[arg(long, value_name = "GAMES")]
    games: Option<String>,
    /// Seeds of each game, such as 1-3 or 1,5,7
    #[arg(long)]
    seeds: Option<String>,
    /// Preset of the runs
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Set a field in every run, for example learner.batch_size=32; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Emulator frames of each run
    #[arg(long, value_parser = options::field("run.frames"))]
    frames: Option<u64>,
    /// Where to train the runs
    #[arg(long, value_name = "BACKEND", default_value = "local")]
    on: Backend,
    /// An option of sbatch without its dashes, for example partition=gpu or time=24:00:00; may be repeated
    #[arg(long, value_name = "OPTION")]
    slurm: Vec<String>,
    #[command(flatten)]
    ray: RayArgs,
    /// Runs to train at the same time [default: one per GPU, or one]
    #[arg(long, value_parser = options::count::<usize>())]
    jobs: Option<usize>,
    /// How often to try a run again after a failure
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
    /// Print the runs, or the script for SLURM, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Directory that contains the runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    runs: PathBuf,
}

/// What places the runs.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Backend {
    /// This machine
    Local,
    /// A job array
    Slurm,
    /// A Ray cluster
    Ray,
}

/// Arguments of `meme sweep status`.
#[derive(Args)]
struct StatusArgs {
    /// Name of the sweep
    name: String,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// Directory that contains the runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    runs: PathBuf,
}

/// Arguments of `meme sweep run`.
#[derive(Args)]
struct SweepRunArgs {
    /// Name of the sweep
    name: String,
    /// The run: its name, or its number counted from 0
    run: String,
    /// Id of the sweep, to notice that this machine has another directory
    #[arg(long)]
    id: String,
    /// Directory that contains the runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    runs: PathBuf,
}

/// Starts or resumes a sweep, or shows one.
pub fn run(args: &SweepArgs) -> Result<ExitCode> {
    match &args.command {
        Some(SweepCommand::Status(args)) => status::show(args).map(|()| ExitCode::SUCCESS),
        Some(SweepCommand::Run(args)) => run_one(args),
        None => start(&args.start),
    }
}

fn run_one(args: &SweepRunArgs) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let directory = SweepDirectory::named(&args.runs, &args.name)?;
    let manifest = task::check_shared(&directory, &args.id)?;
    let run = manifest.find(&args.run)?;
    match task::attempt(&directory, &manifest, run, None, &stop)? {
        Outcome::Finished => Ok(ExitCode::SUCCESS),
        Outcome::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
        Outcome::Failed(reason) => bail!("{}: {reason}", run.name),
    }
}

fn start(args: &StartArgs) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let name = args.name.as_deref().context("a sweep needs a name")?;
    let directory = SweepDirectory::named(&args.runs, name)?;
    let manifest = args.manifest(name, &directory)?;
    let places = local::places(args.jobs);
    let progress = RunProgress::of_all(&directory, &manifest)?;
    let is_left = |progress: &&RunProgress| ![SweepState::Finished, SweepState::Queued].contains(&progress.state);
    let left: Vec<&SweepRun> =
        manifest.runs.iter().zip(&progress).filter(|(_, progress)| is_left(progress)).map(|(run, _)| run).collect();
    let finished = manifest.runs.len() - left.len();
    let already = if finished > 0 { format!(", {finished} of them finished") } else { String::new() };
    let on_gpu = places.iter().any(Option::is_some);
    let estimate = SweepEstimate::of(&manifest, &left, &args.runs)?.text(on_gpu);
    let count = manifest.runs.len();
    console::message(format_args!("sweep {name}: {count} run{}{already}; {estimate}", output::plural(count)));
    let array = SlurmArray {
        name,
        directory: &directory,
        manifest: &manifest,
        left: &left,
        options: &args.slurm,
        jobs: args.jobs,
        retries: args.retries,
    };
    if args.dry_run && args.on == Backend::Slurm {
        output::print(&array.script()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        let list = |run: &&SweepRun| format!("{}\n", run.name);
        output::print(&left.iter().map(list).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    directory.write(&manifest)?;
    match args.on {
        Backend::Local => {
            let summary = local::train(&directory, &manifest, left, &places, args.retries, &stop)?;
            summary.report(name, finished, count)
        }
        Backend::Slurm if left.is_empty() => Ok(ExitCode::SUCCESS),
        Backend::Slurm => {
            let (job, runs) = (array.submit()?, left.len());
            let status = format!("`meme sweep status {name}` shows how far they are");
            console::message(format_args!("submitted {runs} run{} as job {job}; {status}", output::plural(runs)));
            Ok(ExitCode::SUCCESS)
        }
        Backend::Ray => {
            if !left.is_empty() {
                let status = ray::train(&args.ray, name, &directory, &manifest, &left, args.retries, &stop)?;
                if !status.success() && !stop.is_requested() {
                    console::warn(format_args!("the Ray driver ended with {status}"));
                }
            }
            Summary::of(&directory, &manifest)?.report(name, 0, count)
        }
    }
}

impl StartArgs {
    /// The manifest of the sweep: new, as it was, or with more runs.
    fn manifest(&self, name: &str, directory: &SweepDirectory) -> Result<Manifest> {
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
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| anyhow!("cannot draw a random id: {error}"))?;
        let id = format!("{:016x}", u64::from_le_bytes(id));
        let plan = file.plan(id, &set)?;
        let Some(mut known) = known else { return Ok(plan) };
        let added = known
            .extend(plan)
            .map_err(|error| anyhow!("sweep {name} exists, and {error}; use its settings, or choose another name"))?;
        if added > 0 {
            console::message(format_args!("adding {added} run{} to sweep {name}", output::plural(added)));
        }
        Ok(known)
    }
}

/// How the runs of a sweep ended.
#[derive(Debug, Default)]
struct Summary {
    finished: usize,
    interrupted: usize,
    failed: Vec<(String, String)>,
}

impl Summary {
    /// How the runs stand now.
    fn of(directory: &SweepDirectory, manifest: &Manifest) -> Result<Self> {
        let mut summary = Self::default();
        for run in RunProgress::of_all(directory, manifest)? {
            match run.state {
                SweepState::Finished => summary.finished += 1,
                SweepState::Failed => summary.failed.push((run.name, run.failure.unwrap_or_default())),
                _ => summary.interrupted += 1,
            }
        }
        Ok(summary)
    }

    /// Counts the end of an attempt and prints it.
    fn count(&mut self, run: &SweepRun, outcome: Outcome, again: bool, line: &mut ProgressLine) {
        let name = &run.name;
        match outcome {
            Outcome::Finished => {
                self.finished += 1;
                line.message(format_args!("{name} finished"));
            }
            Outcome::Interrupted => self.interrupted += 1,
            Outcome::Failed(reason) if again => line.warn(format_args!("{name} failed and is tried again: {reason}")),
            Outcome::Failed(reason) => {
                line.warn(format_args!("{name} failed: {reason}"));
                self.failed.push((name.clone(), reason));
            }
        }
    }

    fn report(&self, name: &str, finished_before: usize, count: usize) -> Result<ExitCode> {
        let finished = finished_before + self.finished;
        if let Some((run, reason)) = self.failed.first() {
            let (failed, others) = (self.failed.len(), "the same command tries them again");
            bail!("{failed} of {count} runs of sweep {name} failed, {run} because: {reason}; {others}");
        }
        if finished < count {
            console::message(format_args!("{finished} of {count} runs finished; run the same command to resume"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        console::message(format_args!("all {count} runs of sweep {name} finished"));
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn meme_cluster_knows_the_exit_status() {
        let line = format!("\nINTERRUPTED = {}\n", super::INTERRUPTED);
        assert!(include_str!("../../../../python/meme_cluster/sweep.py").contains(&line));
    }
}
