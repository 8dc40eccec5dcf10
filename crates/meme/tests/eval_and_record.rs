//! A run from the command line: trained for a moment, then measured and filmed.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use serde_json::Value;

/// A folder of runs, removed with all that is in it when dropped.
struct Runs(PathBuf);

impl Runs {
    fn new() -> Self {
        let folder = env::temp_dir().join(format!("meme-eval-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn meme(&self, arguments: &[&str]) -> Output {
        let runs = ["--runs".as_ref(), self.0.as_os_str()];
        Command::new(env!("CARGO_BIN_EXE_meme")).args(arguments).args(runs).output().unwrap()
    }

    /// What a command that must work prints.
    fn works(&self, arguments: &[&str]) -> String {
        let output = self.meme(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that must fail complains of: one line.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.meme(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        complaint.trim_end().to_owned()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A run named `first`, the same every time.
fn train() -> Vec<&'static str> {
    let mut arguments = vec!["train", "catch", "--name", "first", "--preset", "tiny", "--frames", "1600"];
    for set in [
        "run.lockstep=true",
        "run.device=cpu",
        "run.threads=1",
        "replay.minimum_fill=20",
        "replay.samples_per_insert=1.0",
        "evaluation.mean_episodes=4",
        "metrics.lockstep_frames=400",
    ] {
        arguments.extend(["--set", set]);
    }
    arguments
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_run_is_measured_repeatably_and_filmed() {
    let runs = Runs::new();
    runs.works(&train());

    let eval = ["eval", "first", "--json", "--episodes", "11", "--seed", "5"];
    let report = parsed(&runs.works(&eval));
    let scores = report["scores"].as_array().unwrap();
    assert_eq!(scores.len(), 11);
    assert!(scores.iter().all(|score| [-1.0, 1.0].contains(&score.as_f64().unwrap())), "{scores:?}");
    let mean = scores.iter().map(|score| score.as_f64().unwrap()).sum::<f64>() / 11.0;
    assert!((report["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    let protocol = &report["protocol"];
    assert_eq!((&protocol["checkpoint_frames"], &protocol["seed"]), (&1600.into(), &5.into()));
    assert_eq!((&protocol["parameters"], &protocol["epsilon"]), (&"ema".into(), &0.0.into()));
    assert_eq!((&protocol["environments"], &protocol["first_environment"]), (&8.into(), &1_000_000.into()));
    assert!(protocol["updates"].as_u64().unwrap() > 0);
    assert!(protocol.get("atari").is_none() && report.get("human_normalised").is_none());
    assert_eq!(parsed(&runs.works(&eval)), report);

    let folder = runs.path().join("first");
    let by_folder = [&["eval", folder.to_str().unwrap()], &eval[2..]].concat();
    assert_eq!(parsed(&runs.works(&by_folder)), report);
    let named = parsed(&runs.works(&[&eval[..], &["--checkpoint", "1600"]].concat()));
    assert_eq!(named, report);
    let best = parsed(&runs.works(&[&eval[..], &["--checkpoint", "best"]].concat()));
    let frames = best["protocol"]["checkpoint_frames"].as_u64().unwrap();
    assert!((1..=1600).contains(&frames), "{frames}");
    assert_eq!(best["scores"].as_array().unwrap().len(), 11);

    let online = parsed(&runs.works(&[&eval[..], &["--parameters", "online"]].concat()));
    assert_eq!(online["protocol"]["parameters"], "online");
    assert_eq!((&online["protocol"]["seed"], &online["protocol"]["episodes"]), (&5.into(), &11.into()));
    let complaint = runs.fails(&["eval", "first", "--parameters", "online", "--checkpoint", "best"]);
    assert!(complaint.contains("keeps the averaged parameters only; the online ones are in those"), "{complaint}");

    let text = runs.works(&["eval", "first"]);
    assert!(text.starts_with("first: mean score "), "{text}");
    assert!(text.contains("averaged (EMA) parameters, policy ") && text.contains("of seed 1 from"), "{text}");

    let video = runs.path().join("first.gif");
    let out = video.to_str().unwrap();
    let report = parsed(&runs.works(&["record", "first", "--out", out, "--episodes", "2", "--json"]));
    assert_eq!(report["scores"].as_array().unwrap().len(), 2);
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

const NO_BEST: &str = "meme: run first has kept no best checkpoint yet: no evaluation has finished, or \
                       checkpoint.keep_best is off; `--checkpoint last` plays the newest one";

fn refusals(runs: &Runs, video: &str) {
    let root = runs.path().display();
    let complaint = runs.fails(&["eval", "second"]);
    assert_eq!(complaint, format!("meme: there is no run `second` in {root}; there are: first"));
    let complaint = runs.fails(&["eval", "first", "--checkpoint", "1601"]);
    let folder = format!("{root}/first/checkpoints");
    assert_eq!(complaint, format!("meme: there is no checkpoint at 1601 frames in {folder}; there are: 1600"));
    let complaint = runs.fails(&["eval", "first", "--sticky"]);
    assert_eq!(complaint, "meme: --sticky is for Atari games, and catch is none");
    let complaint = runs.fails(&["record", "first", "--out", "first.avi"]);
    assert!(complaint.ends_with("videos are .gif or .mp4 files, and `first.avi` is neither"), "{complaint}");

    fs::remove_file(format!("{folder}/best.ckpt")).unwrap();
    let complaint = runs.fails(&["eval", "first", "--checkpoint", "best"]);
    assert_eq!(complaint, NO_BEST);
    fs::remove_file(format!("{folder}/000000001600.ckpt")).unwrap();
    let complaint = runs.fails(&["record", "first", "--out", video]);
    assert_eq!(
        complaint,
        "meme: run first has no checkpoint yet; one is written every checkpoint.every_minutes, and when training stops"
    );
}
