//! `meme report`: the paper's tables and figures for the user's own runs.

mod ablation;
mod aggregates;
mod cohort;
mod figures;
mod games_table;
mod page;
mod resampling;
pub mod statistics;
mod table;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use train::number_format::rounded;
use train::run::RunFiles;

pub use self::cohort::game;

use self::ablation::Areas;
use self::aggregates::{RandomScores, score_matrix};
use self::cohort::{Cohort, LeftOut, ReportedRun};
use self::figures::Figure;
use self::table::Table;
use crate::output::{self, count_of};
use crate::partial_file::PartialFile;
use crate::run_args::{RunsDir, find_run};
use crate::sweep::manifest::SweepDirectory;
use crate::{console, options};

/// Arguments of `meme report`.
#[derive(Args)]
pub struct ReportArgs {
    /// A run's name (`meme runs` lists them) or its directory; it may still be training
    #[arg(required_unless_present = "sweep", value_name = "RUN")]
    runs: Vec<String>,
    /// Report on all runs of this sweep
    #[arg(long, value_name = "NAME")]
    sweep: Option<String>,
    /// Directory to write: index.html, and every table and figure
    #[arg(long, value_name = "DIR", default_value = "report")]
    out: PathBuf,
    /// Report the runs as they were after this number of frames: 200M
    #[arg(long, value_parser = options::field("run.frames"))]
    frames: Option<u64>,
    #[command(flatten)]
    root: RunsDir,
    /// Print one JSON document with all tables, and with scores as rliable takes them, instead of text
    #[arg(long)]
    json: bool,
}

/// Everything that a report consists of.
struct FullReport {
    cohorts: Vec<Cohort>,
    left_out: Vec<LeftOut>,
    tables: Vec<Table>,
    figures: Vec<Figure>,
}

/// Writes the report and prints its aggregates.
pub fn run(args: &ReportArgs) -> Result<()> {
    let (mut records, left_out) = cohort::read(&args.find()?, args.frames);
    for LeftOut { name, why } in &left_out {
        console::warn(format_args!("left out run {name}: {why}"));
    }
    if records.is_empty() {
        bail!("none of the runs can be reported");
    }
    args.name_variants(&mut records)?;
    let report = FullReport::new(records, left_out)?;
    report.write(&args.out).with_context(|| format!("cannot write the report to {}", args.out.display()))?;
    if args.json { output::print_json(&report.json()) } else { output::print(&report.text(&args.out)) }
}

impl ReportArgs {
    /// The runs that the arguments name, each once.
    fn find(&self) -> Result<Vec<RunFiles>> {
        let mut runs = self.runs.iter().map(|run| find_run(&self.root.path, run)).collect::<Result<Vec<_>>>()?;
        if let Some(sweep) = &self.sweep {
            let directory = RunFiles::named(&self.root.path, sweep)?.path;
            let of_sweep = RunFiles::all(&directory)?;
            if of_sweep.is_empty() {
                bail!("there is no sweep {sweep} in {}: {} has no runs", self.root.path.display(), directory.display());
            }
            runs.extend(of_sweep);
        }
        runs.dedup();
        Ok(runs)
    }

    /// Gives the runs of a sweep the names of their variants.
    fn name_variants(&self, runs: &mut [ReportedRun]) -> Result<()> {
        let Some(sweep) = &self.sweep else { return Ok(()) };
        // A directory of runs that no sweep made has no names.
        let Some(manifest) = SweepDirectory::named(&self.root.path, sweep)?.read()? else { return Ok(()) };
        for run in runs {
            let planned = manifest.runs.iter().find(|planned| planned.name == run.name);
            run.variant = planned.and_then(|planned| planned.variant.clone());
        }
        Ok(())
    }
}

impl FullReport {
    fn new(records: Vec<ReportedRun>, left_out: Vec<LeftOut>) -> Result<Self> {
        let cohorts = Cohort::sort(records)?;
        let areas = Areas::of(&cohorts);
        let tables = aggregates::table(&cohorts).into_iter().chain([games_table::table(&cohorts)]);
        let tables = tables.chain(areas.as_ref().map(|areas| areas.table(&cohorts))).collect();
        let ablation = areas.map(|areas| areas.figure(&cohorts)).into_iter().chain(ablation::traces(&cohorts));
        let figures = ablation.chain(figures::figures(&cohorts)).collect();
        Ok(Self { cohorts, left_out, tables, figures })
    }

    /// Writes the page, its tables and its figures.
    fn write(&self, directory: &Path) -> Result<()> {
        let figures = directory.join("figures");
        fs::create_dir_all(&figures)?;
        for table in &self.tables {
            PartialFile::write(&directory.join(format!("{}.csv", table.id)), table.csv().as_bytes())?;
            let json = serde_json::to_string_pretty(&table.json())?;
            PartialFile::write(&directory.join(format!("{}.json", table.id)), json.as_bytes())?;
        }
        for figure in &self.figures {
            PartialFile::write(&figures.join(format!("{}.svg", figure.id)), figure.svg.as_bytes())?;
        }
        PartialFile::write(&directory.join("rliable.json"), serde_json::to_string(&self.rliable())?.as_bytes())?;
        let page = page::page(&self.cohorts, &self.left_out, &self.tables, &self.figures);
        Ok(PartialFile::write(&directory.join("index.html"), page.as_bytes())?)
    }

    /// Human-normalised scores with random play at 0 and a human at 1, by cohort: `scores` is runs by games, and
    /// `scores_over_frames` runs by games by frames.
    fn rliable(&self) -> Value {
        let mut documents: [Map<String, Value>; 4] = Default::default();
        for cohort in self.cohorts.iter().filter(|cohort| cohort.games().next().is_some()) {
            let games: Vec<&str> = cohort.games().map(|(game, _)| game.rom.as_str()).collect();
            let frames = figures::grid(cohort);
            let at = |score: &dyn Fn(&ReportedRun) -> f64| -> Vec<Vec<f64>> {
                transposed(&score_matrix(cohort, RandomScores::Published, score))
            };
            let over_frames: Vec<Vec<Vec<f64>>> =
                frames.iter().map(|frames| at(&|run| run.score_at(*frames))).collect();
            let of_run = |run: usize| -> Vec<Vec<f64>> {
                (0..games.len()).map(|game| over_frames.iter().map(|scores| scores[run][game]).collect()).collect()
            };
            let curves: Vec<Vec<Vec<f64>>> = (0..cohort.seeds()).map(of_run).collect();
            let values = [json!(games), json!(at(&ReportedRun::score)), json!(frames), json!(curves)];
            for (document, value) in documents.iter_mut().zip(values) {
                document.insert(cohort.label.clone(), value);
            }
        }
        let [games, scores, frames, scores_over_frames] = documents;
        json!({"games": games, "scores": scores, "frames": frames, "scores_over_frames": scores_over_frames})
    }

    fn json(&self) -> Value {
        let runs = self.cohorts.iter().flat_map(|cohort| {
            let runs = cohort.tasks.values().flatten();
            runs.map(|run| {
                json!({
                    "name": run.name, "task": run.task, "seed": run.seed, "settings": cohort.label,
                    "sticky_probability": run.sticky, "frames": run.frames, "score": rounded(run.score()),
                    "seconds": run.seconds, "frames_to_human": run.frames_to_human(),
                })
            })
        });
        let left_out = self.left_out.iter().map(|LeftOut { name, why }| json!({"name": name, "why": why}));
        let tables: Map<String, Value> = self.tables.iter().map(|table| (table.id.to_owned(), table.json())).collect();
        json!({
            "runs": runs.collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
            "tables": tables,
            "rliable": self.rliable(),
        })
    }

    fn text(&self, directory: &Path) -> String {
        // The table of games is too wide for most terminals.
        let tables = self.tables.iter().filter(|table| table.id != games_table::ID).map(|table| table.text() + "\n");
        let tables: String = tables.collect();
        let runs: usize = self.cohorts.iter().flat_map(|cohort| cohort.tasks.values()).map(Vec::len).sum();
        let page = directory.join("index.html");
        format!(
            "{tables}wrote {}: {}, {}, {}\n",
            page.display(),
            count_of(runs, "run"),
            count_of(self.tables.len(), "table"),
            count_of(self.figures.len(), "figure")
        )
    }
}

/// Rows of scores per run instead of per game, and shares instead of percent.
fn transposed(games: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let runs = games.first().map_or(0, Vec::len);
    (0..runs).map(|run| games.iter().map(|scores| scores[run] / 100.0).collect()).collect()
}
