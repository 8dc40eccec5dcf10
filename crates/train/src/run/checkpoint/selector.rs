//! Which checkpoint of a run a command plays.

use std::fmt;
use std::str::FromStr;

use super::{Checkpoint, Checkpoints};
use crate::error::{Result, TrainError};
use crate::number_format::parse_integer;
use crate::run::RunFiles;

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSelector {
    /// The one with the best evaluation.
    Best,
    /// The newest intact one.
    Last,
    /// The one with that frame count.
    At(u64),
}

/// A word that selects no checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("expected best, last or a number of frames, such as 12_000_000, 12e6 or 12M")]
pub struct InvalidSelector;

impl fmt::Display for CheckpointSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("best"),
            Self::Last => f.write_str("last"),
            Self::At(frames) => write!(f, "{frames}"),
        }
    }
}

impl FromStr for CheckpointSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        match text {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            _ => parse_integer(text).map(Self::At).ok_or(InvalidSelector),
        }
    }
}

impl CheckpointSelector {
    /// Opens the checkpoint without the files that only training needs. The run may be training.
    pub fn open(self, run: &RunFiles, warn: &mut dyn FnMut(&str)) -> Result<Checkpoint> {
        self.open_in(run, Checkpoints::in_directory(&run.checkpoints_directory()).for_playing(), warn)
    }

    /// Opens the checkpoint with all of its files.
    pub fn open_whole(self, run: &RunFiles, warn: &mut dyn FnMut(&str)) -> Result<Checkpoint> {
        self.open_in(run, Checkpoints::in_directory(&run.checkpoints_directory()), warn)
    }

    fn open_in(self, run: &RunFiles, checkpoints: Checkpoints, warn: &mut dyn FnMut(&str)) -> Result<Checkpoint> {
        let name = || run.name().to_owned();
        match self {
            Self::Best => checkpoints.best()?.ok_or_else(|| TrainError::NoBest { run: name() }),
            Self::Last => match checkpoints.newest_intact(warn)? {
                Some(checkpoint) => Ok(checkpoint),
                None if run.description().is_ok_and(|known| known.saved) => Err(checkpoints.gone().into()),
                None => Err(TrainError::NoCheckpoint { run: name() }),
            },
            Self::At(frames) => Ok(checkpoints.at(frames)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_by_word_or_frames() {
        let parsed = |text: &str| text.parse::<CheckpointSelector>();
        assert_eq!(parsed("best").unwrap(), CheckpointSelector::Best);
        assert_eq!(parsed("last").unwrap(), CheckpointSelector::Last);
        assert_eq!(parsed("12_000_000").unwrap(), CheckpointSelector::At(12_000_000));
        assert_eq!(parsed("12 000").unwrap(), CheckpointSelector::At(12_000));
        assert_eq!(parsed("12M").unwrap(), CheckpointSelector::At(12_000_000));
        for text in ["first", "", "-1", "LAST"] {
            let message = "expected best, last or a number of frames, such as 12_000_000, 12e6 or 12M";
            assert_eq!(parsed(text).unwrap_err().to_string(), message, "{text}");
        }
    }
}
