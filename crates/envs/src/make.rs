//! Makes environments of any kind.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::env_id::EnvId;
use crate::environments::Environments;
use crate::error::EnvError;
use crate::shrunk::ShrunkEnvironments;
use crate::tasks::TaskEnvironments;
use crate::view::{View, ViewedEnvironments};
use crate::workers::{WorkerConfig, WorkerEnvironments};

/// Makes the environments that `config` describes.
///
/// Built-in tasks need no worker process: they run in the caller's thread and use only counts, index and seed.
pub fn make(config: &WorkerConfig) -> Result<Box<dyn Environments>, EnvError> {
    let environments: Box<dyn Environments> = match &config.environment {
        EnvId::Task(name) => Box::new(TaskEnvironments::new(name, config)?),
        EnvId::Atari(_) | EnvId::Gym { .. } => Box::new(WorkerEnvironments::new(config.clone())?),
    };
    let environments = match config.max_side {
        Some(side) => ShrunkEnvironments::wrap(environments, side),
        None => environments,
    };
    if config.view == View::default() {
        return Ok(environments);
    }
    Ok(Box::new(ViewedEnvironments::new(environments, config.view)?))
}

/// Makes one set of environments per config, in order.
///
/// As many workers start at once as there are cores.
///
/// If one fails, no more are started, and those already started are ended.
pub fn make_all(configs: &[WorkerConfig]) -> Result<Vec<Box<dyn Environments>>, EnvError> {
    let waiting = Mutex::new(configs.iter().enumerate());
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut made = Vec::new();
        while let Some((place, config)) = take() {
            let set = make(config);
            if set.is_err() {
                while take().is_some() {}
            }
            made.push((place, set));
        }
        made
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(configs.len());
    let mut made = thread::scope(|scope| {
        // If a thread cannot be started, the others do its work.
        let start = |_| thread::Builder::new().name("env-starter".to_owned()).spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).filter_map(start).collect();
        let mut made = work();
        for helper in helpers {
            made.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        made
    });
    made.sort_by_key(|(place, _)| *place);
    made.into_iter().map(|(_, set)| set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_tasks_without_python() {
        let mut config = WorkerConfig::new("deep_sea:12".parse().unwrap(), "/no/python", "/no/package");
        (config.environments, config.groups) = (6, 2);
        let environments = make(&config).unwrap();
        assert_eq!((environments.groups(), environments.group_size()), (2, 3));
        assert_eq!(environments.spec().name, "deep_sea:12");
        config.environments = 5;
        assert!(make(&config).is_err());
        (config.environments, config.ram) = (6, vec![3]);
        let sentence = make(&config).err().unwrap().to_string();
        assert_eq!(sentence, "env.ram is [3], expected none for deep_sea:12: only Atari games have RAM");
    }

    #[test]
    fn makes_all_in_order_or_none() {
        let tasks = ["deep_sea:12", "catch", "memory:8", "key_door:9", "deep_sea:13", "deep_sea:14", "catch"];
        let config = |name: &&str| WorkerConfig::new(name.parse().unwrap(), "/no/python", "/no/package");
        let mut configs: Vec<_> = tasks.iter().map(config).collect();
        let made = make_all(&configs).unwrap();
        assert_eq!(made.iter().map(|set| set.spec().name.as_str()).collect::<Vec<_>>(), tasks);
        assert!(make_all(&[]).unwrap().is_empty());
        // If two fail, the first error is returned.
        (configs[2], configs[4]) = (config(&"pong"), config(&"breakout"));
        let sentence = make_all(&configs).err().unwrap().to_string();
        assert!(sentence.contains("pong failed to start (/no/python): No such file"), "{sentence}");
    }

    #[test]
    fn names_missing_python() {
        let config = WorkerConfig::new("pong".parse().unwrap(), "/no/python", "/no/package");
        let sentence = make(&config).err().unwrap().to_string();
        assert!(sentence.contains("pong failed to start (/no/python): No such file"), "{sentence}");
    }
}
