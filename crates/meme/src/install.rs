//! Paths of the files that belong to this program: the worker package and the Python that runs it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use envs::{EnvId, WorkerConfig};
use train::runtime::assembly::Task;

/// The directory that contains `python/meme_worker`: the checkout or the unpacked bundle.
fn root() -> Result<PathBuf> {
    if let Some(root) = env::var_os("MEME_HOME") {
        let root = PathBuf::from(root);
        if !contains_worker(&root) {
            bail!("MEME_HOME is {}, which does not contain python/meme_worker", root.display());
        }
        return Ok(root);
    }
    let binary = env::current_exe().context("cannot find the path of this program")?;
    match binary.ancestors().skip(1).find(|directory| contains_worker(directory)) {
        Some(directory) => Ok(directory.to_path_buf()),
        None => bail!(
            "found no python/meme_worker next to or above {}; set MEME_HOME to the checkout or bundle that contains it",
            binary.display()
        ),
    }
}

fn contains_worker(directory: &Path) -> bool {
    directory.join("python/meme_worker/__main__.py").is_file()
}

/// The Python package that runs environments in worker processes.
pub fn worker_package() -> Result<PathBuf> {
    Ok(root()?.join("python/meme_worker"))
}

/// The Python for workers: `MEME_PYTHON`, the local virtual environment's, or `python3`.
pub fn python() -> Result<PathBuf> {
    if let Some(python) = env::var_os("MEME_PYTHON") {
        return Ok(PathBuf::from(python));
    }
    let local = root()?.join(".venv/bin/python");
    Ok(if local.exists() { local } else { PathBuf::from("python3") })
}

/// The task of training or playing in an environment.
pub fn task(environment: EnvId) -> Result<Task> {
    Ok(Task { environment, python: python()?, package: worker_package()? })
}

/// The default worker config for an environment.
pub fn worker_config(environment: EnvId) -> Result<WorkerConfig> {
    Ok(WorkerConfig::new(environment, python()?, worker_package()?))
}
