//! Finds Python and reads observations.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};

use envs::{Environments, WorkerConfig};

/// Returns the root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the Python interpreter that has ale-py and Gymnasium.
pub fn python() -> PathBuf {
    std::env::var_os("MEME_PYTHON").map_or_else(|| workspace().join(".venv/bin/python"), PathBuf::from)
}

/// Returns whether to run the long versions of the tests.
pub fn test_all() -> bool {
    std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1")
}

/// Configures a worker of the environment with this name.
pub fn config(name: &str) -> WorkerConfig {
    WorkerConfig::new(name.parse().expect("a valid name"), python(), workspace().join("python/meme_worker"))
}

/// Returns the observation to act on.
pub fn observation(environments: &dyn Environments, group: usize, env: usize) -> Vec<u8> {
    let mut out = vec![0; environments.spec().observation_bytes()];
    environments.observation(group, env, &mut out);
    out
}

/// Returns the observation that ended the episode.
pub fn last_observation(environments: &dyn Environments, group: usize, env: usize) -> Vec<u8> {
    let mut out = vec![0; environments.spec().observation_bytes()];
    environments.last_observation(group, env, &mut out);
    out
}
