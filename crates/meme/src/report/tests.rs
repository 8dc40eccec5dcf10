//! The paper's own numbers as if they were runs, and reports of runs on disk.

use envs::games::{AgentScore, Game, PaperAggregate, games, paper_aggregates};
use train::config::Sources;
use train::run::{EVALUATION_SCORE, ExistingRun, MetricsWriter, Row, RunDescription, RunDirectory};

use super::aggregates::of_the_paper;
use super::*;

/// A run with one evaluation.
fn record(task: &str, seed: u64, frames: u64, score: f64, set: &[&str]) -> ReportedRun {
    let own = [format!("run.seed={seed}"), format!("run.frames={frames}")];
    let set = set.iter().map(|setting| (*setting).to_owned()).chain(own).collect();
    let sources = Sources { preset: Some("paper".to_owned()), set, ..Sources::default() };
    let mut row = Row::new(frames);
    row.scalar(EVALUATION_SCORE, score);
    let description = RunDescription::new(task, "paper", seed);
    let name = format!("{task}-{seed}");
    ReportedRun::new(&name, &description, &sources.load().unwrap().config, vec![row], None).unwrap()
}

/// Six seeds of every game with the paper's mean and deviation.
///
/// The deviation divides by the number of seeds. The paper does not print their scores. Here they are the middles of
/// six equally likely parts of a normal distribution. Where one of these would be negative in a game without negative
/// scores, five seeds are equal and one is far above.
fn six_seeds(frames: u64, score: impl Fn(&Game) -> AgentScore) -> Cohort {
    // Quantiles 1/12, 3/12 and 5/12 of the normal distribution, scaled to a deviation of 1.
    let quantiles = [1.382_994, 0.674_490, 0.210_428f64];
    let scale = (3.0 / quantiles.iter().map(|z| z * z).sum::<f64>()).sqrt();
    let normal: Vec<f64> = quantiles.iter().flat_map(|z| [-z * scale, z * scale]).collect();
    let low = -(0.2f64.sqrt());
    let one_above = vec![low, low, low, low, low, 5f64.sqrt()];
    let first = record("pong", 1, frames, 0.0, &[]);
    let runs = games().iter().flat_map(|game| {
        let AgentScore { mean, std } = score(game);
        let possible = game.random < 0.0 || mean + std * normal[0] >= 0.0;
        let distances = if possible { &normal } else { &one_above };
        let (first, rom) = (first.clone(), &game.rom);
        let seeds: Vec<ReportedRun> = (1..)
            .zip(distances)
            .map(|(seed, distance)| ReportedRun {
                task: rom.clone(),
                seed,
                scores: vec![(frames as f64, mean + std * distance)],
                ..first.clone()
            })
            .collect();
        seeds
    });
    // A task is part of the settings, which differ in nothing else here.
    let mut cohorts = Cohort::sort(runs.collect()).unwrap();
    assert_eq!(cohorts.len(), 1);
    cohorts.remove(0)
}

fn printed(agent: &str, frames: u64, sticky: bool) -> [&'static Vec<f64>; 6] {
    let of = |column: &&PaperAggregate| column.agent == agent && column.frames == frames && column.sticky == sticky;
    let PaperAggregate { games_above_human, capped_mean, mean, median, percentile_25, percentile_5, .. } =
        paper_aggregates().iter().find(of).unwrap();
    [games_above_human, capped_mean, mean, median, percentile_25, percentile_5]
}

#[test]
fn papers_scores_reproduce_its_table_1() {
    for (frames, score) in
        [(200_000_000, (|game: &Game| game.meme_200m) as fn(&Game) -> AgentScore), (1_000_000_000, |game| game.meme_1b)]
    {
        let cohort = six_seeds(frames, score);
        let found = of_the_paper(&cohort, RandomScores::OfThePaper);
        for ((value, interval), printed) in found.iter().zip(printed("MEME", frames, false)) {
            assert!((value.round() - printed[0]).abs() <= 1.0, "{value} instead of {printed:?}");
            // The ends depend more on the scores of the seeds, which the paper does not print.
            let (low, high) = interval.unwrap();
            assert!((low / printed[1] - 1.0).abs() < 0.02 && (high / printed[2] - 1.0).abs() < 0.02, "{found:?}");
        }
    }
    let published = of_the_paper(&six_seeds(200_000_000, |game| game.meme_200m), RandomScores::Published);
    assert!((published[2].0 - 4175.0).abs() < 2.0, "{published:?}");
}

#[test]
fn papers_scores_reproduce_its_table_of_sticky_actions() {
    for (frames, score) in [
        (200_000_000, (|game: &Game| game.meme_sticky_200m) as fn(&Game) -> AgentScore),
        (1_000_000_000, |game| game.meme_sticky_1b),
    ] {
        let sticky = &["env.sticky_probability=0.25"];
        let first = record("pong", 1, frames, 0.0, sticky);
        // The paper prints scores with two decimals.
        let [low, value, high] = [-0.005, 0.0, 0.005].map(|rounding| {
            let run = |game: &Game| ReportedRun {
                task: game.rom.clone(),
                scores: vec![(frames as f64, score(game).mean + rounding)],
                ..first.clone()
            };
            let cohort = Cohort::sort(games().iter().map(run).collect()).unwrap().remove(0);
            assert!(cohort.is_sticky());
            of_the_paper(&cohort, RandomScores::OfThePaper)
        });
        for (number, printed) in printed("MEME", frames, true).iter().enumerate() {
            let [low, value, high] = [&low, &value, &high].map(|found| found[number].0);
            // Within 1 in the last digit, or as much as the rounding of scores leaves open.
            let open = (printed[0] - value).abs() < 0.015 || (low - 0.005..=high + 0.005).contains(&printed[0]);
            assert!(open, "{value} instead of {printed:?}");
        }
    }
}

#[test]
fn runs_of_different_settings_and_frames_are_separate_rows() {
    let runs = || {
        vec![
            record("pong", 1, 1000, 1.0, &[]),
            record("pong", 2, 1000, 3.0, &[]),
            record("pong", 3, 2000, 5.0, &[]),
            record("pong", 1, 1000, 7.0, &["env.sticky_probability=0.25"]),
            record("pong", 2, 1000, 9.0, &["agent.returns.kind=retrace"]),
        ]
    };
    let cohorts = Cohort::sort(runs()).unwrap();
    let labels: Vec<&str> = cohorts.iter().map(|cohort| cohort.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "env.sticky_probability 0.0, returns.kind soft_watkins, 1 000 frames",
            "env.sticky_probability 0.0, returns.kind soft_watkins, 2 000 frames",
            "env.sticky_probability 0.25, returns.kind soft_watkins, 1 000 frames",
            "env.sticky_probability 0.0, returns.kind retrace, 1 000 frames",
        ]
    );
    let table = games_table::table(&cohorts);
    let scores: Vec<Value> = table.json().as_array().unwrap().iter().map(|row| row["score"].clone()).collect();
    assert_eq!(scores, [2.0, 5.0, 7.0, 9.0].map(Value::from));
    // The paper's scores are those with the same stickiness.
    let pong = envs::games::game("pong").unwrap();
    let meme: Vec<Value> = table.json().as_array().unwrap().iter().map(|row| row["MEME 200M"].clone()).collect();
    assert_eq!((&meme[0], &meme[2]), (&pong.meme_200m.mean.into(), &pong.meme_sticky_200m.mean.into()));
    assert_eq!(table.json()[2]["Agent57 1B"], Value::Null);
    let twice = Cohort::sort([runs(), runs()].concat()).unwrap_err().to_string();
    let expected = "runs pong-1 and pong-1 have the same task, settings, frames and seed (1); leave one of them out";
    assert_eq!(twice, expected);
}

/// Writes a run with a score that rises from random play to `times` the human level.
fn write_run(root: &Path, game: &Game, seed: u64, rows: u64, times: f64) {
    let set = vec![format!("run.seed={seed}"), "run.frames=200_000_000".to_owned()];
    let sources = Sources { preset: Some("paper".to_owned()), set, ..Sources::default() };
    let config = sources.load().unwrap().config.to_toml().unwrap();
    let description = RunDescription::new(&game.rom, "paper", seed);
    let name = format!("{}-{seed}", game.rom);
    let (run, _) = RunDirectory::open(root, &name, ExistingRun::Resume, description, &config).unwrap();
    let (mut metrics, _) = MetricsWriter::open(&run.files.metrics_file(), None).unwrap();
    for i in 1..=rows {
        let share = i as f64 / rows as f64;
        let mut row = Row::new(i * 200_000_000 / rows);
        row.scalar(EVALUATION_SCORE, game.random + (game.human - game.random) * times * share);
        row.scalar("speed/seconds", share * 40_000.0);
        row.vector(
            "policy/trace_coefficient",
            (0..16).map(|policy| 0.8 + f64::from(policy) / 100.0).collect::<Vec<_>>(),
        );
        metrics.append(&row).unwrap();
    }
}

fn args(root: &Path, out: PathBuf) -> ReportArgs {
    let (runs, sweep, root) = (Vec::new(), Some("all".to_owned()), RunsDir { path: root.to_owned() });
    ReportArgs { runs, sweep, out, frames: None, root, json: true }
}

#[test]
fn report_on_57_games_is_small_self_contained_and_complete() {
    let directory = tempfile::tempdir().unwrap();
    let sweep = directory.path().join("all");
    for (number, game) in games().iter().enumerate() {
        for seed in 1..=3 {
            write_run(&sweep, game, seed, 40, 0.1 * (number + 1) as f64 + 0.05 * seed as f64);
        }
    }
    let out = directory.path().join("report");
    run(&args(directory.path(), out.clone())).unwrap();
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    // The name of the format is no address to fetch.
    let fetched = page.replace("http://www.w3.org/2000/svg", "");
    for address in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!fetched.contains(address), "{address}");
    }
    for id in ["frames_to_human", "games_above_human", "mean_score", "median_score", "iqm_score", "sorted_scores_1"] {
        assert!(page.contains(&format!("<figure id=\"{id}\">")), "{id}");
        assert!(out.join(format!("figures/{id}.svg")).exists(), "{id}");
    }
    assert!(page.contains("<figure id=\"performance_profile\">"));
    assert_eq!(page.matches("<figure id=\"learning_curve_").count(), 57);
    let games_csv = fs::read_to_string(out.join("games.csv")).unwrap();
    assert_eq!(games_csv.lines().count(), 58);
    assert!(games_csv.contains("zaxxon,paper,no,200000000,3,"), "{games_csv}");
    let rliable: Value = serde_json::from_slice(&fs::read(out.join("rliable.json")).unwrap()).unwrap();
    let scores = rliable["scores"]["paper"].as_array().unwrap();
    assert_eq!((scores.len(), scores[0].as_array().unwrap().len()), (3, 57));
    let first = scores[0][0].as_f64().unwrap();
    assert!((first - 0.15).abs() < 1e-9, "{first}");
    assert_eq!(rliable["scores_over_frames"]["paper"][2][56].as_array().unwrap().len(), 61);
    let aggregates = fs::read_to_string(out.join("aggregates.csv")).unwrap();
    assert!(aggregates.lines().nth(1).unwrap().starts_with("paper (3 seeds),"), "{aggregates}");
    assert!(aggregates.contains("\"Muesli 200M, printed\",52,") && aggregates.contains("Agent57 90B, printed"));
}

#[test]
fn ablations_are_compared_by_area_and_traces() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("all");
    let pong = envs::games::game("pong").unwrap();
    write_run(&root, pong, 1, 40, 2.0);
    write_run(&root, pong, 2, 40, 1.0);
    let config = root.join("pong-2/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("kind = \"soft_watkins\"", "kind = \"retrace\"")).unwrap();
    let (records, left_out) = cohort::read(&args(directory.path(), PathBuf::new()).find().unwrap(), None);
    assert!(left_out.is_empty());
    let report = FullReport::new(records, left_out).unwrap();
    let areas = report.tables.iter().find(|table| table.id == "areas").unwrap().json();
    assert_eq!(areas[0]["returns.kind soft_watkins"], 1.0);
    // The curves rise linearly from the first row's score, at 1/40, which also stands for the frames before it: from
    // -20.7 + 35.3 * 2 / 40 to 49.9, and from -20.7 + 35.3 / 40 to 14.6.
    let area = |first: f64, last: f64| first / 40.0 + (first + last) / 2.0 * 39.0 / 40.0;
    let expected = area(-20.7 + 35.3 / 40.0, 14.6) / area(-20.7 + 35.3 / 20.0, 49.9);
    let found = areas[0]["returns.kind retrace"].as_f64().unwrap();
    assert!((found - expected).abs() < 1e-4, "{found} instead of {expected}");
    let ids: Vec<&str> = report.figures.iter().map(|figure| figure.id.as_str()).collect();
    assert!(ids.contains(&"areas") && ids.contains(&"trace_coefficients"), "{ids:?}");
    // One game has no order.
    assert!(!ids.iter().any(|id| id.starts_with("sorted_scores")), "{ids:?}");
    // A sweep's own names of its variants come first.
    let variant = |name: &str, variant: &str| json!({"name": name, "environment": "pong", "seed": 1, "variant": variant, "settings": {}});
    let runs = [variant("pong-1", "full agent"), variant("pong-2", "no Watkins")];
    let manifest = json!({"format": 1, "id": "x", "preset": "paper", "set": [], "axes": [], "runs": runs});
    fs::write(root.join("sweep.json"), manifest.to_string()).unwrap();
    let args = args(directory.path(), PathBuf::new());
    let (mut records, _) = cohort::read(&args.find().unwrap(), None);
    args.name_variants(&mut records).unwrap();
    let labels = Cohort::sort(records).unwrap().into_iter().map(|cohort| cohort.label);
    assert_eq!(labels.collect::<Vec<_>>(), ["full agent", "no Watkins"]);
    let traces = report.figures.iter().find(|figure| figure.id == "trace_coefficients").unwrap();
    assert_eq!(traces.svg.matches("<circle").count(), 32);
}

#[test]
fn unfinished_and_unknown_runs_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("all");
    let pong = envs::games::game("pong").unwrap();
    write_run(&root, pong, 1, 40, 2.0);
    write_run(&root, pong, 2, 0, 2.0);
    let runs = args(directory.path(), PathBuf::new()).find().unwrap();
    let (records, left_out) = cohort::read(&runs, Some(100_000_000));
    assert_eq!((records[0].frames, rounded(records[0].score())), (100_000_000, 14.6));
    let why = "it was trained for 0 frames, not for 100 000 000";
    assert_eq!((left_out[0].name.as_str(), left_out[0].why.as_str()), ("pong-2", why));
    assert_eq!(cohort::read(&runs, None).1[0].why, "it has no evaluation score yet");
    let missing = ReportArgs { sweep: Some("none".to_owned()), ..args(directory.path(), PathBuf::new()) };
    let refused = missing.find().unwrap_err().to_string();
    assert!(refused.starts_with("there is no sweep none in "), "{refused}");
}
