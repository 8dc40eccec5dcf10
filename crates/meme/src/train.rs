//! `meme train`: the whole agent, from the first command on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::assembly::Task;
use train::beginning::{self, Beginning};
use train::config::{Config, Device};
use train::run::checkpoint::Checkpoint;
use train::run::stop::Stop;
use train::run::{Opening, RunDescription, RunDirectory, RunFiles, Start};
use train::status::Status;
use train::trainer::{self, Screen};

use crate::chosen_run::{RUNS, run_config};
use crate::config::ConfigArgs;
use crate::output::{self, Progress};
use crate::preset::{Fitting, fitting, preset_hint};
use crate::{home, options};

/// Options of `meme train`.
#[derive(Args)]
pub struct TrainArgs {
    /// A game (`meme games` lists them), a task (catch, memory, deep_sea, key_door) or gym:ENV_ID
    environment: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Emulator frames to train for: 1000000, 1_000_000, 1e6 or 1M
    #[arg(long, value_parser = options::field("run.frames"))]
    frames: Option<u64>,
    /// Everything random follows from it
    #[arg(long, value_parser = options::field("run.seed"))]
    seed: Option<u64>,
    /// The run's name [default: the environment's, with the preset and the seed]
    #[arg(long)]
    name: Option<String>,
    /// Start over; a run of the same name is set aside, not deleted
    #[arg(long)]
    fresh: bool,
    /// Where runs are
    #[arg(long, value_name = "FOLDER", default_value = RUNS)]
    runs: PathBuf,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// Trains, or goes on with a run of the same name.
pub fn run(args: &TrainArgs) -> Result<()> {
    // Before there are threads of libtorch, which must not take signals.
    let stop = Stop::on_signals()?;
    let environment: EnvId = args.environment.parse()?;
    let (preset, fits) = preset(args, &environment)?;
    let mut sources = args.config.sources();
    sources.preset = Some(preset.clone());
    sources.set.extend(args.frames.map(|frames| format!("run.frames={frames}")));
    sources.set.extend(args.seed.map(|seed| format!("run.seed={seed}")));
    let config = sources.load()?.config;
    envs::check_ram(&environment, &config.env.ram)?;
    // Before there is a run that would be held to it.
    let device = trainer::device(&config)?;
    if config.run.threads > 0 {
        tch::set_num_threads(i32::try_from(config.run.threads)?);
    }
    // A file of the user's has sizes of its own.
    let hint = preset_hint(&environment, &preset, device).filter(|_| args.config.config.is_none());
    for word in fits.map(|fits| format!("preset {preset}: {}", fits.about)).into_iter().chain(hint) {
        output::say(format_args!("meme: {word}"));
    }
    let name = args.name.clone().unwrap_or_else(|| default_name(&environment, &preset, config.run.seed));
    let description = RunDescription::new(&environment.to_string(), &preset, config.run.seed);
    let task = Task { environment, python: home::python()?, package: home::worker_package()? };
    let whether = if args.fresh { Start::Fresh } else { Start::Continue };
    let (directory, opening) = RunDirectory::open(&args.runs, &name, whether, description, &config.to_toml()?)?;
    let outcome = start(&task, &config, &preset, &directory, &opening, &stop);
    // A run that failed before anything came about leaves no folder.
    if outcome.is_err()
        && let Err(error) = directory.take_back(&opening)
    {
        output::say(format_args!("meme: what was made for the run could not be taken back: {error}"));
    }
    report(args, &name, &outcome?)
}

/// The preset that was asked for. Where none was, a file of the user's says what differs from the paper's values, a run
/// that has a name keeps its own, and anything else gets what fits it, which is told.
fn preset(args: &TrainArgs, environment: &EnvId) -> Result<(String, Option<Fitting>)> {
    let ConfigArgs { preset, config, .. } = &args.config;
    if let Some(preset) = preset {
        return Ok((preset.clone(), None));
    }
    if config.is_some() {
        return Ok(("paper".to_owned(), None));
    }
    let run = args.name.as_ref().filter(|_| !args.fresh).map(|name| RunFiles::find(&args.runs, name));
    if let Some(Ok(run)) = run {
        return Ok((run.description()?.preset, None));
    }
    let fits = fitting(environment, torch_ext::gpu().is_ok());
    Ok((fits.name.to_owned(), Some(fits)))
}

fn default_name(environment: &EnvId, preset: &str, seed: u64) -> String {
    let plain: String = environment
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' })
        .collect();
    format!("{plain}-{preset}-{seed}")
}

/// Says what becomes of the run, once that is certain, and trains it unless it is finished already. One that goes on keeps
/// its config, except for the frames to train for.
fn start(
    task: &Task,
    config: &Config,
    preset: &str,
    directory: &RunDirectory,
    opening: &Opening,
    stop: &Stop,
) -> Result<Status> {
    let (name, folder) = (directory.files().name(), directory.files().folder().display());
    let from = match opening {
        Opening::Created => {
            output::say(format_args!("run {name} in {folder}"));
            None
        }
        Opening::SetAside(old) => {
            output::say(format_args!("run {name} starts over; the one before is in {}", old.display()));
            None
        }
        Opening::Continued => {
            let known = run_config(directory.files())?;
            let say = &mut |sentence: &str| output::say(format_args!("meme: {sentence}"));
            let (budget_before, from) = match beginning::meet(directory, preset, &known, config, say)? {
                Beginning::Finished(status) => return Ok(*status),
                Beginning::GoesOn { budget_before, from } => (budget_before, from),
            };
            directory.replace_config(&config.to_toml()?)?;
            let frames = config.run.frames;
            let until = match frames == budget_before {
                true => String::new(),
                false => format!(", to {frames} frames instead of {budget_before}"),
            };
            let how = if from.is_some() { "goes on" } else { "had saved nothing and begins again" };
            output::say(format_args!("run {name} {how} in {folder}{until}"));
            from
        }
    };
    say_if_on_cpu(config.run.device);
    say_what_starts(&task.environment, config);
    train(task, config, directory, from, stop)
}

/// Says why a program that was built for a GPU does without. One that was not has nothing to tell: it was built so.
fn say_if_on_cpu(device: Device) {
    if cfg!(feature = "cuda")
        && device == Device::Auto
        && let Err(reason) = torch_ext::gpu()
    {
        output::say(format_args!("meme: the networks run on the CPU: {reason}"));
    }
}

/// Says what the first seconds are for. Tasks are there at once.
fn say_what_starts(environment: &EnvId, config: &Config) {
    if !matches!(environment, EnvId::Task(_)) {
        let environments = config.actors.environments + config.evaluation.evaluators;
        output::say(format_args!("starting {environments} environments, then the networks"));
    }
}

/// Trains to the end or until a stop is asked for.
fn train(
    task: &Task,
    config: &Config,
    directory: &RunDirectory,
    from: Option<Checkpoint>,
    stop: &Stop,
) -> Result<Status> {
    let progress = Arc::new(Mutex::new(Progress::new()));
    let announcing = announce_stop(stop, &progress)?;
    let mut terminal = Terminal { progress: Arc::clone(&progress) };
    let outcome = trainer::train(task, config, directory, from, stop, &mut terminal);
    if stop.is_requested() {
        // What it says comes before the end is told; a panic of its own is on the screen already.
        let _ = announcing.join();
    }
    locked(&progress).clear();
    Ok(outcome?)
}

/// Says at once that a signal was heard: the end may take a while to be saved, and the trainer may be busy.
fn announce_stop(stop: &Stop, progress: &Arc<Mutex<Progress>>) -> Result<JoinHandle<()>> {
    let (stop, progress) = (stop.clone(), Arc::clone(progress));
    let announce = move || {
        while !stop.wait(Duration::MAX) {}
        locked(&progress).say("meme: stopping; the run is saved first, and Ctrl-C again leaves at once without that");
    };
    let thread = thread::Builder::new().name("stopping".to_owned()).spawn(announce);
    thread.context("the thread that tells of a stop could not be started")
}

fn locked(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why training ended.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    Finished,
    Stopped,
}

/// Prints how the run stands, and says why it ended, where it is and what can be done with it.
fn report(args: &TrainArgs, name: &str, status: &Status) -> Result<()> {
    #[derive(Serialize)]
    struct Report<'a> {
        name: &'a str,
        folder: &'a Path,
        #[serde(flatten)]
        status: &'a Status,
        ended: Ended,
    }
    let ended = if status.is_finished() { Ended::Finished } else { Ended::Stopped };
    let Status { frames, budget, updates, .. } = status;
    let (folder, runs) = (args.runs.join(name), args.runs.display());
    let (done, next) = match ended {
        Ended::Finished => {
            let runs = if args.runs == Path::new(RUNS) { String::new() } else { format!(" --runs {runs}") };
            ("is finished", format!("`meme eval {name}{runs}` measures it, a higher --frames trains on"))
        }
        Ended::Stopped => ("was stopped", "the same command goes on".to_owned()),
    };
    let next = match updates {
        0 => format!("{next}; nothing is learned yet, as replay holds too few sequences"),
        _ => next,
    };
    output::say(format_args!(
        "run {name} {done} at {frames} of {budget} frames, update {updates}, and saved in {}; {next}",
        folder.display()
    ));
    if args.json {
        return output::print_json(&Report { name, folder: &folder, status, ended });
    }
    output::print(&format!("{name}: {status}\n"))
}

struct Terminal {
    progress: Arc<Mutex<Progress>>,
}

impl Screen for Terminal {
    fn status(&mut self, status: &Status) {
        locked(&self.progress).show_lines(|| status.lines().to_vec());
    }

    fn say(&mut self, sentence: &str) {
        locked(&self.progress).say(format_args!("meme: {sentence}"));
    }
}
