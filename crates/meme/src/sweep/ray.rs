//! `--on ray` and `meme cluster`: the Python driver that talks to Ray.

use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use train::run::stop::Stop;

use super::PlannedSweep;
use crate::child::wait_forwarding_stop;
use crate::install;

/// Options about a Ray cluster.
#[derive(clap::Args, Default)]
pub struct RayArgs {
    /// Address of a Ray cluster, such as auto or ray://HEAD:10001 [default: one is started on this machine]
    #[arg(long, value_name = "ADDRESS")]
    pub ray_address: Option<String>,
    /// Cores that a run or a learner needs [default: 4 with a GPU, otherwise 1]
    #[arg(long, value_name = "N")]
    pub ray_cpus: Option<f64>,
    /// GPUs that a run or a learner needs [default: 1 if the cluster has any]
    #[arg(long, value_name = "N")]
    pub ray_gpus: Option<f64>,
}

impl RayArgs {
    /// The driver with the address, and the options that follow its command.
    pub fn driver(&self, command: &str) -> Result<Command> {
        let mut driver = Command::new(install::cluster_python()?);
        driver.args(["-P", "-m", "meme_cluster"]).env("PYTHONPATH", install::packages()?);
        if let Some(address) = &self.ray_address {
            driver.args(["--ray-address", address]);
        }
        driver.arg(command).arg("--meme").arg(std::env::current_exe().context("cannot find the path of this program")?);
        for (option, value) in [("--cpus", self.ray_cpus), ("--gpus", self.ray_gpus)] {
            if let Some(value) = value {
                driver.args([option, &value.to_string()]);
            }
        }
        Ok(driver)
    }
}

/// Runs the driver to its end. A stop is passed on to it.
pub fn run(mut driver: Command, stop: &Stop) -> Result<ExitStatus> {
    use std::os::unix::process::CommandExt;
    // A group of its own: Ctrl-C reaches this process, which passes it on once.
    driver.process_group(0);
    let child = driver.spawn().with_context(|| format!("cannot start {}", driver.get_program().display()))?;
    wait_forwarding_stop(child, "the driver", stop)
}

/// Trains the runs of a sweep on a Ray cluster.
pub(super) fn train(args: &RayArgs, sweep: &PlannedSweep<'_>, stop: &Stop) -> Result<ExitStatus> {
    let PlannedSweep { name, directory, manifest, left, retries } = sweep;
    let mut driver = args.driver("sweep")?;
    let runs = std::path::absolute(directory.path())?;
    driver.arg("--runs").arg(runs.parent().unwrap_or(Path::new(".")));
    driver.args(["--name", name, "--id", &manifest.id, "--retries", &retries.to_string()]);
    driver.args(left.iter().map(|run| &run.name));
    run(driver, stop)
}
