//! A run from the command line: trained for a moment, then measured and filmed.

use std::fs;

use serde_json::Value;

use crate::runs::{Runs, fails, works};

/// A run that is the same every time.
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

/// What a command that must work prints.
fn prints(runs: &Runs, arguments: &[&str]) -> String {
    works(&mut runs.meme(arguments)).printed
}

/// What a command that must fail complains of.
fn complains(runs: &Runs, arguments: &[&str]) -> String {
    fails(&mut runs.meme(arguments))
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_run_is_measured_repeatably_and_filmed() {
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

    let folder = runs.folder().join("run");
    let by_folder = [&["eval", folder.to_str().unwrap()], &eval[2..]].concat();
    assert_eq!(parsed(&prints(&runs, &by_folder)), report);
    let named = parsed(&prints(&runs, &[&eval[..], &["--checkpoint", "1600"]].concat()));
    assert_eq!(named, report);
    let best = parsed(&prints(&runs, &[&eval[..], &["--checkpoint", "best"]].concat()));
    let frames = best["protocol"]["checkpoint_frames"].as_u64().unwrap();
    assert!((1..=1600).contains(&frames), "{frames}");
    assert_eq!(best["scores"].as_array().unwrap().len(), 19);

    let online = parsed(&prints(&runs, &[&eval[..], &["--parameters", "online"]].concat()));
    assert_eq!(online["protocol"]["parameters"], "online");
    assert_eq!((&online["protocol"]["seed"], &online["protocol"]["episodes"]), (&5.into(), &19.into()));
    let complaint = complains(&runs, &["eval", "run", "--parameters", "online", "--checkpoint", "best"]);
    assert!(complaint.contains("keeps the averaged parameters only; the online ones are in those"), "{complaint}");

    let text = prints(&runs, &["eval", "run"]);
    assert!(text.starts_with("run: mean score "), "{text}");
    assert!(text.contains("averaged (EMA) parameters, policy ") && text.contains("of seed 1 from"), "{text}");

    let video = runs.folder().join("film.gif");
    let out = video.to_str().unwrap();
    let report = parsed(&prints(&runs, &["record", "run", "--out", out, "--episodes", "2", "--json"]));
    assert_eq!(report["scores"].as_array().unwrap().len(), 2);
    assert!(report.get("score_so_far").is_none());
    let short = runs.folder().join("short.gif");
    let short = short.to_str().unwrap();
    // An episode of 9 steps, the second that its end is shown for, and the first steps of the next.
    let report =
        parsed(&prints(&runs, &["record", "run", "--out", short, "--episodes", "9", "--seconds", "2", "--json"]));
    assert_eq!(report["scores"].as_array().unwrap().len(), 1);
    assert!(report["score_so_far"].is_number());
    assert!(prints(&runs, &["record", "run", "--out", short, "--seconds", "2"]).contains(", score "));
    // By itself it goes to the run's videos, whether or not their folder is there.
    fs::remove_dir(folder.join("videos")).unwrap();
    let film = folder.join("videos/000000001600-seed-5.gif");
    let report = parsed(&prints(&runs, &["record", "run", "--seed", "5", "--json"]));
    assert_eq!(report["video"], film.to_str().unwrap());
    assert!(prints(&runs, &["record", "run"]).contains("videos/000000001600-seed-1.gif: run at 1 600 frames"));
    assert_eq!(fs::read_dir(folder.join("videos")).unwrap().count(), 2);
    let mut decoder = gif::DecodeOptions::new().read_info(fs::File::open(&video).unwrap()).unwrap();
    assert!(decoder.width() > 160 + 100 && decoder.height() >= 160);
    let mut hundredths = 0;
    while let Some(frame) = decoder.read_next_frame().unwrap() {
        hundredths += u64::from(frame.delay);
    }
    // Twice nine steps and a second at the end, 15 frames a second.
    assert_eq!(hundredths, 2 * (9 + 15) * 100 / 15);
    refusals(&runs, out);
}

const NO_BEST: &str = "meme: run run has kept no best checkpoint yet: no evaluation has finished, or \
                       checkpoint.keep_best is off; `--checkpoint last` plays the newest one";

fn refusals(runs: &Runs, video: &str) {
    let root = runs.folder().display();
    let complaint = complains(runs, &["eval", "second"]);
    assert_eq!(complaint, format!("meme: there is no run `second` in {root}; there are: run"));
    for command in [&["eval", "rnu"][..], &["plot", "rnu"], &["config", "show", "rnu"]] {
        let complaint = complains(runs, command);
        let expected = format!("meme: there is no run `rnu` in {root}; there are: run; did you mean run?");
        assert_eq!(complaint, expected, "{command:?}");
    }
    let complaint = complains(runs, &["eval", "run", "--checkpoint", "1601"]);
    let folder = format!("{root}/run/checkpoints");
    assert_eq!(complaint, format!("meme: there is no checkpoint at 1601 frames in {folder}; there are: 1600"));
    let complaint = complains(runs, &["eval", "run", "--sticky"]);
    assert_eq!(complaint, "meme: --sticky is for Atari games, and catch is none");
    let complaint = complains(runs, &["record", "run", "--out", "film.avi"]);
    assert!(complaint.ends_with("videos are .gif or .mp4 files, and `film.avi` is neither"), "{complaint}");

    fs::remove_file(format!("{folder}/best.ckpt")).unwrap();
    let complaint = complains(runs, &["eval", "run", "--checkpoint", "best"]);
    assert_eq!(complaint, NO_BEST);
    fs::remove_file(format!("{folder}/000000001600.ckpt")).unwrap();
    let complaint = complains(runs, &["record", "run", "--out", video]);
    assert!(
        complaint.starts_with("meme: the run was saved before, but ") && !complaint.contains("best"),
        "{complaint}"
    );
    let description = runs.file("run.json");
    let text = fs::read_to_string(&description).unwrap();
    fs::write(&description, text.replace("\"saved\": true", "\"saved\": false")).unwrap();
    let complaint = complains(runs, &["record", "run", "--out", video]);
    assert_eq!(
        complaint,
        "meme: run run has no checkpoint yet; one is written every checkpoint.every_minutes, and when training stops; \
         `--checkpoint best` plays the best so far, once an evaluation has finished"
    );
}
