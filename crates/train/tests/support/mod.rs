//! Short runs of a small agent, in folders of their own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

use train::beginning;
use train::config::{Config, Sources};
use train::run::stop::Stop;
use train::run::{RunDescription, RunDirectory, RunFiles, Start};
use train::runtime::assembly::Task;
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, ProgressDisplay};

/// A folder of its own for one test, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("meme-train-test-{}-{count}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The preset `tiny` with networks and replay that are smaller still, and these settings over it.
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
        "agent.network.max_side=12",
        "agent.network.core=16",
        "agent.network.features=8",
        "agent.network.head_hidden=16",
    ];
    sources("tiny", &[&smaller, settings].concat())
}

/// A preset with these settings over it.
pub fn sources(preset: &str, settings: &[&str]) -> Config {
    let set = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Sources { preset: Some(preset.to_owned()), file: None, set }.load().unwrap().config
}

/// What is trained on.
pub fn task(name: &str) -> Task {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = env::var_os("MEME_PYTHON").map_or_else(|| workspace.join(".venv/bin/python"), PathBuf::from);
    Task { environment: name.parse().unwrap(), python, package: workspace.join("python/meme_worker") }
}

/// Hears everything, and may ask for a stop.
pub struct Listener<F: FnMut(&RunStatus)> {
    pub said: Vec<String>,
    pub seen: F,
}

impl<F: FnMut(&RunStatus)> ProgressDisplay for Listener<F> {
    fn status(&mut self, status: &RunStatus) {
        (self.seen)(status);
    }

    fn say(&mut self, sentence: &str) {
        self.said.push(sentence.to_owned());
    }
}

/// A run in the folder `name` of `root`, which goes on if it is there already.
pub fn open(root: &Path, name: &str, environment: &str, config: &Config) -> RunDirectory {
    // Tests run beside one another, and the last bits must not depend on how many threads libtorch takes.
    tch::set_num_threads(1);
    let description = RunDescription::new(environment, "tiny", config.run.seed);
    RunDirectory::open(root, name, Start::Continue, description, &config.to_toml().unwrap()).unwrap().0
}

/// Trains to the end; what was said on the way.
pub fn train(root: &Path, name: &str, environment: &str, config: &Config) -> (RunStatus, Vec<String>) {
    train_watched(root, name, environment, config, &Stop::new(), |_| {}).unwrap()
}

/// Trains while `seen` looks on.
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
    let from = beginning::resume(&directory, config, &mut |sentence| display.say(sentence))?;
    let status = trainer::train(&task(environment), config, &directory, from, stop, &mut display)?;
    Ok((status, display.said))
}

/// The paths of a run.
pub fn files(root: &Path, name: &str) -> RunFiles {
    RunFiles::find(root, name).unwrap()
}

/// The metrics of a run, as they are in the file.
pub fn metrics(root: &Path, name: &str) -> String {
    fs::read_to_string(files(root, name).metrics_file()).unwrap()
}

/// The checkpoints of a run, oldest first.
pub fn checkpoints(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(files(root, name).checkpoints_folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "ckpt") && !path.ends_with("best.ckpt"))
        .collect();
    paths.sort();
    paths
}
