//! The page: which charts there are, in which order, and where each is.

use super::axis::Scale;
use super::chart::{Chart, Content, Level, Line, SIZE, colour, policy_colour};
use super::checks::Check;
use super::curves::Curves;
use super::surface::{Anchor, HEADING, SMALL, Surface};
use crate::output::grouped;

const MARGIN: f64 = 12.0;
const COLUMNS: usize = 3;
/// From one line of text to the next.
const LEADING: f64 = 14.0;
/// Columns of the map of episodes by policy, at most.
const MAP_COLUMNS: usize = 60;

/// What is drawn.
pub struct Page {
    heading: String,
    lines: Vec<String>,
    charts: Vec<Chart>,
    frames: f64,
}

impl Page {
    /// Everything there is to see of one run.
    pub fn of_run(curves: &Curves, checks: &[Check]) -> Self {
        let task = curves.task.as_deref().map_or(String::new(), |task| format!(", {task}"));
        let heading = format!("{}{task}, {} frames", curves.name, grouped(curves.frames()));
        let mut charts = scores(curves);
        charts.extend(bandit(curves));
        charts.extend(novelty(curves));
        charts.extend(policies(curves));
        charts.extend(learner(curves));
        charts.extend(system(curves));
        charts.retain(|chart| !chart.is_empty());
        let lines = checks.iter().map(|check| check.sentence.clone()).collect();
        Self { heading, lines, charts, frames: curves.frames() as f64 }
    }

    /// Several runs in the same charts.
    pub fn of_runs(runs: &[Curves]) -> Self {
        let metrics = [
            ("evaluation score", "evaluation/score"),
            ("score of the actors", "actor/score"),
            ("favourite policy", "bandit/favourite"),
            ("intrinsic return of an episode", "actor/intrinsic_return"),
            ("positions", "actor/positions"),
            ("positions in the first area", "actor/positions_in_first_area"),
            ("frames/s", "speed/frames_per_second"),
            ("updates/s", "speed/updates_per_second"),
        ];
        let chart = |(title, metric): &(&str, &str)| {
            let lines = runs.iter().enumerate().map(|(i, run)| Line {
                label: String::new(),
                colour: colour(i),
                points: run.scalar(metric),
            });
            let levels = if metric.ends_with("/score") { levels(&runs[0]) } else { vec![] };
            let content = Content::Lines { lines: lines.collect(), levels, scale: Scale::Linear };
            Chart { title: (*title).to_owned(), content, policies: None }
        };
        let mut charts: Vec<Chart> = metrics.iter().map(chart).collect();
        charts.retain(|chart| !chart.is_empty());
        let frames = runs.iter().map(Curves::frames).max().unwrap_or(0) as f64;
        let lines = runs.iter().map(|run| format!("{}, {} frames", run.name, grouped(run.frames()))).collect();
        Self { heading: format!("{} runs", runs.len()), lines, charts, frames }
    }

    /// How many charts it has.
    pub fn charts(&self) -> usize {
        self.charts.len()
    }

    /// Where the charts begin.
    fn top(&self) -> f64 {
        2.0 * MARGIN + HEADING + self.lines.len() as f64 * LEADING
    }

    /// Width and height.
    pub fn size(&self) -> (f64, f64) {
        let rows = self.charts.len().div_ceil(COLUMNS) as f64;
        (2.0 * MARGIN + COLUMNS as f64 * SIZE.0, self.top() + rows * SIZE.1 + MARGIN)
    }

    /// Draws it; `coloured` lines under the heading are in the colours of the runs.
    pub fn draw(&self, surface: &mut dyn Surface, coloured: bool) {
        surface.text((MARGIN, MARGIN + HEADING * 0.7), &self.heading, HEADING, Anchor::Left, [0; 3]);
        for (number, line) in self.lines.iter().enumerate() {
            let y = MARGIN + HEADING + (number as f64 + 0.8) * LEADING;
            let colour = if coloured { colour(number) } else { [150, 40, 30] };
            surface.text((MARGIN, y), line, SMALL, Anchor::Left, colour);
        }
        for (number, chart) in self.charts.iter().enumerate() {
            let (row, column) = (number / COLUMNS, number % COLUMNS);
            let corner = (MARGIN + column as f64 * SIZE.0, self.top() + row as f64 * SIZE.1);
            chart.draw(surface, corner, self.frames);
        }
    }
}

/// A chart of a few metrics, each with its label.
fn few(curves: &Curves, title: &str, metrics: &[(&str, &str)], scale: Scale) -> Chart {
    let lines = metrics.iter().enumerate().map(|(i, (label, metric))| Line {
        label: (*label).to_owned(),
        colour: colour(i),
        points: curves.scalar(metric),
    });
    // A label of what is not there would mislead.
    let lines = lines.filter(|line| !line.points.is_empty()).collect();
    Chart { title: title.to_owned(), content: Content::Lines { lines, levels: vec![], scale }, policies: None }
}

/// A chart of metrics that have a value for each policy.
fn by_policy(curves: &Curves, title: &str, metrics: &[&str], scale: Scale) -> Chart {
    let all: Vec<_> = metrics.iter().map(|metric| curves.vector(metric)).collect();
    let count = all.iter().map(Vec::len).max().unwrap_or(0);
    let lines = all.into_iter().flat_map(|curves| {
        curves.into_iter().enumerate().map(|(policy, points)| Line {
            label: String::new(),
            colour: policy_colour(policy, count),
            points,
        })
    });
    let content = Content::Lines { lines: lines.collect(), levels: vec![], scale };
    Chart { title: title.to_owned(), content, policies: Some(count) }
}

/// A human's and a random player's score.
fn levels(curves: &Curves) -> Vec<Level> {
    let level = |label: &str, value| Level { label: label.to_owned(), value };
    curves.game().map_or(vec![], |game| vec![level("human", game.human), level("random", game.random)])
}

fn scores(curves: &Curves) -> Vec<Chart> {
    let metrics = [("evaluators", "evaluation/score"), ("actors", "actor/score")];
    let mut score = few(curves, "score by role", &metrics, Scale::Linear);
    if let Content::Lines { levels: of_chart, .. } = &mut score.content {
        *of_chart = levels(curves);
    }
    let mut epsilon = by_policy(curves, "score of the actors by epsilon", &["actor/score_by_epsilon"], Scale::Linear);
    // Bands of ε are no policies: each has its own label.
    epsilon.policies = None;
    let bands = curves.vector("actor/epsilon");
    if let Content::Lines { lines, .. } = &mut epsilon.content {
        for (line, band) in lines.iter_mut().zip(bands) {
            line.label = band.last().map_or(String::new(), |(_, epsilon)| format!("{epsilon:.0e}"));
        }
    }
    vec![score, by_policy(curves, "score of the actors by policy", &["actor/score_by_policy"], Scale::Linear), epsilon]
}

fn bandit(curves: &Curves) -> Vec<Chart> {
    let favourite = [("", "bandit/favourite")];
    vec![
        few(curves, "favourite policy", &favourite, Scale::Linear),
        Chart { title: "episodes by policy (dark: many)".to_owned(), content: pulls(curves), policies: None },
        by_policy(curves, "bandit's mean return by policy", &["bandit/mean_return"], Scale::Linear),
    ]
}

/// The share of the episodes that each policy began, in stretches of the run.
fn pulls(curves: &Curves) -> Content {
    let policies = curves.vector("bandit/pulls");
    let rows = policies.first().map_or(0, Vec::len);
    let each = rows.div_ceil(MAP_COLUMNS).max(1);
    let mut columns = Vec::new();
    let (mut from, mut before) = (0.0, vec![0.0; policies.len()]);
    for row in (each - 1..rows).step_by(each) {
        let now: Vec<f64> = policies.iter().map(|curve| curve[row].1).collect();
        let begun: Vec<f64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        let all: f64 = begun.iter().sum();
        let shares = begun.iter().map(|begun| if all > 0.0 { begun / all } else { 0.0 }).collect();
        columns.push((from, shares));
        (from, before) = (policies[0][row].0, now);
    }
    Content::Shares { columns, end: from }
}

fn novelty(curves: &Curves) -> Vec<Chart> {
    let parts = [("r_NGU", "actor/reward_ngu"), ("episodic part", "actor/reward_episodic")];
    let positions = [("all", "actor/positions"), ("in the first area", "actor/positions_in_first_area")];
    let errors = [("mean", "learner/rnd_error_mean"), ("std", "learner/rnd_error_std"), ("batch", "learner/loss_rnd")];
    vec![
        few(curves, "intrinsic reward an observation", &parts, Scale::Linear),
        // The multiplier is between 1 and a few, where the rest may be tens.
        few(curves, "RND multiplier", &[("", "actor/reward_rnd")], Scale::Linear),
        few(curves, "intrinsic return of an episode", &[("", "actor/intrinsic_return")], Scale::Linear),
        few(curves, "RND error", &errors, Scale::Logarithmic),
        few(curves, "positions so far", &positions, Scale::Linear),
        few(curves, "positions of an episode", &[("", "actor/episode_positions")], Scale::Linear),
    ]
}

fn policies(curves: &Curves) -> Vec<Chart> {
    let chart = |title, metrics: &[&str], scale| by_policy(curves, title, metrics, scale);
    vec![
        chart("sigma", &["policy/sigma"], Scale::Logarithmic),
        chart("TD error (rescaled)", &["policy/td_error"], Scale::Logarithmic),
        chart("Q, least and largest (rescaled)", &["policy/q_min", "policy/q_max"], Scale::Linear),
        chart("share masked by the trust region", &["policy/trust_region_share"], Scale::Linear),
        chart("share masked by the KL bound", &["policy/kl_share"], Scale::Linear),
        chart("mean trace coefficient", &["policy/trace_coefficient"], Scale::Linear),
        chart("entropy of the policy (nats)", &["policy/entropy"], Scale::Linear),
    ]
}

fn learner(curves: &Curves) -> Vec<Chart> {
    let norms = [
        ("agent", "learner/gradient_norm"),
        ("action prediction", "learner/gradient_norm_action_prediction"),
        ("RND", "learner/gradient_norm_rnd"),
    ];
    let losses = [
        ("TD", "learner/loss_td"),
        ("distillation", "learner/loss_distillation"),
        ("action prediction", "learner/loss_action_prediction"),
    ];
    let staleness = [("updates", "learner/parameter_staleness"), ("sequences", "learner/sequence_age")];
    vec![
        few(curves, "gradient norms", &norms, Scale::Logarithmic),
        few(curves, "losses", &losses, Scale::Logarithmic),
        few(curves, "actions predicted right", &[("", "learner/action_prediction_accuracy")], Scale::Linear),
        few(curves, "age of what is sampled", &staleness, Scale::Linear),
    ]
}

fn system(curves: &Curves) -> Vec<Chart> {
    let waiting = [
        ("learner", "time/learner_waiting"),
        ("actors for replay", "time/actor_waiting_for_replay"),
        ("for inference", "time/actor_waiting_for_inference"),
    ];
    let working = [
        ("learner", "time/learner_working"),
        ("inference", "time/inference_working"),
        ("sampler", "time/sampler_working"),
        ("actors", "time/actor_working"),
    ];
    let memory = [
        ("process", "memory/process"),
        ("of it replay", "memory/replay"),
        ("workers", "memory/workers"),
        ("GPU", "memory/device"),
    ];
    vec![
        few(curves, "samples per insert", &[("", "replay/samples_per_insert")], Scale::Linear),
        few(curves, "frames/s", &[("", "speed/frames_per_second")], Scale::Linear),
        few(curves, "updates/s", &[("", "speed/updates_per_second")], Scale::Linear),
        few(curves, "seconds of training", &[("", "speed/seconds")], Scale::Linear),
        few(curves, "share of time working", &working, Scale::Linear),
        few(curves, "share of time waiting", &waiting, Scale::Linear),
        few(curves, "memory, bytes", &memory, Scale::Linear),
        few(curves, "sequences in replay", &[("", "replay/sequences")], Scale::Linear),
        few(curves, "frames of an episode", &[("", "actor/episode_frames")], Scale::Linear),
    ]
}
