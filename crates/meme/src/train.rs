//! `meme train`: the whole agent, from the first command on.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use envs::EnvId;
use train::assembly::Task;
use train::config::{Config, Sources};
use train::run::checkpoint::Checkpoints;
use train::run::stop::Stop;
use train::run::{Opening, RunDescription, RunDirectory, RunFiles, Start};
use train::status::Status;
use train::trainer::{self, Screen};

use crate::home;
use crate::output::{self, Progress};

/// Options of `meme train`.
#[derive(Args)]
pub struct TrainArgs {
    /// A game (`meme games` lists them), a task (catch, memory, deep_sea, key_door) or gym:ENV_ID
    environment: String,
    /// The preset that the config starts from: paper, quick, desktop, cpu or tiny
    #[arg(long, value_name = "PRESET")]
    preset: Option<String>,
    /// A TOML file over the preset
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting over both, such as learner.batch_size=32; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Emulator frames to train for
    #[arg(long)]
    frames: Option<u64>,
    /// Everything random follows from it
    #[arg(long)]
    seed: Option<u64>,
    /// The run's name [default: the environment's, with the preset and the seed]
    #[arg(long)]
    name: Option<String>,
    /// Start over; a run of the same name is set aside, not deleted
    #[arg(long)]
    fresh: bool,
    /// Where runs are
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
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
    let mut set = args.set.clone();
    set.extend(args.frames.map(|frames| format!("run.frames={frames}")));
    set.extend(args.seed.map(|seed| format!("run.seed={seed}")));
    let sources = Sources { preset: args.preset.clone(), file: args.config.clone(), set };
    let config = sources.load()?.config;
    envs::check_ram(&environment, &config.env.ram)?;
    // Before there is a run that would be held to it.
    trainer::device(&config)?;
    let preset = args.preset.as_deref().unwrap_or("paper");
    let name = args.name.clone().unwrap_or_else(|| default_name(&environment, preset, config.run.seed));
    let (directory, config) = open(args, &name, &environment, preset, config)?;
    let task = Task { environment, python: home::python()?, package: home::worker_package()? };
    if config.run.threads > 0 {
        tch::set_num_threads(i32::try_from(config.run.threads)?);
    }
    let mut screen = Terminal { progress: Progress::new() };
    let status = trainer::train(&task, &config, &directory, &stop, &mut screen)?;
    screen.progress.clear();
    if args.json { output::print_json(&status) } else { output::print(&format!("{name}: {status}\n")) }
}

fn default_name(environment: &EnvId, preset: &str, seed: u64) -> String {
    let plain: String = environment
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' })
        .collect();
    format!("{plain}-{preset}-{seed}")
}

/// Takes the run; one that goes on keeps its config, except for the frames to train for.
fn open(
    args: &TrainArgs,
    name: &str,
    environment: &EnvId,
    preset: &str,
    config: Config,
) -> Result<(RunDirectory, Config)> {
    let description = RunDescription::new(&environment.to_string(), preset, config.run.seed);
    let start = if args.fresh { Start::Fresh } else { Start::Continue };
    let (directory, opening) = RunDirectory::open(&args.runs, name, start, description, &config.to_toml()?)?;
    let folder = directory.files().folder().display();
    match opening {
        Opening::Created => output::say(format_args!("run {name} in {folder}")),
        Opening::SetAside(old) => {
            output::say(format_args!("run {name} starts over; the one before is in {}", old.display()));
        }
        Opening::Continued => {
            let mut known = read_config(directory.files())?;
            let frames = config.run.frames;
            known.run.frames = frames;
            if known != config && !may_change(&directory, preset, &config)? {
                bail!(
                    "run {name} was started with another config; `meme config diff` shows how they differ, --name gives \
                     this one a name of its own, --fresh starts over"
                );
            }
            directory.replace_config(&config.to_toml()?)?;
            output::say(format_args!("run {name} goes on in {folder}"));
        }
    }
    Ok((directory, config))
}

/// Whether nothing would be lost if the run went on with another config: one that failed before its first checkpoint, for
/// instance because memory ran out, is begun again with what it was told to set.
fn may_change(directory: &RunDirectory, preset: &str, config: &Config) -> Result<bool> {
    let description = directory.description();
    let same = (description.preset.as_str(), description.seed) == (preset, config.run.seed);
    let checkpoints = Checkpoints::in_folder(&directory.files().checkpoints_folder());
    Ok(same && checkpoints.list()?.is_empty() && checkpoints.best()?.is_none())
}

fn read_config(files: &RunFiles) -> Result<Config> {
    let path: &Path = &files.config_file();
    Ok(Config::read(path)?)
}

struct Terminal {
    progress: Progress,
}

impl Screen for Terminal {
    fn status(&mut self, status: &Status) {
        self.progress.show_lines(|| status.lines().to_vec());
    }

    fn say(&mut self, sentence: &str) {
        self.progress.say(format_args!("meme: {sentence}"));
    }
}
