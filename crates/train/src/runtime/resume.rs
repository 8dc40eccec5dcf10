//! Decides whether and how an existing run resumes. Deciding writes nothing.

use config_schema::text::list_first;
use thiserror::Error;

use crate::config::{Config, ConfigError, Difference, differences, fields};
use crate::error::TrainError;
use crate::run::RunDirectory;
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Checkpoints, contents};
use crate::runtime::status::RunStatus;

/// Maximum number of settings that an error names; the others are counted.
const MAX_NAMED: usize = 6;

/// Why a run cannot resume as requested.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The run has other settings, which cannot change.
    #[error("run {run} was started with other settings: {}", named(differences))]
    OtherConfig {
        /// The run's name.
        run: String,
        /// Its settings and the requested ones.
        differences: Vec<Difference>,
    },
    /// The run has played more frames than requested.
    #[error("run {run} has played {played} frames already, so it cannot end at {requested}")]
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
        format!("{} was {before} and is now {now} ({})", difference.path, why_fixed(difference.path))
    };
    list_first(differences.iter().map(clause), MAX_NAMED, ", ")
}

/// Why a run keeps a field that is not declared as changeable.
fn why_fixed(path: &str) -> &'static str {
    const REASONS: [(&str, &str); 12] = [
        ("run.seed", "a run has one seed"),
        ("run.lockstep", "a run has one order of events"),
        ("env.", "its replay was played otherwise"),
        ("actors.", "its environments were saved"),
        ("intrinsic.", "its replay and weights hold these rewards"),
        ("replay.", "its replay was saved with this layout"),
        ("learner.", "its learning rate belongs to it"),
        ("bandit.", "the bandit's statistics belong to it"),
        ("agent.network.", "its weights have this shape"),
        ("agent.policies.", "its weights and the bandit belong to these policies"),
        ("agent.", "its values were learned with it"),
        ("", "it was saved with it"),
    ];
    REASONS.iter().find(|(prefix, _)| path.starts_with(prefix)).map_or("", |(_, reason)| reason)
}

/// What an existing run does when it is trained again.
#[derive(Debug)]
pub enum Resumption {
    /// It continues.
    Continues {
        /// The settings that it changes.
        changes: Vec<Difference>,
        /// The checkpoint to resume from; without one, the run starts again.
        from: Option<Checkpoint>,
    },
    /// All frames are played.
    Finished(Box<RunStatus>),
}

/// Checks an existing run with the config `known` against the requested config. A run changes only fields that are
/// declared as changeable, unless nothing was saved yet. Damaged checkpoints are reported to `warn`.
pub fn plan_resume(
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
    let changes = differences(known, config)?;
    let is_fixed = |change: &&Difference| fields().any(|field| field.path == change.path && !field.changeable);
    let fixed: Vec<Difference> = changes.iter().filter(is_fixed).cloned().collect();
    if !fixed.is_empty() && !may_change(directory, &checkpoints, preset, config)? {
        return Err(ResumeError::OtherConfig { run: run(), differences: fixed });
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
    Ok(Resumption::Continues { changes, from: newest_checkpoint(directory, config, warn)? })
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
        let text = named(&[difference("run.seed"), difference("agent.network.core")]);
        let expected = "run.seed was 1 and is now 2 (a run has one seed), agent.network.core was 1 and is now 2 (its \
                        weights have this shape)";
        assert_eq!(text, expected);
        let text = named(&["a", "b", "c", "d", "e", "f", "g", "h"].map(difference));
        assert!(text.ends_with("f was 1 and is now 2 (it was saved with it), and 2 more"), "{text}");
    }
}
