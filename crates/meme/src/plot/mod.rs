//! `meme plot`: charts of a run's metrics, and warnings about what looks wrong.

mod axis;
mod chart;
mod checks;
mod curves;
mod page;
mod svg;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::number_format::{fixed, rounded};

use self::checks::{Check, ENOUGH, checks};
use self::curves::Curves;
use self::page::Page;
use crate::output::{self, grouped, plural};
use crate::partial_file::PartialFile;
use crate::run_args::RUNS;

/// Arguments of `meme plot`.
#[derive(Args)]
pub struct PlotArgs {
    /// A run's name (`meme runs` lists them) or its directory, or a metrics file; it may still be training. Several runs
    /// share their charts
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Picture to write, .svg or .png [default: plot.svg in the run's directory, next to a metrics file, or here for
    /// several runs]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Game of a metrics file without its run, to show human and random scores
    #[arg(long)]
    game: Option<String>,
    /// Directory that contains the runs
    #[arg(long = "runs", value_name = "DIR", default_value = RUNS)]
    root: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PlotReport {
    picture: PathBuf,
    charts: usize,
    runs: Vec<PlottedRun>,
}

#[derive(Serialize)]
struct PlottedRun {
    name: String,
    task: Option<String>,
    frames: u64,
    rows: usize,
    last_evaluation: Option<f64>,
    /// Whether there were enough rows for the checks.
    judged: bool,
    checks: Vec<Check>,
}

/// Draws the charts and prints the warnings.
pub fn run(args: &PlotArgs) -> Result<()> {
    output::print_report(args.json, &plot(args)?, text)
}

/// The game that `--game` names; only Atari games have reference scores.
fn reference_game(name: &str) -> Result<EnvId> {
    let environment: EnvId = name.parse()?;
    if environment.game().is_none() {
        bail!("--game needs an Atari game, which has human and random scores; {environment} has none");
    }
    Ok(environment)
}

fn plot(args: &PlotArgs) -> Result<PlotReport> {
    let game = args.game.as_deref().map(reference_game).transpose()?;
    let read = |run: &String| Curves::read(&args.root, run, game.as_ref());
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let found: Vec<Vec<Check>> = runs.iter().map(checks).collect();
    let page = if let [run] = &runs[..] { Page::of_run(run, &found[0])? } else { Page::of_runs(&runs)? };
    let picture = args.out.clone().unwrap_or_else(|| default_picture(&runs));
    write(&page, &picture).with_context(|| {
        let elsewhere = if args.out.is_none() { " (use --out to choose another file)" } else { "" };
        format!("cannot write {}{elsewhere}", picture.display())
    })?;
    let report = |(run, checks): (&Curves, Vec<Check>)| PlottedRun {
        name: run.name.clone(),
        task: run.task.clone(),
        frames: run.frames(),
        rows: run.rows().len(),
        last_evaluation: run.scalar("evaluation/score").last().map(|(_, score)| rounded(*score)),
        judged: run.rows().len() >= ENOUGH,
        checks,
    };
    let runs = runs.iter().zip(found).map(report).collect();
    Ok(PlotReport { picture, charts: page.charts(), runs })
}

fn default_picture(runs: &[Curves]) -> PathBuf {
    match runs {
        [run] if run.config.is_some() => run.file.with_file_name("plot.svg"),
        [run] => run.file.with_extension("svg"),
        _ => PathBuf::from("plot.svg"),
    }
}

fn write(page: &Page, path: &Path) -> Result<()> {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    let bytes = match extension.as_str() {
        "svg" => page.draw().into_bytes(),
        "png" => svg::to_png(&page.draw())?,
        _ => bail!("expected a file name that ends in .svg or .png"),
    };
    let file = PartialFile::create(path)?;
    file.writer()?.write_all(&bytes)?;
    Ok(file.finish()?)
}

fn text(report: &PlotReport) -> String {
    let mut text = String::new();
    for run in &report.runs {
        let score = run.last_evaluation.map_or(String::new(), |score| format!(", last evaluation {}", fixed(score, 2)));
        let rows = format!("{} row{}", grouped(run.rows as u64), plural(run.rows));
        text += &format!("{}: {rows}, {} frames{score}\n", run.name, grouped(run.frames));
        for check in &run.checks {
            text += &format!("  {}\n", check.sentence);
        }
        if !run.judged {
            text += &format!("  too few rows for checks (at least {ENOUGH} are needed)\n");
        } else if run.checks.is_empty() {
            text += "  no warnings: nothing is flat, explodes or lies at a bound\n";
        }
    }
    text + &format!("wrote {} chart{} to {}\n", report.charts, plural(report.charts), report.picture.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::config::Config;
    use train::run::{ExistingRun, MetricsWriter, Row, RunDescription, RunDirectory};

    use super::*;
    use crate::partial_file::tests::names;

    /// A metrics file with a score, a bandit of two arms and a policy at its trust region.
    fn metrics(folder: &Path, name: &str, rows: u32) -> PathBuf {
        let path = folder.join(name);
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
    fn metrics_file_is_drawn_with_reference_scores_and_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let file = metrics(folder.path(), "metrics.jsonl", 30);
        let out = folder.path().join("x.svg");
        let report = plot(&args(&[&file], &out, Some("pong"))).unwrap();
        assert!(text(&report).contains("30 rows, 1 200 000 frames, last evaluation 9.00\n  policy 1: the trust"));
        let svg = fs::read_to_string(&out).unwrap();
        let texts =
            [">human<", ">Score<", ">Policy preferred by the bandit<", ">policy 1: the trust region masks 95 %"];
        assert!(texts.iter().all(|text| svg.contains(text)), "{svg}");
        // Charts without metrics are left out.
        assert!(!svg.contains(">Gradient norm<"));
        plot(&args(&[&file], &out, None)).unwrap();
        assert!(!fs::read_to_string(&out).unwrap().contains(">human<"));
        assert_eq!(names(folder.path()), ["metrics.jsonl", "x.svg"]);
    }

    #[test]
    fn several_runs_share_their_charts() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (metrics(folder.path(), "one.jsonl", 30), metrics(folder.path(), "other.jsonl", 30));
        let out = folder.path().join("x.PNG");
        plot(&args(&[&one, &other], &out, None)).unwrap();
        assert_eq!(fs::read(&out).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = metrics(folder.path(), "metrics.jsonl", 30);
        let refused = |args: &PlotArgs| format!("{:#}", plot(args).map(drop).unwrap_err());
        let out = folder.path().join("x.jpg");
        let sentence = format!("cannot write {}: expected a file name that ends in .svg or .png", out.display());
        assert_eq!(refused(&args(&[&file], &out, None)), sentence);
        let beside = folder.path().join("metrics.svg");
        fs::create_dir(&beside).unwrap();
        let sentence = format!("cannot write {} (use --out to choose another file): ", beside.display());
        assert!(refused(&PlotArgs { out: None, ..args(&[&file], &out, None) }).starts_with(&sentence));
        let empty = folder.path().join("empty.jsonl");
        fs::write(&empty, "").unwrap();
        let sentence = format!("{} contains no metrics yet", empty.display());
        assert_eq!(refused(&args(&[&empty], &folder.path().join("x.svg"), None)), sentence);
        let missing = refused(&args(&[Path::new("missing")], &out, None));
        assert!(missing.starts_with("there is no run `missing` in /") && missing.contains("/nowhere, "), "{missing}");
        let misspelled = refused(&args(&[&file], &out, Some("pnog")));
        assert_eq!(misspelled, "unknown environment `pnog`: did you mean `pong`?");
        let task = refused(&args(&[&file], &out, Some("catch")));
        assert_eq!(task, "--game needs an Atari game, which has human and random scores; catch has none");
    }

    #[test]
    fn few_rows_are_drawn_and_not_judged() {
        let folder = tempfile::tempdir().unwrap();
        let (few, enough) = (metrics(folder.path(), "few.jsonl", 7), metrics(folder.path(), "enough.jsonl", 8));
        let out = folder.path().join("x.svg");
        let report = plot(&args(&[&few], &out, None)).unwrap();
        let said =
            "7 rows, 280 000 frames, last evaluation -14.00\n  too few rows for checks (at least 8 are needed)\n";
        assert!(text(&report).contains(said), "{}", text(&report));
        assert!(!text(&plot(&args(&[&enough], &out, None)).unwrap()).contains("too few"));
    }

    #[test]
    fn run_without_metrics_and_wrong_game_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::default().to_toml().unwrap();
        let description = RunDescription::new("pong", "tiny", 3);
        let (run, _) = RunDirectory::open(folder.path(), "first", ExistingRun::Resume, description, &config).unwrap();
        let out = folder.path().join("x.svg");
        let refused = |game| format!("{:#}", plot(&args(&[&run.files.path], &out, game)).map(drop).unwrap_err());
        let nothing = "run first has no metrics yet; one row is written every metrics.interval_seconds of training";
        assert_eq!(refused(None), nothing);
        MetricsWriter::open(&run.files.metrics_file(), None).unwrap();
        assert_eq!(refused(None), nothing);
        assert_eq!(refused(Some("breakout")), "run first was trained on pong, not on breakout; omit --game");
    }
}
