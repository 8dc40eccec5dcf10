//! Decides whether and how an existing run resumes. Nothing is written before that is decided.

use thiserror::Error;

use crate::config::{Config, ConfigError, Difference, differences};
use crate::error::TrainError;
use crate::run::RunDirectory;
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Checkpoints, contents};
use crate::runtime::status::RunStatus;

/// Settings that an error names; the others are counted.
const NAMED: usize = 6;

/// Why a run cannot resume as requested.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The run has other settings.
    #[error("run {run} was started with other settings: {}", named(differences))]
    OtherConfig {
        /// The run's name.
        run: String,
        /// Its settings and the requested ones.
        differences: Vec<Difference>,
    },
    /// The run has played more frames than requested.
    #[error("run {run} has played {played} frames already, so it can't end at {requested}")]
    FewerFrames {
        /// The run's name.
        run: String,
        /// Frames played.
        played: u64,
        /// Frames to end at.
        requested: u64,
    },
    /// The configs cannot be compared.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The checkpoints cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The status at the end cannot be read.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// Lists the first differences, such as `learner.batch_size was 32 and is now 8`, and counts the rest.
fn named(differences: &[Difference]) -> String {
    let clause = |difference: &Difference| {
        let [before, now] = difference.written();
        format!("{} was {before} and is now {now}", difference.path)
    };
    let text = differences.iter().take(NAMED).map(clause).collect::<Vec<_>>().join(", ");
    match differences.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}, and {more} more"),
    }
}

/// What an existing run does when it is trained again.
#[derive(Debug)]
pub enum Resumption {
    /// It continues.
    Continues {
        /// The frames it was to end at until now.
        budget_before: u64,
        /// The checkpoint to resume from; without one, the run starts again.
        from: Option<Checkpoint>,
    },
    /// All frames are played.
    Finished(Box<RunStatus>),
}

/// Checks an existing run with the config `known` against the requested config. A run keeps its settings, except for
/// the frames to end at. Damaged checkpoints are reported to `warn`.
pub fn resume(
    directory: &RunDirectory,
    preset: &str,
    known: &Config,
    config: &Config,
    warn: &mut dyn FnMut(&str),
) -> Result<Resumption, ResumeError> {
    let files = &directory.files;
    let run = || files.name().to_owned();
    let checkpoints = Checkpoints::in_directory(&files.checkpoints_directory()).for_playing();
    let saved = checkpoints.list()?;
    if saved.is_empty() && directory.description.saved {
        return Err(checkpoints.gone().into());
    }
    let mut as_long = known.clone();
    as_long.run.frames = config.run.frames;
    let differences = differences(&as_long, config)?;
    if !differences.is_empty() && !may_change(directory, &checkpoints, preset, config)? {
        return Err(ResumeError::OtherConfig { run: run(), differences });
    }
    let (budget, budget_before) = (config.run.frames, known.run.frames);
    // Damaged ones are reported below, when the run resumes from another.
    if saved.last().is_some_and(|&played| played >= budget)
        && let Some(newest) = checkpoints.newest_intact(&mut |_| {})?
    {
        let played = newest.frames();
        if played > budget && budget < budget_before {
            return Err(ResumeError::FewerFrames { run: run(), played, requested: budget });
        }
        // A run that was killed while it saved its end has yet to save it.
        if let Some(status) = contents::final_status(&newest)?.filter(|_| played >= budget) {
            return Ok(Resumption::Finished(Box::new(RunStatus { budget, ..status })));
        }
    }
    Ok(Resumption::Continues { budget_before, from: newest_checkpoint(directory, config, warn)? })
}

/// Opens the newest intact checkpoint of a run. Damaged ones, also the best, are renamed and reported to `warn`.
pub fn newest_checkpoint(
    directory: &RunDirectory,
    config: &Config,
    warn: &mut dyn FnMut(&str),
) -> Result<Option<Checkpoint>, CheckpointError> {
    let store = CheckpointStore::open(&directory.files.checkpoints_directory(), config.checkpoint.keep_last)?;
    let newest = store.resume(warn)?;
    // If the run starts again, the trainer renames the best checkpoint, damaged or not.
    if newest.is_some() {
        store.set_damaged_best_aside(warn)?;
    }
    Ok(newest)
}

/// Whether nothing is lost if the run continues with another config, as after a failure before the first checkpoint.
fn may_change(
    directory: &RunDirectory,
    checkpoints: &Checkpoints,
    preset: &str,
    config: &Config,
) -> Result<bool, CheckpointError> {
    let description = &directory.description;
    let same = (description.preset.as_str(), description.seed) == (preset, config.run.seed);
    Ok(same && checkpoints.list()?.is_empty() && checkpoints.best()?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_differences_after_the_first_few() {
        let difference = |path| Difference { path, left: 1.into(), right: 2.into() };
        assert_eq!(named(&[difference("a"), difference("b")]), "a was 1 and is now 2, b was 1 and is now 2");
        let text = named(&["a", "b", "c", "d", "e", "f", "g", "h"].map(difference));
        assert!(text.ends_with("e was 1 and is now 2, f was 1 and is now 2, and 2 more"), "{text}");
    }
}
