//! Commands that the Python package `meme_rl` carries out: `meme export` and `meme track`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::run_args::{CheckpointArg, RunArg};
use crate::{install, options};

/// Arguments of `meme export`.
#[derive(Args)]
pub struct ExportArgs {
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Onnx)]
    format: Format,
    #[command(flatten)]
    checkpoint: CheckpointArg,
    /// Parameters to export
    #[arg(long, value_parser = ["ema", "online"], default_value = "ema")]
    parameters: String,
    /// Policy to export, from 0, which exploits most [default: the one with the best mean return]
    #[arg(long, value_parser = options::integer::<u64>(0, 65_535))]
    policy: Option<u64>,
    /// File to write [default: RUN with the format's ending]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    run: RunArg,
}

/// Format of an exported agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// ONNX, for onnxruntime and others
    Onnx,
    /// TorchScript, for PyTorch without this package
    Torchscript,
    /// The parameters alone
    Safetensors,
}

/// Arguments of `meme track`.
#[derive(Args)]
pub struct TrackArgs {
    /// Tracker, whose Python package must be installed
    #[arg(long, value_enum)]
    to: Tracker,
    /// Name of the project at the tracker
    #[arg(long, default_value = "meme")]
    project: String,
    /// Keep following the run until it ends, instead of sending what there is
    #[arg(long)]
    follow: bool,
    /// Write to this machine's disk only; the tracker's own command sends it later
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    run: RunArg,
}

/// A tracker of experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tracker {
    Wandb,
    Trackio,
    Mlflow,
    Tensorboard,
}

/// Exports a run's agent.
pub fn export(args: &ExportArgs) -> Result<ExitCode> {
    let run = args.run.find()?;
    let mut arguments: Vec<OsString> = vec!["export".into(), run.path.into()];
    arguments.extend(["--format".into(), name(args.format)]);
    arguments.extend(["--checkpoint".into(), args.checkpoint.selector.to_string().into()]);
    arguments.extend(["--parameters".into(), args.parameters.clone().into()]);
    if let Some(policy) = args.policy {
        arguments.extend(["--policy".into(), policy.to_string().into()]);
    }
    if let Some(out) = &args.out {
        arguments.extend(["--out".into(), out.into()]);
    }
    python(&arguments)
}

/// Sends a run's metrics to a tracker.
pub fn track(args: &TrackArgs) -> Result<ExitCode> {
    let run = args.run.find()?;
    let mut arguments: Vec<OsString> = vec!["track".into(), run.path.into()];
    arguments.extend(["--to".into(), name(args.to), "--project".into(), args.project.clone().into()]);
    arguments.extend(args.follow.then(|| "--follow".into()));
    arguments.extend(args.offline.then(|| "--offline".into()));
    python(&arguments)
}

fn name(value: impl ValueEnum) -> OsString {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned()).into()
}

/// Runs a command of `meme_rl`, which prints its own errors.
fn python(arguments: &[OsString]) -> Result<ExitCode> {
    let python = install::python()?;
    let mut path = vec![install::packages()?];
    path.extend(env::var_os("PYTHONPATH").iter().flat_map(env::split_paths));
    let status = Command::new(&python)
        .args(["-m", "meme_rl.commands"])
        .args(arguments)
        .env("PYTHONPATH", env::join_paths(path).context("the path of the Python packages contains a colon")?)
        .status()
        .with_context(|| format!("cannot start {}", python.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
