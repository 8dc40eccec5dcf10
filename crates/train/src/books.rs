//! Keeps the books of a run: what happened since the last row of metrics, and what is remembered of episodes.

use std::collections::VecDeque;

use agent::learner::StepReport;
use serde::{Deserialize, Serialize};

use crate::bandit::CentralBandit;
use crate::learning::Update;
use crate::messages::{EpisodeReport, Role};
use crate::run::{EVALUATION_SCORE, Row};

/// Actor episodes that the mean score is over.
const RECENT: usize = 100;

/// Sums since the last row, and recent episodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Books {
    recent: VecDeque<EpisodeReport>,
    /// Scores of the evaluators' last episodes, at most as many as an evaluation has.
    evaluation: VecDeque<f64>,
    evaluation_episodes: usize,
    /// Evaluator episodes so far.
    evaluated: u64,
    /// How many of them the last evaluation that was asked for had seen.
    judged: u64,
    episodes: u64,
    updates: Means,
    last_update: u64,
}

/// Means of named numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Means {
    count: u64,
    sums: Vec<(String, f64)>,
    vectors: Vec<(String, Vec<f64>)>,
}

impl Means {
    fn add(&mut self, scalars: Vec<(&'static str, f64)>, vectors: Vec<(&'static str, Vec<f64>)>) {
        self.count += 1;
        if self.count == 1 {
            self.sums = scalars.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            self.vectors = vectors.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
            return;
        }
        for ((_, sum), (_, value)) in self.sums.iter_mut().zip(scalars) {
            *sum += value;
        }
        for ((_, sums), (_, values)) in self.vectors.iter_mut().zip(vectors) {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }

    fn write(&mut self, row: &mut Row) {
        let count = self.count as f64;
        for (name, sum) in self.sums.drain(..) {
            row.scalar(name, sum / count);
        }
        for (name, sums) in self.vectors.drain(..) {
            row.vector(name, sums.iter().map(|sum| sum / count).collect::<Vec<_>>());
        }
        self.count = 0;
    }
}

impl Books {
    /// Empty books; an evaluation is the mean of so many episodes.
    pub fn new(evaluation_episodes: usize) -> Self {
        Self { evaluation_episodes, ..Self::default() }
    }

    /// An episode ended.
    pub fn episode(&mut self, report: &EpisodeReport) {
        match report.role {
            Role::Actor => {
                self.episodes += 1;
                self.recent.push_back(*report);
                if self.recent.len() > RECENT {
                    self.recent.pop_front();
                }
            }
            Role::Evaluator => {
                self.evaluated += 1;
                self.evaluation.push_back(report.score);
                if self.evaluation.len() > self.evaluation_episodes {
                    self.evaluation.pop_front();
                }
            }
        }
    }

    /// The learner made an update.
    pub fn update(&mut self, update: &Update) {
        let StepReport { losses, gradient_norms, rnd, policies, .. } = &update.report;
        self.last_update = update.report.update;
        let scalars = vec![
            ("learner/loss", losses.total),
            ("learner/loss_td", losses.td),
            ("learner/loss_distillation", losses.distillation),
            ("learner/loss_action_prediction", losses.action_prediction),
            ("learner/loss_rnd", losses.rnd),
            ("learner/action_prediction_accuracy", update.report.action_prediction_accuracy),
            ("learner/gradient_norm", gradient_norms.agent),
            ("learner/gradient_norm_action_prediction", gradient_norms.action_prediction),
            ("learner/gradient_norm_rnd", gradient_norms.rnd),
            ("learner/rnd_error_mean", rnd.mean),
            ("learner/rnd_error_std", rnd.std),
            ("learner/valid_steps", update.report.steps as f64),
            ("learner/parameter_staleness", update.staleness),
            ("learner/sequence_age", update.age),
            ("learner/late_priorities", update.late as f64),
        ];
        let each = |pick: fn(&agent::loss::statistics::PolicyStatistics) -> f64| policies.iter().map(pick).collect();
        let vectors = vec![
            ("policy/td_error", each(|policy| policy.td_error)),
            ("policy/sigma", each(|policy| policy.sigma)),
            ("policy/trust_region_share", each(|policy| policy.trust_region_share)),
            ("policy/kl_share", each(|policy| policy.kl_share)),
            ("policy/trace_coefficient", each(|policy| policy.trace_coefficient)),
            ("policy/q_mean", each(|policy| policy.q_mean)),
            ("policy/q_min", each(|policy| policy.q_min)),
            ("policy/q_max", each(|policy| policy.q_max)),
            ("policy/entropy", each(|policy| policy.entropy.unwrap_or(0.0))),
        ];
        self.updates.add(scalars, vectors);
    }

    /// Mean score of the last evaluation, once it has enough episodes.
    pub fn evaluation(&self) -> Option<f64> {
        (self.evaluation.len() == self.evaluation_episodes).then(|| mean(self.evaluation.iter().copied()))
    }

    /// The same, if all of its episodes are new since it was last asked for.
    pub fn new_evaluation(&mut self) -> Option<f64> {
        if self.evaluated < self.judged + self.evaluation_episodes as u64 {
            return None;
        }
        self.judged = self.evaluated;
        self.evaluation()
    }

    /// Mean score of the actors' recent episodes.
    pub fn actor_score(&self) -> Option<f64> {
        (!self.recent.is_empty()).then(|| mean(self.recent.iter().map(|report| report.score)))
    }

    /// Evaluator episodes so far.
    pub fn evaluated(&self) -> u64 {
        self.evaluated
    }

    /// Actor episodes so far.
    pub fn episodes(&self) -> u64 {
        self.episodes
    }

    /// Number of the last update.
    pub fn last_update(&self) -> u64 {
        self.last_update
    }

    /// Writes everything since the last row into a new one, at this frame count.
    pub fn row(&mut self, frames: u64, bandit: &CentralBandit, accounting: &replay::Accounting) -> Row {
        let mut row = Row::new(frames);
        self.updates.write(&mut row);
        row.scalar("learner/updates", self.last_update as f64);
        if let Some(score) = self.actor_score() {
            row.scalar("actor/score", score);
            row.scalar("actor/intrinsic_return", mean(self.recent.iter().map(|report| report.intrinsic)));
            row.scalar("actor/episode_frames", mean(self.recent.iter().map(|report| report.frames as f64)));
        }
        row.scalar("actor/episodes", self.episodes as f64);
        if let Some(score) = self.evaluation() {
            row.scalar(EVALUATION_SCORE, score);
        }
        row.scalar("evaluation/episodes", self.evaluated as f64);
        let (arms, pulls) = bandit.arms();
        row.vector("bandit/mean_return", arms.iter().map(|arm| arm.mean().unwrap_or(f64::NAN)).collect::<Vec<_>>());
        row.vector("bandit/pulls", pulls.iter().map(|&pulls| pulls as f64).collect::<Vec<_>>());
        row.scalar("bandit/favourite", bandit.greedy() as f64);
        row.scalar("replay/sequences", accounting.sequences as f64);
        row.scalar("replay/steps", accounting.steps as f64);
        row.scalar("replay/inserted", accounting.inserted as f64);
        row.scalar("replay/sampled", accounting.sampled as f64);
        row
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
