//! Counters and means behind the metrics rows.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use agent::learner::StepReport;
use agent::loss::statistics::PolicyStatistics;
use agent::policy_family::actor_epsilon;
use serde::{Deserialize, Serialize};

use crate::config::{ActorsConfig, Config};
use crate::roles::bandit::SharedBandit;
use crate::roles::evaluation_rounds::{EvaluationReport, MeanScore};
use crate::roles::events::Event;
use crate::roles::learner_loop::LearnerUpdate;
use crate::roles::messages::{EpisodeReport, NoveltySums, Position, Role};
use crate::run::{ACTOR_SCORE, EVALUATION_SCORE, Row};

/// Actor episodes in the mean score.
const RECENT: usize = 100;
/// Episodes in the mean score of one policy, or of one band of ε.
const RECENT_EACH: usize = 20;
/// Maximum number of bands that the actors' ε are grouped into.
const MAX_BANDS: usize = 8;
/// Maximum number of positions that are counted.
///
/// RAM bytes that hold a clock would yield new ones forever, and each checkpoint copies all of them.
const MAX_POSITIONS: usize = 1 << 20;

/// Sums since the last row, and recent episodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MetricsAccumulator {
    recent: VecDeque<EpisodeReport>,
    evaluation: Option<LastEvaluation>,
    /// Episodes of complete evaluations so far.
    evaluated: u64,
    episodes: u64,
    by_policy: Vec<VecDeque<f64>>,
    /// Scores by the actor's band of ε, the most random first.
    by_epsilon: Vec<VecDeque<f64>>,
    /// Mean ε of each band.
    epsilon: Vec<f64>,
    environments: usize,
    /// Positions that actors have reached, up to [`MAX_POSITIONS`].
    positions: BTreeSet<Position>,
    /// The area that the run started in, and how many of the positions lie in it.
    first_area: Option<u8>,
    positions_in_first_area: u64,
    /// Seconds of training over all starts of the run; 0 in lockstep, which must not depend on the clock.
    seconds: f64,
    updates: Means,
    /// Number of the last update.
    pub last_update: u64,
    /// Loss of the last update.
    pub last_loss: Option<f64>,
    /// Frames of the last row.
    pub last_row: u64,
}

/// The last evaluation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LastEvaluation {
    /// Its score.
    pub score: MeanScore,
    /// Actors' frames when its parameters were taken.
    pub frames: u64,
    /// When its parameters were taken; unknown after a resume.
    #[serde(skip)]
    pub began: Option<Instant>,
}

/// Means of named values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Means {
    count: u64,
    scalars: Vec<(String, f64)>,
    vectors: Vec<(String, Vec<f64>)>,
    /// Steps that count for each policy, and updates that had any.
    steps: Vec<f64>,
    seen: Vec<f64>,
}

impl Means {
    /// Adds an update. `steps` counts those of each policy, and each vector has one value per policy.
    fn add(&mut self, scalars: Vec<(&'static str, f64)>, vectors: Vec<(&'static str, Vec<f64>)>, steps: &[f64]) {
        self.count += 1;
        if self.count == 1 {
            self.scalars = scalars.iter().map(|&(name, _)| (name.to_owned(), 0.0)).collect();
            self.vectors = vectors.iter().map(|(name, values)| ((*name).to_owned(), vec![0.0; values.len()])).collect();
            (self.steps, self.seen) = (vec![0.0; steps.len()], vec![0.0; steps.len()]);
        }
        for ((_, sum), (_, value)) in self.scalars.iter_mut().zip(scalars) {
            *sum += value;
        }
        let seen: Vec<f64> = steps.iter().map(|&steps| f64::from(steps > 0.0)).collect();
        for ((_, sums), (_, values)) in self.vectors.iter_mut().zip(vectors) {
            sums.iter_mut().zip(values).zip(&seen).for_each(|((sum, value), seen)| *sum += value * seen);
        }
        self.steps.iter_mut().zip(steps).for_each(|(sum, steps)| *sum += steps);
        self.seen.iter_mut().zip(&seen).for_each(|(sum, seen)| *sum += seen);
    }

    fn drain_into(&mut self, row: &mut Row) {
        let count = std::mem::take(&mut self.count) as f64;
        for (name, sum) in self.scalars.drain(..) {
            row.scalar(name, sum / count);
        }
        let seen = std::mem::take(&mut self.seen);
        for (name, sums) in self.vectors.drain(..) {
            row.vector(name, sums.iter().zip(&seen).map(|(sum, seen)| sum / seen).collect::<Vec<_>>());
        }
        if count > 0.0 {
            row.vector("policy/steps", self.steps.drain(..).map(|sum| sum / count).collect::<Vec<_>>());
        }
    }
}

impl MetricsAccumulator {
    /// An accumulator for a new run.
    pub fn new(config: &Config) -> Self {
        let ActorsConfig { environments, epsilon_base, epsilon_exponent, .. } = config.actors;
        let bands = environments.min(MAX_BANDS);
        let mut epsilons = vec![Vec::new(); bands];
        for actor in 0..environments {
            let epsilon = actor_epsilon(actor, environments, epsilon_base, epsilon_exponent);
            epsilons[actor * bands / environments].push(epsilon);
        }
        Self {
            by_policy: vec![VecDeque::new(); config.agent.policies.count],
            by_epsilon: vec![VecDeque::new(); bands],
            epsilon: epsilons.into_iter().map(|band| mean(band.into_iter())).collect(),
            environments,
            ..Self::default()
        }
    }

    /// Counts an event, except for a fault.
    pub fn record(&mut self, event: &Event) {
        match event {
            Event::Episode(report) => self.record_episode(report),
            Event::Positions(positions) => self.record_positions(positions),
            Event::Update(update) => self.record_update(update),
            Event::Evaluation(report) => {
                let EvaluationReport { scores, frames, began, .. } = &**report;
                let score = MeanScore::of(scores);
                self.evaluated += score.episodes;
                self.evaluation = Some(LastEvaluation { score, frames: *frames, began: Some(*began) });
            }
            Event::Fault(_) | Event::Notice(_) => {}
        }
    }

    fn record_episode(&mut self, report: &EpisodeReport) {
        // Those of evaluators count with their round, since one that is cut short is played again.
        if report.role == Role::Actor {
            self.episodes += 1;
            push_bounded(&mut self.recent, *report, RECENT);
            let band = report.environment * self.by_epsilon.len() / self.environments.max(1);
            for scores in [self.by_policy.get_mut(report.policy), self.by_epsilon.get_mut(band)] {
                scores.into_iter().for_each(|scores| push_bounded(scores, report.score, RECENT_EACH));
            }
        }
    }

    fn record_positions(&mut self, positions: &[Position]) {
        for &position in positions {
            if self.positions.len() == MAX_POSITIONS {
                return;
            }
            let first = *self.first_area.get_or_insert(position.area());
            let is_new = self.positions.insert(position);
            self.positions_in_first_area += u64::from(is_new && position.area() == first);
        }
    }

    fn record_update(&mut self, update: &LearnerUpdate) {
        let StepReport { losses, gradient_norms, rnd, policies, .. } = &update.report;
        self.last_update = update.report.update;
        self.last_loss = Some(losses.total);
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
        let each = |pick: fn(&PolicyStatistics) -> f64| policies.iter().map(pick).collect();
        let vectors = vec![
            ("policy/td_error", each(|policy| policy.td_error)),
            ("policy/td_bias", each(|policy| policy.td_bias)),
            ("policy/sigma", each(|policy| policy.sigma)),
            ("policy/trust_region_share", each(|policy| policy.trust_region_share)),
            ("policy/kl_share", each(|policy| policy.kl_share)),
            ("policy/kl", each(|policy| policy.kl.unwrap_or(0.0))),
            ("policy/trace_coefficient", each(|policy| policy.trace_coefficient)),
            ("policy/q_mean", each(|policy| policy.q_mean)),
            ("policy/q_min", each(|policy| policy.q_min)),
            ("policy/q_max", each(|policy| policy.q_max)),
            ("policy/q_spread", each(|policy| policy.q_spread)),
            ("policy/entropy", each(|policy| policy.entropy.unwrap_or(0.0))),
        ];
        let steps: Vec<f64> = policies.iter().map(|policy| policy.steps).collect();
        self.updates.add(scalars, vectors, &steps);
    }

    /// Adds training time; returns the total in seconds.
    pub fn add_time(&mut self, time: Duration) -> f64 {
        self.seconds += time.as_secs_f64();
        self.seconds
    }

    /// The last evaluation.
    pub fn evaluation(&self) -> Option<&LastEvaluation> {
        self.evaluation.as_ref()
    }

    /// Mean score of the actors' recent episodes.
    pub fn actor_score(&self) -> Option<f64> {
        self.recent_mean(|report| report.score)
    }

    /// Mean intrinsic return of the actors' recent episodes.
    pub fn intrinsic_return(&self) -> Option<f64> {
        self.recent_mean(|report| report.novelty.ngu)
    }

    fn recent_mean(&self, value: fn(&EpisodeReport) -> f64) -> Option<f64> {
        (!self.recent.is_empty()).then(|| mean(self.recent.iter().map(value)))
    }

    /// Score of the actors' last episode.
    pub fn last_actor_score(&self) -> Option<f64> {
        self.recent.back().map(|report| report.score)
    }

    /// Returns a row at this frame count, and starts the sums of the next one.
    pub fn row(&mut self, frames: u64, bandit: &SharedBandit, accounting: &replay::Accounting) -> Row {
        let mut row = Row::new(frames);
        self.last_row = frames;
        self.updates.drain_into(&mut row);
        row.scalar("learner/updates", self.last_update as f64);
        if let (Some(score), Some(intrinsic)) = (self.actor_score(), self.intrinsic_return()) {
            row.scalar(ACTOR_SCORE, score);
            row.scalar("actor/intrinsic_return", intrinsic);
            row.scalar("actor/episode_frames", mean(self.recent.iter().map(|report| report.frames as f64)));
            let sum =
                |of: fn(&NoveltySums) -> f64| -> f64 { self.recent.iter().map(|report| of(&report.novelty)).sum() };
            let observations = sum(|novelty| novelty.observations as f64);
            row.scalar("actor/reward_ngu", sum(|novelty| novelty.ngu) / observations);
            row.scalar("actor/reward_episodic", sum(|novelty| novelty.episodic) / observations);
            row.scalar("actor/reward_rnd", sum(|novelty| novelty.rnd) / observations);
            let means = |scores: &[VecDeque<f64>]| -> Vec<f64> {
                scores.iter().map(|scores| mean(scores.iter().copied())).collect()
            };
            row.vector("actor/score_by_policy", means(&self.by_policy));
            row.vector("actor/score_by_epsilon", means(&self.by_epsilon));
            row.vector("actor/epsilon", self.epsilon.clone());
        }
        row.scalar("actor/episodes", self.episodes as f64);
        if !self.positions.is_empty() {
            row.scalar("actor/positions", self.positions.len() as f64);
            row.scalar("actor/positions_in_first_area", self.positions_in_first_area as f64);
            if let Some(positions) = self.recent_mean(|report| report.positions as f64) {
                row.scalar("actor/episode_positions", positions);
            }
        }
        if let Some(LastEvaluation { score, frames, .. }) = self.evaluation {
            row.scalar(EVALUATION_SCORE, score.mean);
            row.scalar("evaluation/standard_error", score.standard_error);
            row.scalar("evaluation/frames", frames as f64);
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

/// Appends a value and keeps the last `max`.
fn push_bounded<T>(values: &mut VecDeque<T>, value: T, max: usize) {
    values.push_back(value);
    if values.len() > max {
        values.pop_front();
    }
}

/// Mean of the values; NaN without any, which a row shows as null.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use agent::intrinsic::DistanceMean;

    use super::*;
    use crate::config::Sources;
    use crate::run::MetricValue;

    #[test]
    fn counts_positions_once_and_those_in_the_first_area() {
        let config = Sources { preset: Some("tiny".to_owned()), file: None, set: Vec::new() }.load().unwrap().config;
        let mut metrics = MetricsAccumulator::new(&config);
        let bandit = SharedBandit::new(16, 16, &config.bandit, 0);
        let mut counted = |visited: &[[u8; 3]]| {
            let positions: Vec<Position> = visited.iter().filter_map(|ram| Position::new(ram)).collect();
            metrics.record(&Event::Positions(positions));
            let row = metrics.row(1, &bandit, &replay::Accounting::default());
            ["actor/positions", "actor/positions_in_first_area"].map(|name| row.get(name))
        };
        assert_eq!(counted(&[]), [None; 2]);
        assert_eq!(counted(&[[1, 77, 235], [1, 77, 236], [1, 77, 235]]), [Some(2.0), Some(2.0)]);
        // The same corner of another room is another position.
        assert_eq!(counted(&[[2, 77, 235], [1, 235, 77]]), [Some(4.0), Some(3.0)]);
    }

    #[test]
    fn stops_counting_positions_at_the_limit() {
        let mut metrics = MetricsAccumulator::default();
        let position = |number: u32| Position::new(&number.to_le_bytes()).unwrap();
        let all: Vec<Position> = (0..MAX_POSITIONS as u32 + 1000).map(position).collect();
        for part in all.chunks(1000) {
            metrics.record(&Event::Positions(part.to_vec()));
        }
        assert_eq!(metrics.positions.len(), MAX_POSITIONS);
        // One in 256 shares the first byte of the first.
        assert_eq!(metrics.positions_in_first_area, MAX_POSITIONS as u64 / 256);
        assert!(metrics.positions.contains(&position(MAX_POSITIONS as u32 - 1)));
    }

    #[test]
    fn scores_are_grouped_by_policy_and_by_epsilon() {
        let set = ["actors.environments=16", "agent.policies.count=3"].map(str::to_owned).to_vec();
        let config = Sources { preset: Some("tiny".to_owned()), file: None, set }.load().unwrap().config;
        let mut metrics = MetricsAccumulator::new(&config);
        let novelty = NoveltySums { observations: 4, ngu: 2.0, rnd: 6.0, episodic: 1.0 };
        let mut report = |environment, policy, score| {
            let (role, frames, positions, distances) = (Role::Actor, 12, 0, DistanceMean::default());
            let report = EpisodeReport { role, environment, policy, score, frames, positions, novelty, distances };
            metrics.record(&Event::Episode(report));
        };
        for (environment, policy, score) in [(0, 0, 1.0), (1, 2, 5.0), (15, 2, 7.0)] {
            report(environment, policy, score);
        }
        // Only the last ones of a policy or band count.
        for _ in 0..RECENT_EACH {
            report(15, 2, 9.0);
        }
        let bandit = SharedBandit::new(3, 16, &config.bandit, 0);
        let row = metrics.row(100, &bandit, &replay::Accounting::default());
        assert_eq!(metrics.last_row, 100);
        let vector = |name: &str| match &row.values[name] {
            MetricValue::Vector(values) => values.clone(),
            MetricValue::Scalar(value) => panic!("{name} is {value}"),
        };
        let by_policy = vector("actor/score_by_policy");
        assert!(by_policy[0] == 1.0 && by_policy[1].is_nan() && by_policy[2] == 9.0, "{by_policy:?}");
        let by_epsilon = vector("actor/score_by_epsilon");
        assert_eq!((by_epsilon.len(), by_epsilon[0], by_epsilon[7]), (8, 3.0, 9.0));
        assert!(by_epsilon[1..7].iter().all(|score| score.is_nan()));
        assert!(vector("actor/epsilon").windows(2).all(|pair| pair[0] > pair[1]));
        let reward = |part: &str| row.get(&format!("actor/reward_{part}"));
        assert_eq!((reward("ngu"), reward("episodic"), reward("rnd")), (Some(0.5), Some(0.25), Some(1.5)));
    }
}
