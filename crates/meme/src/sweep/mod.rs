//! `meme sweep`: many runs, on this machine or on a cluster.

mod args;
mod axes;
mod estimate;
mod local;
pub mod manifest;
mod progress;
pub mod ray;
mod slurm;
mod status;
mod summary;
mod task;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use train::run::stop::Stop;

use self::args::{Backend, StartArgs, SweepCommand, SweepRunArgs};
use self::estimate::SweepEstimate;
use self::manifest::{Manifest, SweepDirectory, SweepRun};
use self::progress::{RunProgress, SweepState};
use self::slurm::SlurmArray;
use self::summary::SweepSummary;
use self::task::Outcome;
use crate::{console, output};

pub use self::args::SweepArgs;

/// Exit status of `meme sweep run` after a stop signal: the run is saved, and another attempt continues it.
/// `python/meme_cluster/sweep.py` has the same number.
const STATUS_RESUMABLE: u8 = 75;

/// A sweep with the runs that are left to train.
struct PlannedSweep<'a> {
    name: &'a str,
    directory: &'a SweepDirectory,
    manifest: &'a Manifest,
    left: Vec<&'a SweepRun>,
    /// How often to try a run again after a failure.
    retries: u32,
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
    let directory = SweepDirectory::named(&args.runs.path, &args.name)?;
    let manifest = task::check_shared(&directory, &args.id)?;
    let run = manifest.find(&args.run)?;
    match task::attempt(&directory, &manifest, run, None, &stop)? {
        Outcome::Finished => Ok(ExitCode::SUCCESS),
        Outcome::Interrupted => Ok(ExitCode::from(STATUS_RESUMABLE)),
        Outcome::Failed(reason) => bail!("{}: {reason}", run.name),
    }
}

fn start(args: &StartArgs) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let name = args.name.as_deref().context("a sweep needs a name")?;
    let directory = SweepDirectory::named(&args.runs.path, name)?;
    let manifest = args.manifest(name, &directory)?;
    let devices = local::job_devices(args.jobs);
    let progress = RunProgress::of_all(&directory, &manifest)?;
    let is_left = |progress: &&RunProgress| ![SweepState::Finished, SweepState::Queued].contains(&progress.state);
    let left: Vec<&SweepRun> =
        manifest.runs.iter().zip(&progress).filter(|(_, progress)| is_left(progress)).map(|(run, _)| run).collect();
    let finished = manifest.runs.len() - left.len();
    let already = if finished > 0 { format!(", {finished} of them finished") } else { String::new() };
    let estimate = SweepEstimate::of(&manifest, &left, &args.runs.path)?.text();
    let count = manifest.runs.len();
    console::message(format_args!("sweep {name}: {}{already}; {estimate}", output::count_of(count, "run")));
    let sweep = PlannedSweep { name, directory: &directory, manifest: &manifest, left, retries: args.retries };
    let left = &sweep.left;
    let array = SlurmArray { sweep: &sweep, options: &args.slurm, jobs: args.jobs };
    if args.dry_run && args.on == Backend::Slurm && !left.is_empty() {
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
        Backend::Local => local::train(&sweep, &devices, &stop)?.report(name, finished, count),
        Backend::Slurm if left.is_empty() => Ok(ExitCode::SUCCESS),
        Backend::Slurm => {
            let job = array.submit()?;
            let status = format!("`meme sweep status {name}` shows how far they are");
            console::message(format_args!("submitted {} as job {job}; {status}", output::count_of(left.len(), "run")));
            Ok(ExitCode::SUCCESS)
        }
        Backend::Ray => {
            if !left.is_empty() {
                let status = ray::train(&args.ray, &sweep, &stop)?;
                if !status.success() && !stop.is_requested() {
                    console::warn(format_args!("the Ray driver ended with {status}"));
                }
            }
            SweepSummary::of(&directory, &manifest)?.report(name, 0, count)
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn meme_cluster_knows_the_exit_status() {
        let line = format!("\nINTERRUPTED = {}\n", super::STATUS_RESUMABLE);
        assert!(include_str!("../../../../python/meme_cluster/sweep.py").contains(&line));
    }
}
