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
use envs::EnvId;
use serde::Serialize;
use train::numbers::{fixed, rounded};

use self::checks::{Check, ENOUGH, checks};
use self::curves::Curves;
use self::page::Page;
use self::raster::Raster;
use self::surface::Svg;
use crate::chosen_run::RUNS;
use crate::output::{self, grouped};
use crate::video::partial::PartialFile;

/// Options of `meme plot`.
#[derive(Args)]
pub struct PlotArgs {
    /// A run's name (`meme runs` lists them) or its folder, or a metrics file; it may be training. The scores of several
    /// are drawn over one another
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// The picture, x.svg or x.png [default: plot.svg in the run's folder; beside a metrics file; here for several]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The game of a metrics file without its run, for a human's score beside it
    #[arg(long)]
    game: Option<String>,
    /// Where runs are
    #[arg(long = "runs", value_name = "FOLDER", default_value = RUNS)]
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
    /// Whether there were rows enough for the checks.
    judged: bool,
    checks: Vec<Check>,
}

/// Reads, draws and says what looks wrong.
pub fn run(args: &PlotArgs) -> Result<()> {
    let report = plot(args)?;
    if args.json { output::print_json(&report) } else { output::print(&text(&report)) }
}

/// The game that `--game` names, which must have a human's score.
fn human_scored(name: &str) -> Result<EnvId> {
    let environment: EnvId = name.parse()?;
    if environment.game().is_none() {
        bail!("--game is for a human's score, and {environment} is no Atari game");
    }
    Ok(environment)
}

fn plot(args: &PlotArgs) -> Result<Report> {
    let game = args.game.as_deref().map(human_scored).transpose()?;
    let read = |run: &String| Curves::read(&args.root, run, game.as_ref());
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let found: Vec<Vec<Check>> = runs.iter().map(checks).collect();
    let several = runs.len() > 1;
    let page = if several { Page::of_runs(&runs) } else { Page::of_run(&runs[0], &found[0]) };
    let picture = args.out.clone().unwrap_or_else(|| default_picture(&runs));
    draw(&page, several, &picture).with_context(|| {
        let elsewhere = if args.out.is_none() { " (--out names another place)" } else { "" };
        format!("{} could not be written{elsewhere}", picture.display())
    })?;
    let report = |(run, checks): (&Curves, Vec<Check>)| RunReport {
        name: run.name.clone(),
        task: run.task.clone(),
        frames: run.frames(),
        rows: run.rows().len(),
        last_evaluation: run.scalar("evaluation/score").last().map(|(_, score)| rounded(*score)),
        judged: run.rows().len() >= ENOUGH,
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
        let score = run.last_evaluation.map_or(String::new(), |score| format!(", evaluation {}", fixed(score, 2)));
        let rows = format!("{} row{}", grouped(run.rows as u64), if run.rows == 1 { "" } else { "s" });
        text += &format!("{}: {rows}, {} frames{score}\n", run.name, grouped(run.frames));
        for check in &run.checks {
            text += &format!("  {}\n", check.sentence);
        }
        if !run.judged {
            text += &format!("  too few rows to judge: at least {ENOUGH} are needed\n");
        } else if run.checks.is_empty() {
            text += "  nothing is flat, explodes or lies at a bound\n";
        }
    }
    text + &format!("{} charts in {}\n", report.charts, report.picture.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::config::Config;
    use train::run::{MetricsWriter, Row, RunDescription, RunDirectory, Start};

    use super::*;
    use crate::video::folder::Folder;

    /// A metrics file with a score, a bandit of two arms, and something for the eye in each row.
    fn metrics(folder: &Folder, name: &str, rows: u32) -> PathBuf {
        let path = folder.path().join(name);
        let (mut writer, _) = MetricsWriter::open(&path, None).unwrap();
        for i in 1..=rows {
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
        let file = metrics(&folder, "metrics.jsonl", 30);
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
        let (one, other) = (metrics(&folder, "one.jsonl", 30), metrics(&folder, "other.jsonl", 30));
        let out = folder.path().join("x.PNG");
        plot(&args(&[&one, &other], &out, None)).unwrap();
        assert_eq!(fs::read(&out).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn what_can_not_be_drawn_is_refused_with_a_sentence() {
        let folder = Folder::new();
        let file = metrics(&folder, "metrics.jsonl", 30);
        let refused = |args: &PlotArgs| format!("{:#}", plot(args).map(drop).unwrap_err());
        let out = folder.path().join("x.jpg");
        let sentence = format!("{} could not be written: pictures are .svg or .png files", out.display());
        assert_eq!(refused(&args(&[&file], &out, None)), sentence);
        let beside = folder.path().join("metrics.svg");
        fs::create_dir(&beside).unwrap();
        let sentence = format!("{} could not be written (--out names another place): ", beside.display());
        assert!(refused(&PlotArgs { out: None, ..args(&[&file], &out, None) }).starts_with(&sentence));
        let empty = folder.path().join("empty.jsonl");
        fs::write(&empty, "").unwrap();
        let sentence = format!("{} has no row of metrics yet", empty.display());
        assert_eq!(refused(&args(&[&empty], &folder.path().join("x.svg"), None)), sentence);
        let missing = refused(&args(&[Path::new("missing")], &out, None));
        assert!(missing.starts_with("there is no run `missing` in /") && missing.contains("/nowhere; "), "{missing}");
        let misspelled = refused(&args(&[&file], &out, Some("pnog")));
        assert_eq!(misspelled, "there is no environment `pnog`: did you mean `pong`?");
        let task = refused(&args(&[&file], &out, Some("catch")));
        assert_eq!(task, "--game is for a human's score, and catch is no Atari game");
    }

    #[test]
    fn a_few_rows_are_drawn_and_not_judged() {
        let folder = Folder::new();
        let (few, enough) = (metrics(&folder, "few.jsonl", 7), metrics(&folder, "enough.jsonl", 8));
        let out = folder.path().join("x.svg");
        let report = plot(&args(&[&few], &out, None)).unwrap();
        let said = "7 rows, 280 000 frames, evaluation -14.00\n  too few rows to judge: at least 8 are needed\n";
        assert!(text(&report).contains(said), "{}", text(&report));
        assert!(!text(&plot(&args(&[&enough], &out, None)).unwrap()).contains("too few"));
    }

    #[test]
    fn a_run_without_metrics_and_a_game_that_is_not_its_own_are_refused() {
        let folder = Folder::new();
        let config = Config::default().to_toml().unwrap();
        let description = RunDescription::new("pong", "tiny", 3);
        let (run, _) = RunDirectory::open(folder.path(), "first", Start::Continue, description, &config).unwrap();
        let out = folder.path().join("x.svg");
        let refused = |game| format!("{:#}", plot(&args(&[run.files().folder()], &out, game)).map(drop).unwrap_err());
        let nothing = "run first has measured nothing yet; a row comes every metrics.interval_seconds of training";
        assert_eq!(refused(None), nothing);
        MetricsWriter::open(&run.files().metrics_file(), None).unwrap();
        assert_eq!(refused(None), nothing);
        assert_eq!(refused(Some("breakout")), "run first is of pong, not of breakout; leave out --game");
    }
}
