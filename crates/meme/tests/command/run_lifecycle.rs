//! The life of a run: it is stopped, resumed and finished, and no mistaken command loses it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::runs::{Ended, FOREVER, Runs, Started, ended, fails, works};

/// Trains to the end, which must succeed.
fn trains(runs: &Runs, arguments: &[&str]) -> Ended {
    works(&mut runs.train(arguments))
}

/// The error of a training command that must be rejected without changing any file.
fn refuses(runs: &Runs, arguments: &[&str]) -> String {
    let before = files(runs);
    let sentence = fails(&mut runs.train(arguments));
    assert_eq!(files(runs), before, "{sentence}");
    sentence
}

fn start(runs: &Runs, arguments: &[&str]) -> Started {
    runs.start(&mut runs.train(arguments))
}

/// All files of all runs with their contents, except the locks, which every start writes.
fn files(runs: &Runs) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    collect(runs.directory(), &mut files);
    files
}

fn collect(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if !path.ends_with("lock") {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

/// The checkpoints that a run can resume from.
fn numbered(runs: &Runs) -> Vec<PathBuf> {
    let names = fs::read_dir(runs.file("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.file_name().unwrap().as_encoded_bytes().iter().all(u8::is_ascii_digit)).collect()
}

#[test]
fn run_without_its_checkpoints_is_not_started_over() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "800"]);
    assert!(runs.file("checkpoints/best").exists());
    let kept = numbered(&runs);
    assert!(!kept.is_empty());
    fs::create_dir(runs.file("kept")).unwrap();
    let aside = |path: &PathBuf| runs.file("kept").join(path.file_name().unwrap());
    kept.iter().for_each(|path| fs::rename(path, aside(path)).unwrap());
    let directory = runs.file("checkpoints").display().to_string();
    let gone = format!("error: the run was saved before, but {directory} has no checkpoint to resume from");
    let start_over = "`meme train --fresh` moves the run aside and starts over";
    for arguments in [&["--frames", "800"][..], &["--frames", "1600", "--set", "learner.batch_size=4"]] {
        assert_eq!(
            refuses(&runs, arguments),
            format!(
                "{gone}, only `best`, which can be played but not resumed from; put them back, or play the best with \
                 `--checkpoint best`; {start_over}"
            )
        );
    }
    fs::rename(runs.file("checkpoints"), runs.file("elsewhere")).unwrap();
    assert_eq!(refuses(&runs, &["--frames", "1600"]), format!("{gone}; put them back; {start_over}"));

    // Both remedies work.
    fs::remove_dir(runs.file("checkpoints")).unwrap();
    fs::rename(runs.file("elsewhere"), runs.file("checkpoints")).unwrap();
    kept.iter().for_each(|path| fs::rename(aside(path), path).unwrap());
    let Ended { said, .. } = trains(&runs, &["--frames", "1200"]);
    assert!(said.contains("resuming from "), "{said}");
    fs::remove_dir_all(runs.file("checkpoints")).unwrap();
    let Ended { said, .. } = trains(&runs, &["--frames", "200", "--fresh"]);
    assert!(said.contains("starting run run over; the previous one was moved to "), "{said}");
}

#[test]
fn damaged_checkpoint_is_reported_with_the_damage_and_its_replacement() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "60"]);
    trains(&runs, &["--frames", &runs.budget(200)]);
    let mut saved = numbered(&runs);
    saved.sort();
    let [older, newest] = &saved[..] else { panic!("{saved:?}") };
    fs::write(newest.join("weights.safetensors"), "").unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let (damaged, instead) = (newest.display(), format!("using {} instead\n", name(older)));
    let how = format!("checkpoint {damaged} is damaged: its weights.safetensors has 0 bytes instead of ");
    let Ended { said, .. } = works(&mut runs.meme(&["eval", "run", "--episodes", "1"]));
    assert!(said.contains(&how) && said.contains(&format!("; {instead}")), "{said}");
    let Ended { said, .. } = trains(&runs, &["--frames", &runs.budget(200)]);
    let renamed = format!("; renamed it to {}.damaged, {instead}", name(newest));
    assert!(said.contains(&how) && said.contains(&renamed), "{said}");
}

/// Damage most likely hits replay, by far the largest part of a checkpoint.
#[test]
fn run_with_only_damaged_checkpoints_is_rejected_before_it_resumes() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "60"]);
    let saved = numbered(&runs);
    let [path] = &saved[..] else { panic!("{saved:?}") };
    let replay = path.join("replay.bin");
    let mut bytes = fs::read(&replay).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&replay, bytes).unwrap();
    let before = files(&runs);
    let Ended { status, said, .. } = ended(&mut runs.train(&["--frames", &runs.budget(200)]));
    let (path, directory) = (path.display(), runs.file("checkpoints"));
    let expected = format!(
        "warning: checkpoint {path} is damaged: the hash of its replay.bin is wrong\n\
         error: none of the 1 checkpoints in {} can be used; `meme train --fresh` moves the run aside and starts over\n",
        directory.display()
    );
    let best =
        said.replace(", only `best`, which can be played but not resumed from; `--checkpoint best` plays it", "");
    assert_eq!((status.code(), best), (Some(1), expected));
    assert_eq!(files(&runs), before);
}

#[test]
fn damaged_best_checkpoint_is_reported_and_replaced_by_the_next_evaluation() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "800"]);
    let best = runs.file("checkpoints/best");
    let weights = best.join("weights.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let mut process = start(&runs, &["--frames", FOREVER]);
    process.wait_until_said(&format!(
        "checkpoint {} is damaged: the hash of its weights.safetensors is wrong; renamed it to best.damaged, the \
         next evaluation replaces it\n",
        best.display()
    ));
    process.wait_until("a best checkpoint", || best.exists());
    process.send("INT");
    assert!(process.end().status.success());
    assert!(runs.checkpoints().best().unwrap().is_some());
    assert_eq!(fs::read(runs.file("checkpoints/best.damaged/weights.safetensors")).unwrap(), bytes);
}

/// A run that is killed before its first save cannot resume, even with metrics and a best checkpoint.
#[test]
fn run_killed_before_its_first_save_starts_again() {
    let runs = Runs::new();
    let arguments = ["--frames", FOREVER];
    // The best parameters of the first attempt are kept.
    for kept in ["best", "best.1"] {
        let mut process = start(&runs, &arguments);
        let is_there = |name| runs.file(&format!("checkpoints/{name}")).exists();
        process.wait_until("a best checkpoint", || !runs.rows().is_empty() && is_there(kept) && is_there("best"));
        process.kill();
        assert_eq!(numbered(&runs), Vec::<PathBuf>::new());
    }

    // With other settings it would lose its best checkpoint, if it has one.
    let other = ["--frames", "60", "--set", "learner.batch_size=4"];
    assert!(refuses(&runs, &other).contains("learner.batch_size was 16 and is now 4"));
    fs::remove_dir_all(runs.file("checkpoints/best")).unwrap();
    let played = *runs.rows().last().unwrap();
    let Ended { said, .. } = trains(&runs, &other);
    assert!(said.starts_with("run run has no checkpoint; starting again in "), "{said}");
    assert!(said.contains(&format!("about {played} frames were never saved and will be played again\n")), "{said}");
    assert!(fs::read_to_string(runs.file("config.toml")).unwrap().contains("batch_size = 4"));

    // A process killed right after a save may not have noted it yet.
    let saving = ["--frames", FOREVER, "--set", "checkpoint.every_minutes=0.005"];
    let Ended { said, .. } = trains(&runs, &["--fresh", "--frames", "60", "--set", "checkpoint.every_minutes=0.005"]);
    assert!(said.contains("starting run run over; the previous one was moved to "), "{said}");
    let description = fs::read_to_string(runs.file("run.json")).unwrap();
    fs::write(runs.file("run.json"), description.replace("\"saved\": true", "\"saved\": false")).unwrap();
    let mut process = start(&runs, &saving);
    process.wait_until("it resumes", || fs::read_to_string(runs.file("run.json")).unwrap().contains("\"saved\": true"));
    process.kill();
}

#[test]
fn best_checkpoint_of_an_unsaved_attempt_is_set_aside() {
    let runs = Runs::new();
    let best = runs.file("checkpoints/best");
    let mut process = start(&runs, &["--frames", FOREVER]);
    process.wait_until("a best checkpoint", || best.exists());
    process.kill();
    assert!(numbered(&runs).is_empty());
    let weights = |name| fs::read(runs.file(&format!("checkpoints/{name}/weights.safetensors"))).unwrap();
    let unsaved = weights("best");
    trains(&runs, &["--frames", "20"]);
    assert!(weights("best.1") == unsaved);

    // The best checkpoint of a saved attempt stays.
    for _ in 0..2 {
        trains(&runs, &["--frames", &runs.budget(800)]);
        assert!(best.exists() && !runs.file("checkpoints/best.2").exists());
    }
}

#[test]
fn finished_run_is_reported_and_left_unchanged() {
    let runs = Runs::new();
    let Ended { said, printed, .. } = trains(&runs, &["--frames", "400", "--json"]);
    let first: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(first["ended"], "finished");
    let (frames, updates) = (first["frames"].as_u64().unwrap(), first["updates"].as_u64().unwrap());
    let sentence = |budget: u64| {
        let root = runs.directory().display();
        format!(
            "run run finished at {frames} of {budget} frames and {updates} updates, saved in {root}/run; evaluate it \
             with `meme eval run --runs {root}`, or train longer with a higher --frames\n"
        )
    };
    assert!(said.ends_with(&sentence(400)), "{said}");
    assert_eq!(runs.rows().last(), Some(&frames), "the last row is written at the end");

    let before = files(&runs);
    for _ in 0..2 {
        let Ended { said, printed, .. } = trains(&runs, &["--frames", "400", "--json"]);
        assert_eq!(said, sentence(400));
        let mut again: Value = serde_json::from_str(&printed).unwrap();
        for speed in ["frames_per_second", "updates_per_second"] {
            assert_eq!(again[speed].take(), 0.0);
            again[speed] = first[speed].clone();
        }
        assert_eq!(again, first);
    }
    let Ended { printed, .. } = trains(&runs, &["--frames", "400"]);
    assert!(printed.starts_with(&format!("run: {frames} frames (")), "{printed}");
    // As many as happen to be played are enough too.
    assert_eq!(trains(&runs, &["--frames", &frames.to_string()]).said, sentence(frames));
    assert_eq!(files(&runs), before);

    let more = (frames + 400).to_string();
    let Ended { said, printed, .. } = trains(&runs, &["--frames", &more, "--json"]);
    assert!(said.contains(&format!(
        "resuming run run in {}/run, up to {more} frames instead of 400\n",
        runs.directory().display()
    )));
    assert!(serde_json::from_str::<Value>(&printed).unwrap()["frames"].as_u64().unwrap() >= frames + 400);
}

/// Its newest checkpoint is from its former end, but more has been played since.
#[test]
fn extended_run_that_is_killed_is_cut_off() {
    let runs = Runs::new();
    let listed = || works(&mut runs.meme(&["runs"])).printed;
    trains(&runs, &["--frames", "60"]);
    assert!(listed().contains("  finished  "), "{}", listed());
    let (ended, saved) = (*runs.rows().last().unwrap(), numbered(&runs));
    let mut process = start(&runs, &["--frames", FOREVER]);
    process.wait_until("a row", || runs.rows().last() > Some(&ended));
    process.kill();
    assert_eq!(numbered(&runs), saved);
    assert!(listed().contains("  cut off  "), "{}", listed());
}

#[test]
fn frame_budget_may_shrink_to_more_than_what_is_played() {
    let runs = Runs::new();
    let mut process = start(&runs, &["--frames", FOREVER]);
    process.wait_until("a row", || runs.rows().last() > Some(&100));
    process.send("INT");
    assert!(process.end().status.success());
    let played = *runs.rows().last().unwrap();
    assert_eq!(
        refuses(&runs, &["--frames", "100"]),
        format!(
            "error: run run has played {played} frames already, so it cannot end at 100; use a higher --frames to \
             train longer"
        )
    );
    let fewer = (played + 100).to_string();
    let Ended { said, .. } = trains(&runs, &["--frames", &fewer]);
    assert!(said.contains(&format!(", up to {fewer} frames instead of {FOREVER}\n")), "{said}");
    assert!(fs::read_to_string(runs.file("config.toml.1")).unwrap().contains("frames = 1_000_000_000"));
    assert!(refuses(&runs, &["--frames", "100"]).contains("so it cannot end at 100"));
}

#[test]
fn stop_is_acknowledged_and_the_end_is_reported_and_measured() {
    let runs = Runs::new();
    // No row is written during training.
    let mut process = start(&runs, &["--frames", FOREVER, "--json", "--set", "metrics.interval_seconds=3600"]);
    process.wait_until("it trains", || runs.file("metrics.jsonl").exists());
    // Saves once something was played.
    process.send("USR1");
    process.wait_until_said("saving a checkpoint because of SIGUSR1");
    process.send("INT");
    let Ended { status, said, printed } = process.end();
    assert!(status.success(), "{said}");
    let end: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(end["ended"], "stopped");
    assert_eq!((&end["name"], &end["directory"]), (&"run".into(), &runs.directory().join("run").to_str().into()));
    let (frames, updates) = (end["frames"].as_u64().unwrap(), end["updates"].as_u64().unwrap());
    let directory = runs.directory().join("run");
    let stopping = "stopping; saving the run first (press Ctrl-C again to quit without saving)\n";
    assert_eq!(said.matches(stopping).count(), 1, "{said}");
    // A busy machine may not get that far.
    let unlearned = if updates == 0 { "; nothing was learned yet, because replay holds too few sequences" } else { "" };
    let end = format!(
        "run run stopped at {frames} of {FOREVER} frames and {updates} updates, saved in {}; `meme train \
         --resume run --runs {}` resumes it{unlearned}\n",
        directory.display(),
        runs.directory().display()
    );
    assert!(said.ends_with(&end), "{said}");
    assert_eq!(runs.rows(), [frames]);
    assert_eq!(runs.checkpoints().list().unwrap().last(), Some(&frames));
}

#[test]
fn changed_settings_are_named_and_rejected() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "60"]);
    assert_eq!(
        refuses(
            &runs,
            &["--frames", &runs.budget(200), "--set", "learner.batch_size=4", "--set", "env.hide_rewards=true"]
        ),
        "error: run run was started with other settings: env.hide_rewards was false and is now true (its replay \
         was played otherwise), learner.batch_size was 16 and is now 4 (its learning rate belongs to it); leave them \
         as they were, give this run another --name, or use --fresh to move the old run aside and start over"
    );
}

#[test]
fn run_resumes_by_name_with_its_settings_and_records_changes() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "60", "--set", "learner.batch_size=8"]);
    let resumed = |arguments: &[&str]| works(&mut runs.meme(&[&["train", "--resume", "run"], arguments].concat())).said;
    let more = runs.budget(60);
    let said = resumed(&["--frames", &more, "--set", "agent.optimizer.learning_rate=0.002"]);
    let changed =
        format!(", up to {more} frames instead of 60; changed: agent.optimizer.learning_rate 0.001 -> 0.002\n");
    assert!(said.contains(&changed), "{said}");
    assert!(resumed(&[]).starts_with("run run finished at "));
    let history = fs::read_to_string(runs.file("history.jsonl")).unwrap();
    let lines: Vec<Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["event"], &lines[1]["event"], lines.len()), (&"started".into(), &"resumed".into(), 2));
    let change = &lines[1]["changes"][1];
    assert_eq!((&change["field"], &change["now"]), (&"agent.optimizer.learning_rate".into(), &0.002.into()));
    let config = fs::read_to_string(runs.file("config.toml")).unwrap();
    assert!(config.contains("batch_size = 8") && config.contains("learning_rate = 0.002"), "{config}");
    assert!(refuses(&runs, &["--set", "agent.network.core=64"]).contains("(its weights have this shape)"));
}

#[test]
fn new_run_starts_from_the_weights_of_another() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "800"]);
    let from = |arguments: &[&str]| {
        let mut command = runs.meme(&[&["train", "catch", "--preset", "tiny", "--frames", "60"], arguments].concat());
        ended(command.args(["--set", "run.device=cpu"]))
    };
    for (name, source) in [("best", "run@best"), ("last", "run")] {
        let Ended { status, said, .. } = from(&["--name", name, "--from", source, "--set", "agent.network.core=64"]);
        assert!(status.success() && said.contains(" parts; the others are new: "), "{said}");
        assert!(said.contains("lstm.weight_hh is F32 [512, 128], not F32 [256, 64]"), "{said}");
        let history = fs::read_to_string(runs.directory().join(name).join("history.jsonl")).unwrap();
        assert!(history.contains(&format!("\"from\":\"run@{name}\"")), "{history}");
    }
    let Ended { said, printed, .. } = from(&["--name", "whole", "--from", "run", "--with-replay", "--json"]);
    assert!(said.contains("starting from the other run's weights, all "), "{said}");
    let (end, source): (Value, u64) = (serde_json::from_str(&printed).unwrap(), 800 / 10 / 2);
    assert!(end["sequences"].as_u64().unwrap() > source, "{end}");
    let Ended { status, said, .. } = from(&["--name", "none", "--from", "run@best", "--with-replay"]);
    assert!(!status.success() && said.contains("`best` has no replay"), "{said}");
}

#[test]
fn removed_files_are_written_again() {
    let runs = Runs::new();
    let mut process = start(&runs, &["--frames", FOREVER, "--set", "metrics.interval_seconds=0.1"]);
    process.wait_until("rows", || runs.rows().len() > 2);
    process.send("USR1");
    process.wait_until("a checkpoint", || !numbered(&runs).is_empty());
    let history = fs::read_to_string(runs.file("history.jsonl")).unwrap();
    // Renamed first, as nothing can be removed while files are added to it.
    let removed = runs.directory().join("removed");
    fs::rename(runs.directory().join("run"), &removed).unwrap();
    fs::remove_dir_all(&removed).unwrap();
    process.wait_until("metrics", || runs.file("metrics.jsonl").exists());
    process.send("INT");
    let Ended { status, said, .. } = process.end();
    assert!(status.success(), "{said}");
    for file in ["config.toml", "run.json", "history.jsonl"] {
        assert!(said.contains(&format!("warning: {file} was removed during training; wrote it again\n")), "{said}");
    }
    assert!(
        said.contains("warning: the checkpoints directory was removed during training; earlier checkpoints are lost\n"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(runs.file("history.jsonl")).unwrap(), history);
    let log = fs::read_to_string(runs.file("log.txt")).unwrap();
    assert!(log.contains("log.txt was removed during training; earlier messages are lost\n"), "{log}");
    assert!(runs.rows().len() > 3);
    let more = runs.budget(100);
    let Ended { said, .. } = works(&mut runs.meme(&["train", "--resume", "run", "--frames", &more]));
    assert!(said.contains("resuming from "), "{said}");
}

#[test]
fn missing_or_damaged_description_is_reported_alike_by_every_command() {
    let runs = Runs::new();
    trains(&runs, &["--frames", "60"]);
    let path = runs.file("run.json");
    let whole = fs::read(&path).unwrap();
    let expected = |what: &str| {
        let path = path.display();
        format!("error: {path} is {what}: restore it, or write it again as docs/runs.md shows")
    };
    let says = |expected: String| {
        for arguments in [&["--frames", "60"][..], &["--frames", "100"]] {
            assert_eq!(refuses(&runs, arguments), expected);
        }
        for command in [&["eval", "run"][..], &["record", "run"], &["plot", "run"], &["config", "show", "run"]] {
            assert_eq!(fails(&mut runs.meme(command)), expected, "{command:?}");
        }
    };
    // `meme runs` warns about it.
    let is_listed = |sentence: String| {
        let Ended { said, printed, .. } = works(&mut runs.meme(&["runs"]));
        let (_, reason) = sentence.split_once("error: ").unwrap();
        assert_eq!(said, format!("warning: skipped run run: {reason}\n"));
        assert_eq!(printed.lines().count(), 1, "{printed}");
    };
    fs::remove_file(&path).unwrap();
    says(expected("missing"));
    is_listed(expected("missing"));
    fs::write(&path, "{").unwrap();
    let damaged = "damaged (EOF while parsing an object at line 1 column 1)";
    says(expected(damaged));
    is_listed(expected(damaged));
    fs::write(&path, whole).unwrap();
    trains(&runs, &["--frames", "100"]);
}

#[test]
fn failed_start_leaves_nothing_behind() {
    let runs = Runs::new();
    let mut gym = runs.meme(&["train", "gym:NoSuch-v0", "--preset", "tiny", "--name", "run"]);
    let Ended { status, said, .. } = ended(&mut gym);
    assert!(!status.success() && said.contains("gym:NoSuch-v0 cannot be used"), "{said}");
    assert_eq!(fs::read_dir(runs.directory()).unwrap().count(), 0, "{said}");

    // A run that --fresh had moved aside is back.
    trains(&runs, &["--frames", "60"]);
    let before = files(&runs);
    let Ended { status, said, .. } = ended(gym.arg("--fresh"));
    assert!(!status.success() && said.contains("gym:NoSuch-v0 cannot be used"), "{said}");
    assert_eq!(files(&runs), before);
    assert_eq!(fs::read_dir(runs.directory()).unwrap().count(), 1);
    trains(&runs, &["--frames", "60"]);
}
