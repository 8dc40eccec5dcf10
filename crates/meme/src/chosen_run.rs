//! The run that a command is about, and the checkpoint that it plays.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::assembly::Task;
use train::config::{ActionSet, Config, Device};
use train::run::checkpoint::Checkpoint;
use train::run::{DirectoryError, RunFiles};
use train::trained::Which;

use crate::{home, options, output};

/// Where runs are, unless another folder is given.
pub const RUNS: &str = "runs";

/// What every command says of its argument RUN.
pub const RUN_HELP: &str = "A run's name (`meme runs` lists them) or its folder; it may be training";

/// The run that a word on the command line means: the name of one in `root` or, where there is none, a run's folder.
pub fn find_run(root: &Path, which: &str) -> Result<RunFiles> {
    let (named, path) = (root.join(which), Path::new(which));
    match RunFiles::find(root, which) {
        // What is no name, as it has a slash in it or is a dot, is meant as a path.
        Err(DirectoryError::Name { .. }) if !which.is_empty() => run_in(path, root),
        Err(DirectoryError::NoSuchRun { .. }) if named.is_dir() => run_in(&named, root),
        Err(DirectoryError::NoSuchRun { .. }) if path.is_dir() => run_in(path, root),
        found => Ok(found?),
    }
}

/// The run in a folder, which must be one.
fn run_in(folder: &Path, root: &Path) -> Result<RunFiles> {
    if folder.exists() && !folder.is_dir() {
        bail!(
            "{} is no folder; RUN is a run's name or its folder, and --checkpoint says which checkpoint to play",
            folder.display()
        );
    }
    if !folder.is_dir() {
        bail!("there is no folder {}; {}", folder.display(), names(root)?);
    }
    // `.` has no name of its own, and neither has `..`.
    let folder = match folder.file_name() {
        Some(_) => folder.to_path_buf(),
        None => folder.canonicalize().with_context(|| format!("{} can't be found", folder.display()))?,
    };
    let run = RunFiles::in_folder(&folder);
    if run.is_run() {
        return Ok(run);
    }
    bail!("{} has no run.json, so it is no run's folder; {}", folder.display(), names(root)?)
}

/// A clause with the runs that are there.
fn names(root: &Path) -> Result<String> {
    let runs = RunFiles::all(root)?;
    let names: Vec<&str> = runs.iter().map(RunFiles::name).collect();
    Ok(match names.as_slice() {
        [] => format!("there are no runs in {}", root.display()),
        names => format!("the runs in {} are: {}", root.display(), names.join(", ")),
    })
}

/// The config of a run. One that is missing, damaged or cut off is named, with how to get it back.
pub fn run_config(run: &RunFiles) -> Result<Config> {
    let description = run.description()?;
    let path = run.config_file();
    Config::read(&path).map_err(|error| {
        anyhow!(
            "{error}; put the file back, or write it anew with the settings that the run was started with: `meme config \
             show --preset {1} --set run.seed={2} > {0}`",
            path.display(),
            description.preset,
            description.seed
        )
    })
}

/// Which run, and which of its checkpoints.
#[derive(Args)]
pub struct ChosenRun {
    #[arg(help = RUN_HELP)]
    run: String,
    /// Which checkpoint: best (by evaluation while training), last, or the one at so many frames
    #[arg(long, value_name = "best|last|FRAMES", default_value = "last")]
    checkpoint: Which,
    /// The same seed plays the same episodes [default: the run's]
    #[arg(long, value_parser = options::field("run.seed"))]
    seed: Option<u64>,
    /// Where runs are
    #[arg(long, value_name = "FOLDER", default_value = RUNS)]
    runs: PathBuf,
}

/// A run that is only looked at.
pub struct OpenRun {
    /// Where it is.
    pub files: RunFiles,
    /// What it trains on.
    pub task: Task,
    /// Its config.
    pub config: Config,
    /// What it had trained by then.
    pub checkpoint: Checkpoint,
    /// What the episodes follow from.
    pub seed: u64,
}

impl ChosenRun {
    /// Opens it without holding up who trains it.
    pub fn open(&self) -> Result<OpenRun> {
        let files = find_run(&self.runs, &self.run)?;
        let environment: EnvId = files.description()?.task.parse()?;
        let mut config = run_config(&files)?;
        if config.run.device == Device::Cuda {
            // What was trained on a GPU can be played without one.
            config.run.device = Device::Auto;
        }
        if config.run.threads > 0 {
            tch::set_num_threads(i32::try_from(config.run.threads)?);
        }
        let checkpoint = self.checkpoint.find(&files, &mut |sentence| output::say(format_args!("meme: {sentence}")))?;
        let task = Task { environment, python: home::python()?, package: home::worker_package()? };
        let seed = self.seed.unwrap_or(config.run.seed);
        Ok(OpenRun { files, task, config, checkpoint, seed })
    }
}

impl OpenRun {
    /// Adds to an error whose checkpoint it comes from.
    pub fn because_of_checkpoint<T>(&self, result: train::Result<T>) -> Result<T> {
        result.with_context(|| format!("{} can't be played", self.checkpoint.path().display()))
    }
}

/// How an Atari game is played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtariRules {
    /// An episode begins with 1 to so many frames without an action.
    noop_max: u32,
    sticky_probability: f64,
    action_set: ActionSet,
    action_repeat: u32,
    /// An episode ends after so many frames.
    frame_cap: u32,
}

impl AtariRules {
    /// The rules in a run's config.
    pub fn new(config: &Config) -> Self {
        let env = &config.env;
        Self {
            noop_max: env.noop_max,
            sticky_probability: env.sticky_probability,
            action_set: env.action_set,
            action_repeat: env.action_repeat,
            frame_cap: env.frame_cap,
        }
    }

    /// In words.
    pub fn sentence(&self) -> String {
        let noops = match self.noop_max {
            0 => "no no-ops at the start".to_owned(),
            most => format!("1 to {most} no-ops at the start"),
        };
        let sticky = match self.sticky_probability {
            0.0 => "no sticky actions".to_owned(),
            probability => format!("sticky actions with probability {probability}"),
        };
        let set = match self.action_set {
            ActionSet::Full => "full",
            ActionSet::Minimal => "minimal",
        };
        let (repeat, cap) = (self.action_repeat, crate::output::grouped(self.frame_cap.into()));
        format!(
            "{noops}, {sticky}, the {set} action set, each action held for {repeat} frames, cut off at {cap} frames"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::run::{RunDescription, RunDirectory, Start};

    use super::*;
    use crate::video::folder::Folder;

    /// A run of that name in `root`, as training leaves it.
    fn make_run(root: &Path, name: &str) -> RunFiles {
        let config = Config::default().to_toml().unwrap();
        let description = RunDescription::new("catch", "tiny", 3);
        let (held, _) = RunDirectory::open(root, name, Start::Continue, description, &config).unwrap();
        held.files().clone()
    }

    #[test]
    fn a_run_is_found_by_its_name_and_by_its_folder() {
        let folder = Folder::new();
        let root = folder.path();
        let run = make_run(root, "first");
        let path = run.folder().to_str().unwrap().to_owned();
        for which in ["first".to_owned(), path.clone(), format!("{path}/"), format!("{path}/checkpoints/..")] {
            let found = find_run(root, &which).unwrap();
            assert_eq!((found.name(), found.description_file().exists()), ("first", true), "{which}");
        }
        assert_eq!(find_run(Path::new("nowhere"), &path).unwrap().folder(), run.folder());
    }

    #[test]
    fn a_word_that_means_no_run_is_answered_with_those_there_are() {
        let folder = Folder::new();
        let root = folder.path();
        let refused = |which: &str| find_run(root, which).unwrap_err().to_string();
        let shown = root.display();
        assert_eq!(
            refused("second"),
            format!("there is no run `second` in {shown}; it holds none; --runs names another folder")
        );
        assert_eq!(refused("a/second"), format!("there is no folder a/second; there are no runs in {shown}"));
        make_run(root, "first");
        assert_eq!(refused("second"), format!("there is no run `second` in {shown}; there are: first"));
        assert_eq!(refused("a/second"), format!("there is no folder a/second; the runs in {shown} are: first"));
        assert_eq!(refused(""), "a run can't be named \"\": it is empty");
        let whole = format!("{shown} has no run.json, so it is no run's folder; the runs in {shown} are: first");
        assert_eq!(refused(root.to_str().unwrap()), whole);
    }

    #[test]
    fn files_of_a_run_that_are_missing_or_damaged_are_named_with_a_remedy() {
        let folder = Folder::new();
        let run = make_run(folder.path(), "first");
        assert_eq!(run_config(&run).unwrap(), Config::default());
        let whole = fs::read_to_string(run.config_file()).unwrap();
        let config = run.config_file().display().to_string();
        let remedy = format!(
            "put the file back, or write it anew with the settings that the run was started with: `meme config show \
             --preset tiny --set run.seed=3 > {config}`"
        );
        let half = &whole[..whole.find("[replay]").unwrap()];
        let cut = "it ends before agent.network.intrinsic.rnd_output, so it was cut off";
        for (text, what) in [("", cut), (half, cut), ("[run", "not TOML")] {
            fs::write(run.config_file(), text).unwrap();
            let complaint = run_config(&run).unwrap_err().to_string();
            assert!(complaint.starts_with(&config) && complaint.contains(what), "{complaint}");
            assert!(complaint.ends_with(&remedy), "{complaint}");
        }
        fs::remove_file(run.config_file()).unwrap();
        let complaint = run_config(&run).unwrap_err().to_string();
        let begins = format!("{config}: can't be read: No such file or directory (os error 2); put the file back");
        assert!(complaint.starts_with(&begins), "{complaint}");
        fs::write(run.description_file(), "").unwrap();
        let complaint = run_config(&run).unwrap_err().to_string();
        assert!(complaint.contains("run.json is damaged") && complaint.contains("docs/runs.md"), "{complaint}");
    }

    #[test]
    fn rules_are_said_in_words() {
        let mut config = Config::default();
        assert_eq!(
            AtariRules::new(&config).sentence(),
            "1 to 30 no-ops at the start, no sticky actions, the full action set, each action held for 4 frames, cut \
             off at 108 000 frames"
        );
        (config.env.noop_max, config.env.sticky_probability) = (0, 0.25);
        config.env.action_set = ActionSet::Minimal;
        let sentence = AtariRules::new(&config).sentence();
        let begins = "no no-ops at the start, sticky actions with probability 0.25, the minimal action set";
        assert!(sentence.starts_with(begins), "{sentence}");
    }
}
