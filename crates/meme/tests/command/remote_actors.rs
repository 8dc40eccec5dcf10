//! Actors on other machines, as processes: killed, stopped and found again.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

use crate::runs::{FOREVER, Runs, SMALL, Started, fails, meme, works};

const LONG: Duration = Duration::from_secs(120);

/// A process that is killed when dropped.
struct Actors(Child);

impl Actors {
    fn start(runs: &Runs, address: &str, number: usize) -> Self {
        let log = File::create(runs.directory().with_file_name(format!("actors-{number}"))).unwrap();
        let mut command = meme(&["actors", "--connect", address, "--environments", "2"]);
        Self(command.stderr(log).stdout(Stdio::null()).spawn().unwrap())
    }

    fn send(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn wait(&mut self) -> std::process::ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < LONG, "the actors do not end");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Actors {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn learner(runs: &Runs, address: &str, frames: &str) -> Started {
    let arguments = ["--actors-listen", address, "--remote-environments", "8", "--frames", frames];
    let often = ["--set", "checkpoint.every_minutes=0.01"];
    runs.start(&mut runs.train(&[&arguments[..], &often].concat()))
}

/// The last value of a metric.
fn metric(runs: &Runs, name: &str) -> f64 {
    let text = fs::read_to_string(runs.file("metrics.jsonl")).unwrap_or_default();
    let rows = text.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    rows.into_iter().find_map(|row| row.get(name).and_then(serde_json::Value::as_f64)).unwrap_or(0.0)
}

fn log(runs: &Runs, number: usize) -> String {
    fs::read_to_string(runs.directory().with_file_name(format!("actors-{number}"))).unwrap()
}

#[test]
fn killed_and_stopped_actors_lose_only_their_episodes() {
    let runs = Runs::new();
    let address = format!("127.0.0.1:{}", free_port());
    let mut learner = learner(&runs, &address, FOREVER);
    learner.wait_until_said("accepting actors: meme actors --connect 127.0.0.1:");
    let victim = Actors::start(&runs, &address, 0);
    let mut frozen = Actors::start(&runs, &address, 1);
    learner.wait_until("both play", || metric(&runs, "remote/environments") == 4.0);
    victim.send("KILL");
    learner.wait_until_said("left with 2 environments; its running episodes are abandoned");
    frozen.send("STOP");
    // Training and saving go on meanwhile, and its places are free soon.
    let frames = runs.rows().last().copied().unwrap_or(0);
    learner.wait_until("local actors play on", || runs.rows().last().is_some_and(|&now| now > frames + 200));
    learner.wait_until("the frozen one is noticed", || metric(&runs, "remote/environments") == 0.0);
    frozen.send("CONT");
    learner.wait_until("it is back", || metric(&runs, "remote/environments") == 2.0);
    assert_eq!(metric(&runs, "remote/refused"), 0.0);

    // A learner killed with `kill -9` is found again after it resumes.
    learner.kill();
    let mut learner = self::learner(&runs, &address, FOREVER);
    learner.wait_until("the actors are back", || {
        metric(&runs, "remote/environments") == 2.0 && learner_has_resumed(&runs)
    });
    learner.send("INT");
    assert!(learner.end().status.success());
    // When the frames are played, the actors end too. There are enough for them to find the learner again.
    let before = runs.rows().last().copied().unwrap();
    let played = before + 10_000;
    let mut learner = self::learner(&runs, &address, &played.to_string());
    learner.wait_until_said("joined with 2 environments");
    // A busy machine may take minutes for all of them.
    for frames in (before..played).step_by(2000) {
        learner.wait_until("it plays on", || runs.rows().last().is_some_and(|&now| now >= frames));
    }
    assert!(learner.end().status.success());
    assert!(frozen.wait().success(), "{}", log(&runs, 1));
    assert!(log(&runs, 1).ends_with("the run is finished\n"), "{}", log(&runs, 1));
}

fn learner_has_resumed(runs: &Runs) -> bool {
    let said = fs::read_to_string(runs.directory().with_file_name("said")).unwrap_or_default();
    said.contains("resuming from ")
}

/// The environment workers of a process.
fn workers(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children: String =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    children.split_whitespace().map(|process| process.parse().unwrap()).collect()
}

/// Kills any process of a distributed run at random moments, environment workers too: it always finishes.
#[test]
fn run_finishes_whatever_is_killed() {
    let kills = if std::env::var_os("MEME_TEST_ALL").is_some() { 50 } else { 4 };
    let runs = Runs::new();
    let address = format!("127.0.0.1:{}", free_port());
    let train = |frames: &str| {
        let mut command = runs.meme(&["train", "pong", "--preset", "cpu", "--name", "run", "--frames", frames]);
        command.args(["--actors-listen", &address, "--remote-environments", "8"]);
        for setting in SMALL.into_iter().chain(["learner.batch_size=4", "checkpoint.every_minutes=0.01"]) {
            command.args(["--set", setting]);
        }
        runs.start(&mut command)
    };
    let mut random = agent::Random::seed_from_u64(3);
    let mut learner = train(FOREVER);
    let mut actors: Vec<Actors> = (0..2).map(|number| Actors::start(&runs, &address, number)).collect();
    let mut victims = [0; 3];
    for number in 0..kills {
        sleep(Duration::from_millis(random.random_range(200..2500)));
        let roots = [learner.id(), actors[0].0.id(), actors[1].0.id()];
        let processes: Vec<u32> = roots.into_iter().chain(roots.into_iter().flat_map(workers)).collect();
        match random.random_range(0..processes.len()) {
            0 => {
                learner.kill();
                learner = train(FOREVER);
                victims[0] += 1;
            }
            actor @ 1..=2 => {
                actors[actor - 1] = Actors::start(&runs, &address, 2 + number);
                victims[1] += 1;
            }
            worker => {
                // It may have ended by itself.
                let _ = Command::new("kill").args(["-9", &processes[worker].to_string()]).status().unwrap();
                victims[2] += 1;
            }
        }
        if !learner.is_running() {
            learner = train(FOREVER);
        }
    }
    println!("killed {} learners, {} actors and {} environment workers", victims[0], victims[1], victims[2]);
    learner.kill();
    // However it was interrupted, the same command finishes it.
    let frames = runs.rows().last().copied().unwrap_or(0) + 500;
    let ended = train(&frames.to_string()).end();
    assert!(ended.status.success(), "{}", ended.said);
    assert!(runs.rows().last().is_some_and(|&last| last >= frames));
}

#[test]
fn options_about_other_machines_are_checked() {
    let runs = Runs::new();
    let refused = |arguments: &[&str]| fails(&mut runs.train(arguments));
    assert_eq!(
        refused(&["--actors-listen", "nowhere"]),
        "error: invalid value \"nowhere\" for --actors-listen: expected ADDRESS:PORT"
    );
    assert_eq!(
        refused(&["--actors-listen", "127.0.0.1:0", "--set", "run.lockstep=true"]),
        "error: run.lockstep is true, which is repeatable only without --actors-listen"
    );
    assert_eq!(
        refused(&["--set", "actors.environments=0"]),
        "error: actors.environments is 0, so the run needs actors on other machines; add --actors-listen"
    );
    assert_eq!(fails(&mut meme(&["actors", "--connect", "learner"])), "error: expected HOST:PORT, got \"learner\"");
    let token = runs.directory().join("token");
    fs::write(&token, "0123456789abcdef0123").unwrap();
    let token = token.to_str().unwrap();
    assert_eq!(
        fails(&mut meme(&["actors", "--connect", "learner:1", "--token-file", token])),
        "error: the token would cross the network as plain text; add --fingerprint or --ca"
    );
    assert!(!Path::new(&runs.file("run.json")).exists());
    // An open address makes a token and a certificate, and prints what actors need.
    let ended = works(&mut runs.train(&["--actors-listen", "0.0.0.0:0", "--frames", "200"]));
    assert!(ended.said.contains("/run/remote/token --fingerprint "), "{}", ended.said);
}
