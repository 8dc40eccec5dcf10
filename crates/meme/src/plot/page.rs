//! The page: which charts there are, and where each one goes.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::checks::Check;
use super::curves::Curves;
use crate::chart::axis::Scale;
use crate::chart::svg::{Colour, HEADING, SMALL, Svg};
use crate::chart::{Chart, Content, Level, Line, Points, SIZE, mean_and_range, policy_colour};
use crate::output::grouped;

const MARGIN: f64 = 14.0;
const COLUMNS: usize = 3;
/// Distance between lines of text.
const LEADING: f64 = 15.0;
/// Maximum number of columns in the map of episodes by policy.
const MAP_COLUMNS: usize = 60;

/// The charts that `charts.toml` declares.
#[derive(Deserialize)]
struct ChartSpecs {
    run: Vec<RunChart>,
    comparison: Vec<ComparisonChart>,
}

/// A chart of one run.
#[derive(Deserialize)]
struct RunChart {
    title: String,
    unit: String,
    #[serde(flatten)]
    source: Source,
    #[serde(default)]
    logarithmic: bool,
}

/// The metrics of a chart.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// Scalars, each after its entry in the legend.
    Scalars(Vec<(String, String)>),
    /// Vectors with one value per policy.
    PerPolicy(Vec<String>),
    /// Vector with one value per band of ε.
    PerEpsilon(String),
    /// Vector with each policy's number of episodes so far.
    EpisodeShares(String),
}

/// A chart with one line per run.
#[derive(Deserialize)]
struct ComparisonChart {
    title: String,
    unit: String,
    metric: String,
}

impl ChartSpecs {
    fn read() -> Result<Self> {
        toml::from_str(include_str!("charts.toml")).context("invalid charts.toml")
    }
}

/// Runs that share a line: the mean of their curves, and the range around it.
pub struct Overlay<'a> {
    pub label: String,
    pub runs: Vec<&'a Curves>,
}

/// A page of charts under a heading and some sentences.
pub struct Page {
    heading: String,
    warnings: Vec<String>,
    charts: Vec<Chart>,
}

impl Page {
    /// Lays out everything known about one run.
    pub fn of_run(curves: &Curves, checks: &[Check]) -> Result<Self> {
        let task = curves.task.as_deref().map_or(String::new(), |task| format!(" on {task}"));
        let heading = format!("{}{task}, {} frames", curves.name, grouped(curves.frames()));
        let warnings = checks.iter().map(|check| check.sentence.clone()).collect();
        Ok(Self { heading, warnings, charts: run_charts(curves)? })
    }

    /// Lays out several runs in the same charts, with one line per overlay.
    pub fn of_runs(heading: String, overlays: &[Overlay]) -> Result<Self> {
        let charts = ChartSpecs::read()?.comparison.into_iter().map(|spec| spec.chart(overlays));
        Ok(Self { heading, warnings: Vec::new(), charts: charts.filter(|chart| !chart.is_empty()).collect() })
    }

    /// Number of charts.
    pub fn charts(&self) -> usize {
        self.charts.len()
    }

    /// Draws the page.
    pub fn draw(&self) -> String {
        let mut top = 2.0 * MARGIN + HEADING + self.warnings.len() as f64 * LEADING;
        // One column would be too narrow for the heading and the warnings.
        let columns = self.charts.len().clamp(2, COLUMNS);
        let rows: Vec<&[Chart]> = self.charts.chunks(columns).collect();
        let height = |row: &&[Chart]| row.iter().map(Chart::height).fold(0.0, f64::max);
        let all: f64 = rows.iter().map(height).sum();
        let mut svg = Svg::new(2.0 * MARGIN + columns as f64 * SIZE.0, top + all + MARGIN);
        svg.text((MARGIN, MARGIN + HEADING * 0.8), &self.heading, HEADING, "start", Colour::Text);
        for (number, sentence) in self.warnings.iter().enumerate() {
            let y = MARGIN + HEADING + (number as f64 + 1.0) * LEADING;
            svg.text((MARGIN, y), sentence, SMALL + 1.0, "start", Colour::Warning);
        }
        for row in rows {
            for (column, chart) in row.iter().enumerate() {
                chart.draw(&mut svg, (MARGIN + column as f64 * SIZE.0, top));
            }
            top += height(&row);
        }
        svg.finish()
    }
}

/// The charts of everything known about one run.
pub fn run_charts(curves: &Curves) -> Result<Vec<Chart>> {
    let charts = ChartSpecs::read()?.run.into_iter();
    let charts = charts.map(|spec| Chart { marks: curves.change_marks(), ..spec.chart(curves) });
    Ok(charts.filter(|chart| !chart.is_empty()).collect())
}

impl ComparisonChart {
    fn chart(self, overlays: &[Overlay]) -> Chart {
        let line = |(number, overlay): (usize, &Overlay)| {
            let curves: Vec<Points> = overlay.runs.iter().map(|run| run.scalar(&self.metric)).collect();
            let (points, band) = mean_and_range(&curves);
            Line { band, ..Line::numbered(number, &overlay.label, points) }
        };
        let lines = overlays.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
        let runs = || overlays.iter().flat_map(|overlay| &overlay.runs);
        // Reference scores of one game would mislead in a chart of several.
        let mut games = runs().map(|run| run.game().map(|game| &game.rom));
        let first = games.next();
        let levels = match games.all(|game| Some(game) == first) {
            true => levels(overlays[0].runs[0], &self.metric),
            false => Vec::new(),
        };
        let frames = runs().map(|run| run.frames()).max().unwrap_or(0) as f64;
        Chart::lines(self.title, self.unit, frames, lines).with(levels, Scale::Linear)
    }
}

impl RunChart {
    fn chart(self, curves: &Curves) -> Chart {
        let (mut policies, mut reference) = (None, vec![]);
        let lines = match self.source {
            Source::Scalars(metrics) => {
                reference = levels(curves, &metrics[0].1);
                let line =
                    |(i, (label, metric)): (usize, (String, String))| Line::numbered(i, label, curves.scalar(&metric));
                // A legend entry without a line would mislead.
                metrics.into_iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
            }
            Source::PerPolicy(metrics) => {
                let lines: Vec<Line> = metrics.iter().flat_map(|metric| ordered(curves.vector(metric))).collect();
                policies = Some(lines.len() / metrics.len());
                lines
            }
            Source::PerEpsilon(metric) => {
                let mut lines = ordered(curves.vector(&metric));
                for (line, band) in lines.iter_mut().zip(curves.vector("actor/epsilon")) {
                    line.label = band.last().map_or(String::new(), |(_, epsilon)| format!("{epsilon:.0e}"));
                }
                lines
            }
            Source::EpisodeShares(metric) => {
                let content = episode_shares(&curves.vector(&metric));
                return Chart { content, ..Chart::lines(self.title, self.unit, curves.frames() as f64, Vec::new()) };
            }
        };
        let scale = if self.logarithmic { Scale::Logarithmic } else { Scale::Linear };
        let chart = Chart::lines(self.title, self.unit, curves.frames() as f64, lines).with(reference, scale);
        Chart { policies, ..chart }
    }
}

/// Lines without labels, coloured by their order.
fn ordered(curves: Vec<Points>) -> Vec<Line> {
    let count = curves.len();
    let line = |(i, points)| Line::coloured(policy_colour(i, count), "", points);
    curves.into_iter().enumerate().map(line).collect()
}

/// The scores of a human and of random play, for a chart of scores.
fn levels(curves: &Curves, metric: &str) -> Vec<Level> {
    let Some(game) = curves.game().filter(|_| metric.ends_with("/score")) else { return vec![] };
    vec![("human", game.human), ("random", game.random)]
}

/// Share of the episodes that each policy played, over parts of the run.
fn episode_shares(policies: &[Points]) -> Content {
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
