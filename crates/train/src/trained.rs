//! What a run has trained so far, read from one of its checkpoints: for those who only play.

use std::str::FromStr;

use agent::intrinsic::DistanceMean;
use agent::{Learner, ObservationSpec};
use tch::Device;

use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::numbers::parse_whole;
use crate::roles::bandit::CentralBandit;
use crate::run::RunFiles;
use crate::run::checkpoint::{Checkpoint, Checkpoints};
use crate::runtime::published_parameters::PublishedParameters;
use crate::{saving, weights};

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with the best evaluation.
    Best,
    /// The newest that is whole.
    Last,
    /// The one taken at so many frames.
    At(u64),
}

/// A word that names no checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("it must be best, last or a number of frames, such as 12_000_000, 12e6 or 12M")]
pub struct UnknownCheckpoint;

impl FromStr for Which {
    type Err = UnknownCheckpoint;

    fn from_str(text: &str) -> Result<Self, UnknownCheckpoint> {
        match text {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            _ => parse_whole(text).map(Self::At).ok_or(UnknownCheckpoint),
        }
    }
}

impl Which {
    /// Finds it among the run's, without its replay; damaged ones that are passed over are told to `say`. The run may be
    /// training.
    pub fn find(self, run: &RunFiles, say: &mut dyn FnMut(&str)) -> Result<Checkpoint> {
        let checkpoints = Checkpoints::in_folder(&run.checkpoints_folder()).without(saving::REPLAY);
        let name = || run.name().to_owned();
        match self {
            Self::Best => checkpoints.best()?.ok_or_else(|| TrainError::NoBest { run: name() }),
            Self::Last => match checkpoints.newest_valid(say)? {
                Some(checkpoint) => Ok(checkpoint),
                None if run.description().is_ok_and(|known| known.saved) => Err(checkpoints.gone().into()),
                None => Err(TrainError::NoCheckpoint { run: name() }),
            },
            Self::At(frames) => Ok(checkpoints.at(frames)?),
        }
    }
}

/// Everything that playing takes: parameters, the bandit that knows the best policy, and what distances are usual.
#[derive(Debug)]
pub struct Trained {
    /// The parameters.
    pub published: PublishedParameters,
    /// The bandit.
    pub bandit: CentralBandit,
    /// d²_m of the f that was acted with, without which the first episodes would look newer or older than any the agent
    /// was trained on.
    pub distances: DistanceMean,
}

impl Trained {
    /// Reads what is needed of a checkpoint; its replay, by far the largest part, is not.
    pub fn read(
        checkpoint: &Checkpoint,
        config: &Config,
        observation: &ObservationSpec,
        actions: usize,
        device: Device,
    ) -> Result<Self> {
        let (published, bandit, distances) = if weights::are_in(checkpoint) {
            let (published, distances) = weights::read(checkpoint, &config.agent, observation, actions, device)?;
            (published, weights::bandit(checkpoint)?, distances)
        } else {
            let saved = saving::learner(checkpoint)?;
            let learner = Learner::restore(&config.agent, observation, actions, &saved, device)?;
            let mut published = PublishedParameters::of(&learner)?;
            let mut embedding = published.embedding()?;
            embedding.restore(&saving::embedding(checkpoint)?)?;
            published.keep_embedding(&embedding)?;
            let play = saving::play(checkpoint)?;
            (published, play.bandit, play.distances.mean())
        };
        Ok(Self { published, bandit: CentralBandit::resume(bandit), distances })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_named_by_word_or_frames() {
        let parsed = |text: &str| text.parse::<Which>();
        assert_eq!(parsed("best").unwrap(), Which::Best);
        assert_eq!(parsed("last").unwrap(), Which::Last);
        assert_eq!(parsed("12_000_000").unwrap(), Which::At(12_000_000));
        assert_eq!(parsed("12 000").unwrap(), Which::At(12_000));
        assert_eq!(parsed("12M").unwrap(), Which::At(12_000_000));
        for text in ["first", "", "-1", "LAST"] {
            let sentence = "it must be best, last or a number of frames, such as 12_000_000, 12e6 or 12M";
            assert_eq!(parsed(text).unwrap_err().to_string(), sentence, "{text}");
        }
    }
}
