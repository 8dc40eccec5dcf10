//! The run and the checkpoint that a command plays.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::assembly::Task;
use train::config::{ActionSet, Config, Device};
use train::run::RunFiles;
use train::run::checkpoint::Checkpoint;
use train::trained::Which;

use crate::{home, output};

/// Which run, and which of its checkpoints.
#[derive(Args)]
pub struct ChosenRun {
    /// The run's name (`meme runs` lists them); it may be training
    run: String,
    /// Which checkpoint: best (by evaluation while training), last, or the one at so many frames
    #[arg(long, value_name = "best|last|FRAMES", default_value = "last")]
    checkpoint: Which,
    /// The same seed plays the same episodes [default: the run's]
    #[arg(long)]
    seed: Option<u64>,
    /// Where runs are
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
}

/// A run that is only looked at.
pub struct OpenRun {
    /// Its name.
    pub name: String,
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
        let files = RunFiles::find(&self.runs, &self.run)?;
        let environment: EnvId = files.description()?.task.parse()?;
        let mut config = Config::read(&files.config_file())?;
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
        Ok(OpenRun { name: self.run.clone(), task, config, checkpoint, seed })
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
    use super::*;

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
