//! `meme train`: starts a run, or resumes one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::config::{Config, Device, Difference, Sources};
use train::device::device;
use train::environments::Task;
use train::run::checkpoint::{CheckpointSelector, InvalidSelector};
use train::run::history::{HistoryEntry, HistoryEvent, SettingChange};
use train::run::stop::Stop;
use train::run::{ExistingRun, OpenedRun, RunDescription, RunDirectory, RunFiles};
use train::runtime::resume::{self, Resumption};
use train::runtime::starting_point::StartingPoint;
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, TrainingSetup};

use crate::config::{self, ConfigArgs};
use crate::console::{self, ProgressLine};
use crate::display::{DisplayArgs, TrainDisplay};
use crate::listen::ListenArgs;
use crate::locked::locked;
use crate::preset::{DefaultPreset, default_preset, preset_warning};
use crate::run_args::{RUNS, RunsDir, find_run, run_config, set_threads};
use crate::{install, options, output, run_log, watch};

/// Arguments of `meme train`.
#[derive(Args)]
pub struct TrainArgs {
    #[arg(help = options::environment_help(), required_unless_present = "resume", conflicts_with = "resume")]
    environment: Option<String>,
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
    /// Resume this run, by its name or directory, with its own settings
    #[arg(long, value_name = "RUN", conflicts_with_all = ["name", "fresh", "preset", "size", "from"])]
    resume: Option<String>,
    /// Start over; an existing run of the same name is moved aside, not deleted
    #[arg(long)]
    fresh: bool,
    /// Show the runs in a web browser while this one trains, like `meme watch`
    #[arg(long)]
    watch: bool,
    /// Start from the weights of another run: RUN, or RUN@CHECKPOINT with best, last or a frame count
    #[arg(long, value_name = "RUN[@CHECKPOINT]")]
    from: Option<RunCheckpoint>,
    /// Take the other run's replay too
    #[arg(long, requires = "from")]
    with_replay: bool,
    #[command(flatten)]
    runs: RunsDir,
    #[command(flatten)]
    display: DisplayArgs,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listen: ListenArgs,
    /// Save and stop when standard input ends, as it does when the process that writes it dies
    #[arg(long, hide = true)]
    stop_at_end_of_input: bool,
}

/// A run and one of its checkpoints.
#[derive(Clone, Debug, PartialEq)]
struct RunCheckpoint {
    run: String,
    checkpoint: CheckpointSelector,
}

impl FromStr for RunCheckpoint {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        match text.rsplit_once('@') {
            Some((run, checkpoint)) => Ok(Self { run: run.to_owned(), checkpoint: checkpoint.parse()? }),
            None => Ok(Self { run: text.to_owned(), checkpoint: CheckpointSelector::Last }),
        }
    }
}

impl fmt::Display for RunCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.run, self.checkpoint)
    }
}

/// A run to train, with valid settings.
struct TrainPlan {
    runs: PathBuf,
    name: String,
    preset: String,
    config: Config,
    task: Task,
}

impl TrainArgs {
    /// Checks the arguments and prints which preset is used, before there is a run that would be bound to them.
    fn plan(&self) -> Result<TrainPlan> {
        let mut sources = self.config.sources();
        sources.set.extend(self.frames.map(|frames| format!("run.frames={frames}")));
        sources.set.extend(self.seed.map(|seed| format!("run.seed={seed}")));
        let plan = match &self.resume {
            Some(run) => plan_of(find_run(&self.runs.path, run)?, &sources)?,
            None => self.new_or_known(sources)?,
        };
        envs::check_ram(&plan.task.environment, &plan.config.env.ram)?;
        self.listen.check(&plan.config)?;
        let device = device(&plan.config)?;
        set_threads(&plan.config)?;
        // A config file may change all sizes.
        if self.config.config.is_none()
            && let Some(warning) = preset_warning(&plan.task.environment, &plan.preset, device)
        {
            console::warn(warning);
        }
        Ok(plan)
    }

    /// Plans the run of the given or default name. One that exists keeps its own settings, unless another preset is
    /// requested, which a message will refuse.
    fn new_or_known(&self, mut sources: Sources) -> Result<TrainPlan> {
        let environment: EnvId = self.environment.as_deref().unwrap_or_default().parse()?;
        let find = |name: &str| RunFiles::find(&self.runs.path, name).ok().filter(|_| !self.fresh);
        let is_kept = |run: &RunFiles| match self.config.preset_name() {
            Some(preset) => run.description().is_ok_and(|known| known.preset == preset),
            None => true,
        };
        let of_task = |run: &RunFiles| run.description().is_ok_and(|known| known.task == environment.to_string());
        if let Some(run) = self.name.as_deref().and_then(find).filter(|run| is_kept(run) && of_task(run)) {
            return plan_of(run, &sources);
        }
        let chosen = default_preset(&environment, torch_ext::gpu().is_ok());
        let preset = self.config.preset_name().unwrap_or_else(|| chosen.name.to_owned());
        sources.preset = Some(preset.clone());
        let config = config::load(&sources)?.config;
        let name = self.name.clone().unwrap_or_else(|| default_name(&environment, &preset, config.run.seed));
        if let Some(run) = find(&name).filter(|run| is_kept(run) && of_task(run)) {
            return plan_of(run, &sources);
        }
        if self.config.preset_name().is_none() {
            let DefaultPreset { name, purpose } = chosen;
            let file = self.config.config.as_ref();
            let below = file.map_or(String::new(), |file| format!(" below {}", file.display()));
            console::message(format_args!("using preset {name}{below} ({purpose})"));
        }
        Ok(TrainPlan { runs: self.runs.path.clone(), name, preset, config, task: install::task(environment)? })
    }

    /// Opens the checkpoint whose weights a new run starts from.
    fn starting_weights(&self) -> Result<StartingPoint> {
        let Some(RunCheckpoint { run, checkpoint }) = &self.from else { return Ok(StartingPoint::Nothing) };
        let files = find_run(&self.runs.path, run)?;
        let warn = &mut |message: &str| console::warn(message);
        let with_replay = self.with_replay;
        if with_replay && *checkpoint == CheckpointSelector::Best {
            bail!("`best` has no replay; use --from {run}@last with --with-replay");
        }
        let checkpoint =
            if with_replay { checkpoint.open_whole(&files, warn)? } else { checkpoint.open(&files, warn)? };
        Ok(StartingPoint::Weights { checkpoint, with_replay })
    }
}

/// Plans to continue a run with its own settings and these changes.
fn plan_of(run: RunFiles, changes: &Sources) -> Result<TrainPlan> {
    let RunDescription { task, preset, .. } = run.description()?;
    let config = config::load_over(changes, &run_config(&run)?)?.config;
    let runs = run.path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    Ok(TrainPlan { runs, name: run.name().to_owned(), preset, config, task: install::task(task.parse()?)? })
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
    if args.stop_at_end_of_input {
        request_stop_at_end_of_input(&stop)?;
    }
    args.display.apply();
    let plan = args.plan()?;
    // Before there is a directory.
    let weights = args.starting_weights()?;
    let TrainPlan { runs, name, preset, config, task } = &plan;
    let description = RunDescription::new(&task.environment.to_string(), preset, config.run.seed);
    let existing = if args.fresh { ExistingRun::MoveAside } else { ExistingRun::Resume };
    let (directory, opened) = RunDirectory::open(runs, name, existing, description, &config.to_toml()?)?;
    let watching = args.watch.then(|| watch::beside_training(runs, name)).transpose();
    let outcome = watching.and_then(|_| plan.start(args, &directory, &opened, weights, &stop));
    // A run that failed before anything was trained leaves no directory.
    if outcome.is_err()
        && let Err(error) = directory.undo_open(&opened)
    {
        console::warn(format_args!("cannot remove the files of the failed start: {error}"));
    }
    report(args, &plan, &outcome?)
}

impl TrainPlan {
    /// Announces what happens to the run, once that is certain, and trains it unless it is finished.
    fn start(
        &self,
        args: &TrainArgs,
        directory: &RunDirectory,
        opened: &OpenedRun,
        weights: StartingPoint,
        stop: &Stop,
    ) -> Result<RunStatus> {
        let (name, folder) = (&self.name, directory.files.path.display());
        // Opened once it is certain that the run trains: otherwise, nothing in its directory changes.
        let log = directory.files.log_file();
        let mut history = HistoryEntry::new(HistoryEvent::Started, 0);
        let from = match opened {
            OpenedRun::Created | OpenedRun::MovedAside(_) => {
                run_log::open(&log);
                console::message(match opened {
                    OpenedRun::MovedAside(old) => {
                        format!("starting run {name} over; the previous one was moved to {}", old.display())
                    }
                    _ => format!("starting run {name} in {folder}"),
                });
                history.from = args.from.as_ref().map(ToString::to_string);
                weights
            }
            OpenedRun::Resumed => {
                let known = run_config(&directory.files)?;
                let warn = &mut |message: &str| console::warn(message);
                let resumption = resume::plan_resume(directory, &self.preset, &known, &self.config, warn)?;
                let (changes, from) = match resumption {
                    Resumption::Finished(status) => return Ok(*status),
                    Resumption::Continues { changes, from } => (changes, from),
                };
                directory.replace_config(&self.config.to_toml()?)?;
                run_log::open(&log);
                let changed = changes_text(&changes);
                console::message(match from {
                    Some(_) => format!("resuming run {name} in {folder}{changed}"),
                    None => format!("run {name} has no checkpoint; starting again in {folder}{changed}"),
                });
                if args.from.is_some() && from.is_some() {
                    console::message("--from applies only to the start of a run, so it changes nothing");
                }
                if let Some(checkpoint) = &from {
                    history = HistoryEntry::new(HistoryEvent::Resumed, checkpoint.frames());
                }
                history.changes = changes.iter().map(SettingChange::from).collect();
                from.map_or(weights, StartingPoint::Resume)
            }
        };
        history.append(&directory.files.history_file())?;
        warn_if_on_cpu(self.config.run.device);
        // The built-in tasks start instantly.
        if !matches!(self.task.environment, EnvId::Task(_)) {
            let environments = self.config.actors.environments + self.config.evaluation.evaluators;
            console::message(format_args!("starting {environments} environments, then the networks"));
        }
        self.train(directory, from, stop, &args.listen)
    }

    /// Trains to the end or until a stop is requested.
    fn train(
        &self,
        directory: &RunDirectory,
        from: StartingPoint,
        stop: &Stop,
        listen: &ListenArgs,
    ) -> Result<RunStatus> {
        let listening = listen.start(&self.name, &directory.files.path)?;
        let remote = listening.as_ref().map(|listening| Arc::clone(&listening.actors));
        let progress = Arc::new(Mutex::new(ProgressLine::new()));
        let announcing = announce_stop(stop, &progress)?;
        let mut display = TrainDisplay::new(Arc::clone(&progress), &self.runs, &self.name);
        let setup = TrainingSetup { task: &self.task, config: &self.config, directory, from, remote };
        let outcome = trainer::train(setup, stop, &mut display);
        if stop.is_requested() {
            // The announcement comes before the summary. A panic of that thread has been printed already.
            let _ = announcing.join();
        }
        locked(&progress).clear();
        Ok(outcome?)
    }
}

/// Describes changed settings at the end of a sentence: `, up to 800 frames instead of 400; changed: a 1 -> 2`.
fn changes_text(changes: &[Difference]) -> String {
    let mut text = String::new();
    let (frames, others): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.path == "run.frames");
    if let [Difference { left, right, .. }] = frames[..] {
        text += &format!(", up to {right} frames instead of {left}");
    }
    let others: Vec<String> = others
        .iter()
        .map(|change| {
            let [before, now] = change.written();
            format!("{} {before} -> {now}", change.path)
        })
        .collect();
    if !others.is_empty() {
        text += &format!("; changed: {}", others.join(", "));
    }
    text
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

/// Requests a stop as soon as standard input ends or cannot be read.
fn request_stop_at_end_of_input(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    let watch = move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        stop.request();
    };
    let thread = thread::Builder::new().name("input".to_owned()).spawn(watch);
    thread.context("cannot start the thread that waits for the end of standard input")?;
    Ok(())
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
fn report(args: &TrainArgs, plan: &TrainPlan, status: &RunStatus) -> Result<()> {
    let RunStatus { frames, budget, updates, .. } = status;
    let TrainPlan { runs, name, .. } = plan;
    let directory = runs.join(name);
    let in_runs = if runs == Path::new(RUNS) { String::new() } else { format!(" --runs {}", runs.display()) };
    let (ended, next) = if status.is_finished() {
        let eval = format!("evaluate it with `meme eval {name}{in_runs}`");
        ("finished", format!("{eval}, or train longer with a higher --frames"))
    } else {
        ("stopped", format!("`meme train --resume {name}{in_runs}` resumes it"))
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
