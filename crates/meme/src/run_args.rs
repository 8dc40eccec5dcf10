//! The run that a command is about, and the checkpoint that it plays.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use envs::EnvId;
use train::config::{Config, Device};
use train::environments::Task;
use train::run::checkpoint::{Checkpoint, CheckpointSelector};
use train::run::{DirectoryError, RunFiles};

use crate::{console, install, options};

/// Default directory of runs.
pub const RUNS: &str = "runs";

/// The option `--runs`.
#[derive(Args)]
pub struct RunsDir {
    /// Directory that contains the runs
    #[arg(id = "runs_dir", long = "runs", value_name = "DIR", default_value = RUNS)]
    pub path: PathBuf,
}

/// The argument RUN and the directory in which its name is looked up.
#[derive(Args)]
pub struct RunArg {
    /// A run's name (`meme runs` lists them) or its directory; it may still be training
    run: String,
    #[command(flatten)]
    runs: RunsDir,
}

impl RunArg {
    /// Finds the run.
    pub fn find(&self) -> Result<RunFiles> {
        find_run(&self.runs.path, &self.run)
    }
}

/// The option `--checkpoint`.
#[derive(Args)]
pub struct CheckpointArg {
    /// Checkpoint of the run: best (by evaluation during training), last, or a frame count
    #[arg(id = "checkpoint", long = "checkpoint", value_name = "best|last|FRAMES", default_value = "last")]
    pub selector: CheckpointSelector,
}

/// Finds a run by its name in `root` or by its directory.
pub fn find_run(root: &Path, which: &str) -> Result<RunFiles> {
    let (named, path) = (root.join(which), Path::new(which));
    match RunFiles::find(root, which) {
        // With a slash, or as a dot, it is not a name but a path.
        Err(DirectoryError::Name { .. }) if !which.is_empty() => run_in(path, root),
        Err(DirectoryError::NoSuchRun { .. }) if named.is_dir() => run_in(&named, root),
        Err(DirectoryError::NoSuchRun { .. }) if path.is_dir() => run_in(path, root),
        found => Ok(found?),
    }
}

/// Opens the run in a directory.
fn run_in(directory: &Path, root: &Path) -> Result<RunFiles> {
    if directory.exists() && !directory.is_dir() {
        bail!(
            "{} is not a directory; RUN is a run's name or directory (use --checkpoint to choose a checkpoint)",
            directory.display()
        );
    }
    if !directory.is_dir() {
        bail!("no directory {}; {}", directory.display(), known_runs(root)?);
    }
    // `.` and `..` have no name of their own.
    let directory = match directory.file_name() {
        Some(_) => directory.to_path_buf(),
        None => directory.canonicalize().with_context(|| format!("cannot resolve {}", directory.display()))?,
    };
    let run = RunFiles::in_directory(&directory);
    if run.is_run() {
        return Ok(run);
    }
    bail!("{} is not a run: it has no run.json; {}", directory.display(), known_runs(root)?)
}

fn known_runs(root: &Path) -> Result<String> {
    let runs = RunFiles::all(root)?;
    let names: Vec<&str> = runs.iter().map(RunFiles::name).collect();
    Ok(match names.as_slice() {
        [] => format!("there are no runs in {}", root.display()),
        names => format!("the runs in {} are: {}", root.display(), names.join(", ")),
    })
}

/// Reads a run's config. If that fails, the error says how to restore the file.
pub fn run_config(run: &RunFiles) -> Result<Config> {
    let description = run.description()?;
    let path = run.config_file();
    Config::read(&path).map_err(|error| {
        anyhow!(
            "{error}; restore the file, or write it again with the settings of the run: `meme config show --preset {} \
             --set run.seed={} > {}`",
            description.preset,
            description.seed,
            path.display()
        )
    })
}

/// Arguments of the commands that play a run.
#[derive(Args)]
pub struct PlayedRunArgs {
    #[command(flatten)]
    checkpoint: CheckpointArg,
    /// Random seed; the same seed plays the same episodes [default: the run's]
    #[arg(long, value_parser = options::field("run.seed"))]
    seed: Option<u64>,
    #[command(flatten)]
    run: RunArg,
}

/// A run that is played, not trained.
pub struct PlayedRun {
    pub files: RunFiles,
    pub task: Task,
    pub config: Config,
    pub checkpoint: Checkpoint,
    /// Seed of the episodes.
    pub seed: u64,
}

impl PlayedRunArgs {
    /// Opens the run without disturbing a process that trains it.
    pub fn open(&self) -> Result<PlayedRun> {
        let files = self.run.find()?;
        let environment: EnvId = files.description()?.task.parse()?;
        let mut config = run_config(&files)?;
        if config.run.device == Device::Cuda {
            // A run trained on a GPU can be played without one.
            config.run.device = Device::Auto;
        }
        set_threads(&config)?;
        let checkpoint = self.checkpoint.selector.open(&files, &mut |message| console::warn(message))?;
        let seed = self.seed.unwrap_or(config.run.seed);
        Ok(PlayedRun { files, task: install::task(environment)?, config, checkpoint, seed })
    }
}

impl PlayedRun {
    /// Adds the checkpoint's path to an error.
    pub fn context<T>(&self, result: train::Result<T>) -> Result<T> {
        result.with_context(|| format!("cannot play {}", self.checkpoint.path.display()))
    }
}

/// Applies `run.threads` to libtorch.
pub fn set_threads(config: &Config) -> Result<()> {
    if config.run.threads > 0 {
        tch::set_num_threads(i32::try_from(config.run.threads)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::run::{ExistingRun, RunDescription, RunDirectory};

    use super::*;

    /// Creates a run as training leaves it.
    fn make_run(root: &Path, name: &str) -> RunFiles {
        let config = Config::default().to_toml().unwrap();
        let description = RunDescription::new("catch", "tiny", 3);
        let (held, _) = RunDirectory::open(root, name, ExistingRun::Resume, description, &config).unwrap();
        held.files.clone()
    }

    #[test]
    fn run_is_found_by_name_and_by_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let run = make_run(root, "first");
        let path = run.path.to_str().unwrap().to_owned();
        for which in ["first".to_owned(), path.clone(), format!("{path}/"), format!("{path}/checkpoints/..")] {
            let found = find_run(root, &which).unwrap();
            assert_eq!((found.name(), found.description_file().exists()), ("first", true), "{which}");
        }
        assert_eq!(find_run(Path::new("nowhere"), &path).unwrap().path, run.path);
    }

    #[test]
    fn unknown_run_is_answered_with_the_known_ones() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let rejection = |which: &str| find_run(root, which).unwrap_err().to_string();
        let shown = root.display();
        assert_eq!(rejection("second"), format!("there is no run `second` in {shown}, which contains no runs"));
        assert_eq!(rejection("a/second"), format!("no directory a/second; there are no runs in {shown}"));
        make_run(root, "first");
        assert_eq!(rejection("second"), format!("there is no run `second` in {shown}; there are: first"));
        assert_eq!(rejection("a/second"), format!("no directory a/second; the runs in {shown} are: first"));
        assert_eq!(rejection(""), "a run cannot be named \"\": it is empty");
        let whole = format!("{shown} is not a run: it has no run.json; the runs in {shown} are: first");
        assert_eq!(rejection(root.to_str().unwrap()), whole);
    }

    #[test]
    fn missing_and_damaged_files_are_reported_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let run = make_run(directory.path(), "first");
        assert_eq!(run_config(&run).unwrap(), Config::default());
        let whole = fs::read_to_string(run.config_file()).unwrap();
        let config = run.config_file().display().to_string();
        let remedy = format!(
            "restore the file, or write it again with the settings of the run: `meme config show --preset tiny \
             --set run.seed=3 > {config}`"
        );
        let half = &whole[..whole.find("[replay]").unwrap()];
        let cut = "it was cut off: agent.network.intrinsic.rnd_output is missing";
        for (text, what) in [("", cut), (half, cut), ("[run", "invalid TOML")] {
            fs::write(run.config_file(), text).unwrap();
            let message = run_config(&run).unwrap_err().to_string();
            assert!(message.starts_with(&config) && message.contains(what), "{message}");
            assert!(message.ends_with(&remedy), "{message}");
        }
        fs::remove_file(run.config_file()).unwrap();
        let message = run_config(&run).unwrap_err().to_string();
        let begins = format!("{config}: cannot be read: No such file or directory (os error 2); restore the file");
        assert!(message.starts_with(&begins), "{message}");
        fs::write(run.description_file(), "").unwrap();
        let message = run_config(&run).unwrap_err().to_string();
        assert!(message.contains("run.json is damaged") && message.contains("docs/runs.md"), "{message}");
    }
}
