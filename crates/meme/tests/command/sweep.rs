//! Sweeps: many runs with one command, stopped, resumed and retried.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::runs::{Ended, FOREVER, Runs, SMALL, ended, works};

/// The command that trains the sweep `lr` of small runs of catch.
fn sweep(runs: &Runs, arguments: &[&str]) -> Command {
    let mut command = runs.meme(&["sweep", "lr", "--games", "catch", "--preset", "tiny"]);
    for setting in SMALL {
        command.args(["--set", setting]);
    }
    command.args(arguments);
    command
}

fn directory(runs: &Runs) -> PathBuf {
    runs.directory().join("lr")
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

/// State, frames and attempts of each run.
pub fn states(runs: &Runs, name: &str) -> Vec<(String, u64, u64)> {
    let status: Value =
        serde_json::from_str(&works(&mut runs.meme(&["sweep", "status", name, "--json"])).printed).unwrap();
    let runs = status["runs"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    runs.map(|run| (text(&run["state"]), run["frames"].as_u64().unwrap(), run["attempts"].as_u64().unwrap())).collect()
}

#[test]
fn sweep_trains_every_combination_and_skips_what_is_finished() {
    let runs = Runs::new();
    let file = runs.directory().join("axes.toml");
    fs::write(&file, "seeds = '3'\n[axes]\nlearner.batch_size = [4, 8]").unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["--file", file, "--frames", "400", "--jobs", "2"];
    let Ended { said, .. } = works(&mut sweep(&runs, &arguments));
    assert!(said.contains("sweep lr: 2 runs; about ") && said.contains(" of disk\n"), "{said}");
    assert!(said.ends_with("all 2 runs of sweep lr finished\n"), "{said}");
    let manifest = read(directory(&runs).join("sweep.json"));
    assert_eq!((&manifest["format"], &manifest["preset"]), (&1.into(), &"tiny".into()));
    for (run, batch_size) in manifest["runs"].as_array().unwrap().iter().zip([4, 8]) {
        let name = format!("catch-batch_size_{batch_size}-3");
        assert_eq!(run["name"], name);
        assert_eq!((&run["environment"], &run["seed"]), (&"catch".into(), &3.into()));
        assert_eq!(run["settings"]["learner.batch_size"], batch_size);
        let config = fs::read_to_string(directory(&runs).join(&name).join("config.toml")).unwrap();
        assert!(config.contains(&format!("batch_size = {batch_size}\n")), "{config}");
    }
    // Every command works on the runs of a sweep.
    let mut list = crate::runs::meme(&["runs", "--json", "--runs"]);
    let list: Value = serde_json::from_str(&works(list.arg(directory(&runs))).printed).unwrap();
    assert!(list.as_array().unwrap().iter().all(|run| run["state"] == "finished"), "{list}");

    // By its name alone.
    let before = fs::read_to_string(directory(&runs).join("logs/catch-batch_size_4-3.log")).unwrap();
    let Ended { said, .. } = works(&mut runs.meme(&["sweep", "lr"]));
    assert!(said.starts_with("sweep lr: 2 runs, 2 of them finished; "), "{said}");
    assert_eq!(fs::read_to_string(directory(&runs).join("logs/catch-batch_size_4-3.log")).unwrap(), before);

    // More seeds are added, fewer are refused.
    let Ended { said, .. } = works(&mut sweep(&runs, &[&arguments[..], &["--seeds", "3,5"]].concat()));
    assert!(said.contains("adding 2 runs to sweep lr\n"), "{said}");
    assert!(states(&runs, "lr").iter().all(|(state, ..)| state == "finished"));
    let Ended { status, said, .. } = ended(&mut sweep(&runs, &[&arguments[..], &["--seeds", "5"]].concat()));
    let refused = "error: sweep lr exists, and the sweep has a run catch-batch_size_4-3 that this command would not make; \
                   use its settings, or choose another name\n";
    assert_eq!((status.code(), said.as_str()), (Some(1), refused));
}

#[test]
fn stopped_sweep_saves_its_runs_and_resumes_them() {
    let runs = Runs::new();
    let long = ["--seeds", "1-2", "--jobs", "2", "--frames", FOREVER];
    let mut started = runs.start(&mut sweep(&runs, &long));
    let metrics = [1, 2].map(|seed| directory(&runs).join(format!("catch-{seed}/metrics.jsonl")));
    let played = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 0);
    started.wait_until("both runs play", || metrics.iter().all(played));
    started.send("INT");
    let Ended { status, said, .. } = started.end();
    assert_eq!(status.code(), Some(75), "{said}");
    assert!(said.ends_with("0 of 2 runs finished; run the same command to resume\n"), "{said}");
    let stopped = states(&runs, "lr");
    assert!(stopped.iter().all(|(state, frames, _)| state == "interrupted" && *frames > 0), "{stopped:?}");

    // A run killed with `kill -9` is retried, and resumes from its checkpoint.
    let mut started = runs.start(&mut sweep(&runs, &long));
    let owner = || {
        // It may be in the middle of being written.
        let lock: Value = serde_json::from_slice(&fs::read(directory(&runs).join("catch-1/lock")).ok()?).ok()?;
        Some(lock["pid"].as_u64()?.to_string())
    };
    let resumed = || fs::read_to_string(directory(&runs).join("logs/catch-1.log")).unwrap().contains("resuming from ");
    started.wait_until("the first run resumes", resumed);
    let victim = owner().unwrap();
    assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success());
    started.wait_until_said("catch-1 failed, trying again: killed by signal 9\n");
    started.wait_until("it is trained again", || owner().is_some_and(|pid| pid != victim));
    started.send("TERM");
    let Ended { status, said, .. } = started.end();
    assert_eq!(status.code(), Some(75), "{said}");
    let resumed = states(&runs, "lr");
    assert!(resumed.iter().zip(&stopped).all(|(now, before)| now.1 >= before.1), "{resumed:?} {stopped:?}");
    assert_eq!(resumed.iter().map(|run| run.2).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn runs_of_a_sweep_killed_with_kill_9_save_themselves_and_resume() {
    let runs = Runs::new();
    let log = || fs::read_to_string(directory(&runs).join("logs/catch-1.log")).unwrap_or_default();
    let mut started = runs.start(&mut sweep(&runs, &["--frames", FOREVER]));
    let metrics = directory(&runs).join("catch-1/metrics.jsonl");
    started.wait_until("the run plays", || fs::metadata(&metrics).is_ok_and(|file| file.len() > 0));
    started.kill();

    // The same command waits for the end of the process that saves the run, and then resumes it.
    let mut started = runs.start(&mut sweep(&runs, &["--frames", FOREVER]));
    started.wait_until("the run resumes", || log().contains("resuming from "));
    let stopped = log().find("run catch-1 stopped at ").unwrap_or_else(|| panic!("{}", log()));
    assert!(stopped < log().find("resuming from ").unwrap(), "{}", log());
    assert!(!log().contains("will be played again"), "{}", log());
    started.send("TERM");
    let Ended { status, said, .. } = started.end();
    assert_eq!(status.code(), Some(75), "{said}");
    let states = states(&runs, "lr");
    assert!(states.iter().all(|(state, frames, attempts)| state == "interrupted" && *frames > 0 && *attempts == 2));
}

#[test]
fn failure_is_retried_and_its_reason_is_shown() {
    let runs = Runs::new();
    // The name is taken by a directory that is not a run.
    fs::create_dir_all(directory(&runs).join("catch-2")).unwrap();
    fs::write(directory(&runs).join("catch-2/thesis.tex"), "").unwrap();
    let arguments = ["--seeds", "1-2", "--frames", "400", "--retries", "1"];
    let Ended { status, said, .. } = ended(&mut sweep(&runs, &arguments));
    let reason = format!(
        "{}/catch-2 is not a run: it contains `thesis.tex` but no run.json; use another --name",
        directory(&runs).display()
    );
    assert!(said.contains(&format!("warning: catch-2 failed, trying again: {reason}\n")), "{said}");
    let last =
        format!("error: 1 of 2 runs of sweep lr failed (catch-2: {reason}); run the same command to try them again\n");
    assert!(said.ends_with(&last), "{said}");
    assert_eq!(status.code(), Some(1));
    let table = works(&mut runs.meme(&["sweep", "status", "lr"])).printed;
    assert!(
        table.ends_with(&format!("2 runs: 1 finished, 1 failed\ncatch-2 failed after 2 attempts: {reason}\n")),
        "{table}"
    );

    fs::remove_dir_all(directory(&runs).join("catch-2")).unwrap();
    works(&mut sweep(&runs, &arguments));
    assert_eq!(states(&runs, "lr").iter().filter(|(state, ..)| state == "finished").count(), 2);
}

#[test]
fn another_directory_of_the_same_name_is_noticed() {
    let runs = Runs::new();
    works(&mut sweep(&runs, &["--frames", "200"]));
    let Ended { status, said, .. } = ended(&mut runs.meme(&["sweep", "run", "lr", "0", "--id", "another"]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("the runs must be on a file system that all nodes share"), "{said}");
    let Ended { said, .. } = ended(&mut runs.meme(&["sweep", "run", "lost", "0", "--id", "another"]));
    assert!(said.contains("the runs must be on a file system that all nodes share"), "{said}");
}
