//! What a command finds where its run is there already: the run goes on, it is finished, or the command is refused.
//! Nothing is written before that is known.

use std::fmt::Write;

use thiserror::Error;

use crate::config::{Config, ConfigError, Difference, differences};
use crate::error::TrainError;
use crate::run::RunDirectory;
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Checkpoints};
use crate::runtime::status::RunStatus;
use crate::saving;

/// Settings that a refusal names; the others are counted.
const NAMED: usize = 6;

/// Why a run can't go on as it was asked to.
#[derive(Debug, Error)]
pub enum BeginningError {
    /// The run has other settings.
    #[error(
        "run {run} was started with other settings: {}; leave them as they were, give this one another --name, or \
         --fresh sets the run aside and starts over",
        named(differences)
    )]
    OtherConfig {
        /// The run's name.
        run: String,
        /// What it has, and what was asked for.
        differences: Vec<Difference>,
    },
    /// More frames are played than were asked for.
    #[error(
        "run {run} has played {played} frames already, so it can't end at {asked}; a --frames above that trains on"
    )]
    FewerFrames {
        /// The run's name.
        run: String,
        /// Frames it has played.
        played: u64,
        /// Frames it is to end at now.
        asked: u64,
    },
    /// The configs can't be compared.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its checkpoints can't be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// How it ended can't be read.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// `learner.batch_size was 32 and is now 8`, for the first few, and how many more there are.
fn named(differences: &[Difference]) -> String {
    let mut text = String::new();
    for (i, difference) in differences.iter().take(NAMED).enumerate() {
        let (path, [left, right]) = (difference.path, difference.written());
        let comma = if i == 0 { "" } else { ", " };
        // Writing to a string can't fail.
        let _ = write!(text, "{comma}{path} was {left} and is now {right}");
    }
    match differences.len().saturating_sub(NAMED) {
        0 => text,
        more => text + &format!(", and {more} more"),
    }
}

/// How a run that is there already meets the config that it is to go on with.
#[derive(Debug)]
pub enum Beginning {
    /// It goes on.
    GoesOn {
        /// The frames it was to end at until now.
        budget_before: u64,
        /// What it goes on from. Where nothing was saved, it begins again.
        from: Option<Checkpoint>,
    },
    /// All frames are played.
    Finished(Box<RunStatus>),
}

/// Meets a run that is there, of the config `known`, with the config of this start. A run keeps its settings, except for
/// the frames to end at: those may be any number that is not yet passed. What a person should know is told to `say`.
pub fn meet(
    directory: &RunDirectory,
    preset: &str,
    known: &Config,
    config: &Config,
    say: &mut dyn FnMut(&str),
) -> Result<Beginning, BeginningError> {
    let files = directory.files();
    let run = || files.name().to_owned();
    let checkpoints = Checkpoints::in_folder(&files.checkpoints_folder()).without(saving::REPLAY);
    let saved = checkpoints.list()?;
    if saved.is_empty() && directory.description().saved {
        return Err(checkpoints.gone().into());
    }
    let mut as_long = known.clone();
    as_long.run.frames = config.run.frames;
    let differences = differences(&as_long, config)?;
    if !differences.is_empty() && !may_change(directory, &checkpoints, preset, config)? {
        return Err(BeginningError::OtherConfig { run: run(), differences });
    }
    let (budget, budget_before) = (config.run.frames, known.run.frames);
    // Damaged ones are told when the run goes on from another.
    if saved.last().is_some_and(|&played| played >= budget)
        && let Some(newest) = checkpoints.newest_valid(&mut |_| {})?
    {
        let played = newest.frames();
        if played > budget && budget < budget_before {
            return Err(BeginningError::FewerFrames { run: run(), played, asked: budget });
        }
        // One that was killed while its end was saved has that still to do.
        if let Some(end) = saving::end(&newest)?.filter(|_| played >= budget) {
            return Ok(Beginning::Finished(Box::new(RunStatus { budget, ..end })));
        }
    }
    Ok(Beginning::GoesOn { budget_before, from: resume(directory, config, say)? })
}

/// What a run goes on from, all of it checked: its newest checkpoint that is whole. Damaged ones, the best among them, are
/// set aside and told to `say`.
pub fn resume(
    directory: &RunDirectory,
    config: &Config,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Checkpoint>, CheckpointError> {
    let folder = directory.files().checkpoints_folder();
    let store = CheckpointStore::open(&folder, config.checkpoint.keep_last)?;
    let newest = store.resume(say)?;
    // That of a run that begins again is set aside by the trainer, damaged or not.
    if newest.is_some() {
        store.set_damaged_best_aside(say)?;
    }
    Ok(newest)
}

/// Whether nothing would be lost if the run went on with another config: one that failed before its first checkpoint,
/// for instance because memory ran out, is begun again with what it was told to set.
fn may_change(
    directory: &RunDirectory,
    checkpoints: &Checkpoints,
    preset: &str,
    config: &Config,
) -> Result<bool, CheckpointError> {
    let description = directory.description();
    let same = (description.preset.as_str(), description.seed) == (preset, config.run.seed);
    Ok(same && checkpoints.list()?.is_empty() && checkpoints.best()?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_differences_are_counted_after_the_first_few() {
        let difference = |path| Difference { path, left: 1.into(), right: 2.into() };
        assert_eq!(named(&[difference("a"), difference("b")]), "a was 1 and is now 2, b was 1 and is now 2");
        let text = named(&["a", "b", "c", "d", "e", "f", "g", "h"].map(difference));
        assert!(text.ends_with("e was 1 and is now 2, f was 1 and is now 2, and 2 more"), "{text}");
    }
}
