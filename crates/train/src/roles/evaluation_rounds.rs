//! Evaluation during training, in rounds: every evaluator plays a fixed number of episodes, then rests.
//!
//! The episodes that count are fixed in advance, as counting those that end first would favour short ones.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::{EvaluationConfig, EvaluationRefresh};
use crate::error::Result;
use crate::roles::events::Event;
use crate::roles::messages::EpisodeReport;
use crate::roles::published_parameters::PublishedParameters;
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::contents::BestSnapshot;

/// The outcome of one round.
pub struct EvaluationReport {
    /// Scores of its episodes.
    pub scores: Vec<f64>,
    /// Actors' frames when the parameters were taken.
    pub frames: u64,
    /// When the parameters were taken.
    pub began: Instant,
    /// The agent that played, for the best checkpoint.
    pub agent: BestSnapshot,
}

/// Mean of a round's scores and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanScore {
    /// Mean score.
    pub mean: f64,
    /// Standard error of the mean; 0 for a single episode, where it is unknown.
    pub standard_error: f64,
    /// Number of episodes.
    pub episodes: u64,
}

impl MeanScore {
    /// The mean of these scores, of which there is at least one.
    pub fn of(scores: &[f64]) -> Self {
        let count = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / count;
        let squares: f64 = scores.iter().map(|score| (score - mean).powi(2)).sum();
        let standard_error = if scores.len() > 1 { (squares / (count - 1.0) / count).sqrt() } else { 0.0 };
        Self { mean, standard_error, episodes: scores.len() as u64 }
    }

    /// The score that the best checkpoint is chosen by.
    ///
    /// It is two standard errors below the mean, so that a few lucky episodes do not win.
    pub fn lower_bound(&self) -> f64 {
        self.mean - 2.0 * self.standard_error
    }
}

/// Decides when evaluators play, and collects their scores.
///
/// Its clock counts anything that grows evenly with the work of a run: seconds, or in lockstep steps.
pub(crate) struct EvaluationRounds {
    evaluators: usize,
    episodes_each: usize,
    share: f64,
    refresh: EvaluationRefresh,
    round: Option<Round>,
    /// When the next round may begin.
    due: f64,
}

struct Round {
    since: f64,
    frames: u64,
    began: Instant,
    agent: BestSnapshot,
    /// Scores of each evaluator.
    scores: Vec<Vec<f64>>,
}

impl EvaluationRounds {
    /// Rounds of which the first may begin at `due`.
    pub(crate) fn new(config: &EvaluationConfig, due: f64) -> Self {
        let EvaluationConfig { evaluators, share, refresh, .. } = *config;
        Self { evaluators, episodes_each: config.episodes_each(), share, refresh, round: None, due }
    }

    /// Returns whether a round is being played.
    pub(crate) fn is_playing(&self) -> bool {
        self.round.is_some()
    }

    /// When the next round may begin.
    pub(crate) fn due(&self) -> f64 {
        self.due
    }

    /// Begins a round of the current agent if one is due, and returns the parameters to play it with.
    pub(crate) fn begin_if_due(
        &mut self,
        now: f64,
        frames: u64,
        agent: &TrainingAgent,
    ) -> Result<Option<PublishedParameters>> {
        if self.evaluators == 0 || self.round.is_some() || now < self.due {
            return Ok(None);
        }
        let (scores, began) = (vec![Vec::new(); self.evaluators], Instant::now());
        self.round = Some(Round { since: now, frames, began, agent: BestSnapshot::new(agent)?, scores });
        agent.learner_loop.current_parameters().map(Some)
    }

    /// Counts an evaluator's episode, unless the round has enough of that evaluator.
    pub(crate) fn record(&mut self, report: &EpisodeReport) {
        let scores = self.round.as_mut().and_then(|round| round.scores.get_mut(report.environment));
        if let Some(scores) = scores.filter(|scores| scores.len() < self.episodes_each) {
            scores.push(report.score);
        }
    }

    /// Ends and reports the round if all its episodes are played.
    ///
    /// Then evaluators rest as their share of the time demands.
    pub(crate) fn finish_if_complete(
        &mut self,
        now: f64,
        frames: u64,
        agent: &TrainingAgent,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let is_complete = |round: &mut Round| round.scores.iter().all(|scores| scores.len() == self.episodes_each);
        let Some(round) = self.round.take_if(is_complete) else { return Ok(()) };
        self.due = now + (now - round.since) * (1.0 / self.share - 1.0);
        let scores = round.scores.concat();
        let report = match self.refresh {
            EvaluationRefresh::Between => {
                EvaluationReport { scores, frames: round.frames, began: round.began, agent: round.agent }
            }
            // The last parameters are those of most episodes' ends.
            EvaluationRefresh::During => {
                EvaluationReport { scores, frames, began: Instant::now(), agent: BestSnapshot::new(agent)? }
            }
        };
        on_event(Event::Evaluation(Box::new(report)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_bound_prefers_many_good_episodes_to_a_lucky_one() {
        let lucky = MeanScore::of(&[0.0, 0.0, 0.0, 0.0, 100.0]);
        let steady = MeanScore::of(&[12.0, 14.0, 13.0, 12.0, 14.0]);
        assert!(lucky.mean > steady.mean);
        assert!(lucky.lower_bound() < steady.lower_bound());
        assert_eq!(MeanScore::of(&[3.0]), MeanScore { mean: 3.0, standard_error: 0.0, episodes: 1 });
        // Deviation 2, so the error of four is 1.
        let four = MeanScore::of(&[5.0 - 3f64.sqrt(), 5.0 - 3f64.sqrt(), 5.0 + 3f64.sqrt(), 5.0 + 3f64.sqrt()]);
        assert!((four.lower_bound() - 3.0).abs() < 1e-12, "{four:?}");
    }
}
