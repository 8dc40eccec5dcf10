//! The environments of a run: which ones, in which workers, and with which seeds.

use std::path::PathBuf;

use agent::ObservationSpec;
use envs::seeds::mix;
use envs::{EnvId, EnvSpec, Environments, WorkerConfig};

use crate::config::Config;
use crate::error::Result;

/// The environment to play, and where its workers come from.
#[derive(Clone, Debug)]
pub struct Task {
    /// The environment.
    pub environment: EnvId,
    /// The Python interpreter that runs workers.
    pub python: PathBuf,
    /// Directory of the package `meme_worker`.
    pub package: PathBuf,
}

/// Purpose of a seed; each has its own random numbers.
#[derive(Clone, Copy)]
pub(crate) enum SeedPurpose {
    Environments,
    Parameters,
    Draws,
    Bandit,
    Exploration,
}

pub(crate) fn seed_for(run: u64, purpose: SeedPurpose) -> u64 {
    mix(mix(run) ^ purpose as u64)
}

pub(crate) fn observation_spec(spec: &EnvSpec) -> ObservationSpec {
    ObservationSpec { parts: spec.observation_arrays() }
}

/// Number of environments in a set.
pub(crate) fn environment_count(set: &dyn Environments) -> usize {
    set.groups() * set.group_size()
}

/// Makes `count` environments whose indices start at `first`, one set per worker.
///
/// Their episodes are truncated after `frame_cap` frames.
pub(crate) fn make_sets(
    task: &Task,
    config: &Config,
    first: usize,
    count: usize,
    frame_cap: Option<u32>,
) -> Result<Vec<Box<dyn Environments>>> {
    let mut workers = workers(task, config, first, count);
    workers.iter_mut().for_each(|worker| worker.frame_cap = frame_cap.map(u64::from));
    Ok(envs::make_all(&workers)?)
}

/// The workers that run `count` environments whose indices start at `first`.
pub(crate) fn workers(task: &Task, config: &Config, first: usize, count: usize) -> Vec<WorkerConfig> {
    let per_worker = config.actors.environments_per_worker;
    let worker = |made: usize| worker(task, config, (first + made) as u64, per_worker.min(count - made));
    (0..count).step_by(per_worker).map(worker).collect()
}

/// The worker that runs environments whose indices start at `first`.
pub(crate) fn worker(task: &Task, config: &Config, first: u64, environments: usize) -> WorkerConfig {
    WorkerConfig {
        environment: task.environment.clone(),
        python: task.python.clone(),
        package: task.package.clone(),
        first_index: first,
        environments,
        groups: config.actors.groups_of(environments),
        seed: seed_for(config.run.seed, SeedPurpose::Environments),
        ale: config.env.ale_options(),
        frame_cap: None,
        ram: config.env.ram.clone(),
        max_side: config.env.max_side,
        view: config.env.view(),
        render: false,
        limits: config.env.limits(),
    }
}
