//! Warnings about curves that are flat, that explode, or that lie at a bound.

use agent::config::PoliciesConfig;
use agent::rescaling;
use serde::Serialize;

use super::curves::Curves;
use crate::chart::Points;
use train::run::{ACTOR_SCORE, EVALUATION_SCORE};

/// A warning about one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub metric: &'static str,
    pub sentence: String,
}

/// Fewest values that a check judges by: fewer are the beginning of a run.
pub const ENOUGH: usize = 8;
/// Share of masked steps above which hardly anything is learned.
const MASKED: f64 = 0.8;
/// Mean trace coefficient below which returns are cut short.
const SHORT_TRACE: f64 = 0.3;
/// Entropy in nats below which a policy is deterministic.
const NO_ENTROPY: f64 = 0.005;
/// Share of the largest entropy above which a policy is random.
const ALL_ENTROPY: f64 = 0.99;
/// Relative distance from a bound within which the RND multiplier is at it.
const NEAR: f64 = 0.05;
/// Human-normalised score below which play is random.
const AS_RANDOM: f64 = 0.02;
/// Ratio of Q-values to the best return seen above which they are unfounded.
const UNFOUNDED: f64 = 3.0;
/// Growth above which a metric explodes.
const EXPLODES: f64 = 10.0;
/// Share of its time above which the learner waits too much.
const IDLE: f64 = 0.05;
/// Maximum relative deviation of samples per insert from the config.
const RATIO: f64 = 0.1;

/// The warnings found so far.
struct Warnings(Vec<Check>);

impl Warnings {
    fn add(&mut self, metric: &'static str, sentence: String) {
        self.0.push(Check { metric, sentence });
    }

    /// Adds a warning about some policies, if there are any.
    fn add_policies(&mut self, metric: &'static str, policies: &[usize], sentence: impl FnOnce() -> String) {
        if !policies.is_empty() {
            self.add(metric, format!("{}: {}", named(policies), sentence()));
        }
    }
}

/// Runs all checks.
pub fn checks(curves: &Curves) -> Vec<Check> {
    let mut warnings = Warnings(Vec::new());
    for check in [not_finite, per_policy, growth, unfounded_values, bandit, novelty, flat, scores, system] {
        check(curves, &mut warnings);
    }
    warnings.0
}

/// The mean of the last quarter of a curve, if it is long enough to judge.
fn recent(points: &Points) -> Option<f64> {
    quarter(points, 3)
}

/// The mean of one quarter, counted from 0.
fn quarter(points: &Points, which: usize) -> Option<f64> {
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).filter(|value| value.is_finite()).collect();
    if values.len() < ENOUGH {
        return None;
    }
    let part = &values[values.len() * which / 4..values.len() * (which + 1) / 4];
    Some(part.iter().sum::<f64>() / part.len() as f64)
}

/// Lists policies as `policy 3` or `policies 0 to 4, 7`.
fn named(policies: &[usize]) -> String {
    if let [policy] = policies {
        return format!("policy {policy}");
    }
    let consecutive = policies.chunk_by(|one, next| one + 1 == *next);
    let ranges: Vec<String> = consecutive
        .map(|range| match range {
            [one] => one.to_string(),
            [one, two] => format!("{one}, {two}"),
            _ => format!("{} to {}", range[0], range[range.len() - 1]),
        })
        .collect();
    format!("policies {}", ranges.join(", "))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn not_finite(curves: &Curves, warnings: &mut Warnings) {
    for metric in ["learner/loss", "learner/gradient_norm", "learner/loss_rnd"] {
        let count = curves.scalar(metric).iter().filter(|(_, value)| !value.is_finite()).count();
        if count > 0 {
            warnings.add(metric, format!("{metric} is not finite in {count} rows"));
        }
    }
}

/// Metrics with one value per policy, and the bounds that they should stay away from.
fn per_policy(curves: &Curves, warnings: &mut Warnings) {
    let agent = curves.config.as_ref().map(|config| &config.agent);
    let sigma_floor = agent.map_or(f64::NEG_INFINITY, |agent| agent.loss.sigma_floor);
    // Without distillation there is no policy, and its entropy is 0 throughout.
    let distils = agent.is_none_or(|agent| agent.loss.distillation);
    let largest_entropy = curves.actions().map_or(f64::INFINITY, |actions| (actions as f64).ln());
    let mut check = |metric, is_bad: &dyn Fn(f64) -> bool, describe: &dyn Fn(f64) -> String| {
        let means = curves.vector(metric).into_iter().map(|points| recent(&points)).enumerate();
        let bad = means.filter_map(|(policy, mean)| Some((policy, mean.filter(|mean| is_bad(*mean))?)));
        let (policies, means): (Vec<usize>, Vec<f64>) = bad.unzip();
        // One mean stands for all of them; the picture shows each.
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        warnings.add_policies(metric, &policies, || describe(mean));
    };
    check("policy/trust_region_share", &|share| share > MASKED, &|share| {
        format!("the trust region masks {} of the steps, so their values barely move", percent(share))
    });
    check("policy/kl_share", &|share| share > MASKED, &|share| {
        let remedy = "so the policy barely changes; try a shorter agent.copies.target_period";
        format!("the KL bound masks {} of the steps, {remedy}", percent(share))
    });
    check("policy/sigma", &|sigma| sigma <= sigma_floor * 1.01, &|_| format!("σ is at its floor, {sigma_floor}"));
    check("policy/trace_coefficient", &|trace| trace < SHORT_TRACE, &|trace| {
        format!("the mean trace coefficient is {trace:.2}, which cuts returns short")
    });
    check("policy/entropy", &|entropy| distils && entropy < NO_ENTROPY, &|entropy| {
        format!("the entropy is {entropy:.4} nats, so actions are deterministic")
    });
    check("policy/entropy", &|entropy| distils && entropy > ALL_ENTROPY * largest_entropy, &|entropy| {
        format!("the entropy is {entropy:.2} nats, that of random actions")
    });
}

/// Metrics that must not grow without limit.
fn growth(curves: &Curves, warnings: &mut Warnings) {
    for metric in ["learner/gradient_norm", "learner/loss", "learner/loss_rnd", "learner/gradient_norm_rnd"] {
        let points = curves.scalar(metric);
        if let (Some(before), Some(now)) = (quarter(&points, 1), recent(&points))
            && before > 0.0
            && now > EXPLODES * before
        {
            warnings.add(metric, format!("{metric} grew from {before:.3} to {now:.3}"));
        }
    }
    let has_grown = |points: &Points| Some(recent(points)? > EXPLODES * quarter(points, 1)?.max(0.1));
    let sigmas = curves.vector("policy/sigma");
    let grown: Vec<usize> = (0..sigmas.len()).filter(|&policy| has_grown(&sigmas[policy]) == Some(true)).collect();
    warnings.add_policies("policy/sigma", &grown, || format!("σ is more than {EXPLODES} times its earlier value"));
    let metric = "learner/gradient_norm";
    let clip = curves.config.as_ref().map_or(f64::INFINITY, |config| config.agent.optimizer.clip_norm);
    if let Some(norm) = recent(&curves.scalar(metric)).filter(|norm| *norm > clip) {
        warnings.add(metric, format!("the mean gradient norm is {norm:.1}, above the clipping threshold, {clip}"));
    }
}

/// Q-values beyond the best mean score plus the largest intrinsic return, weighted as the policy does.
fn unfounded_values(curves: &Curves, warnings: &mut Warnings) {
    // A metrics file alone has no config; the paper's is the best guess then.
    let policies = curves.config.as_ref().map_or_else(PoliciesConfig::default, |config| config.agent.policies.clone());
    let largest = |points: &Points| points.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
    let score = curves.vector("actor/score_by_policy").iter().map(largest).fold(0.0, f64::max);
    let intrinsic = largest(&curves.scalar("actor/intrinsic_return"));
    let values = curves.vector("policy/q_mean");
    let betas = PoliciesConfig { count: values.len(), ..policies }.betas();
    let unfounded = values.iter().zip(betas).enumerate().filter_map(|(policy, (points, beta))| {
        let value = rescaling::unscale_value(recent(points)?);
        // One point more, for games in which no reward has been seen yet.
        (value > UNFOUNDED * (score + beta * intrinsic + 1.0)).then_some((policy, value))
    });
    let (policies, values): (Vec<usize>, Vec<f64>) = unfounded.unzip();
    let value = values.into_iter().fold(0.0, f64::max);
    warnings.add_policies("policy/q_mean", &policies, || {
        format!("Q reaches {value:.0} points, more than {UNFOUNDED} times any return seen so far")
    });
}

fn bandit(curves: &Curves, warnings: &mut Warnings) {
    let pulls = curves.vector("bandit/pulls");
    let second_half = |points: &Points| Some(points.last()?.1 - points.get(points.len() / 2)?.1);
    let played: Vec<f64> = pulls.iter().filter_map(second_half).collect();
    // Every other choice is uniform. Half of a policy's even share of those is due, and judged once it is a few
    // episodes.
    let due = played.iter().sum::<f64>() / (4 * pulls.len().max(1)) as f64;
    let starved: Vec<usize> = (0..played.len()).filter(|&policy| due >= 2.0 && played[policy] < due / 4.0).collect();
    let sentence = || "almost no episodes in the second half of the run".to_owned();
    warnings.add_policies("bandit/pulls", &starved, sentence);
}

fn novelty(curves: &Curves, warnings: &mut Warnings) {
    if recent(&curves.scalar("actor/reward_ngu")) == Some(0.0) {
        warnings.add("actor/reward_ngu", "the intrinsic reward is 0".to_owned());
    }
    let metric = "actor/reward_rnd";
    let clip = curves.config.as_ref().map_or(f64::INFINITY, |config| config.intrinsic.rnd_clip);
    let multipliers = curves.scalar(metric);
    let Some(multiplier) = recent(&multipliers) else { return };
    let at_bound = match multiplier {
        // It falls to 1 by itself once everything has been seen.
        low if low <= 1.0 + NEAR => {
            if multipliers.iter().any(|&(_, earlier)| earlier > 1.0 + NEAR) {
                return;
            }
            "lower bound, 1, since the beginning".to_owned()
        }
        high if high >= clip * (1.0 - NEAR) => format!("upper bound, {clip}"),
        _ => return,
    };
    let position = format!("the RND multiplier is {multiplier:.3}, at its {at_bound}");
    warnings.add(metric, format!("{position}, so lifelong novelty has no effect"));
}

/// Metrics that should change and do not.
fn flat(curves: &Curves, warnings: &mut Warnings) {
    for metric in ["learner/loss", "learner/loss_rnd", "learner/gradient_norm"] {
        let points = curves.scalar(metric);
        let half = &points[points.len() / 2..];
        if points.len() >= ENOUGH && half.iter().all(|(_, value)| *value == half[0].1) {
            warnings.add(metric, format!("{metric} has not changed since the middle of the run"));
        }
    }
}

fn scores(curves: &Curves, warnings: &mut Warnings) {
    let best = |part: &[(f64, f64)]| part.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    for (metric, role) in [(EVALUATION_SCORE, "evaluator"), (ACTOR_SCORE, "actor")] {
        let points = curves.scalar(metric);
        let (first, second) = points.split_at(points.len() / 2);
        if let (Some(game), Some(score)) = (curves.game(), recent(&points))
            && (score - game.random).abs() < AS_RANDOM * (game.human - game.random)
        {
            let random = game.random;
            let sentence = format!("the mean {role} score, {score:.2}, is close to that of random play, {random:.2}");
            warnings.add(metric, sentence);
        } else if points.len() < 2 * ENOUGH {
            continue;
        } else if points.iter().all(|(_, value)| *value == points[0].1) {
            warnings.add(metric, format!("the {role} score has been {:.2} throughout the run", points[0].1));
        // Actors' scores may fall as policies learn to explore.
        } else if role == "evaluator" && best(second) < best(first) {
            let best = best(first);
            warnings.add(metric, format!("the best {role} score, {best:.2}, is from the first half of the run"));
        }
    }
}

fn system(curves: &Curves, warnings: &mut Warnings) {
    let metric = "time/learner_waiting";
    if let Some(waits) = recent(&curves.scalar(metric)).filter(|waits| *waits > IDLE) {
        warnings.add(metric, format!("the learner spends {} of its time waiting for data", percent(waits)));
    }
    let metric = "replay/samples_per_insert";
    // The metric is a mean since learning started, so it lags behind a setting that changed on the way.
    if let (Some(ratio), Some(config)) = (recent(&curves.scalar(metric)), &curves.config)
        && !curves.has_changed("replay.samples_per_insert")
    {
        let expected = config.replay.samples_per_insert;
        if (ratio / expected - 1.0).abs() > RATIO {
            warnings.add(metric, format!("samples per insert are {ratio:.2}; the config asks for {expected}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use train::config::Config;
    use train::run::history::{HistoryEntry, HistoryEvent, SettingChange};
    use train::run::{ExistingRun, Row, RunDescription, RunDirectory};

    use super::*;

    /// Rows filled by `fill`, which gets the fraction of the run that has passed.
    fn curves(fill: impl Fn(&mut Row, f64)) -> Curves {
        let rows = (0..40).map(|i| {
            let mut row = Row::new(1000 * (i + 1));
            fill(&mut row, i as f64 / 39.0);
            row
        });
        Curves::from_rows(rows.collect())
    }

    fn sentences(curves: &Curves) -> Vec<String> {
        checks(curves).into_iter().map(|check| check.sentence).collect()
    }

    #[test]
    fn healthy_run_raises_no_warning() {
        let healthy = curves(|row, share| {
            row.scalar("learner/loss", 1.0 + (share * 40.0).sin()).scalar("evaluation/score", (2.0 * share).min(1.0));
            row.vector("policy/trust_region_share", [0.1, 0.2]).vector("policy/kl_share", [0.0, 0.0]);
            row.vector("policy/entropy", [1.0 - share / 2.0, 0.5]).vector("policy/trace_coefficient", [0.8, 0.7]);
            row.vector("bandit/pulls", [100.0 * share, 60.0 * share]).scalar("actor/reward_ngu", 0.2);
            row.scalar("actor/reward_rnd", 1.4).scalar("time/learner_waiting", 0.01);
        });
        assert_eq!(sentences(&healthy), [""; 0]);
    }

    #[test]
    fn policies_at_a_bound_are_named() {
        let bounded = curves(|row, _| {
            row.vector("policy/trust_region_share", [0.1, 0.9, 0.94, 0.98, 0.1, 1.0]);
            row.vector("policy/entropy", [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
            row.vector("policy/trace_coefficient", [0.1, 0.1, 0.5, 0.5, 0.5, 0.5]);
            row.scalar("actor/reward_ngu", 0.0).scalar("actor/reward_rnd", 1.0).scalar("time/learner_waiting", 0.4);
        });
        assert_eq!(
            sentences(&bounded),
            [
                "policies 1 to 3, 5: the trust region masks 96 % of the steps, so their values barely move",
                "policies 0, 1: the mean trace coefficient is 0.10, which cuts returns short",
                "policy 3: the entropy is 0.0000 nats, so actions are deterministic",
                "the intrinsic reward is 0",
                "the RND multiplier is 1.000, at its lower bound, 1, since the beginning, so lifelong novelty has no effect",
                "the learner spends 40 % of its time waiting for data",
            ]
        );
    }

    #[test]
    fn rnd_multiplier_that_falls_to_one_is_not_reported() {
        let familiar = curves(|row, share| {
            row.scalar("actor/reward_rnd", if share < 0.5 { 1.5 } else { 1.0 });
        });
        assert_eq!(sentences(&familiar), [""; 0]);
    }

    /// As seen in a run whose policy changed only for a few updates after each new target network.
    #[test]
    fn random_play_is_reported_with_a_remedy() {
        let stuck = |task: &str| {
            let mut stuck = curves(|row, share| {
                row.vector("policy/kl_share", [1.0, if share > 0.5 { 0.4 } else { 1.0 }, 0.9]);
                row.vector("policy/entropy", [2.88, 1.2, 2.0]).scalar("evaluation/score", -21.0);
                row.scalar("actor/score", -20.6).scalar("actor/reward_rnd", 1.02);
            });
            stuck.task = Some(task.to_owned());
            stuck
        };
        let reported = sentences(&stuck("pong"));
        assert_eq!(
            reported,
            [
                "policies 0, 2: the KL bound masks 95 % of the steps, so the policy barely changes; try a shorter \
                 agent.copies.target_period",
                "policy 0: the entropy is 2.88 nats, that of random actions",
                "the RND multiplier is 1.020, at its lower bound, 1, since the beginning, so lifelong novelty has no effect",
                "the mean evaluator score, -21.00, is close to that of random play, -20.70",
                "the mean actor score, -20.60, is close to that of random play, -20.70",
            ]
        );
        // Neither the number of actions nor the score of random play is known for other environments.
        let reported = sentences(&stuck("gym:CartPole-v1"));
        assert!(reported.iter().all(|sentence| !sentence.contains("random")), "{reported:?}");
    }

    #[test]
    fn exploding_and_flat_metrics_are_reported() {
        let sick = curves(|row, share| {
            row.scalar("learner/gradient_norm", 10f64.powf(4.0 * share)).scalar("learner/loss", 2.0);
            row.scalar("evaluation/score", 1.0 - share)
                .scalar("actor/score", -21.0)
                .vector("policy/sigma", [1.0, 10f64.powf(4.0 * share)]);
            row.scalar("learner/loss_rnd", if share > 0.9 { f64::NAN } else { 1.0 + share });
            row.vector("bandit/pulls", [400.0 * share, (40.0 * share).min(15.0)]);
        });
        let reported = sentences(&sick).join("\n");
        for expected in [
            "learner/loss_rnd is not finite in 4 rows",
            "learner/gradient_norm grew from ",
            "policy 1: σ is more than 10 times its earlier value",
            "policy 1: almost no episodes in the second half of the run",
            "learner/loss has not changed since the middle of the run",
            "the best evaluator score, 1.00, is from the first half of the run",
            "the actor score has been -21.00 throughout the run",
        ] {
            assert!(reported.contains(expected), "{expected} is not in\n{reported}");
        }
    }

    /// As seen on montezuma_revenge, where the values of far-sighted policies grew without any reward.
    #[test]
    fn unfounded_values_are_reported() {
        let with_scores = |scores: f64| {
            sentences(&curves(|row, share| {
                row.scalar("actor/intrinsic_return", 10_000.0 * share).vector("actor/score_by_policy", [0.0, scores]);
                row.vector("policy/q_mean", [40.0 * share, 40.0 * share, 40.0 * share]);
            }))
        };
        let reported = "Q reaches 1235 points, more than 3 times any return seen so far";
        // 40 · 34.5 / 39 on average in the last quarter, which is 1 235 points. Policy 2 is paid 0.1 of the intrinsic
        // reward, policy 1 half of that.
        assert_eq!(with_scores(0.0), [format!("policy 0: {reported}")]);
        assert_eq!(with_scores(500.0), [""; 0]);
    }

    #[test]
    fn changed_ratio_is_not_compared_with_the_mean_of_the_whole_run() {
        let root = tempfile::tempdir().unwrap();
        let (description, config) = (RunDescription::new("pong", "paper", 1), Config::default().to_toml().unwrap());
        let (run, _) = RunDirectory::open(root.path(), "run", ExistingRun::Resume, description, &config).unwrap();
        let warnings = || {
            let rows = (1..=40).map(|i| {
                let mut row = Row::new(1000 * i);
                row.scalar("replay/samples_per_insert", 5.0);
                row
            });
            sentences(&Curves::of_run(&run.files, rows.collect()).unwrap())
        };
        assert_eq!(warnings(), ["samples per insert are 5.00; the config asks for 6"]);
        let change = SettingChange { field: "replay.samples_per_insert".to_owned(), before: 4.into(), now: 6.into() };
        let resumed = HistoryEntry { changes: vec![change], ..HistoryEntry::new(HistoryEvent::Resumed, 20_000) };
        resumed.append(&run.files.history_file()).unwrap();
        assert_eq!(warnings(), [""; 0]);
    }

    #[test]
    fn run_that_has_just_begun_is_not_judged() {
        let mut row = Row::new(4);
        row.vector("policy/trust_region_share", [1.0]).scalar("learner/loss", 1.0).scalar("actor/reward_ngu", 0.0);
        assert_eq!(sentences(&Curves::from_rows(vec![row])), [""; 0]);
    }
}
