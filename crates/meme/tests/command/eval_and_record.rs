//! `meme eval` and `meme record` of a briefly trained run.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::runs::{Runs, SMALL, fails, works};

/// Trains a run that is the same every time.
fn train(runs: &Runs) {
    let mut command = runs.train(&["--frames", "1600"]);
    for setting in [
        "run.lockstep=true",
        "actors.environments=16",
        "replay.samples_per_insert=1.0",
        "evaluation.mean_episodes=4",
        "metrics.lockstep_frames=400",
    ] {
        command.args(["--set", setting]);
    }
    works(&mut command);
}

/// Standard output of a command that must succeed.
fn prints(runs: &Runs, arguments: &[&str]) -> String {
    works(&mut runs.meme(arguments)).printed
}

/// The error of a command that must fail.
fn error_of(runs: &Runs, arguments: &[&str]) -> String {
    fails(&mut runs.meme(arguments))
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn run_is_evaluated_repeatably_and_recorded() {
    let runs = Runs::new();
    train(&runs);

    let eval = ["eval", "run", "--json", "--episodes", "19", "--seed", "5"];
    let report = parsed(&prints(&runs, &eval));
    let scores = report["scores"].as_array().unwrap();
    assert_eq!(scores.len(), 19);
    assert!(scores.iter().all(|score| [-1.0, 1.0].contains(&score.as_f64().unwrap())), "{scores:?}");
    let mean = scores.iter().map(|score| score.as_f64().unwrap()).sum::<f64>() / 19.0;
    assert!((report["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    let protocol = &report["protocol"];
    assert_eq!((&protocol["checkpoint_frames"], &protocol["seed"]), (&1600.into(), &5.into()));
    assert_eq!((&protocol["parameters"], &protocol["epsilon"]), (&"ema".into(), &0.0.into()));
    assert_eq!((&protocol["environments"], &protocol["first_environment"]), (&16.into(), &1_000_000.into()));
    assert!(protocol["updates"].as_u64().unwrap() > 0);
    assert!(protocol.get("atari").is_none() && report.get("human_normalised").is_none());
    assert_eq!(parsed(&prints(&runs, &eval)), report);

    let directory = runs.directory().join("run");
    let by_directory = [&["eval", directory.to_str().unwrap()], &eval[2..]].concat();
    assert_eq!(parsed(&prints(&runs, &by_directory)), report);
    let named = parsed(&prints(&runs, &[&eval[..], &["--checkpoint", "1600"]].concat()));
    assert_eq!(named, report);
    let best = parsed(&prints(&runs, &[&eval[..], &["--checkpoint", "best"]].concat()));
    let frames = best["protocol"]["checkpoint_frames"].as_u64().unwrap();
    assert!(frames <= 1600, "{frames}");
    assert_eq!(best["scores"].as_array().unwrap().len(), 19);

    let online = parsed(&prints(&runs, &[&eval[..], &["--parameters", "online"]].concat()));
    assert_eq!(online["protocol"]["parameters"], "online");
    assert_eq!((&online["protocol"]["seed"], &online["protocol"]["episodes"]), (&5.into(), &19.into()));
    let error = error_of(&runs, &["eval", "run", "--parameters", "online", "--checkpoint", "best"]);
    assert!(error.contains("has the averaged parameters only; `--checkpoint last` has the online ones too"), "{error}");

    let text = prints(&runs, &["eval", "run"]);
    assert!(text.starts_with("run: mean score "), "{text}");
    assert!(
        text.contains("averaged (EMA) parameters, greedy (epsilon 0), policy ") && text.contains(", seed 1,"),
        "{text}"
    );

    let video = runs.directory().join("film.gif");
    let out = video.to_str().unwrap();
    let report = parsed(&prints(&runs, &["record", "run", "--out", out, "--episodes", "2", "--json"]));
    assert_eq!(report["scores"].as_array().unwrap().len(), 2);
    assert!(report.get("score_so_far").is_none());
    let short = runs.directory().join("short.gif");
    let short = short.to_str().unwrap();
    // An episode of 9 steps, one second of its end, and the first steps of the next.
    let report =
        parsed(&prints(&runs, &["record", "run", "--out", short, "--episodes", "9", "--seconds", "2", "--json"]));
    assert_eq!(report["scores"].as_array().unwrap().len(), 1);
    assert!(report["score_so_far"].is_number());
    assert!(prints(&runs, &["record", "run", "--out", short, "--seconds", "2"]).contains(", score "));
    // By default it goes to the run's videos directory, which is created if missing.
    fs::remove_dir(directory.join("videos")).unwrap();
    let film = directory.join("videos/000000001600-seed-5.gif");
    let report = parsed(&prints(&runs, &["record", "run", "--seed", "5", "--json"]));
    assert_eq!(report["video"], film.to_str().unwrap());
    assert!(prints(&runs, &["record", "run"]).contains("videos/000000001600-seed-1.gif: run run at 1 600 frames"));
    assert_eq!(fs::read_dir(directory.join("videos")).unwrap().count(), 2);
    let (width, height, hundredths) = measured(&video);
    assert!(width > 160 + 100 && height >= 160);
    // Twice nine steps and one second at the end, at 15 frames per second.
    assert_eq!(hundredths, 2 * (9 + 15) * 100 / 15);
    rejections(&runs, out);
}

/// Width and height of a video, and its length in hundredths of a second.
fn measured(video: &Path) -> (u16, u16, u64) {
    let mut decoder = gif::DecodeOptions::new().read_info(fs::File::open(video).unwrap()).unwrap();
    let (width, height) = (decoder.width(), decoder.height());
    let mut hundredths = 0;
    while let Some(frame) = decoder.read_next_frame().unwrap() {
        hundredths += u64::from(frame.delay);
    }
    (width, height, hundredths)
}

#[test]
fn video_shows_what_the_environment_renders_where_observations_are_no_pictures() {
    let runs = Runs::new();
    let envs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envs");
    let name = "gym:tests.gym_envs:Drawn-v0";
    let mut train = runs.meme(&["train", name, "--name", "run", "--frames", "40"]);
    works(train.args(SMALL.iter().flat_map(|setting| ["--set", setting])).current_dir(&envs));
    let video = runs.directory().join("film.gif");
    let out = video.to_str().unwrap();
    works(runs.meme(&["record", "run", "--out", out]).current_dir(&envs));
    // A picture of 3 x 2 pixels, enlarged 80 times, beside the panel; five steps, and the end for a second.
    let (width, height, hundredths) = measured(&video);
    assert!(width > 240 + 150 && height >= 160, "{width} x {height}");
    assert_eq!(hundredths, (5 + 15) * 100 / 15);

    works(crate::runs::meme(&["play", name, "--video", out]).current_dir(&envs));
    assert_eq!(measured(&video), (240, 160, 6 * 100 / 15));
    let mut play = crate::runs::meme(&["play", "gym:tests.gym_envs:Flat-v0", "--video", out]);
    let error = fails(play.current_dir(&envs));
    let reason = "its observations have shape [3]: gym:tests.gym_envs:Flat-v0 cannot render: its render_modes are [], \
                  without rgb_array";
    assert!(error.ends_with(reason), "{error}");
}

#[test]
fn video_of_stacked_frames_shows_the_newest() {
    let runs = Runs::new();
    works(&mut runs.train(&["--frames", "60", "--set", "env.frame_stack=4"]));
    let video = runs.directory().join("film.gif");
    works(&mut runs.meme(&["record", "run", "--out", video.to_str().unwrap()]));
    let (_, _, hundredths) = measured(&video);
    assert_eq!(hundredths, (9 + 15) * 100 / 15);
}

const NO_BEST: &str = "error: run run has no best checkpoint: no evaluation has finished yet, or \
                       checkpoint.keep_best is off; `--checkpoint last` plays the newest one";

fn rejections(runs: &Runs, video: &str) {
    let root = runs.directory().display();
    let error = error_of(runs, &["eval", "second"]);
    assert_eq!(error, format!("error: there is no run `second` in {root}; there are: run"));
    for command in [&["eval", "rnu"][..], &["plot", "rnu"]] {
        let error = error_of(runs, command);
        let expected = format!("error: there is no run `rnu` in {root}; there are: run; did you mean run?");
        assert_eq!(error, expected, "{command:?}");
    }
    let error = error_of(runs, &["eval", "run", "--checkpoint", "1601"]);
    let directory = format!("{root}/run/checkpoints");
    assert_eq!(error, format!("error: there is no checkpoint at 1601 frames in {directory}; there are: 1600"));
    let error = error_of(runs, &["eval", "run", "--sticky"]);
    assert_eq!(error, "error: --sticky applies to Atari games only, not to catch");
    let error = error_of(runs, &["record", "run", "--out", "film.avi"]);
    assert!(
        error.ends_with("unknown video format \"film.avi\": expected a file name that ends in .gif or .mp4"),
        "{error}"
    );

    fs::remove_dir_all(format!("{directory}/best")).unwrap();
    let error = error_of(runs, &["eval", "run", "--checkpoint", "best"]);
    assert_eq!(error, NO_BEST);
    fs::remove_dir_all(format!("{directory}/000000001600")).unwrap();
    let error = error_of(runs, &["record", "run", "--out", video]);
    assert!(error.starts_with("error: the run was saved before, but ") && !error.contains("best"), "{error}");
    let description = runs.file("run.json");
    let text = fs::read_to_string(&description).unwrap();
    fs::write(&description, text.replace("\"saved\": true", "\"saved\": false")).unwrap();
    let error = error_of(runs, &["record", "run", "--out", video]);
    assert_eq!(
        error,
        "error: run run has no checkpoint yet: one is saved every checkpoint.every_minutes and when training stops; \
         `--checkpoint best` plays the best so far, once an evaluation has finished"
    );
}
