//! `meme plot`: charts of a run's metrics, and warnings about what looks wrong.

pub mod checks;
pub mod curves;
mod overlay;
pub mod page;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::number_format::{fixed, rounded};

pub use self::checks::checks;
use self::checks::{Check, ENOUGH};
pub use self::curves::Curves;
use self::overlay::overlays;
use self::page::Page;
use crate::chart::svg::to_png;
use crate::output::{self, count_of, grouped};
use crate::partial_file::PartialFile;
use crate::run_args::RunsDir;
use train::run::EVALUATION_SCORE;

/// Arguments of `meme plot`.
#[derive(Args)]
pub struct PlotArgs {
    /// A run's name (`meme runs` lists them) or its directory, or a metrics file; it may still be training. Several
    /// runs share their charts
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Picture to write, .svg or .png [default: plot.svg in the run's directory, next to a metrics file, or here for
    /// several runs]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw one line per value of this setting, the mean of its runs with their range: preset, task or a config field;
    /// seed averages runs that differ in nothing else
    #[arg(long, value_name = "preset|seed|FIELD")]
    group: Option<String>,
    /// Game of a metrics file without its run, to show human and random scores
    #[arg(long)]
    game: Option<String>,
    #[command(flatten)]
    root: RunsDir,
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
    let read = |run: &String| Curves::read(&args.root.path, run, game.as_ref());
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let found: Vec<Vec<Check>> = runs.iter().map(checks).collect();
    let page = match (&runs[..], args.group.as_deref()) {
        ([run], None) => Page::of_run(run, &found[0])?,
        (_, group) => Page::of_runs(heading(&runs), &overlays(&runs, group)?)?,
    };
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
        last_evaluation: run.scalar(EVALUATION_SCORE).last().map(|(_, score)| rounded(*score)),
        judged: run.rows().len() >= ENOUGH,
        checks,
    };
    let runs = runs.iter().zip(found).map(report).collect();
    Ok(PlotReport { picture, charts: page.charts(), runs })
}

/// Says what several runs have in common.
fn heading(runs: &[Curves]) -> String {
    let task = runs[0].task.as_ref().filter(|task| runs.iter().all(|run| run.task.as_ref() == Some(task)));
    let task = task.map_or(String::new(), |task| format!(" on {task}"));
    let frames = runs.iter().map(Curves::frames).max().unwrap_or(0);
    format!("{}{task}, {} frames", count_of(runs.len(), "run"), grouped(frames))
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
        "png" => to_png(&page.draw())?,
        _ => bail!("expected a file name that ends in .svg or .png"),
    };
    Ok(PartialFile::write(path, &bytes)?)
}

fn text(report: &PlotReport) -> String {
    let mut text = String::new();
    for run in &report.runs {
        let score = run.last_evaluation.map_or(String::new(), |score| format!(", last evaluation {}", fixed(score, 2)));
        let rows = count_of(run.rows, "row");
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
    text + &format!("wrote {} to {}\n", count_of(report.charts, "chart"), report.picture.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use train::config::{Config, Sources};
    use train::run::history::{HistoryEntry, HistoryEvent, SettingChange};
    use train::run::{ExistingRun, MetricsWriter, Row, RunDescription, RunDirectory};

    use super::*;
    use crate::partial_file::tests::names;

    /// A metrics file with a score, a bandit of two arms and a policy at its trust region.
    fn metrics(directory: &Path, name: &str, rows: u32) -> PathBuf {
        let path = directory.join(name);
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
            group: None,
            game: game.map(str::to_owned),
            root: RunsDir { path: PathBuf::from("nowhere") },
            json: false,
        }
    }

    #[test]
    fn metrics_file_is_drawn_with_reference_scores_and_warnings() {
        let directory = tempfile::tempdir().unwrap();
        let file = metrics(directory.path(), "metrics.jsonl", 30);
        let out = directory.path().join("x.svg");
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
        assert_eq!(names(directory.path()), ["metrics.jsonl", "x.svg"]);
    }

    #[test]
    fn several_runs_share_their_charts() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (metrics(directory.path(), "one.jsonl", 30), metrics(directory.path(), "other.jsonl", 30));
        let out = directory.path().join("x.PNG");
        plot(&args(&[&one, &other], &out, None)).unwrap();
        assert_eq!(fs::read(&out).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    }

    /// Creates a run with a score that is its seed.
    fn run(root: &Path, preset: &str, seed: u64, set: &[&str]) {
        let set = set.iter().map(|setting| (*setting).to_owned()).chain([format!("run.seed={seed}")]).collect();
        let sources = Sources { preset: Some(preset.to_owned()), set, ..Sources::default() };
        let config = sources.load().unwrap().config.to_toml().unwrap();
        let name = format!("{preset}-{seed}");
        let description = RunDescription::new("pong", preset, seed);
        let (run, _) = RunDirectory::open(root, &name, ExistingRun::Resume, description, &config).unwrap();
        let (mut writer, _) = MetricsWriter::open(&run.files.metrics_file(), None).unwrap();
        for frames in [1000, 2000] {
            writer.append(Row::new(frames).scalar("evaluation/score", seed as f64)).unwrap();
        }
    }

    #[test]
    fn changed_settings_are_marked_in_the_charts_of_one_run() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        run(root, "tiny", 1, &[]);
        run(root, "tiny", 2, &[]);
        let label = ">optimizer.learning_rate 0.0001 → 0.0003<";
        assert!(!overlaid(root, &["tiny-1"], None).unwrap().contains(label));
        let field = "agent.optimizer.learning_rate".to_owned();
        let change = SettingChange { field, before: 0.0001.into(), now: 0.0003.into() };
        let resumed = HistoryEntry { changes: vec![change], ..HistoryEntry::new(HistoryEvent::Resumed, 1500) };
        resumed.append(&root.join("tiny-1/history.jsonl")).unwrap();
        assert!(overlaid(root, &["tiny-1"], None).unwrap().contains(label));
        // A line across all runs would mark the others too.
        assert!(!overlaid(root, &["tiny-1", "tiny-2"], None).unwrap().contains(label));
    }

    /// Charts these runs of `root` and returns the picture.
    fn overlaid(root: &Path, runs: &[&str], group: Option<&str>) -> Result<String> {
        let out = root.join("x.svg");
        let runs: Vec<&Path> = runs.iter().map(Path::new).collect();
        let group = group.map(str::to_owned);
        plot(&PlotArgs { root: RunsDir { path: root.to_path_buf() }, group, ..args(&runs, &out, None) })?;
        Ok(fs::read_to_string(out)?)
    }

    #[test]
    fn legends_name_what_differs_between_runs() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        run(root, "tiny", 1, &[]);
        run(root, "tiny", 2, &[]);
        run(root, "cpu", 3, &["agent.returns.kind=retrace"]);
        let seeds = overlaid(root, &["tiny-1", "tiny-2"], None).unwrap();
        assert!([">seed 1<", ">seed 2<", ">2 runs on pong, 2 000 frames<"].iter().all(|text| seeds.contains(text)));
        let presets = overlaid(root, &["tiny-1", "cpu-3"], None).unwrap();
        assert!(presets.contains(">tiny, returns.kind soft_watkins, seed 1<"), "{presets}");
        assert!(presets.contains(">cpu, returns.kind retrace, seed 3<"));
        // The same run twice.
        assert!(overlaid(root, &["tiny-1", "tiny-1"], None).unwrap().contains(">tiny-1<"));
    }

    #[test]
    fn grouped_runs_become_a_mean_with_a_band() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for seed in [1, 2] {
            run(root, "tiny", seed, &[]);
        }
        run(root, "cpu", 4, &[]);
        let all = ["tiny-1", "tiny-2", "cpu-4"];
        for group in ["preset", "seed"] {
            let svg = overlaid(root, &all, Some(group)).unwrap();
            assert!(svg.contains(">tiny (2 runs)<") && svg.contains(">cpu (1 run)<"), "{svg}");
            assert_eq!(svg.matches("fill-opacity=\"0.2\"").count(), 1);
        }
        let svg = overlaid(root, &all[..2], Some("seed")).unwrap();
        assert!(svg.contains(">mean of 2 runs<"));
        let refused = overlaid(root, &all, Some("presett")).unwrap_err().to_string();
        let expected =
            "cannot group by \"presett\": expected preset, seed, task or a config field; did you mean preset?";
        assert_eq!(refused, expected);
        let file = root.join("tiny-1/metrics.jsonl");
        let refused = overlaid(root, &[file.to_str().unwrap()], Some("seed")).unwrap_err().to_string();
        assert!(refused.starts_with("--group needs runs with their settings; "), "{refused}");
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let file = metrics(directory.path(), "metrics.jsonl", 30);
        let refused = |args: &PlotArgs| format!("{:#}", plot(args).map(drop).unwrap_err());
        let out = directory.path().join("x.jpg");
        let sentence = format!("cannot write {}: expected a file name that ends in .svg or .png", out.display());
        assert_eq!(refused(&args(&[&file], &out, None)), sentence);
        let beside = directory.path().join("metrics.svg");
        fs::create_dir(&beside).unwrap();
        let sentence = format!("cannot write {} (use --out to choose another file): ", beside.display());
        assert!(refused(&PlotArgs { out: None, ..args(&[&file], &out, None) }).starts_with(&sentence));
        let empty = directory.path().join("empty.jsonl");
        fs::write(&empty, "").unwrap();
        let sentence = format!("{} contains no metrics yet", empty.display());
        assert_eq!(refused(&args(&[&empty], &directory.path().join("x.svg"), None)), sentence);
        let missing = refused(&args(&[Path::new("missing")], &out, None));
        assert!(missing.starts_with("there is no run `missing` in /") && missing.contains("/nowhere, "), "{missing}");
        let misspelled = refused(&args(&[&file], &out, Some("pnog")));
        assert_eq!(misspelled, "unknown environment `pnog`: did you mean `pong`?");
        let task = refused(&args(&[&file], &out, Some("catch")));
        assert_eq!(task, "--game needs an Atari game, which has human and random scores; catch has none");
    }

    #[test]
    fn few_rows_are_drawn_and_not_judged() {
        let directory = tempfile::tempdir().unwrap();
        let (few, enough) = (metrics(directory.path(), "few.jsonl", 7), metrics(directory.path(), "enough.jsonl", 8));
        let out = directory.path().join("x.svg");
        let report = plot(&args(&[&few], &out, None)).unwrap();
        let said =
            "7 rows, 280 000 frames, last evaluation -14.00\n  too few rows for checks (at least 8 are needed)\n";
        assert!(text(&report).contains(said), "{}", text(&report));
        assert!(!text(&plot(&args(&[&enough], &out, None)).unwrap()).contains("too few"));
    }

    #[test]
    fn run_without_metrics_and_wrong_game_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config::default().to_toml().unwrap();
        let description = RunDescription::new("pong", "tiny", 3);
        let (run, _) =
            RunDirectory::open(directory.path(), "first", ExistingRun::Resume, description, &config).unwrap();
        let out = directory.path().join("x.svg");
        let refused = |game| format!("{:#}", plot(&args(&[&run.files.path], &out, game)).map(drop).unwrap_err());
        let nothing = "run first has no metrics yet; one row is written every metrics.interval_seconds of training";
        assert_eq!(refused(None), nothing);
        MetricsWriter::open(&run.files.metrics_file(), None).unwrap();
        assert_eq!(refused(None), nothing);
        assert_eq!(refused(Some("breakout")), "run first was trained on pong, not on breakout; omit --game");
    }
}
