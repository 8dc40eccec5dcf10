//! The report's figures: the paper's, and performance profiles.

use envs::games::{Game, human_level};

use super::aggregates::{RandomScores, score_matrix};
use super::cohort::{Cohort, ReportedRun};
use super::games_table::frames_to_human;
use super::resampling::{Estimate, share_above, stratified_bootstrap};
use super::statistics::{Statistic, interquartile_mean};
use crate::chart::axis::{Axis, Scale, label};
use crate::chart::rows::{Frame, Series};
use crate::chart::{Chart, Level, Line, Points, mean_and_range};

/// A figure with its caption.
pub struct Figure {
    /// Name of its file.
    pub id: String,
    pub caption: String,
    pub svg: String,
}

/// An agent of the paper and its score in a game.
type Agent = (&'static str, fn(&Game) -> f64);

/// Points of a curve of aggregates.
const POINTS: usize = 60;
/// Repetitions of a bootstrap at each point of a curve; a table has more.
const REPETITIONS: usize = 500;
/// Highest score of a performance profile, in percent of human level.
const PROFILE_END: f64 = 800.0;
/// Lowest score on a logarithmic axis, in percent of human level.
const FLOOR: f64 = 1.0;
const PERCENT: &str = "% of human level";

/// Returns all figures of scores; what the runs have no data for is left out.
pub fn figures(cohorts: &[Cohort]) -> Vec<Figure> {
    let with_games: Vec<&Cohort> = cohorts.iter().filter(|cohort| cohort.games().next().is_some()).collect();
    let mut figures = Vec::new();
    if !with_games.is_empty() {
        figures.push(above_human(&with_games));
        figures.extend(over_frames(&with_games));
        // A single game has no order.
        let several = with_games.iter().enumerate().filter(|(_, cohort)| cohort.games().count() > 1);
        figures.extend(several.map(|(number, cohort)| sorted_scores(number, cohort)));
        figures.push(profiles(&with_games));
        // The tallest comes last.
        figures.extend(to_human_level(&with_games));
    }
    figures.extend(learning_curves(cohorts));
    figures
}

/// A chart as a figure.
fn figure(id: impl Into<String>, chart: &Chart, caption: impl Into<String>) -> Figure {
    Figure { id: id.into(), caption: caption.into(), svg: chart.document() }
}

/// Formats frames as the paper does: 200M, 1B.
pub fn frames_text(frames: f64) -> String {
    label(frames, frames).replace('G', "B")
}

/// Frames to human level per game.
fn to_human_level(cohorts: &[&Cohort]) -> Option<Figure> {
    let mut games: Vec<(&Game, Option<f64>)> = Vec::new();
    for (game, runs) in cohorts.iter().flat_map(|cohort| cohort.games()) {
        if !games.iter().any(|(known, _)| known.rom == game.rom) {
            games.push((game, frames_to_human(runs).map(|measured| measured.mean)));
        }
    }
    games.sort_by(|(_, one), (_, other)| one.unwrap_or(f64::MAX).total_cmp(&other.unwrap_or(f64::MAX)));
    let level = human_level();
    let place = |(game, _): &(&Game, Option<f64>)| {
        let counts = cohorts.iter().filter_map(|cohort| cohort.tasks.get(&game.rom)).map(|runs| {
            let reached = runs.iter().filter(|run| run.frames_to_human().is_some()).count();
            format!("{reached}/{}", runs.len())
        });
        let known = level.speedups.get(&game.rom).map(|times| format!(", paper {times:.0}x"));
        (game.rom.clone(), counts.collect::<Vec<_>>().join(", ") + &known.unwrap_or_default())
    };
    let places: Vec<(String, String)> = games.iter().map(place).collect();
    let series: Vec<Series> = cohorts
        .iter()
        .map(|cohort| Series {
            label: cohort.label.clone(),
            values: games.iter().map(|(game, _)| frames_to_human(cohort.tasks.get(&game.rom)?)).collect(),
        })
        .collect();
    let reached = series.iter().any(|series| series.values.iter().any(Option::is_some));
    let frame = Frame { title: "Frames to human level", unit: "emulator frames", places: &places };
    let caption = format!(
        "Frames of the first evaluation above human level: mean and standard deviation over the seeds that reached it \
         (hollow: not all of them), and how many of them did. In the paper, MEME needs {} frames until the last game \
         is above human ({} with sticky actions), Agent57 {}; per game, MEME is {:.0} times faster on average (median \
         {:.0}). The paper prints the ratio of two games only: \"paper 9x\" beside them.",
        frames_text(level.meme as f64),
        frames_text(level.meme_sticky as f64),
        frames_text(level.agent57 as f64),
        level.speedup_mean,
        level.speedup_median
    );
    reached.then(|| Figure { id: "frames_to_human".to_owned(), svg: frame.dots(&series), caption })
}

/// The frames at which curves of a cohort's aggregates have points.
pub fn grid(cohort: &Cohort) -> Vec<f64> {
    let (first, last) = (cohort.first_scores(), cohort.frames as f64);
    (0..=POINTS).map(|point| first + (last - first).max(0.0) * point as f64 / POINTS as f64).collect()
}

/// Human-normalised scores per game at a number of frames, averaged over seeds.
fn game_means(cohort: &Cohort, frames: f64) -> Vec<f64> {
    let mean = |(game, runs): (&Game, &[ReportedRun])| {
        let mean = runs.iter().map(|run| run.score_at(frames)).sum::<f64>() / runs.len() as f64;
        RandomScores::Published.normalised(game, mean)
    };
    cohort.games().map(mean).collect()
}

fn longest(cohorts: &[&Cohort]) -> f64 {
    cohorts.iter().map(|cohort| cohort.frames).max().unwrap_or(0) as f64
}

/// One curve per cohort of a statistic of the games' mean scores.
fn curves(cohorts: &[&Cohort], statistic: Statistic) -> Vec<Line> {
    let line = |(number, cohort): (usize, &&Cohort)| {
        let value = |frames: f64| (frames, statistic.of(&mut game_means(cohort, frames)));
        Line::numbered(number, &cohort.label, grid(cohort).into_iter().map(value).collect())
    };
    cohorts.iter().enumerate().map(line).collect()
}

fn above_human(cohorts: &[&Cohort]) -> Figure {
    let lines = curves(cohorts, Statistic::GamesAboveHuman);
    let most = cohorts.iter().map(|cohort| cohort.games().count()).max().unwrap_or(0);
    let chart = Chart::lines("Games above human level", "games", longest(cohorts), lines)
        .with(vec![("all games of the runs", most as f64)], Scale::Linear);
    figure("games_above_human", &chart, "Games whose score, averaged over seeds, is above a human's.")
}

fn over_frames(cohorts: &[&Cohort]) -> Vec<Figure> {
    let human: Vec<Level> = vec![("human", 100.0)];
    let mut figures = Vec::new();
    for (id, title, statistic) in [
        ("mean_score", "Mean human-normalised score", Statistic::Mean),
        ("median_score", "Median human-normalised score", Statistic::Median),
    ] {
        let lines = curves(cohorts, statistic);
        let chart = Chart::lines(title, PERCENT, longest(cohorts), lines).with(human.clone(), Scale::Linear);
        figures.push(figure(id, &chart, "Over games, of the mean over seeds; published random scores."));
    }
    let line = |(number, cohort): (usize, &&Cohort)| {
        let estimate = |frames: f64| {
            let matrix = score_matrix(cohort, RandomScores::Published, |run| run.score_at(frames));
            (frames, stratified_bootstrap(&matrix, REPETITIONS, interquartile_mean))
        };
        let estimates: Vec<(f64, Estimate)> = grid(cohort).into_iter().map(estimate).collect();
        let points = estimates.iter().map(|(frames, estimate)| (*frames, estimate.value)).collect();
        let band = |(frames, Estimate { interval: (low, high), .. }): &(f64, Estimate)| (*frames, *low, *high);
        let band = if cohort.seeds() > 1 { estimates.iter().map(band).collect() } else { Vec::new() };
        Line { band, ..Line::numbered(number, &cohort.label, points) }
    };
    let lines = cohorts.iter().enumerate().map(line).collect();
    let title = "Interquartile mean of the human-normalised score";
    let chart = Chart::lines(title, PERCENT, longest(cohorts), lines).with(human, Scale::Linear);
    let caption =
        "Over all runs of all games, with a 95 % stratified bootstrap interval where there are several seeds.";
    figures.push(figure("iqm_score", &chart, caption));
    figures
}

/// A cohort's games from best to worst at several budgets, next to the paper's agents on the same games.
fn sorted_scores(number: usize, cohort: &Cohort) -> Figure {
    let sorted = |mut scores: Vec<f64>| -> Points {
        scores.sort_by(|one, other| other.total_cmp(one));
        scores.into_iter().enumerate().map(|(rank, score)| (rank as f64 + 1.0, score.max(FLOOR))).collect()
    };
    let mut lines = Vec::new();
    for share in [0.1, 0.25, 0.5, 1.0] {
        let frames = share * cohort.frames as f64;
        if frames >= cohort.first_scores() || share == 1.0 {
            let label = format!("{} frames", frames_text(frames));
            lines.push(Line::numbered(lines.len(), label, sorted(game_means(cohort, frames))));
        }
    }
    let agents: &[Agent] = if cohort.is_sticky() {
        &[("MEME 200M sticky", |game| game.meme_sticky_200m.mean), ("MEME 1B sticky", |game| game.meme_sticky_1b.mean)]
    } else {
        &[
            ("MEME 200M", |game| game.meme_200m.mean),
            ("MEME 1B", |game| game.meme_1b.mean),
            ("Agent57 90B", |game| game.agent57_90b.mean),
        ]
    };
    for (name, score) in agents {
        let scores = cohort.games().map(|(game, _)| RandomScores::Published.normalised(game, score(game)));
        let points = sorted(scores.collect());
        lines.push(Line { dashed: true, ..Line::numbered(lines.len(), *name, points) });
    }
    let games = cohort.games().count() as f64;
    let chart = Chart {
        x: Axis::exactly(1.0, games),
        x_label: "rank of the game",
        ..Chart::lines(format!("Sorted scores: {}", cohort.label), PERCENT, games, lines)
            .with(vec![("human", 100.0)], Scale::Logarithmic)
    };
    let caption =
        format!("Each game's score at several budgets, from highest to lowest; below {FLOOR} %, {FLOOR} % is drawn.");
    figure(format!("sorted_scores_{}", number + 1), &chart, caption)
}

/// rliable's performance profiles.
fn profiles(cohorts: &[&Cohort]) -> Figure {
    let line = |(number, cohort): (usize, &&Cohort)| {
        let matrix = score_matrix(cohort, RandomScores::Published, ReportedRun::score);
        let thresholds = (0..=2 * POINTS).map(|point| PROFILE_END * point as f64 / (2 * POINTS) as f64);
        let at = |threshold: f64| {
            let share = |scores: &mut [f64]| share_above(scores, threshold);
            (threshold, stratified_bootstrap(&matrix, REPETITIONS, share))
        };
        let estimates: Vec<(f64, Estimate)> = thresholds.map(at).collect();
        let points = estimates.iter().map(|(threshold, estimate)| (*threshold, estimate.value)).collect();
        let band = |(threshold, Estimate { interval: (low, high), .. }): &(f64, Estimate)| (*threshold, *low, *high);
        let band = if cohort.seeds() > 1 { estimates.iter().map(band).collect() } else { Vec::new() };
        Line { band, ..Line::numbered(number, &cohort.label, points) }
    };
    let lines = cohorts.iter().enumerate().map(line).collect();
    let chart = Chart {
        x_label: "score in % of human level",
        ..Chart::lines("Performance profile", "share of runs above the score", PROFILE_END, lines)
            .with(Vec::new(), Scale::Share)
    };
    let caption = "Share of all runs of all games with a final score above each score, as rliable defines it, with a \
                   95 % stratified bootstrap interval at each point where there are several seeds.";
    figure("performance_profile", &chart, caption)
}

/// One chart per task with the mean and the range over seeds.
fn learning_curves(cohorts: &[Cohort]) -> Vec<Figure> {
    let mut tasks: Vec<&String> = cohorts.iter().flat_map(|cohort| cohort.tasks.keys()).collect();
    tasks.sort();
    tasks.dedup();
    let chart = |task: &String| {
        let line = |(number, cohort): (usize, &Cohort)| {
            let curves: Vec<Points> = cohort.tasks.get(task)?.iter().map(|run| run.scores.clone()).collect();
            let (points, band) = mean_and_range(&curves);
            Some(Line { band, ..Line::numbered(number, &cohort.label, points) })
        };
        let lines = cohorts.iter().enumerate().filter_map(line).collect();
        let reached = cohorts.iter().filter(|cohort| cohort.tasks.contains_key(task)).map(|cohort| cohort.frames).max();
        let levels = super::cohort::game(task).map(|game| vec![("human", game.human), ("random", game.random)]);
        let chart = Chart::lines(task, "points per episode", reached.unwrap_or(0) as f64, lines)
            .with(levels.unwrap_or_default(), Scale::Linear);
        let id = task.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
        figure(format!("learning_curve_{id}"), &chart, "")
    };
    tasks.into_iter().map(chart).collect()
}
