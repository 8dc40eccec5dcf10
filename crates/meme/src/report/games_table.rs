//! The table of scores per game, next to those of random play, a human and the paper's agents.

use envs::games::{AgentScore, Game};

use super::cohort::{Cohort, ReportedRun, game};
use super::statistics::mean_and_deviation;
use super::table::{Cell, Table};
use crate::chart::rows::Measured;

/// A paper's agent: its heading, and its score with sticky actions or without.
type ScoreColumn = (&'static str, fn(&Game, bool) -> Option<AgentScore>);

const AGENTS: [ScoreColumn; 4] = [
    ("MEME 200M", |game, sticky| Some(if sticky { game.meme_sticky_200m } else { game.meme_200m })),
    ("MEME 1B", |game, sticky| Some(if sticky { game.meme_sticky_1b } else { game.meme_1b })),
    ("Agent57 1B", |game, sticky| (!sticky).then_some(game.agent57_1b)),
    ("Agent57 90B", |game, sticky| (!sticky).then_some(game.agent57_90b)),
];

/// Name of the table's files.
pub const ID: &str = "games";

/// One row per game and cohort.
pub fn table(cohorts: &[Cohort]) -> Table {
    let mut columns: Vec<String> = [
        "game",
        "settings",
        "sticky",
        "frames",
        "seeds",
        "score",
        "deviation",
        "human-normalised (%)",
        "hours",
        "frames to human",
        "random",
        "human",
    ]
    .map(str::to_owned)
    .to_vec();
    for (agent, _) in AGENTS {
        columns.extend([agent.to_owned(), format!("{agent} deviation")]);
    }
    let mut tasks: Vec<&String> = cohorts.iter().flat_map(|cohort| cohort.tasks.keys()).collect();
    tasks.sort();
    tasks.dedup();
    let rows = tasks.into_iter().flat_map(|task| {
        let with_runs = cohorts.iter().filter_map(move |cohort| Some((cohort, cohort.tasks.get(task)?)));
        with_runs.map(move |(cohort, runs)| row(task, cohort, runs))
    });
    Table {
        id: ID,
        title: "Scores per game".to_owned(),
        notes: vec![
            "Score: mean and standard deviation (n - 1) over seeds of the last evaluation up to the frames; the \
             paper's are over its own seeds. Where actions are sticky, the paper's columns are those with sticky \
             actions; it has none for Agent57."
                .to_owned(),
            "Hours: mean training time up to the frames. Runs of different settings, frames or stickiness are separate \
             rows."
                .to_owned(),
        ],
        columns,
        rows: rows.collect(),
    }
}

fn row(task: &str, cohort: &Cohort, runs: &[ReportedRun]) -> Vec<Cell> {
    let scores: Vec<f64> = runs.iter().map(ReportedRun::score).collect();
    let (mean, deviation) = mean_and_deviation(&scores);
    let game = game(task);
    let seconds: Option<Vec<f64>> = runs.iter().map(|run| run.seconds).collect();
    let hours = seconds.map(|seconds| mean_and_deviation(&seconds).0 / 3600.0);
    let mut row = vec![
        Cell::Text(task.to_owned()),
        Cell::Text(cohort.label.clone()),
        if cohort.is_sticky() { Cell::Number(cohort.sticky, 2) } else { Cell::Text("no".to_owned()) },
        Cell::Number(cohort.frames as f64, 0),
        Cell::Number(runs.len() as f64, 0),
        Cell::Number(mean, 1),
        Cell::number(deviation, 1),
        Cell::number(game.map(|game| 100.0 * game.normalised(mean)), 1),
        Cell::number(hours, 2),
        Cell::number(frames_to_human(runs).map(|measured| measured.mean), 0),
        Cell::number(game.map(|game| game.random), 1),
        Cell::number(game.map(|game| game.human), 1),
    ];
    for (_, score) in AGENTS {
        let score = game.and_then(|game| score(game, cohort.is_sticky()));
        row.push(Cell::number(score.map(|score| score.mean), 1));
        row.push(Cell::number(score.map(|score| score.std), 1));
    }
    row
}

/// Mean and deviation over the seeds that reached human level, if any did.
pub fn frames_to_human(runs: &[ReportedRun]) -> Option<Measured> {
    let reached: Vec<f64> = runs.iter().filter_map(ReportedRun::frames_to_human).collect();
    let (mean, deviation) = mean_and_deviation(&reached);
    let partial = reached.len() < runs.len();
    (!reached.is_empty()).then_some(Measured { mean, deviation: deviation.unwrap_or(0.0), partial })
}
