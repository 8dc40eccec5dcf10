//! `meme plot`: a page of small charts of what a run has measured, and a word on what looks wrong.

mod axis;
mod chart;
mod checks;
mod curves;
mod page;
mod png;
mod raster;
mod surface;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use self::checks::{Check, checks};
use self::curves::Curves;
use self::page::Page;
use self::raster::Raster;
use self::surface::Svg;
use crate::output::{self, grouped};
use crate::video::partial::PartialFile;

/// Options of `meme plot`.
#[derive(Args)]
pub struct PlotArgs {
    /// A run's name, its folder, or a metrics file; the scores of several are drawn over one another
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// The picture, x.svg or x.png [default: plot.svg in the run's folder; beside a metrics file; here for several]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The game of a metrics file without its run, for a human's score beside it
    #[arg(long)]
    game: Option<String>,
    /// Where runs are
    #[arg(long = "runs", value_name = "FOLDER", default_value = "runs")]
    root: PathBuf,
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    picture: PathBuf,
    charts: usize,
    runs: Vec<RunReport>,
}

#[derive(Serialize)]
struct RunReport {
    name: String,
    task: Option<String>,
    frames: u64,
    rows: usize,
    last_evaluation: Option<f64>,
    checks: Vec<Check>,
}

/// Reads, draws and says what looks wrong.
pub fn run(args: &PlotArgs) -> Result<()> {
    let report = plot(args)?;
    if args.json { output::print_json(&report) } else { output::print(&text(&report)) }
}

fn plot(args: &PlotArgs) -> Result<Report> {
    let read = |run: &String| Curves::read(&args.root, run, args.game.as_deref());
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let found: Vec<Vec<Check>> = runs.iter().map(checks).collect();
    let several = runs.len() > 1;
    let page = if several { Page::of_runs(&runs) } else { Page::of_run(&runs[0], &found[0]) };
    let picture = args.out.clone().unwrap_or_else(|| default_picture(&runs));
    draw(&page, several, &picture).with_context(|| format!("{} could not be written", picture.display()))?;
    let report = |(run, checks): (&Curves, Vec<Check>)| RunReport {
        name: run.name.clone(),
        task: run.task.clone(),
        frames: run.frames(),
        rows: run.rows().len(),
        last_evaluation: run.scalar("evaluation/score").last().map(|(_, score)| *score),
        checks,
    };
    let runs = runs.iter().zip(found).map(report).collect();
    Ok(Report { picture, charts: page.charts(), runs })
}

fn default_picture(runs: &[Curves]) -> PathBuf {
    match runs {
        [run] if run.config.is_some() => run.file.with_file_name("plot.svg"),
        [run] => run.file.with_extension("svg"),
        _ => PathBuf::from("plot.svg"),
    }
}

/// The file is written aside and takes its name when it is whole.
fn draw(page: &Page, several: bool, path: &Path) -> Result<()> {
    let (width, height) = page.size();
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    let bytes = match ending.as_str() {
        "svg" => {
            let mut svg = Svg::new(width, height);
            page.draw(&mut svg, several);
            svg.finish().into_bytes()
        }
        "png" => {
            let mut raster = Raster::new(width, height);
            page.draw(&mut raster, several);
            let (width, height, pixels) = raster.pixels();
            png::encode(width, height, pixels)
        }
        _ => bail!("pictures are .svg or .png files"),
    };
    let (partial, mut file) = PartialFile::create(path)?;
    file.write_all(&bytes)?;
    Ok(partial.finish()?)
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for run in &report.runs {
        let score = run.last_evaluation.map_or(String::new(), |score| format!(", evaluation {score:.2}"));
        text += &format!("{}: {} rows, {} frames{score}\n", run.name, grouped(run.rows as u64), grouped(run.frames));
        for check in &run.checks {
            text += &format!("  {}\n", check.sentence);
        }
        if run.checks.is_empty() {
            text += "  nothing is flat, explodes or lies at a bound\n";
        }
    }
    text + &format!("{} charts in {}\n", report.charts, report.picture.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::run::{MetricsWriter, Row};

    use super::*;
    use crate::video::folder::Folder;

    /// A metrics file with a score, a bandit of two arms, and something for the eye in each row.
    fn metrics(folder: &Folder, name: &str) -> PathBuf {
        let path = folder.path().join(name);
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        for i in 1..=30u32 {
            let mut row = Row::new(u64::from(i) * 40_000);
            row.scalar("evaluation/score", f64::from(i) - 21.0).scalar("bandit/favourite", f64::from(i % 2));
            row.vector("bandit/pulls", [f64::from(i), f64::from(2 * i)]);
            row.vector("policy/trust_region_share", [0.1, 0.95]);
            writer.append(&row).unwrap();
        }
        path
    }

    fn args(runs: &[&Path], out: &Path, game: Option<&str>) -> PlotArgs {
        PlotArgs {
            runs: runs.iter().map(|run| run.display().to_string()).collect(),
            out: Some(out.to_path_buf()),
            game: game.map(str::to_owned),
            root: PathBuf::from("nowhere"),
            json: false,
        }
    }

    #[test]
    fn a_metrics_file_is_drawn_with_a_humans_score_and_what_looks_wrong() {
        let folder = Folder::new();
        let file = metrics(&folder, "metrics.jsonl");
        let out = folder.path().join("x.svg");
        let report = plot(&args(&[&file], &out, Some("pong"))).unwrap();
        assert!(text(&report).contains("30 rows, 1 200 000 frames, evaluation 9.00\n  policy 1: 95 %"));
        let svg = fs::read_to_string(&out).unwrap();
        let texts = [">human<", ">score by role<", ">favourite policy<", ">policy 1: 95 % of the steps masked by"];
        assert!(texts.iter().all(|text| svg.contains(text)), "{svg}");
        // There is nothing to draw of what was not measured.
        assert!(!svg.contains(">gradient norms<"));
        plot(&args(&[&file], &out, None)).unwrap();
        assert!(!fs::read_to_string(&out).unwrap().contains(">human<"));
        assert_eq!(folder.names(), ["metrics.jsonl", "x.svg"]);
    }

    #[test]
    fn several_runs_share_their_charts() {
        let folder = Folder::new();
        let (one, other) = (metrics(&folder, "one.jsonl"), metrics(&folder, "other.jsonl"));
        let out = folder.path().join("x.PNG");
        plot(&args(&[&one, &other], &out, None)).unwrap();
        assert_eq!(fs::read(&out).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn what_can_not_be_drawn_is_refused_with_a_sentence() {
        let folder = Folder::new();
        let file = metrics(&folder, "metrics.jsonl");
        let refused = |args: &PlotArgs| format!("{:#}", plot(args).map(drop).unwrap_err());
        let out = folder.path().join("x.jpg");
        let sentence = format!("{} could not be written: pictures are .svg or .png files", out.display());
        assert_eq!(refused(&args(&[&file], &out, None)), sentence);
        let empty = folder.path().join("empty.jsonl");
        fs::write(&empty, "").unwrap();
        let sentence = format!("{} has no row of metrics yet", empty.display());
        assert_eq!(refused(&args(&[&empty], &folder.path().join("x.svg"), None)), sentence);
        let missing = refused(&args(&[Path::new("missing")], &out, None));
        assert!(missing.contains("missing"), "{missing}");
    }
}
