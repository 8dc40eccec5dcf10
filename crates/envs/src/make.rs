//! One way to make environments of any kind.

use crate::env_id::EnvId;
use crate::environments::Environments;
use crate::error::EnvError;
use crate::tasks::{TaskEnvironments, TaskSet};
use crate::workers::{WorkerConfig, WorkerEnvironments};

/// Makes the environments that `config` describes: a worker process, or for a built-in task none, since tasks run in
/// the caller's thread and need only counts, index and seed.
pub fn make(config: &WorkerConfig) -> Result<Box<dyn Environments>, EnvError> {
    config.check_counts()?;
    config.check_ram()?;
    if let EnvId::Task(name) = &config.environment {
        let set = TaskSet {
            groups: config.groups,
            group_size: config.environments / config.groups,
            run_seed: config.seed,
            first_environment: config.first_index,
        };
        return Ok(Box::new(TaskEnvironments::new(name, set)?));
    }
    Ok(Box::new(WorkerEnvironments::new(config.clone())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_needs_no_python() {
        let mut config = WorkerConfig::new("deep_sea:12".parse().unwrap(), "/no/python", "/no/package");
        (config.environments, config.groups) = (6, 2);
        let environments = make(&config).unwrap();
        assert_eq!((environments.groups(), environments.group_size()), (2, 3));
        assert_eq!(environments.spec().name, "deep_sea:12");
        config.environments = 5;
        assert!(make(&config).is_err());
        (config.environments, config.ram) = (6, vec![3]);
        let sentence = make(&config).err().unwrap().to_string();
        assert_eq!(sentence, "env.ram is [3], and must be empty for deep_sea:12: only Atari games have RAM");
    }

    #[test]
    fn a_missing_python_is_named() {
        let config = WorkerConfig::new("pong".parse().unwrap(), "/no/python", "/no/package");
        let sentence = make(&config).err().unwrap().to_string();
        assert!(sentence.contains("pong could not be started (/no/python): No such file"), "{sentence}");
    }
}
