//! Aggregate scores of all games as in the paper's table 1, next to those of the paper's agents.

use envs::games::{AgentScore, Game, PaperAggregate, paper_aggregates};

use super::cohort::{Cohort, ReportedRun};
use super::figures::frames_text;
use super::resampling::{Estimate, REPETITIONS, SEEDS_DRAWN, stratified_bootstrap, three_seeds};
use super::statistics::{Statistic, interquartile_mean};
use super::table::{Cell, Table};
use crate::output::{count_of, grouped};

/// Which random scores a human-normalised score uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomScores {
    /// The published ones.
    Published,
    /// Those behind the mean in the paper's table 1: 0 for video_pinball.
    OfThePaper,
}

impl RandomScores {
    /// Returns a score in percent of human level.
    pub fn normalised(self, game: &Game, score: f64) -> f64 {
        let random = match self {
            Self::Published => game.random,
            Self::OfThePaper => game.random_in_paper.unwrap_or(game.random),
        };
        100.0 * (score - random) / (game.human - random)
    }
}

/// A row of the table: an agent with its statistics.
struct AggregateRow {
    heading: String,
    /// Values under both conventions of random scores, in the order of [`STATISTICS`].
    values: [Vec<Cell>; 2],
}

/// The statistics of the table.
const STATISTICS: [Statistic; 7] = [
    Statistic::GamesAboveHuman,
    Statistic::CappedMean,
    Statistic::Mean,
    Statistic::Median,
    Statistic::Percentile25,
    Statistic::Percentile5,
    Statistic::InterquartileMean,
];

const CONVENTIONS: [RandomScores; 2] = [RandomScores::Published, RandomScores::OfThePaper];

/// Whether the paper's procedure applies: with three seeds there is nothing to draw from.
fn has_enough_seeds(cohort: &Cohort) -> bool {
    cohort.seeds() > SEEDS_DRAWN
}

/// The statistics of a cohort's runs, without the interquartile mean, in the paper's order.
pub fn of_the_paper(cohort: &Cohort, random: RandomScores) -> Vec<(f64, Option<(f64, f64)>)> {
    let normalised = |(game, runs): (&Game, &[ReportedRun])| -> Vec<f64> {
        runs.iter().map(|run| random.normalised(game, run.score())).collect()
    };
    let games: Vec<Vec<f64>> = cohort.games().map(normalised).collect();
    if has_enough_seeds(cohort) {
        let estimates = three_seeds(&games, &Statistic::OF_THE_PAPER);
        return estimates.into_iter().map(|Estimate { value, interval }| (value, Some(interval))).collect();
    }
    let mut means: Vec<f64> = games.iter().map(|runs| runs.iter().sum::<f64>() / runs.len() as f64).collect();
    Statistic::OF_THE_PAPER.iter().map(|statistic| (statistic.of(&mut means), None)).collect()
}

/// Human-normalised scores as rliable takes them: for each game, the same number of runs.
pub fn score_matrix(cohort: &Cohort, random: RandomScores, score: impl Fn(&ReportedRun) -> f64) -> Vec<Vec<f64>> {
    let seeds = cohort.seeds();
    let of_game = |(game, runs): (&Game, &[ReportedRun])| {
        runs[..seeds].iter().map(|run| random.normalised(game, score(run))).collect()
    };
    cohort.games().map(of_game).collect()
}

impl AggregateRow {
    fn of_cohort(cohort: &Cohort) -> Self {
        let values = CONVENTIONS.map(|random| {
            let mut cells: Vec<Cell> = of_the_paper(cohort, random).into_iter().map(cell).collect();
            let matrix = score_matrix(cohort, random, ReportedRun::score);
            let Estimate { value, interval } = stratified_bootstrap(&matrix, REPETITIONS, interquartile_mean);
            cells.push(cell((value, (cohort.seeds() > 1).then_some(interval))));
            cells
        });
        Self { heading: format!("{} ({})", cohort.label, count_of(cohort.seeds(), "seed")), values }
    }

    /// A paper's agent on the games of the runs, computed from the paper's mean scores per game.
    fn computed(heading: &str, games: &[&'static Game], score: impl Fn(&Game) -> AgentScore) -> Self {
        let values = CONVENTIONS.map(|random| {
            let mut means: Vec<f64> = games.iter().map(|game| random.normalised(game, score(game).mean)).collect();
            let last = STATISTICS.len() - 1;
            let cells = STATISTICS[..last].iter().map(|statistic| cell((statistic.of(&mut means), None)));
            // It needs the runs of every seed.
            cells.chain([Cell::Missing]).collect()
        });
        Self { heading: format!("{heading}, same games"), values }
    }

    /// An agent as the paper prints it.
    fn printed(column: &PaperAggregate) -> Self {
        let PaperAggregate { games_above_human, capped_mean, mean, median, percentile_25, percentile_5, .. } = column;
        let print = |values: &Vec<f64>| match values[..] {
            [value, low, high] => cell((value, Some((low, high)))),
            [value] => cell((value, None)),
            _ => Cell::Missing,
        };
        let mut values: Vec<Cell> =
            [games_above_human, capped_mean, mean, median, percentile_25, percentile_5].map(print).to_vec();
        values.push(Cell::Missing);
        // The paper's mean is the one with its own random score of video_pinball, which it does not print otherwise.
        let mut published = values.clone();
        published[2] = Cell::Missing;
        let frames = frames_text(column.frames as f64);
        let sticky = if column.sticky { ", sticky" } else { "" };
        Self { heading: format!("{} {frames}{sticky}, printed", column.agent), values: [published, values] }
    }
}

fn cell((value, interval): (f64, Option<(f64, f64)>)) -> Cell {
    match interval {
        Some(interval) => Cell::Interval(value, interval, 0),
        None => Cell::number(Some(value), 0),
    }
}

/// Rows of the cohorts and of the paper's agents.
fn rows(cohorts: &[&Cohort], first: &Cohort) -> Vec<AggregateRow> {
    let mut agents: Vec<AggregateRow> = cohorts.iter().map(|cohort| AggregateRow::of_cohort(cohort)).collect();
    let games: Vec<&'static Game> = first.games().map(|(game, _)| game).collect();
    // Other games would make another comparison.
    let same = |cohort: &&Cohort| cohort.games().map(|(game, _)| game).eq(games.iter().copied());
    let all_same = cohorts.iter().all(same);
    for sticky in [false, true] {
        if !cohorts.iter().any(|cohort| cohort.is_sticky() == sticky) {
            continue;
        }
        if all_same && sticky {
            agents.push(AggregateRow::computed("MEME 200M sticky", &games, |game| game.meme_sticky_200m));
            agents.push(AggregateRow::computed("MEME 1B sticky", &games, |game| game.meme_sticky_1b));
        } else if all_same {
            agents.push(AggregateRow::computed("MEME 200M", &games, |game| game.meme_200m));
            agents.push(AggregateRow::computed("MEME 1B", &games, |game| game.meme_1b));
            agents.push(AggregateRow::computed("Agent57 1B", &games, |game| game.agent57_1b));
            agents.push(AggregateRow::computed("Agent57 90B", &games, |game| game.agent57_90b));
        }
        agents.extend(paper_aggregates().iter().filter(|column| column.sticky == sticky).map(AggregateRow::printed));
    }
    agents
}

/// How the numbers come about. `pinball` is the game whose random score differs in the paper.
fn notes(cohorts: &[&Cohort], pinball: Option<&Game>) -> Vec<String> {
    let counts = cohorts.iter().map(|cohort| format!("{}: {} of 57 games", cohort.label, cohort.games().count()));
    let mut notes = vec![
        "Human-normalised scores in percent: 0 is random play, 100 a human. A game's score is the mean over seeds."
            .to_owned(),
        counts.collect::<Vec<_>>().join("; ") + ".",
        format!(
            "Intervals of the paper's statistics, with more than {SEEDS_DRAWN} seeds of each game: {SEEDS_DRAWN} seeds \
             per game are drawn without replacement, {} times; the value is the mean and the interval holds 95 % of \
             the repetitions. With fewer seeds, the value is that of the mean over seeds.",
            grouped(REPETITIONS as u64)
        ),
        format!(
            "Interquartile mean: of all runs of all games, with a 95 % stratified bootstrap interval of {} resamples, \
             as rliable defines both.",
            grouped(REPETITIONS as u64)
        ),
        "Printed rows are copied from the paper's tables and cover all 57 games; the others use the same games as the \
         runs."
            .to_owned(),
    ];
    if let Some(game) = pinball {
        notes.push(format!(
            "The paper's mean counts random play of {} as {:.0}, where published tables have {:.1}; statistics that \
             this changes have a column for each.",
            game.rom,
            game.random_in_paper.unwrap_or(game.random),
            game.random
        ));
    }
    notes
}

/// The table of aggregates: one row per cohort with Atari games, and the paper's. `None` without Atari games.
pub fn table(cohorts: &[Cohort]) -> Option<Table> {
    let cohorts: Vec<&Cohort> = cohorts.iter().filter(|cohort| cohort.games().next().is_some()).collect();
    let agents = rows(&cohorts, cohorts.first()?);
    let mut all_games = cohorts.iter().flat_map(|cohort| cohort.games()).map(|(game, _)| game);
    let pinball = all_games.find(|game| game.random_in_paper.is_some());
    // Headings, and where the values are: under which convention and in which row.
    let mut headings = Vec::new();
    for (number, statistic) in STATISTICS.iter().enumerate() {
        let both = agents.iter().any(|agent| agent.values[0][number] != agent.values[1][number]);
        match pinball {
            Some(game) if both => {
                let random = |score: f64| format!("{}, {} random {score:.0}", statistic.name(), game.rom);
                headings.push((random(game.random), 0, number));
                let papers = random(game.random_in_paper.unwrap_or(game.random));
                headings.push((papers + " (paper's)", 1, number));
            }
            // Without that game, only the printed rows depend on it.
            _ => headings.push((statistic.name().to_owned(), 1, number)),
        }
    }
    let row = |agent: &AggregateRow| {
        let cells = headings.iter().map(|(_, convention, number)| agent.values[*convention][*number].clone());
        [Cell::Text(agent.heading.clone())].into_iter().chain(cells).collect()
    };
    Some(Table {
        id: "aggregates",
        title: "Aggregate scores".to_owned(),
        notes: notes(&cohorts, pinball),
        rows: agents.iter().map(row).collect(),
        columns: ["agent".to_owned()].into_iter().chain(headings.iter().map(|(name, ..)| name.clone())).collect(),
    })
}
