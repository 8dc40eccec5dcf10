//! Short runs of a small agent, each in its own directory.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use train::config::{Config, Sources};
use train::environments::Task;
use train::run::stop::Stop;
use train::run::{ExistingRun, RunDescription, RunDirectory, RunFiles};
use train::runtime::resume;
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, ProgressDisplay, TrainingSetup};

/// The preset `tiny` with even smaller networks and replay, and these settings.
pub fn config(settings: &[&str]) -> Config {
    let smaller = [
        "run.device=cpu",
        "run.threads=1",
        "actors.environments=4",
        "actors.environments_per_worker=2",
        "evaluation.evaluators=1",
        "evaluation.mean_episodes=3",
        "replay.capacity=200",
        "replay.minimum_fill=20",
        "replay.limiter_slack=24",
        "replay.samples_per_insert=2",
        "replay.trace=8",
        "agent.intrinsic.steps=5",
        "replay.period=4",
        "learner.batch_size=4",
        "learner.publish_every=3",
        "intrinsic.memory_capacity=64",
        "metrics.lockstep_frames=100",
        "agent.policies.count=4",
        "env.max_side=12",
        "agent.network.core=16",
        "agent.network.features=8",
        "agent.network.head_hidden=16",
    ];
    sources("tiny", &[&smaller, settings].concat())
}

/// A preset with these settings.
pub fn sources(preset: &str, settings: &[&str]) -> Config {
    let set = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Sources { preset: Some(preset.to_owned()), file: None, set }.load().unwrap().config
}

/// Returns the task to train on.
pub fn task(name: &str) -> Task {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = env::var_os("MEME_PYTHON").map_or_else(|| workspace.join(".venv/bin/python"), PathBuf::from);
    Task { environment: name.parse().unwrap(), python, package: workspace.join("python/meme_worker") }
}

/// Collects all messages, and may request a stop.
pub struct Listener<F: FnMut(&RunStatus)> {
    pub said: Vec<String>,
    pub seen: F,
}

impl<F: FnMut(&RunStatus)> ProgressDisplay for Listener<F> {
    fn status(&mut self, status: &RunStatus) {
        (self.seen)(status);
    }

    fn message(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }
}

/// Opens the run `name` in `root`, new or to resume.
pub fn open(root: &Path, name: &str, environment: &str, config: &Config) -> RunDirectory {
    // Tests run in parallel, and the last bits must not depend on libtorch's number of threads.
    tch::set_num_threads(1);
    let description = RunDescription::new(environment, "tiny", config.run.seed);
    RunDirectory::open(root, name, ExistingRun::Resume, description, &config.to_toml().unwrap()).unwrap().0
}

/// Trains to the end and returns the status and all messages.
pub fn train(root: &Path, name: &str, environment: &str, config: &Config) -> (RunStatus, Vec<String>) {
    train_watched(root, name, environment, config, &Stop::new(), |_| {}).unwrap()
}

/// Trains while `seen` watches the status.
pub fn train_watched(
    root: &Path,
    name: &str,
    environment: &str,
    config: &Config,
    stop: &Stop,
    seen: impl FnMut(&RunStatus),
) -> train::Result<(RunStatus, Vec<String>)> {
    let directory = open(root, name, environment, config);
    let mut display = Listener { said: Vec::new(), seen };
    let from = resume::newest_checkpoint(&directory, config, &mut |warning| display.warn(warning))?;
    let (task, from) = (&task(environment), from.into());
    let setup = TrainingSetup { task, config, directory: &directory, from, remote: None };
    let status = trainer::train(setup, stop, &mut display)?;
    Ok((status, display.said))
}

/// The paths of a run.
pub fn files(root: &Path, name: &str) -> RunFiles {
    RunFiles::find(root, name).unwrap()
}

/// Reads the metrics file of a run.
pub fn metrics(root: &Path, name: &str) -> String {
    fs::read_to_string(files(root, name).metrics_file()).unwrap()
}

/// Returns the checkpoints of a run, oldest first.
pub fn checkpoints(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(files(root, name).checkpoints_directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)))
        .collect();
    paths.sort();
    paths
}
