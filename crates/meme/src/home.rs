//! Where the files that belong to this binary are: the worker package, the presets, the Python that runs workers.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The folder that holds `python/meme_worker`: the checkout, or the unpacked bundle.
pub fn folder() -> Result<PathBuf> {
    if let Some(home) = env::var_os("MEME_HOME") {
        let home = PathBuf::from(home);
        if !holds_worker(&home) {
            bail!("MEME_HOME is {}, which has no python/meme_worker in it", home.display());
        }
        return Ok(home);
    }
    let binary = env::current_exe().context("this program's own path can't be read")?;
    match binary.ancestors().skip(1).find(|folder| holds_worker(folder)) {
        Some(folder) => Ok(folder.to_path_buf()),
        None => bail!(
            "python/meme_worker was not found beside or above {}; set MEME_HOME to the checkout or bundle it is in",
            binary.display()
        ),
    }
}

fn holds_worker(folder: &Path) -> bool {
    folder.join("python/meme_worker/__main__.py").is_file()
}

/// The worker package, which Python runs as it is.
pub fn worker_package() -> Result<PathBuf> {
    Ok(folder()?.join("python/meme_worker"))
}

/// The Python that runs workers: `MEME_PYTHON`, else the local virtual environment's, else `python3`.
pub fn python() -> Result<PathBuf> {
    if let Some(python) = env::var_os("MEME_PYTHON") {
        return Ok(PathBuf::from(python));
    }
    let local = folder()?.join(".venv/bin/python");
    Ok(if local.exists() { local } else { PathBuf::from("python3") })
}
