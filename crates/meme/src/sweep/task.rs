//! Trains one run of a sweep in a process of its own. Every back end ends up here, on the machine that trains.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use train::run::stop::Stop;
use train::run::{RunLock, host};

use super::manifest::{Manifest, RunRecord, SweepDirectory, SweepRun};
use super::progress::{RunProgress, SweepState};
use crate::child::{POLL, wait_forwarding_stop};

/// Maximum number of bytes of a log that are searched for an error.
const LOG_TAIL: u64 = 64 * 1024;

/// How an attempt at a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All its frames are played.
    Finished,
    /// It was asked to stop, and saved itself.
    Interrupted,
    /// It failed, for this reason.
    Failed(String),
}

/// Trains a run until it ends, or until a stop is requested and it has saved itself. Records how that went.
pub fn attempt(
    directory: &SweepDirectory,
    manifest: &Manifest,
    run: &SweepRun,
    gpu: Option<&str>,
    stop: &Stop,
) -> Result<Outcome> {
    let files = directory.run(run);
    // A process of an earlier attempt may still be saving it, if its parent was killed.
    while RunLock::holder(&files.lock_file()).is_some() {
        if stop.wait(POLL) {
            return Ok(Outcome::Interrupted);
        }
    }
    if RunProgress::of(directory, manifest, run)?.state == SweepState::Finished {
        return Ok(Outcome::Finished);
    }
    if stop.is_requested() {
        return Ok(Outcome::Interrupted);
    }
    let attempts = directory.record(run).attempts + 1;
    let record = RunRecord { attempts, node: host(), failure: None };
    directory.write_record(run, &record)?;
    let log = directory.log_file(&run.name);
    let start = fs::metadata(&log).map_or(0, |log| log.len());
    let child = command(directory, manifest, run, gpu, &log)?.spawn().context("cannot start `meme train`")?;
    // Its standard input stays open until it has ended.
    let status = wait_forwarding_stop(child, "`meme train`", stop)?;
    let outcome = match RunProgress::of(directory, manifest, run)?.state {
        SweepState::Finished => Outcome::Finished,
        _ if status.success() => Outcome::Interrupted,
        _ => Outcome::Failed(reason(status, &log, start)),
    };
    if let Outcome::Failed(reason) = &outcome {
        directory.write_record(run, &RunRecord { failure: Some(reason.clone()), ..record })?;
    }
    Ok(outcome)
}

/// The command that trains a run, with its output in the log.
fn command(
    directory: &SweepDirectory,
    manifest: &Manifest,
    run: &SweepRun,
    gpu: Option<&str>,
    log: &Path,
) -> Result<Command> {
    let open = || OpenOptions::new().create(true).append(true).open(log);
    let log = open().with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find the path of this program")?);
    command.args(["train", &run.environment, "--preset", &manifest.preset, "--name", &run.name]);
    command.arg("--runs").arg(directory.path());
    // A pipe that nothing is written to: however this process ends, the kernel closes it, and the run saves itself. Unlike
    // a signal, that never counts as a second request to stop, which would end a run while it saves.
    command.arg("--stop-at-end-of-input").stdin(Stdio::piped());
    for setting in manifest.sources(run)?.set {
        command.args(["--set", &setting]);
    }
    if let Some(gpu) = gpu {
        command.env("CUDA_VISIBLE_DEVICES", gpu);
    }
    // A group of its own: Ctrl-C reaches this process, which passes it on once.
    command.stdout(log.try_clone()?).stderr(log).process_group(0);
    Ok(command)
}

/// Why an attempt failed: its error message, or how the process ended.
fn reason(status: ExitStatus, log: &Path, start: u64) -> String {
    let said = log_since(log, start).unwrap_or_default();
    let error = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
    match (error, status.signal()) {
        (Some(error), _) => error.to_owned(),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => format!("`meme train` ended with status {}", status.code().unwrap_or(-1)),
    }
}

fn log_since(log: &Path, start: u64) -> Result<String> {
    let mut file = File::open(log)?;
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(start.max(end.saturating_sub(LOG_TAIL))))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Fails if this is not the directory of the sweep that was started elsewhere.
pub fn check_shared(directory: &SweepDirectory, id: &str) -> Result<Manifest> {
    let shown = std::path::absolute(directory.path()).unwrap_or_else(|_| directory.path().to_path_buf());
    match directory.read()? {
        Some(manifest) if manifest.id == id => Ok(manifest),
        _ => bail!(
            "{} on {} is not the directory of the sweep that was started: the runs must be on a file system that all \
             nodes share",
            shown.display(),
            host()
        ),
    }
}
