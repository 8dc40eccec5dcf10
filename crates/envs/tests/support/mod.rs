//! Where the tests find Python, and what they ask of the environments.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};

use envs::{Environments, WorkerConfig};

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Python interpreter that has ale-py and Gymnasium.
pub fn python() -> PathBuf {
    std::env::var_os("MEME_PYTHON").map_or_else(|| workspace().join(".venv/bin/python"), PathBuf::from)
}

/// Whether the long versions of the tests were asked for.
pub fn test_all() -> bool {
    std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1")
}

/// A worker of the environment with this name.
pub fn config(name: &str) -> WorkerConfig {
    WorkerConfig::new(name.parse().expect("a valid name"), python(), workspace().join("python/meme_worker"))
}

/// The observation to act on.
pub fn observation(environments: &dyn Environments, group: usize, env: usize) -> Vec<u8> {
    let mut out = vec![0; environments.spec().observation_bytes()];
    environments.observation(group, env, &mut out);
    out
}

/// The observation that ended the episode.
pub fn last_observation(environments: &dyn Environments, group: usize, env: usize) -> Vec<u8> {
    let mut out = vec![0; environments.spec().observation_bytes()];
    environments.last_observation(group, env, &mut out);
    out
}
