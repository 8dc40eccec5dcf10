//! The life of a run on the command line: it is stopped, goes on, is finished, and is never lost by a command that does
//! not fit it.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use serde_json::Value;
use train::run::Rows;

/// Enough frames that a run would take for ever.
const FOR_EVER: &str = "1000000000";

/// A folder of runs, removed with all that is in it when dropped.
struct Runs(PathBuf);

impl Runs {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("meme-life-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meme"));
        command.args(["train", "catch", "--preset", "tiny", "--name", "run", "--runs"]).arg(&self.0);
        for setting in [
            "run.device=cpu",
            "run.threads=1",
            "actors.environments=4",
            "actors.environments_per_worker=4",
            "evaluation.evaluators=1",
            "evaluation.mean_episodes=2",
            "replay.minimum_fill=20",
            "metrics.interval_seconds=0.05",
        ] {
            command.args(["--set", setting]);
        }
        command.args(arguments);
        command
    }

    /// Runs the command to its end.
    fn train(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command that must work said and printed.
    fn works(&self, arguments: &[&str]) -> (String, String) {
        let output = self.train(arguments);
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        (said, String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The one sentence of a command that must be refused, which changes no file of the run.
    fn refuses(&self, arguments: &[&str]) -> String {
        let before = self.files();
        let output = self.train(arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(self.files(), before, "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("run").join(name)
    }

    /// Every file of all runs and what is in it, but for the locks, which any start signs.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.0, &mut files);
        files
    }

    fn rows(&self) -> Vec<u64> {
        match self.path("metrics.jsonl") {
            path if path.exists() => Rows::open(&path).unwrap().map(|row| row.unwrap().frames).collect(),
            _ => Vec::new(),
        }
    }

    fn numbered(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.path("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|end| end == "ckpt") && !path.ends_with("best.ckpt")).collect()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if !path.ends_with("lock") {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_until(what: &str, process: &mut Child, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(process.try_wait().unwrap().is_none(), "it ended before {what}");
        assert!(begun.elapsed() < Duration::from_secs(120), "waited in vain until {what}");
        sleep(Duration::from_millis(5));
    }
}

fn kill(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_run_whose_checkpoints_are_gone_is_not_started_over() {
    let runs = Runs::new("gone");
    runs.works(&["--frames", "800"]);
    assert!(runs.path("checkpoints/best.ckpt").exists());
    let kept: Vec<(PathBuf, Vec<u8>)> =
        runs.numbered().into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(!kept.is_empty());
    runs.numbered().iter().for_each(|path| fs::remove_file(path).unwrap());
    let folder = runs.path("checkpoints").display().to_string();
    let ending = "; put them back, or --fresh sets the run aside and starts over\n";
    for arguments in [&["--frames", "800"][..], &["--frames", "1600", "--set", "learner.batch_size=4"]] {
        assert_eq!(
            runs.refuses(arguments),
            format!(
                "meme: the run was saved before, but {folder} holds no checkpoint to go on from any more, only \
                 best.ckpt, which can be played but not trained on{ending}"
            )
        );
    }
    fs::rename(runs.path("checkpoints"), runs.path("elsewhere")).unwrap();
    let sentence = runs.refuses(&["--frames", "1600"]);
    assert!(sentence.contains(&format!("to go on from any more{ending}")), "{sentence}");

    // Both ways out.
    fs::remove_dir(runs.path("checkpoints")).unwrap();
    fs::rename(runs.path("elsewhere"), runs.path("checkpoints")).unwrap();
    kept.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let (said, _) = runs.works(&["--frames", "1200"]);
    assert!(said.contains("going on from "), "{said}");
    fs::remove_dir_all(runs.path("checkpoints")).unwrap();
    let (said, _) = runs.works(&["--frames", "200", "--fresh"]);
    assert!(said.contains("starts over"), "{said}");
}

/// Killed before its first save, with rows and even with a best checkpoint, a run has nothing that could be lost.
#[test]
fn a_run_that_was_killed_before_its_first_save_begins_again() {
    let runs = Runs::new("killed-early");
    let arguments = ["--frames", FOR_EVER];
    for _ in 0..2 {
        let mut process = runs.start(&arguments);
        wait_until("a best checkpoint", &mut process, || {
            !runs.rows().is_empty() && runs.path("checkpoints/best.ckpt").exists()
        });
        kill(process);
        assert_eq!(runs.numbered(), Vec::<PathBuf>::new());
    }

    // With other settings it would lose its best checkpoint, if it has one.
    let other = ["--frames", "60", "--set", "learner.batch_size=4"];
    assert!(runs.refuses(&other).contains("learner.batch_size was 16 and is now 4"));
    fs::remove_file(runs.path("checkpoints/best.ckpt")).unwrap();
    runs.works(&other);
    assert!(fs::read_to_string(runs.path("config.toml")).unwrap().contains("batch_size = 4"));

    // Killed right after a save, it need not have been noted yet.
    let saving = ["--frames", FOR_EVER, "--set", "checkpoint.every_minutes=0.005"];
    let (said, _) = runs.works(&["--fresh", "--frames", "60", "--set", "checkpoint.every_minutes=0.005"]);
    assert!(said.contains("starts over"), "{said}");
    let description = fs::read_to_string(runs.path("run.json")).unwrap();
    fs::write(runs.path("run.json"), description.replace("\"saved\": true", "\"saved\": false")).unwrap();
    let mut process = runs.start(&saving);
    wait_until("it goes on", &mut process, || {
        fs::read_to_string(runs.path("run.json")).unwrap().contains("\"saved\": true")
    });
    kill(process);
}

#[test]
fn a_finished_run_says_so_and_is_left_alone() {
    let runs = Runs::new("finished");
    let (said, printed) = runs.works(&["--frames", "400", "--json"]);
    let first: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(first["ended"], "finished");
    let (frames, updates) = (first["frames"].as_u64().unwrap(), first["updates"].as_u64().unwrap());
    let sentence = |budget: u64| {
        let root = runs.0.display();
        format!(
            "run run is finished at {frames} of {budget} frames, update {updates}, and saved in {root}/run; \
             `meme eval run --runs {root}` measures it, a higher --frames trains on\n"
        )
    };
    assert!(said.ends_with(&sentence(400)), "{said}");
    assert_eq!(runs.rows().last(), Some(&frames), "the last row is of the end");

    let before = runs.files();
    for _ in 0..2 {
        let (said, printed) = runs.works(&["--frames", "400", "--json"]);
        assert_eq!(said, sentence(400));
        let mut again: Value = serde_json::from_str(&printed).unwrap();
        for speed in ["frames_per_second", "updates_per_second"] {
            assert_eq!(again[speed].take(), 0.0);
            again[speed] = first[speed].clone();
        }
        assert_eq!(again, first);
    }
    let (_, printed) = runs.works(&["--frames", "400"]);
    assert!(printed.starts_with(&format!("run: {frames} frames (")), "{printed}");
    // As many as happen to be played are enough too.
    assert_eq!(runs.works(&["--frames", &frames.to_string()]).0, sentence(frames));
    assert_eq!(runs.files(), before);

    let more = (frames + 400).to_string();
    let (said, printed) = runs.works(&["--frames", &more, "--json"]);
    assert!(said.contains(&format!("run run goes on in {}/run, to {more} frames instead of 400\n", runs.0.display())));
    assert!(serde_json::from_str::<Value>(&printed).unwrap()["frames"].as_u64().unwrap() >= frames + 400);
}

#[test]
fn frames_may_be_fewer_as_long_as_they_are_not_played_yet() {
    let runs = Runs::new("fewer");
    let mut process = runs.start(&["--frames", FOR_EVER]);
    wait_until("a row", &mut process, || runs.rows().last() > Some(&100));
    interrupt(&process);
    assert!(process.wait().unwrap().success());
    let played = *runs.rows().last().unwrap();
    assert_eq!(
        runs.refuses(&["--frames", "100"]),
        format!(
            "meme: run run has played {played} frames already, so it can't end at 100; a --frames above \
             that trains on\n"
        )
    );
    let fewer = (played + 100).to_string();
    let (said, _) = runs.works(&["--frames", &fewer]);
    assert!(said.contains(&format!(", to {fewer} frames instead of {FOR_EVER}\n")), "{said}");
    assert!(fs::read_to_string(runs.path("config.toml.1")).unwrap().contains("frames = 1_000_000_000"));
    assert!(runs.refuses(&["--frames", "100"]).contains("so it can't end at 100"));
}

fn interrupt(process: &Child) {
    let kill = format!("kill -INT {}", process.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn a_stop_is_answered_and_its_end_is_told_and_measured() {
    let runs = Runs::new("stopped");
    // No row comes by the clock.
    let mut process = runs.start(&["--frames", FOR_EVER, "--json", "--set", "metrics.interval_seconds=3600"]);
    wait_until("it trains", &mut process, || runs.path("metrics.jsonl").exists());
    sleep(Duration::from_millis(500));
    interrupt(&process);
    let output = process.wait_with_output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let end: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end["ended"], "stopped");
    let (frames, updates) = (end["frames"].as_u64().unwrap(), end["updates"].as_u64().unwrap());
    let folder = runs.0.join("run");
    let stopping = "meme: stopping; the run is saved first, and Ctrl-C again leaves at once without that\n";
    assert_eq!(said.matches(stopping).count(), 1, "{said}");
    let end = format!(
        "run run was stopped at {frames} of {FOR_EVER} frames, update {updates}, and saved in {}; the same \
         command goes on\n",
        folder.display()
    );
    assert!(said.ends_with(&end), "{said}");
    assert_eq!(runs.rows(), [frames]);
    assert_eq!(runs.numbered(), [runs.path(&format!("checkpoints/{frames:012}.ckpt"))]);
}

#[test]
fn other_settings_are_named_and_refused() {
    let runs = Runs::new("other-settings");
    runs.works(&["--frames", "60"]);
    assert_eq!(
        runs.refuses(&["--frames", "200", "--set", "learner.batch_size=4", "--set", "env.hide_rewards=true"]),
        "meme: run run was started with other settings: env.hide_rewards was false and is now true, \
         learner.batch_size was 16 and is now 4; leave them as they were, give this one another --name, or --fresh sets \
         the run aside and starts over\n"
    );
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let runs = Runs::new("failed");
    let mut gym = Command::new(env!("CARGO_BIN_EXE_meme"));
    gym.args(["train", "gym:NoSuch-v0", "--preset", "tiny", "--name", "run", "--runs"]).arg(&runs.0);
    let output = gym.output().unwrap();
    assert!(!output.status.success() && said(&output).contains("gym:NoSuch-v0 cannot be used"), "{}", said(&output));
    assert_eq!(fs::read_dir(&runs.0).unwrap().count(), 0, "{}", said(&output));

    // A run that --fresh had set aside for it is there again.
    runs.works(&["--frames", "60"]);
    let before = runs.files();
    gym.arg("--fresh");
    let output = gym.output().unwrap();
    assert!(!output.status.success() && said(&output).contains("gym:NoSuch-v0 cannot be used"), "{}", said(&output));
    assert_eq!(runs.files(), before);
    assert_eq!(fs::read_dir(&runs.0).unwrap().count(), 1);
    runs.works(&["--frames", "60"]);
}
