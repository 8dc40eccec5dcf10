//! Runs many environments for a long time, kills a worker now and then, and checks that only that worker's episodes are
//! lost; prints the memory in use.
//!
//! `cargo run --release -p envs --example soak -- --game pong --envs 128 --seconds 300 --kill-every 10`

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use envs::{Ending, Environments, WorkerConfig, WorkerEnvironments};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

struct Options {
    game: String,
    envs: usize,
    workers: usize,
    seconds: u64,
    kill_every: u64,
}

/// Counts of one worker.
#[derive(Default)]
struct Seen {
    process: AtomicU32,
    /// How often this program killed it.
    kills: AtomicU64,
    steps: AtomicU64,
    ended: AtomicU64,
    cut_off: AtomicU64,
    faults: AtomicU64,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut given = HashMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        given.insert(name, value);
    }
    let game = given.remove("--game").unwrap_or_else(|| "pong".to_owned());
    let mut number = |name: &str, default: u64| match given.remove(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{name} must be an integer, got {text}")),
    };
    let (envs, workers) = (number("--envs", 128)? as usize, number("--workers", 16)? as usize);
    let (seconds, kill_every) = (number("--seconds", 300)?, number("--kill-every", 10)?);
    if let Some(name) = given.keys().next() {
        return Err(format!("unknown option {name}, expected --game, --envs, --workers, --seconds or --kill-every"));
    }
    if workers == 0 || envs % (2 * workers) != 0 || envs == 0 {
        return Err(format!("--envs {envs} must be a multiple of two groups in each of --workers {workers}"));
    }
    Ok(Options { game, envs, workers, seconds, kill_every })
}

fn run(options: &Options) -> Result<(), String> {
    let seen: Vec<Seen> = (0..options.workers).map(|_| Seen::default()).collect();
    let deadline = Instant::now() + Duration::from_secs(options.seconds);
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.workers)
            .map(|worker| {
                let seen = &seen[worker];
                scope.spawn(move || play(options, worker, seen, deadline))
            })
            .collect();
        watch(options, &seen, deadline);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
            .collect()
    });
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    check(options, &seen)
}

/// Plays one worker's environments with random actions, one group while the other waits.
fn play(options: &Options, worker: usize, seen: &Seen, deadline: Instant) -> Result<(), String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = std::env::var_os("MEME_PYTHON").map_or_else(|| workspace.join(".venv/bin/python"), Into::into);
    let environment = options.game.parse().map_err(|error| format!("{error}"))?;
    let mut config = WorkerConfig::new(environment, python, workspace.join("python/meme_worker"));
    config.environments = options.envs / options.workers;
    config.groups = 2;
    config.first_index = (worker * config.environments) as u64;
    let mut envs = WorkerEnvironments::new(config).map_err(|error| error.to_string())?;
    envs.reset().map_err(|error| error.to_string())?;
    let (actions, size) = (envs.spec().actions(), envs.group_size());
    let mut observation = vec![0; envs.spec().observation_bytes()];
    let mut random = SplitMix64::seed_from_u64(worker as u64);
    let mut choose = || (0..size).map(|_| random.random_range(0..actions)).collect::<Vec<_>>();
    let mut finish = |envs: &mut WorkerEnvironments, group: usize| -> Result<(), String> {
        for step in envs.finish(group).map_err(|error| error.to_string())? {
            seen.steps.fetch_add(1, Ordering::Relaxed);
            match step.end.map(|end| end.ending) {
                Some(Ending::CutOff) => seen.cut_off.fetch_add(1, Ordering::Relaxed),
                Some(_) => seen.ended.fetch_add(1, Ordering::Relaxed),
                None => 0,
            };
        }
        for env in 0..size {
            envs.observation(group, env, &mut observation);
        }
        for fault in envs.take_faults() {
            seen.faults.fetch_add(1, Ordering::Relaxed);
            println!("worker {worker}: {fault}");
        }
        Ok(())
    };
    envs.start(0, &choose()).map_err(|error| error.to_string())?;
    for group in [1, 0].into_iter().cycle() {
        seen.process.store(envs.worker_process().unwrap_or_default(), Ordering::Relaxed);
        envs.start(group, &choose()).map_err(|error| error.to_string())?;
        finish(&mut envs, 1 - group)?;
        if Instant::now() >= deadline {
            finish(&mut envs, group)?;
            break;
        }
    }
    // One more step of each group counts a loss that only the other group has noticed.
    for group in 0..2 {
        envs.start(group, &choose()).map_err(|error| error.to_string())?;
        finish(&mut envs, group)?;
    }
    Ok(())
}

/// Kills a random worker now and then, and prints the memory in use.
fn watch(options: &Options, seen: &[Seen], deadline: Instant) {
    let begin = Instant::now();
    let mut random = SplitMix64::seed_from_u64(1);
    let mut next_kill = begin + Duration::from_secs(options.kill_every);
    let mut next_line = begin + Duration::from_secs(10);
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        if options.kill_every > 0 && Instant::now() >= next_kill {
            next_kill += Duration::from_secs(options.kill_every);
            // The last kill must leave time to notice the loss.
            let victim = &seen[random.random_range(0..seen.len())];
            let process = victim.process.load(Ordering::Relaxed);
            if process != 0 && deadline - Instant::now() > Duration::from_secs(8) {
                victim.process.store(0, Ordering::Relaxed);
                if Command::new("kill").args(["-9", &process.to_string()]).status().is_ok_and(|status| status.success())
                {
                    victim.kills.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if Instant::now() >= next_line {
            next_line += Duration::from_secs(10);
            let processes = seen.iter().map(|seen| seen.process.load(Ordering::Relaxed));
            let sizes: Vec<u64> = processes.map(own_memory).filter(|size| *size > 0).collect();
            let total: u64 = seen.iter().map(|seen| seen.steps.load(Ordering::Relaxed)).sum();
            println!(
                "{:>4} s: {total} agent steps; own memory: this process {} kB, {} workers {} kB each, {} kB at most",
                begin.elapsed().as_secs(),
                own_memory(std::process::id()),
                sizes.len(),
                sizes.iter().sum::<u64>() / (sizes.len() as u64).max(1),
                sizes.iter().max().unwrap_or(&0),
            );
        }
    }
}

/// Returns the private memory of a process in kilobytes; 0 if it has ended.
fn own_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Checks that every kill costs the worker's episodes once, and nothing else is lost.
fn check(options: &Options, seen: &[Seen]) -> Result<(), String> {
    let each = (options.envs / options.workers) as u64;
    let (mut kills, mut cut_off, mut steps, mut ended) = (0, 0, 0, 0);
    for (worker, seen) in seen.iter().enumerate() {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if count(&seen.faults) != count(&seen.kills) || count(&seen.cut_off) != each * count(&seen.kills) {
            return Err(format!(
                "worker {worker} of {each} environments was killed {} times, had {} faults and {} episodes cut off",
                count(&seen.kills),
                count(&seen.faults),
                count(&seen.cut_off)
            ));
        }
        kills += count(&seen.kills);
        cut_off += count(&seen.cut_off);
        steps += count(&seen.steps);
        ended += count(&seen.ended);
    }
    println!(
        "{steps} agent steps in {} s; {ended} episodes ended; {kills} kills cut off {cut_off} episodes, \
         {each} each, all of the killed workers",
        options.seconds
    );
    Ok(())
}
