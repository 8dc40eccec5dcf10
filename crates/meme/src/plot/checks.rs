//! What is worth a word: curves that are flat, that explode, or that lie at a bound.

use agent::config::PoliciesConfig;
use agent::math::{ladders, rescaling};
use serde::Serialize;

use super::chart::Points;
use super::curves::Curves;

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The metric that shows it.
    pub metric: &'static str,
    /// What it is.
    pub sentence: String,
}

/// Rows with a value that a judgement needs: fewer are the beginning of a run.
pub const ENOUGH: usize = 8;
/// More of the steps than this without a loss are too many.
const MASKED: f64 = 0.8;
/// Returns that are cut shorter than this on average reach nowhere.
const SHORT_TRACE: f64 = 0.3;
/// A policy of less entropy, in nats, than this has nothing left to try.
const NO_ENTROPY: f64 = 0.005;
/// A policy with more than this share of the largest entropy has learned nothing.
const ALL_ENTROPY: f64 = 0.99;
/// A multiplier this close to its bound, relatively, says nothing.
const NEAR: f64 = 0.05;
/// Scores that are no further than this from random play, where a human is at 1, are hardly better.
const AS_RANDOM: f64 = 0.02;
/// Values that are this many times what an episode paid at best are believed in for nothing.
const BELIEVED: f64 = 3.0;
/// What is this many times as large as earlier explodes.
const EXPLODES: f64 = 10.0;
/// More of the learner's time than this spent waiting is worth a look.
const IDLE: f64 = 0.05;
/// As far as this, relatively, may samples per insert be from what was asked for.
const RATIO: f64 = 0.1;

/// Looks at everything.
pub fn checks(curves: &Curves) -> Vec<Check> {
    let mut found = Vec::new();
    nonfinite(curves, &mut found);
    masks(curves, &mut found);
    sigma(curves, &mut found);
    policies(curves, &mut found);
    growth(curves, &mut found);
    belief(curves, &mut found);
    bandit(curves, &mut found);
    novelty(curves, &mut found);
    flat(curves, &mut found);
    system(curves, &mut found);
    found
}

/// The mean of the last quarter of a curve that is long enough.
fn lately(points: &Points) -> Option<f64> {
    quarter(points, 3)
}

/// The mean of one of the quarters, from 0.
fn quarter(points: &Points, which: usize) -> Option<f64> {
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).filter(|value| value.is_finite()).collect();
    if values.len() < ENOUGH {
        return None;
    }
    let part = &values[values.len() * which / 4..values.len() * (which + 1) / 4];
    Some(part.iter().sum::<f64>() / part.len() as f64)
}

/// Adds a sentence for the policies of which it is true: `said` gets which they are, and their mean.
fn each_policy(
    curves: &Curves,
    metric: &'static str,
    found: &mut Vec<Check>,
    is_bad: impl Fn(f64) -> bool,
    said: impl Fn(&str, f64) -> String,
) {
    let bad: Vec<(usize, f64)> = curves
        .vector(metric)
        .iter()
        .enumerate()
        .filter_map(|(policy, points)| Some((policy, lately(points)?)))
        .filter(|(_, value)| is_bad(*value))
        .collect();
    // The mean stands for all of them; they are in the picture.
    let mean = bad.iter().map(|(_, value)| value).sum::<f64>() / bad.len() as f64;
    if !bad.is_empty() {
        let which: Vec<usize> = bad.iter().map(|(policy, _)| *policy).collect();
        found.push(Check { metric, sentence: said(&named(&which), mean) });
    }
}

/// `policy 3`, `policies 0 to 4 and 7`.
fn named(policies: &[usize]) -> String {
    if let [policy] = policies {
        return format!("policy {policy}");
    }
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &policy in policies {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == policy => *last = policy,
            _ => ranges.push((policy, policy)),
        }
    }
    let words: Vec<String> = ranges
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first} to {last}"),
        })
        .collect();
    format!("policies {}", words.join(", "))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn nonfinite(curves: &Curves, found: &mut Vec<Check>) {
    let bad = |name: &str| curves.scalar(name).iter().filter(|(_, value)| !value.is_finite()).count();
    for metric in ["learner/loss", "learner/gradient_norm", "learner/loss_rnd"] {
        let count = bad(metric);
        if count > 0 {
            found.push(Check { metric, sentence: format!("{metric} is not finite in {count} rows") });
        }
    }
}

fn masks(curves: &Curves, found: &mut Vec<Check>) {
    each_policy(
        curves,
        "policy/trust_region_share",
        found,
        |share| share > MASKED,
        |which, share| {
            let share = percent(share);
            format!("{which}: {share} of the steps masked by the trust region: their values hardly move")
        },
    );
    each_policy(
        curves,
        "policy/kl_share",
        found,
        |share| share > MASKED,
        |which, share| {
            let share = percent(share);
            let remedy = "the policy stands still; try a shorter agent.copies.target_period";
            format!("{which}: {share} of the steps masked by the KL bound: {remedy}")
        },
    );
}

fn sigma(curves: &Curves, found: &mut Vec<Check>) {
    let Some(config) = &curves.config else { return };
    let floor = config.agent.loss.sigma_floor;
    each_policy(
        curves,
        "policy/sigma",
        found,
        |sigma| sigma <= floor * 1.01,
        |which, _| format!("{which}: sigma lies at its floor, {floor}"),
    );
}

fn policies(curves: &Curves, found: &mut Vec<Check>) {
    each_policy(
        curves,
        "policy/trace_coefficient",
        found,
        |trace| trace < SHORT_TRACE,
        |which, trace| format!("{which}: a mean trace coefficient of {trace:.2} cuts returns short"),
    );
    // Without distillation there is no policy, and its entropy is 0 throughout.
    let distils = curves.config.as_ref().is_none_or(|config| config.agent.loss.distillation);
    each_policy(
        curves,
        "policy/entropy",
        found,
        |entropy| distils && entropy < NO_ENTROPY,
        |which, entropy| format!("{which}: an entropy of {entropy:.4} nats leaves nothing to try"),
    );
    let Some(most) = curves.actions().map(|actions| (actions as f64).ln()) else { return };
    each_policy(
        curves,
        "policy/entropy",
        found,
        |entropy| distils && entropy > ALL_ENTROPY * most,
        |which, entropy| format!("{which}: an entropy of {entropy:.2} nats is that of random actions"),
    );
}

/// What grows without end.
fn growth(curves: &Curves, found: &mut Vec<Check>) {
    let scalars = ["learner/gradient_norm", "learner/loss", "learner/loss_rnd", "learner/gradient_norm_rnd"];
    for metric in scalars {
        let points = curves.scalar(metric);
        if let (Some(before), Some(now)) = (quarter(&points, 1), lately(&points))
            && before > 0.0
            && now > EXPLODES * before
        {
            let sentence = format!("{metric} has grown from {before:.3} to {now:.3}");
            found.push(Check { metric, sentence });
        }
    }
    let metric = "policy/sigma";
    let grown: Vec<usize> = curves
        .vector(metric)
        .iter()
        .enumerate()
        .filter_map(|(policy, points)| Some((policy, quarter(points, 1)?, lately(points)?)))
        .filter(|(_, before, now)| *now > EXPLODES * before.max(0.1))
        .map(|(policy, ..)| policy)
        .collect();
    if !grown.is_empty() {
        let sentence = format!("{}: {metric} is more than {EXPLODES} times what it was", named(&grown));
        found.push(Check { metric, sentence });
    }
    if let Some(config) = &curves.config {
        let clip = config.agent.optimizer.clip_norm;
        if let Some(norm) = lately(&curves.scalar("learner/gradient_norm")).filter(|norm| *norm > clip) {
            let sentence = format!("the gradient's norm is {norm:.1} on average and is clipped to {clip}");
            found.push(Check { metric: "learner/gradient_norm", sentence });
        }
    }
}

/// Values that nothing was ever paid for: more than the best mean of a policy's episodes and the largest intrinsic
/// return with the policy's weight.
fn belief(curves: &Curves, found: &mut Vec<Check>) {
    // A file of metrics alone has no config; the paper's is the best guess then.
    let family = curves.config.as_ref().map_or_else(PoliciesConfig::default, |it| it.agent.policies.clone());
    let most = |points: &Points| points.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
    let score = curves.vector("actor/score_by_policy").iter().map(most).fold(0.0, f64::max);
    let intrinsic = most(&curves.scalar("actor/intrinsic_return"));
    let metric = "policy/q_mean";
    let values = curves.vector(metric);
    let believed = values.iter().zip(ladders::beta_ladder(values.len(), family.beta_max)).enumerate();
    let beyond: Vec<(usize, f64)> = believed
        .filter_map(|(policy, (points, beta))| {
            let value = rescaling::rescale_inverse(lately(points)?);
            // A point more, for games in which nothing has been paid yet.
            (value > BELIEVED * (score + beta * intrinsic + 1.0)).then_some((policy, value))
        })
        .collect();
    let largest = beyond.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if !beyond.is_empty() {
        let which: Vec<usize> = beyond.iter().map(|(policy, _)| *policy).collect();
        let which = named(&which);
        let what = format!("values stand for up to {largest:.0} points");
        let sentence = format!("{which}: {what}, more than {BELIEVED} times what was ever paid");
        found.push(Check { metric, sentence });
    }
}

fn bandit(curves: &Curves, found: &mut Vec<Check>) {
    let pulls = curves.vector("bandit/pulls");
    let begun = |points: &Points| {
        let half = points.get(points.len() / 2)?;
        Some(points.last()?.1 - half.1)
    };
    let lately: Vec<f64> = pulls.iter().filter_map(begun).collect();
    let all: f64 = lately.iter().sum();
    // An arm is due at least half of an even share of the uniform choices, one in two; judged once that is a few.
    let due = all / (4 * pulls.len().max(1)) as f64;
    let starved: Vec<usize> = (0..lately.len()).filter(|&policy| due >= 2.0 && lately[policy] < due / 4.0).collect();
    if !starved.is_empty() {
        let sentence = format!("{}: hardly an episode in the second half of the run", named(&starved));
        found.push(Check { metric: "bandit/pulls", sentence });
    }
}

fn novelty(curves: &Curves, found: &mut Vec<Check>) {
    if lately(&curves.scalar("actor/reward_ngu")) == Some(0.0) {
        found.push(Check { metric: "actor/reward_ngu", sentence: "there is no intrinsic reward".to_owned() });
    }
    let clip = curves.config.as_ref().map(|config| config.intrinsic.rnd_clip);
    let at = match lately(&curves.scalar("actor/reward_rnd")) {
        Some(multiplier) if multiplier <= 1.0 + NEAR => format!("{multiplier:.3}, its lower bound is 1"),
        Some(multiplier) if clip.is_some_and(|clip| multiplier >= clip * (1.0 - NEAR)) => {
            format!("{multiplier:.3}, at its upper bound")
        }
        _ => return,
    };
    let sentence = format!("the RND multiplier is {at}: life-long novelty says nothing");
    found.push(Check { metric: "actor/reward_rnd", sentence });
}

/// What should move and does not.
fn flat(curves: &Curves, found: &mut Vec<Check>) {
    for metric in ["learner/loss", "learner/loss_rnd", "learner/gradient_norm"] {
        let points = curves.scalar(metric);
        let half = &points[points.len() / 2..];
        if points.len() >= ENOUGH && half.iter().all(|(_, value)| *value == half[0].1) {
            let sentence = format!("{metric} has not moved since the middle of the run");
            found.push(Check { metric, sentence });
        }
    }
    for (metric, who) in [("evaluation/score", "evaluators"), ("actor/score", "actors")] {
        let points = curves.scalar(metric);
        if let (Some(game), Some(score)) = (curves.game(), lately(&points))
            && (score - game.random).abs() < AS_RANDOM * (game.human - game.random)
        {
            let sentence = format!("the score of the {who}, {score:.2}, is near a random player's, {:.2}", game.random);
            found.push(Check { metric, sentence });
            continue;
        }
        let best = |part: &[(f64, f64)]| part.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
        let (first, second) = points.split_at(points.len() / 2);
        if points.len() < 2 * ENOUGH {
            continue;
        }
        if points.iter().all(|(_, value)| *value == points[0].1) {
            let sentence = format!("the score of the {who} has been {:.2} all the time", points[0].1);
            found.push(Check { metric, sentence });
        // Actors' scores fall as policies learn to explore.
        } else if who == "evaluators" && best(second) < best(first) {
            let sentence =
                format!("the best score of the {who}, {:.2}, is from the first half of the run", best(first));
            found.push(Check { metric, sentence });
        }
    }
}

fn system(curves: &Curves, found: &mut Vec<Check>) {
    if let Some(waits) = lately(&curves.scalar("time/learner_waiting")).filter(|waits| *waits > IDLE) {
        let sentence = format!("the learner waits for data {} of its time", percent(waits));
        found.push(Check { metric: "time/learner_waiting", sentence });
    }
    if let (Some(ratio), Some(config)) = (lately(&curves.scalar("replay/samples_per_insert")), &curves.config) {
        let wanted = config.replay.samples_per_insert;
        if (ratio / wanted - 1.0).abs() > RATIO {
            let sentence = format!("{ratio:.2} samples per insert, where the config has {wanted}");
            found.push(Check { metric: "replay/samples_per_insert", sentence });
        }
    }
}

#[cfg(test)]
mod tests {
    use train::run::Row;

    use super::*;

    /// Rows that `fill` adds to, the fraction of the run given.
    fn curves(fill: impl Fn(&mut Row, f64)) -> Curves {
        let rows = (0..40).map(|i| {
            let mut row = Row::new(1000 * (i + 1));
            fill(&mut row, i as f64 / 39.0);
            row
        });
        Curves::of_rows(rows.collect())
    }

    fn sentences(curves: &Curves) -> Vec<String> {
        checks(curves).into_iter().map(|check| check.sentence).collect()
    }

    #[test]
    fn a_healthy_run_is_not_spoken_of() {
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
    fn what_lies_at_a_bound_is_named_with_its_policies() {
        let bounded = curves(|row, _| {
            row.vector("policy/trust_region_share", [0.1, 0.9, 0.94, 0.98, 0.1, 1.0]);
            row.vector("policy/entropy", [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
            row.vector("policy/trace_coefficient", [0.1, 0.1, 0.5, 0.5, 0.5, 0.5]);
            row.scalar("actor/reward_ngu", 0.0).scalar("actor/reward_rnd", 1.0).scalar("time/learner_waiting", 0.4);
        });
        assert_eq!(
            sentences(&bounded),
            [
                "policies 1 to 3, 5: 96 % of the steps masked by the trust region: their values hardly move",
                "policies 0, 1: a mean trace coefficient of 0.10 cuts returns short",
                "policy 3: an entropy of 0.0000 nats leaves nothing to try",
                "there is no intrinsic reward",
                "the RND multiplier is 1.000, its lower bound is 1: life-long novelty says nothing",
                "the learner waits for data 40 % of its time",
            ]
        );
    }

    /// As in a run whose policy moved only for a few updates after each new target network.
    #[test]
    fn a_game_that_is_played_as_by_chance_is_named_with_a_remedy() {
        let stuck = |task: &str| {
            let mut stuck = curves(|row, share| {
                row.vector("policy/kl_share", [1.0, if share > 0.5 { 0.4 } else { 1.0 }, 0.9]);
                row.vector("policy/entropy", [2.88, 1.2, 2.0]).scalar("evaluation/score", -21.0);
                row.scalar("actor/score", -20.6).scalar("actor/reward_rnd", 1.02);
            });
            stuck.task = Some(task.to_owned());
            stuck
        };
        let said = sentences(&stuck("pong"));
        assert_eq!(
            said,
            [
                "policies 0, 2: 95 % of the steps masked by the KL bound: the policy stands still; try a shorter \
                 agent.copies.target_period",
                "policy 0: an entropy of 2.88 nats is that of random actions",
                "the RND multiplier is 1.020, its lower bound is 1: life-long novelty says nothing",
                "the score of the evaluators, -21.00, is near a random player's, -20.70",
                "the score of the actors, -20.60, is near a random player's, -20.70",
            ]
        );
        // How many actions another environment has is not known, and neither is a random player's score.
        let said = sentences(&stuck("gym:CartPole-v1"));
        assert!(said.iter().all(|sentence| !sentence.contains("random")), "{said:?}");
    }

    #[test]
    fn what_explodes_or_stands_still_is_named() {
        let sick = curves(|row, share| {
            row.scalar("learner/gradient_norm", 10f64.powf(4.0 * share)).scalar("learner/loss", 2.0);
            row.scalar("evaluation/score", 1.0 - share)
                .scalar("actor/score", -21.0)
                .vector("policy/sigma", [1.0, 10f64.powf(4.0 * share)]);
            row.scalar("learner/loss_rnd", if share > 0.9 { f64::NAN } else { 1.0 + share });
            row.vector("bandit/pulls", [400.0 * share, (40.0 * share).min(15.0)]);
        });
        let said = sentences(&sick).join("\n");
        for expected in [
            "learner/loss_rnd is not finite in 4 rows",
            "learner/gradient_norm has grown from ",
            "policy 1: policy/sigma is more than 10 times what it was",
            "policy 1: hardly an episode in the second half of the run",
            "learner/loss has not moved since the middle of the run",
            "the best score of the evaluators, 1.00, is from the first half of the run",
            "the score of the actors has been -21.00 all the time",
        ] {
            assert!(said.contains(expected), "{expected} is not in\n{said}");
        }
    }

    /// As on montezuma_revenge, where values of policies that look far ahead grew with nothing to grow on.
    #[test]
    fn values_beyond_all_pay_are_named() {
        let with_scores = |scores: f64| {
            sentences(&curves(|row, share| {
                row.scalar("actor/intrinsic_return", 10_000.0 * share).vector("actor/score_by_policy", [0.0, scores]);
                row.vector("policy/q_mean", [40.0 * share, 40.0 * share, 40.0 * share]);
            }))
        };
        let said = "values stand for up to 1235 points, more than 3 times what was ever paid";
        // 40 · 34.5 / 39 on average in the last quarter, which is 1 235 points. Policy 2 is paid 0.1 of the intrinsic
        // reward, policy 1 half of that.
        assert_eq!(with_scores(0.0), [format!("policy 0: {said}")]);
        assert_eq!(with_scores(500.0), [""; 0]);
    }

    #[test]
    fn a_run_that_has_just_begun_is_not_judged() {
        let mut row = Row::new(4);
        row.vector("policy/trust_region_share", [1.0]).scalar("learner/loss", 1.0).scalar("actor/reward_ngu", 0.0);
        assert_eq!(sentences(&Curves::of_rows(vec![row])), [""; 0]);
    }
}
