//! Configuration of a worker process.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::message::PROTOCOL;
use crate::env_id::EnvId;
use crate::error::EnvError;
use crate::view::View;

/// A worker process and its environments.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// An Atari game or a Gymnasium environment.
    pub environment: EnvId,
    /// The Python interpreter, with `numpy` and `ale-py` or `gymnasium` installed.
    pub python: PathBuf,
    /// The directory of the Python package `meme_worker`.
    pub package: PathBuf,
    /// Index of the worker's first environment in the whole run.
    pub first_index: u64,
    /// Number of environments in all groups together.
    pub environments: usize,
    /// Number of groups that are stepped separately: 1 or 2.
    pub groups: usize,
    /// The run's seed.
    pub seed: u64,
    /// Options of Atari games.
    pub ale: AleOptions,
    /// Frames after which an episode is truncated, if the environment has not ended it before.
    pub frame_cap: Option<u64>,
    /// Addresses of an Atari game's RAM, 0 to 127, whose bytes each step reports.
    pub ram: Vec<u8>,
    /// Largest side of an image in pixels, at least 1; larger ones are averaged down by an integer factor.
    pub max_side: Option<usize>,
    /// What the agent sees of the images.
    pub view: View,
    /// Whether a Gymnasium environment is made so that it can [`render`](crate::Environments::render).
    pub render: bool,
    /// Time limits.
    pub limits: Limits,
}

/// Options of Atari games; the defaults are the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AleOptions {
    /// Frames for which an action is held; the observation is the maximum over the last two.
    pub action_repeat: u32,
    /// Maximum number of no-ops at the start of an episode; 0 for none.
    ///
    /// Their number is random and at least 1.
    pub noop_max: u32,
    /// Probability at each frame of repeating the previous frame's action instead.
    pub sticky_probability: f64,
    /// All 18 actions, or only those with an effect in this game.
    pub full_actions: bool,
    /// Frames, including no-ops, after which an episode is truncated.
    pub frame_cap: u64,
}

impl Default for AleOptions {
    fn default() -> Self {
        Self { action_repeat: 4, noop_max: 30, sticky_probability: 0.0, full_actions: true, frame_cap: 108_000 }
    }
}

/// How long a worker may take and how often it may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit of the start, and of each reset, save and restore.
    pub start_up: Duration,
    /// Time limit of each step of a group.
    pub step: Duration,
    /// Failures in a row, without a successful step, after which the worker is given up.
    pub failures: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { start_up: Duration::from_secs(120), step: Duration::from_secs(30), failures: 3 }
    }
}

impl WorkerConfig {
    /// Configures one environment with seed 0 and the paper's options.
    pub fn new(environment: EnvId, python: impl Into<PathBuf>, package: impl Into<PathBuf>) -> Self {
        Self {
            environment,
            python: python.into(),
            package: package.into(),
            first_index: 0,
            environments: 1,
            groups: 1,
            seed: 0,
            ale: AleOptions::default(),
            frame_cap: None,
            ram: Vec::new(),
            max_side: None,
            view: View::default(),
            render: false,
            limits: Limits::default(),
        }
    }

    /// Environments in each group.
    pub(crate) fn group_size(&self) -> usize {
        self.environments / self.groups
    }

    /// Refuses invalid numbers of environments and groups.
    pub(crate) fn check_counts(&self) -> Result<(), EnvError> {
        if !(1..=2).contains(&self.groups) {
            return wrong("groups", self.groups, "1 or 2");
        }
        if self.environments == 0 || !self.environments.is_multiple_of(self.groups) || self.environments > 4096 {
            let allowed = format!("a multiple of {} groups, at most 4096", self.groups);
            return wrong("environments", self.environments, allowed);
        }
        Ok(())
    }

    /// Refuses the first invalid setting of a worker.
    pub(super) fn check(&self) -> Result<(), EnvError> {
        self.check_counts()?;
        check_ram(&self.environment, &self.ram)?;
        if let EnvId::Task(name) = &self.environment {
            return wrong("the environment of a worker", name, "an Atari game or a gym: environment");
        }
        if !(1..=1000).contains(&self.ale.action_repeat) {
            return wrong("action_repeat", self.ale.action_repeat, "1 to 1000 frames");
        }
        if !(0.0..1.0).contains(&self.ale.sticky_probability) {
            return wrong("sticky_probability", self.ale.sticky_probability, "a probability from 0 to less than 1");
        }
        if self.ale.frame_cap <= u64::from(self.ale.noop_max) {
            return wrong("frame_cap", self.ale.frame_cap, format!("more than the {} no-ops", self.ale.noop_max));
        }
        for (field, limit) in [("the start-up limit", self.limits.start_up), ("the step limit", self.limits.step)] {
            if limit < Duration::from_millis(1) {
                return wrong(field, format!("{limit:?}"), "at least 1ms");
            }
        }
        if self.limits.failures == 0 {
            return wrong("the limit of failures", 0, "at least 1");
        }
        Ok(())
    }

    /// Returns the configuration as the worker receives it.
    pub(super) fn to_json(&self) -> Value {
        let environment = match &self.environment {
            EnvId::Atari(rom) => json!({
                "kind": "ale",
                "rom": rom,
                "action_repeat": self.ale.action_repeat,
                "noop_max": self.ale.noop_max,
                "sticky_probability": self.ale.sticky_probability,
                "full_actions": self.ale.full_actions,
                "frame_cap": self.frame_cap.map_or(self.ale.frame_cap, |cap| cap.min(self.ale.frame_cap)),
                "ram": self.ram,
            }),
            EnvId::Gym { module, id } => {
                json!({
                    "kind": "gym",
                    "module": module,
                    "id": id,
                    "frame_cap": self.frame_cap,
                    "render": self.render,
                })
            }
            EnvId::Task(_) => unreachable!("`check` refuses built-in tasks"),
        };
        json!({
            "protocol": PROTOCOL,
            "environment": environment,
            "first_index": self.first_index,
            "environments": self.environments,
            "groups": self.groups,
            "seed": self.seed,
        })
    }
}

/// Bytes of RAM of an Atari 2600.
const RAM_BYTES: u8 = 128;

/// Refuses RAM addresses that `environment` does not have: only Atari games have RAM, of 128 bytes.
pub fn check_ram(environment: &EnvId, addresses: &[u8]) -> Result<(), EnvError> {
    if addresses.is_empty() {
        return Ok(());
    }
    if !matches!(environment, EnvId::Atari(_)) {
        return wrong(
            "env.ram",
            format!("{addresses:?}"),
            format!("none for {environment}: only Atari games have RAM"),
        );
    }
    if addresses.iter().any(|&address| address >= RAM_BYTES) {
        return wrong("env.ram", format!("{addresses:?}"), format!("addresses from 0 to {}", RAM_BYTES - 1));
    }
    Ok(())
}

fn wrong(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> Result<(), EnvError> {
    Err(EnvError::Setting { field, value: value.to_string(), allowed: allowed.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut WorkerConfig)) -> String {
        let mut config = WorkerConfig::new("pong".parse().unwrap(), "python", "meme_worker");
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn names_each_invalid_setting_and_its_valid_values() {
        assert_eq!(refused(|c| c.groups = 3), "groups is 3, expected 1 or 2");
        assert!(refused(|c| (c.groups, c.environments) = (2, 7)).starts_with("environments is 7"));
        assert!(refused(|c| c.environments = 0).starts_with("environments is 0"));
        assert!(refused(|c| c.ale.sticky_probability = 1.0).starts_with("sticky_probability is 1,"));
        assert!(refused(|c| c.ale.sticky_probability = f64::NAN).starts_with("sticky_probability is NaN"));
        assert!(refused(|c| c.ale.action_repeat = 0).starts_with("action_repeat is 0"));
        assert!(refused(|c| c.ale.frame_cap = 30).starts_with("frame_cap is 30"));
        assert!(refused(|c| c.limits.step = Duration::ZERO).starts_with("the step limit is 0ns"));
        assert!(refused(|c| c.limits.failures = 0).contains("at least 1"));
        assert!(refused(|c| c.environment = "catch".parse().unwrap()).contains("an Atari game or a gym: environment"));
        assert_eq!(refused(|c| c.ram = vec![3, 128]), "env.ram is [3, 128], expected addresses from 0 to 127");
        let refused = refused(|c| (c.environment, c.ram) = ("gym:CartPole-v1".parse().unwrap(), vec![3]));
        assert_eq!(refused, "env.ram is [3], expected none for gym:CartPole-v1: only Atari games have RAM");
    }
}
