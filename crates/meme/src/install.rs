//! Paths of the files that belong to this program: the worker package and the Python that runs it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use envs::{EnvId, WorkerConfig};
use train::environments::Task;

/// Where the Python packages lie below an installation: a checkout or bundle, or Python's own packages.
const PACKAGES: [&str; 2] = ["python", ""];

/// The directory of the Python packages that belong to this program, `meme_worker` and `meme_rl`.
pub fn packages() -> Result<PathBuf> {
    if let Some(home) = env::var_os("MEME_HOME") {
        let home = PathBuf::from(home);
        return packages_in(&home)
            .with_context(|| format!("MEME_HOME is {}, which does not contain python/meme_worker", home.display()));
    }
    let binary = env::current_exe().context("cannot find the path of this program")?;
    binary.ancestors().skip(1).find_map(packages_in).with_context(|| {
        format!(
            "found no python/meme_worker next to or above {}; set MEME_HOME to the checkout or bundle that contains it",
            binary.display()
        )
    })
}

fn packages_in(directory: &Path) -> Option<PathBuf> {
    let packages = PACKAGES.iter().map(|inner| directory.join(inner));
    packages.into_iter().find(|packages| packages.join("meme_worker/__main__.py").is_file())
}

/// The Python package that runs environments in worker processes.
pub fn worker_package() -> Result<PathBuf> {
    Ok(packages()?.join("meme_worker"))
}

/// The Python for workers: `MEME_PYTHON`, the local virtual environment's, or `python3`.
pub fn python() -> Result<PathBuf> {
    if let Some(python) = env::var_os("MEME_PYTHON") {
        return Ok(PathBuf::from(python));
    }
    let packages = packages()?;
    let local = packages.parent().unwrap_or(&packages).join(".venv/bin/python");
    Ok(if local.exists() { local } else { PathBuf::from("python3") })
}

/// The Python that has Ray: `MEME_CLUSTER_PYTHON`, or that for workers.
pub fn cluster_python() -> Result<PathBuf> {
    env::var_os("MEME_CLUSTER_PYTHON").map_or_else(python, |python| Ok(PathBuf::from(python)))
}

/// What restores this installation.
pub fn repair() -> &'static str {
    let in_checkout = packages().is_ok_and(|packages| packages.with_file_name("Cargo.toml").is_file());
    if in_checkout { "run `make build`" } else { "install the package meme-rl again with pip" }
}

/// The task of training or playing in an environment.
pub fn task(environment: EnvId) -> Result<Task> {
    Ok(Task { environment, python: python()?, package: worker_package()? })
}

/// The default worker config for an environment.
pub fn worker_config(environment: EnvId) -> Result<WorkerConfig> {
    Ok(WorkerConfig::new(environment, python()?, worker_package()?))
}
