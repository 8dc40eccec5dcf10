//! The page: which charts there are, and where each one goes.

use super::axis::Scale;
use super::chart::{Chart, Content, Level, Line, SIZE, colour, policy_colour};
use super::checks::Check;
use super::curves::Curves;
use super::svg::{Anchor, Colour, HEADING, SMALL, Svg};
use crate::output::grouped;

const MARGIN: f64 = 14.0;
const COLUMNS: usize = 3;
/// Distance between lines of text.
const LEADING: f64 = 15.0;
/// Most columns in the map of episodes by policy.
const MAP_COLUMNS: usize = 60;
/// Colour of sentences that warn.
const WARNING: Colour = [150, 40, 30];

/// The metrics of a chart.
enum Source {
    /// Scalars, each with its entry in the legend.
    Scalars(&'static [(&'static str, &'static str)]),
    /// Vectors with one value per policy.
    PerPolicy(&'static [&'static str]),
    /// Vector with one value per band of ε.
    PerEpsilon(&'static str),
    /// Share of the episodes that each policy played.
    EpisodeShares,
}

use Scale::{Linear, Logarithmic};
use Source::{EpisodeShares, PerEpsilon, PerPolicy, Scalars};

/// Title, unit, metrics and scale of each chart of a run, in order.
const CHARTS: [(&str, &str, Source, Scale); 35] = [
    ("Score", "points per episode", Scalars(&[("evaluators", "evaluation/score"), ("actors", "actor/score")]), Linear),
    ("Actor score by policy", "points per episode", PerPolicy(&["actor/score_by_policy"]), Linear),
    ("Actor score by ε", "points per episode", PerEpsilon("actor/score_by_epsilon"), Linear),
    ("Policy preferred by the bandit", "policy", Scalars(&[("", "bandit/favourite")]), Linear),
    ("Episodes by policy (darker: more)", "policy", EpisodeShares, Linear),
    ("Bandit's mean return by policy", "points per episode", PerPolicy(&["bandit/mean_return"]), Linear),
    (
        "Intrinsic reward",
        "per observation",
        Scalars(&[("NGU reward", "actor/reward_ngu"), ("episodic part", "actor/reward_episodic")]),
        Linear,
    ),
    // Apart from the rewards: it lies between 1 and a few, while they may reach tens.
    ("RND multiplier", "factor", Scalars(&[("", "actor/reward_rnd")]), Linear),
    ("Intrinsic return", "per episode", Scalars(&[("", "actor/intrinsic_return")]), Linear),
    (
        "RND error",
        "squared error",
        Scalars(&[
            ("mean", "learner/rnd_error_mean"),
            ("standard deviation", "learner/rnd_error_std"),
            ("batch", "learner/loss_rnd"),
        ]),
        Logarithmic,
    ),
    (
        "Positions visited so far",
        "positions",
        Scalars(&[("all", "actor/positions"), ("in the first area", "actor/positions_in_first_area")]),
        Linear,
    ),
    ("Positions visited per episode", "positions", Scalars(&[("", "actor/episode_positions")]), Linear),
    ("σ, the scale of TD errors", "rescaled value", PerPolicy(&["policy/sigma"]), Logarithmic),
    ("TD error", "rescaled value", PerPolicy(&["policy/td_error"]), Logarithmic),
    ("TD error, signed", "rescaled value", PerPolicy(&["policy/td_bias"]), Linear),
    ("Q, smallest and largest", "rescaled value", PerPolicy(&["policy/q_min", "policy/q_max"]), Linear),
    ("Spread of Q over actions", "rescaled value", PerPolicy(&["policy/q_spread"]), Logarithmic),
    ("Steps masked by the trust region", "share", PerPolicy(&["policy/trust_region_share"]), Linear),
    ("Steps masked by the KL bound", "share", PerPolicy(&["policy/kl_share"]), Linear),
    ("KL from the target network's policy", "nats", PerPolicy(&["policy/kl"]), Logarithmic),
    ("Mean trace coefficient", "coefficient", PerPolicy(&["policy/trace_coefficient"]), Linear),
    ("Policy entropy", "nats", PerPolicy(&["policy/entropy"]), Linear),
    (
        "Gradient norm",
        "norm before clipping",
        Scalars(&[
            ("agent", "learner/gradient_norm"),
            ("action prediction", "learner/gradient_norm_action_prediction"),
            ("RND", "learner/gradient_norm_rnd"),
        ]),
        Logarithmic,
    ),
    (
        "Loss",
        "loss",
        Scalars(&[
            ("TD", "learner/loss_td"),
            ("distillation", "learner/loss_distillation"),
            ("action prediction", "learner/loss_action_prediction"),
        ]),
        Logarithmic,
    ),
    ("Action prediction accuracy", "share correct", Scalars(&[("", "learner/action_prediction_accuracy")]), Linear),
    (
        "Age of sampled sequences",
        "updates or sequences",
        Scalars(&[("in updates", "learner/parameter_staleness"), ("in sequences", "learner/sequence_age")]),
        Linear,
    ),
    ("Samples per insert", "samples", Scalars(&[("", "replay/samples_per_insert")]), Linear),
    ("Actor speed", "frames/s", Scalars(&[("", "speed/frames_per_second")]), Linear),
    ("Learner speed", "updates/s", Scalars(&[("", "speed/updates_per_second")]), Linear),
    ("Training time", "seconds", Scalars(&[("", "speed/seconds")]), Linear),
    (
        "Time spent working",
        "share of time",
        Scalars(&[
            ("learner", "time/learner_working"),
            ("inference", "time/inference_working"),
            ("sampler", "time/sampler_working"),
            ("actors", "time/actor_working"),
        ]),
        Linear,
    ),
    (
        "Time spent waiting",
        "share of time",
        Scalars(&[
            ("learner", "time/learner_waiting"),
            ("actors for replay", "time/actor_waiting_for_replay"),
            ("actors for inference", "time/actor_waiting_for_inference"),
        ]),
        Linear,
    ),
    (
        "Memory",
        "bytes",
        Scalars(&[
            ("process", "memory/process"),
            ("replay (part of it)", "memory/replay"),
            ("workers", "memory/workers"),
            ("GPU", "memory/device"),
        ]),
        Linear,
    ),
    ("Sequences in replay", "sequences", Scalars(&[("", "replay/sequences")]), Linear),
    ("Episode length", "frames", Scalars(&[("", "actor/episode_frames")]), Linear),
];

/// Title, unit and metric of each chart that compares runs.
const COMPARISONS: [(&str, &str, &str); 8] = [
    ("Evaluator score", "points per episode", "evaluation/score"),
    ("Actor score", "points per episode", "actor/score"),
    ("Policy preferred by the bandit", "policy", "bandit/favourite"),
    ("Intrinsic return", "per episode", "actor/intrinsic_return"),
    ("Positions visited so far", "positions", "actor/positions"),
    ("Positions visited in the first area", "positions", "actor/positions_in_first_area"),
    ("Actor speed", "frames/s", "speed/frames_per_second"),
    ("Learner speed", "updates/s", "speed/updates_per_second"),
];

/// A page of charts under a heading and some sentences.
pub struct Page {
    heading: String,
    sentences: Vec<(String, Colour)>,
    charts: Vec<Chart>,
    frames: f64,
}

impl Page {
    /// Lays out everything known about one run.
    pub fn of_run(curves: &Curves, checks: &[Check]) -> Self {
        let task = curves.task.as_deref().map_or(String::new(), |task| format!(" on {task}"));
        let heading = format!("{}{task}, {} frames", curves.name, grouped(curves.frames()));
        let charts = CHARTS.iter().map(|(title, unit, source, scale)| chart(curves, title, unit, source, *scale));
        let charts = charts.filter(|chart| !chart.is_empty()).collect();
        let sentences = checks.iter().map(|check| (check.sentence.clone(), WARNING)).collect();
        Self { heading, sentences, charts, frames: curves.frames() as f64 }
    }

    /// Lays out several runs in the same charts.
    pub fn of_runs(runs: &[Curves]) -> Self {
        let chart = |(title, unit, metric): &(&str, &'static str, &str)| {
            let line = |(i, run): (usize, &Curves)| Line {
                label: String::new(),
                colour: colour(i),
                points: run.scalar(metric),
            };
            let lines = runs.iter().enumerate().map(line).collect();
            let levels = if metric.ends_with("/score") { levels(&runs[0]) } else { vec![] };
            let content = Content::Lines { lines, levels, scale: Linear };
            Chart { title: (*title).to_owned(), unit, content, policies: None }
        };
        let charts = COMPARISONS.iter().map(chart).filter(|chart| !chart.is_empty()).collect();
        let frames = runs.iter().map(Curves::frames).max().unwrap_or(0) as f64;
        let name = |run: &Curves| format!("{}, {} frames", run.name, grouped(run.frames()));
        let sentences = runs.iter().enumerate().map(|(i, run)| (name(run), colour(i))).collect();
        Self { heading: format!("{} runs", runs.len()), sentences, charts, frames }
    }

    /// Number of charts.
    pub fn charts(&self) -> usize {
        self.charts.len()
    }

    /// Draws the page.
    pub fn draw(&self) -> String {
        let top = 2.0 * MARGIN + HEADING + self.sentences.len() as f64 * LEADING;
        let rows = self.charts.len().div_ceil(COLUMNS) as f64;
        let mut svg = Svg::new(2.0 * MARGIN + COLUMNS as f64 * SIZE.0, top + rows * SIZE.1 + MARGIN);
        svg.text((MARGIN, MARGIN + HEADING * 0.8), &self.heading, HEADING, Anchor::Start, [0; 3]);
        for (number, (sentence, colour)) in self.sentences.iter().enumerate() {
            let y = MARGIN + HEADING + (number as f64 + 1.0) * LEADING;
            svg.text((MARGIN, y), sentence, SMALL + 1.0, Anchor::Start, *colour);
        }
        for (number, chart) in self.charts.iter().enumerate() {
            let (row, column) = (number / COLUMNS, number % COLUMNS);
            chart.draw(&mut svg, (MARGIN + column as f64 * SIZE.0, top + row as f64 * SIZE.1), self.frames);
        }
        svg.finish()
    }
}

fn chart(curves: &Curves, title: &str, unit: &'static str, source: &Source, scale: Scale) -> Chart {
    let mut policies = None;
    let lines = match source {
        Scalars(metrics) => {
            let line = |(i, (label, metric)): (usize, &(&str, &str))| Line {
                label: (*label).to_owned(),
                colour: colour(i),
                points: curves.scalar(metric),
            };
            // A legend entry without a line would mislead.
            metrics.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
        }
        PerPolicy(metrics) => {
            let lines: Vec<Line> = metrics.iter().flat_map(|metric| ordered(curves.vector(metric))).collect();
            policies = Some(lines.len() / metrics.len());
            lines
        }
        PerEpsilon(metric) => {
            let mut lines = ordered(curves.vector(metric));
            for (line, band) in lines.iter_mut().zip(curves.vector("actor/epsilon")) {
                line.label = band.last().map_or(String::new(), |(_, epsilon)| format!("{epsilon:.0e}"));
            }
            lines
        }
        EpisodeShares => {
            return Chart { title: title.to_owned(), unit, content: episode_shares(curves), policies: None };
        }
    };
    let levels = if title == "Score" { levels(curves) } else { vec![] };
    Chart { title: title.to_owned(), unit, content: Content::Lines { lines, levels, scale }, policies }
}

/// Lines without labels, coloured by their order.
fn ordered(curves: Vec<Vec<(f64, f64)>>) -> Vec<Line> {
    let count = curves.len();
    let line = |(i, points)| Line { label: String::new(), colour: policy_colour(i, count), points };
    curves.into_iter().enumerate().map(line).collect()
}

/// The scores of a human and of random play.
fn levels(curves: &Curves) -> Vec<Level> {
    let Some(game) = curves.game() else { return vec![] };
    vec![Level { label: "human", value: game.human }, Level { label: "random", value: game.random }]
}

/// Share of the episodes that each policy played, over parts of the run.
fn episode_shares(curves: &Curves) -> Content {
    let policies = curves.vector("bandit/pulls");
    let rows = policies.first().map_or(0, Vec::len);
    let each = rows.div_ceil(MAP_COLUMNS).max(1);
    let mut columns = Vec::new();
    let (mut from, mut before) = (0.0, vec![0.0; policies.len()]);
    for row in (each - 1..rows).step_by(each) {
        let now: Vec<f64> = policies.iter().map(|curve| curve[row].1).collect();
        let played: Vec<f64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        let all: f64 = played.iter().sum();
        let shares = played.iter().map(|played| if all > 0.0 { played / all } else { 0.0 }).collect();
        columns.push((from, shares));
        (from, before) = (policies[0][row].0, now);
    }
    Content::Shares { columns, end: from }
}
