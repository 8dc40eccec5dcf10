//! Actors on other machines, as processes: killed, stopped and found again.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

use crate::runs::{FOREVER, Runs, Started, fails, meme, works};

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
    let played = runs.rows().last().copied().unwrap() + 10_000;
    let mut learner = self::learner(&runs, &address, &played.to_string());
    learner.wait_until_said("joined with 2 environments");
    assert!(learner.end().status.success());
    assert!(frozen.wait().success(), "{}", log(&runs, 1));
    assert!(log(&runs, 1).ends_with("the run is finished\n"), "{}", log(&runs, 1));
}

fn learner_has_resumed(runs: &Runs) -> bool {
    let said = fs::read_to_string(runs.directory().with_file_name("said")).unwrap_or_default();
    said.contains("resuming from ")
}

/// Kills any process of a distributed run at random moments: it always finishes.
#[test]
fn run_finishes_whatever_is_killed() {
    let kills = if std::env::var_os("MEME_TEST_ALL").is_some() { 50 } else { 4 };
    let runs = Runs::new();
    let address = format!("127.0.0.1:{}", free_port());
    let frames = (2000 + 500 * kills).to_string();
    let mut random = agent::Random::seed_from_u64(3);
    let mut learner = Some(self::learner(&runs, &address, &frames));
    let mut actors: Vec<Actors> = (0..2).map(|number| Actors::start(&runs, &address, number)).collect();
    let mut started = 2;
    for _ in 0..kills {
        sleep(Duration::from_millis(random.random_range(200..2500)));
        match random.random_range(0..3) {
            0 => {
                if let Some(learner) = learner.take() {
                    learner.kill();
                }
                learner = Some(self::learner(&runs, &address, &frames));
            }
            number => {
                let place = number - 1;
                actors[place].send("KILL");
                let _ = actors[place].0.wait();
                actors[place] = Actors::start(&runs, &address, started);
                started += 1;
            }
        }
    }
    // However it was interrupted, the same command finishes it.
    let begun = Instant::now();
    while begun.elapsed() < 5 * LONG {
        let ended = learner.take().unwrap().end();
        if ended.status.success() {
            break;
        }
        learner = Some(self::learner(&runs, &address, &frames));
    }
    let played: u64 = frames.parse().unwrap();
    assert!(runs.rows().last().is_some_and(|&last| last >= played));
    for actor in &mut actors {
        // Those that were connected learn that it is finished; others look for it until they are stopped.
        if actor.0.try_wait().unwrap().is_none() {
            sleep(Duration::from_secs(1));
            let _ = actor.0.kill();
        }
    }
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
