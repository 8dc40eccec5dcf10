//! `meme train`: starts a run, or resumes one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::config::{Config, Device};
use train::run::checkpoint::Checkpoint;
use train::run::stop::Stop;
use train::run::{ExistingRun, OpenedRun, RunDescription, RunDirectory, RunFiles};
use train::runtime::assembly::Task;
use train::runtime::resume::{self, Resumption};
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, ProgressDisplay};

use crate::config::{self, ConfigArgs};
use crate::console::{self, ProgressLine};
use crate::listen::ListenArgs;
use crate::preset::{DefaultPreset, default_preset, preset_warning};
use crate::run_args::{RUNS, run_config, set_threads};
use crate::{install, options, output, run_log, watch};

/// Arguments of `meme train`.
#[derive(Args)]
pub struct TrainArgs {
    /// A game (`meme games` lists them), a task (catch, memory, deep_sea, key_door) or gym:ENV_ID
    environment: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Emulator frames to train for: 1000000, 1_000_000, 1e6 or 1M
    #[arg(long, value_parser = options::field("run.frames"))]
    frames: Option<u64>,
    /// Random seed of the run
    #[arg(long, value_parser = options::field("run.seed"))]
    seed: Option<u64>,
    /// Name of the run [default: ENVIRONMENT-PRESET-SEED]
    #[arg(long)]
    name: Option<String>,
    /// Start over; an existing run of the same name is moved aside, not deleted
    #[arg(long)]
    fresh: bool,
    /// Show the runs in a web browser while this one trains, like `meme watch`
    #[arg(long)]
    watch: bool,
    /// Directory that contains the runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    runs: PathBuf,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listen: ListenArgs,
}

/// A run to train, with valid settings.
struct TrainPlan {
    name: String,
    preset: String,
    config: Config,
    task: Task,
}

impl TrainArgs {
    /// Checks the arguments and prints which preset is used, before there is a run that would be bound to them.
    fn plan(&self) -> Result<TrainPlan> {
        let environment: EnvId = self.environment.parse()?;
        let (preset, chosen) = self.preset(&environment)?;
        let mut sources = self.config.sources();
        sources.preset = Some(preset.clone());
        sources.set.extend(self.frames.map(|frames| format!("run.frames={frames}")));
        sources.set.extend(self.seed.map(|seed| format!("run.seed={seed}")));
        let config = config::load(&sources)?.config;
        envs::check_ram(&environment, &config.env.ram)?;
        self.listen.check(&config)?;
        let device = trainer::device(&config)?;
        set_threads(&config)?;
        if let Some(DefaultPreset { name, purpose }) = chosen {
            console::message(format_args!("using preset {name} ({purpose})"));
        }
        // A config file may change all sizes.
        if self.config.config.is_none()
            && let Some(warning) = preset_warning(&environment, &preset, device)
        {
            console::warn(warning);
        }
        let name = self.name.clone().unwrap_or_else(|| default_name(&environment, &preset, config.run.seed));
        Ok(TrainPlan { name, preset, config, task: install::task(environment)? })
    }

    /// Returns the requested preset. By default a config file builds on the paper's values, a named run keeps its own
    /// preset, and anything else gets the preset that suits it.
    fn preset(&self, environment: &EnvId) -> Result<(String, Option<DefaultPreset>)> {
        if let Some(preset) = self.config.preset_name() {
            return Ok((preset, None));
        }
        if self.config.config.is_some() {
            return Ok(("paper".to_owned(), None));
        }
        let run = self.name.as_ref().filter(|_| !self.fresh).map(|name| RunFiles::find(&self.runs, name));
        if let Some(Ok(run)) = run {
            return Ok((run.description()?.preset, None));
        }
        let chosen = default_preset(environment, torch_ext::gpu().is_ok());
        Ok((chosen.name.to_owned(), Some(chosen)))
    }
}

fn default_name(environment: &EnvId, preset: &str, seed: u64) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let environment = environment.to_string().replace(|c| !is_plain(c), "-");
    format!("{environment}-{preset}-{seed}")
}

/// Trains a new run, or resumes one of the same name.
pub fn run(args: &TrainArgs) -> Result<()> {
    // Before libtorch starts threads, which must not receive signals.
    let stop = Stop::on_signals()?;
    let plan = args.plan()?;
    let TrainPlan { name, preset, config, task } = &plan;
    let description = RunDescription::new(&task.environment.to_string(), preset, config.run.seed);
    let existing = if args.fresh { ExistingRun::MoveAside } else { ExistingRun::Resume };
    let (directory, opened) = RunDirectory::open(&args.runs, name, existing, description, &config.to_toml()?)?;
    let watching = args.watch.then(|| watch::beside_training(&args.runs, name)).transpose();
    let outcome = watching.and_then(|_| plan.start(&directory, &opened, &stop, &args.listen));
    // A run that failed before anything was trained leaves no directory.
    if outcome.is_err()
        && let Err(error) = directory.take_back(&opened)
    {
        console::warn(format_args!("cannot remove the files of the failed start: {error}"));
    }
    report(args, name, &outcome?)
}

impl TrainPlan {
    /// Announces what happens to the run, once that is certain, and trains it unless it is finished. A resumed run keeps
    /// its config, except for the frames to train for.
    fn start(
        &self,
        directory: &RunDirectory,
        opened: &OpenedRun,
        stop: &Stop,
        listen: &ListenArgs,
    ) -> Result<RunStatus> {
        let (name, path) = (&self.name, directory.files.path.display());
        // Opened once it is certain that the run trains: otherwise, nothing in its directory changes.
        let log = directory.files.log_file();
        let from = match opened {
            OpenedRun::Created => {
                run_log::open(&log);
                console::message(format_args!("starting run {name} in {path}"));
                None
            }
            OpenedRun::MovedAside(old) => {
                run_log::open(&log);
                console::message(format_args!(
                    "starting run {name} over; the previous one was moved to {}",
                    old.display()
                ));
                None
            }
            OpenedRun::Resumed => {
                let known = run_config(&directory.files)?;
                let warn = &mut |message: &str| console::warn(message);
                let resumption = resume::resume(directory, &self.preset, &known, &self.config, warn)?;
                let (budget_before, from) = match resumption {
                    Resumption::Finished(status) => return Ok(*status),
                    Resumption::Continues { budget_before, from } => (budget_before, from),
                };
                directory.replace_config(&self.config.to_toml()?)?;
                run_log::open(&log);
                let frames = self.config.run.frames;
                let until = match frames == budget_before {
                    true => String::new(),
                    false => format!(", up to {frames} frames instead of {budget_before}"),
                };
                console::message(match from {
                    Some(_) => format!("resuming run {name} in {path}{until}"),
                    None => format!("run {name} has no checkpoint; starting again in {path}{until}"),
                });
                from
            }
        };
        warn_if_on_cpu(self.config.run.device);
        // The built-in tasks start instantly.
        if !matches!(self.task.environment, EnvId::Task(_)) {
            let environments = self.config.actors.environments + self.config.evaluation.evaluators;
            console::message(format_args!("starting {environments} environments, then the networks"));
        }
        self.train(directory, from, stop, listen)
    }

    /// Trains to the end or until a stop is requested.
    fn train(
        &self,
        directory: &RunDirectory,
        from: Option<Checkpoint>,
        stop: &Stop,
        listen: &ListenArgs,
    ) -> Result<RunStatus> {
        let listening = listen.start(&self.name, &directory.files.path)?;
        let remote = listening.as_ref().map(|listening| Arc::clone(&listening.actors));
        let progress = Arc::new(Mutex::new(ProgressLine::new()));
        let announcing = announce_stop(stop, &progress)?;
        let mut display = TrainDisplay { progress: Arc::clone(&progress) };
        let outcome = trainer::train_with_remote(&self.task, &self.config, directory, from, stop, &mut display, remote);
        if stop.is_requested() {
            // The announcement comes before the summary. A panic of that thread has been printed already.
            let _ = announcing.join();
        }
        locked(&progress).clear();
        Ok(outcome?)
    }
}

/// Says why a machine that has a GPU uses the CPU.
fn warn_if_on_cpu(device: Device) {
    if device == Device::Auto
        && let Err(reason) = torch_ext::gpu()
        && reason != torch_ext::Error::NoDriver
    {
        console::warn(format_args!("the networks run on the CPU: {reason}"));
    }
}

/// Acknowledges a signal at once, as the trainer may be busy and saving may take a while.
fn announce_stop(stop: &Stop, progress: &Arc<Mutex<ProgressLine>>) -> Result<JoinHandle<()>> {
    let (stop, progress) = (stop.clone(), Arc::clone(progress));
    let announce = move || {
        while !stop.wait(Duration::MAX) {}
        locked(&progress).message("stopping; saving the run first (press Ctrl-C again to quit without saving)");
    };
    let thread = thread::Builder::new().name("stopping".to_owned()).spawn(announce);
    thread.context("cannot start the thread that announces a stop")
}

fn locked(progress: &Mutex<ProgressLine>) -> MutexGuard<'_, ProgressLine> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Serialize)]
struct TrainReport<'a> {
    name: &'a str,
    directory: &'a Path,
    #[serde(flatten)]
    status: &'a RunStatus,
    /// Why training ended: finished or stopped.
    ended: &'static str,
}

/// Prints the final status, and says why training ended and what can be done next.
fn report(args: &TrainArgs, name: &str, status: &RunStatus) -> Result<()> {
    let RunStatus { frames, budget, updates, .. } = status;
    let (directory, runs) = (args.runs.join(name), args.runs.display());
    let (ended, next) = if status.is_finished() {
        let runs = if args.runs == Path::new(RUNS) { String::new() } else { format!(" --runs {runs}") };
        let eval = format!("evaluate it with `meme eval {name}{runs}`");
        ("finished", format!("{eval}, or train longer with a higher --frames"))
    } else {
        ("stopped", "run the same command to resume".to_owned())
    };
    let unlearned =
        if *updates == 0 { "; nothing was learned yet, because replay holds too few sequences" } else { "" };
    console::message(format_args!(
        "run {name} {ended} at {frames} of {budget} frames and {updates} updates, saved in {}; {next}{unlearned}",
        directory.display()
    ));
    let report = TrainReport { name, directory: &directory, status, ended };
    output::print_report(args.json, &report, |report| format!("{name}: {}\n", report.status))
}

/// Shows the status of training on the terminal.
struct TrainDisplay {
    progress: Arc<Mutex<ProgressLine>>,
}

impl ProgressDisplay for TrainDisplay {
    fn status(&mut self, status: &RunStatus) {
        locked(&self.progress).show_lines(|| status.lines().to_vec());
    }

    fn say(&mut self, sentence: &str) {
        locked(&self.progress).message(sentence);
    }
}
