//! `meme bench envs`: what a worker costs beside a bare ale-py loop with the same preprocessing.
//!
//! Workers and bare loop take turns, so that both see the same machine; what is compared is CPU time an agent step.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use envs::seeds::SplitMix64;
use envs::{EnvId, Environments, WorkerConfig, WorkerEnvironments};
use serde::{Deserialize, Serialize};

use super::measure::thread_cpu;
use crate::{home, output};

/// Options of `meme bench envs`.
#[derive(Args)]
pub struct EnvsArgs {
    /// The game to play
    #[arg(long, default_value = "pong")]
    game: String,
    /// Environments, all workers together
    #[arg(long, default_value_t = 8)]
    envs: usize,
    /// Worker processes
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Agent steps of each environment in a round
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Rounds, in which workers and bare loop take turns
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    game: String,
    environments: usize,
    workers: usize,
    agent_steps: usize,
    frames_per_second: f64,
    worker_cpu_us_per_step: f64,
    rust_cpu_us_per_step: f64,
    bare_loop_cpu_us_per_step: f64,
    /// Worker CPU by bare-loop CPU, an agent step.
    ratio: f64,
}

/// What one round of one side came to.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    steps: usize,
    frames: u64,
    wall: Duration,
    worker_cpu: Duration,
    rust_cpu: Duration,
}

#[derive(Deserialize)]
struct BareRound {
    steps: usize,
    cpu_s: f64,
}

/// Measures and prints.
pub fn run(args: &EnvsArgs) -> Result<()> {
    let EnvsArgs { envs, workers, steps, rounds, .. } = *args;
    ensure!(rounds > 0 && steps > 0, "--steps and --rounds must be at least 1");
    ensure!(workers > 0 && envs > 0 && envs % workers == 0, "--envs {envs} can't be divided among {workers} workers");
    let environment: EnvId = args.game.parse()?;
    let EnvId::Atari(game) = &environment else {
        bail!("{environment} is no Atari game, and the bare loop beside it is ale-py's");
    };
    let per_worker = envs / workers;
    let mut sets = Vec::new();
    for worker in 0..workers {
        let mut config = WorkerConfig::new(environment.clone(), home::python()?, home::worker_package()?);
        config.environments = per_worker;
        config.groups = if per_worker % 2 == 0 { 2 } else { 1 };
        config.first_index = (worker * per_worker) as u64;
        let mut set = WorkerEnvironments::new(config)?;
        set.reset()?;
        sets.push(set);
    }
    play(&mut sets, steps / 10 + 1)?;
    let mut progress = output::Progress::new();
    let mut bare_loop = BareLoop::start(game, per_worker)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        progress.show(|| format!("round {} of {rounds}", round + 1));
        ours.push(play(&mut sets, steps)?);
        bare.push(bare_loop.play(steps)?);
    }
    progress.clear();
    let report = report(args, &ours, &bare);
    if args.json { output::print_json(&report) } else { output::print(&lines(&report)) }
}

fn report(args: &EnvsArgs, ours: &[Round], bare: &[BareRound]) -> Report {
    let steps: usize = ours.iter().map(|round| round.steps).sum();
    let sum = |part: fn(&Round) -> Duration| ours.iter().map(part).sum::<Duration>().as_secs_f64();
    let bare_steps: usize = bare.iter().map(|round| round.steps).sum();
    let worker_cpu_us_per_step = sum(|round| round.worker_cpu) * 1e6 / steps as f64;
    let bare_loop_cpu_us_per_step = bare.iter().map(|round| round.cpu_s).sum::<f64>() * 1e6 / bare_steps as f64;
    Report {
        game: args.game.clone(),
        environments: args.envs,
        workers: args.workers,
        agent_steps: steps,
        frames_per_second: ours.iter().map(|round| round.frames).sum::<u64>() as f64 / sum(|round| round.wall),
        worker_cpu_us_per_step,
        rust_cpu_us_per_step: sum(|round| round.rust_cpu) * 1e6 / steps as f64,
        bare_loop_cpu_us_per_step,
        ratio: worker_cpu_us_per_step / bare_loop_cpu_us_per_step,
    }
}

fn lines(report: &Report) -> String {
    format!(
        "{}: {} environments in {} worker{}, {} agent steps\n\
         frames/s             {:>10.0}\n\
         CPU us an agent step {:>10.1}  worker\n\
         {:>31.1}  Rust side, observation copied out\n\
         {:>31.1}  bare ale-py loop in one process\n\
         worker / bare loop   {:>10.3}\n",
        report.game,
        report.environments,
        report.workers,
        if report.workers == 1 { "" } else { "s" },
        output::grouped(report.agent_steps as u64),
        report.frames_per_second,
        report.worker_cpu_us_per_step,
        report.rust_cpu_us_per_step,
        report.bare_loop_cpu_us_per_step,
        report.ratio
    )
}

/// Random actions in all environments, one thread a worker, as actors do it.
fn play(sets: &mut [WorkerEnvironments], steps: usize) -> Result<Round> {
    let barrier = Barrier::new(sets.len());
    let rounds: Vec<Result<Round>> = thread::scope(|scope| {
        let threads: Vec<_> = sets
            .iter_mut()
            .enumerate()
            .map(|(worker, set)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    play_one(set, steps, worker as u64)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    let mut sum = Round::default();
    for round in rounds {
        let round = round?;
        sum.steps += round.steps;
        sum.frames += round.frames;
        sum.worker_cpu += round.worker_cpu;
        sum.rust_cpu += round.rust_cpu;
        sum.wall = sum.wall.max(round.wall);
    }
    Ok(sum)
}

fn play_one(set: &mut WorkerEnvironments, steps: usize, seed: u64) -> Result<Round> {
    let spec = set.spec().clone();
    let (groups, size) = (set.groups(), set.group_size());
    let mut random = SplitMix64::new(seed);
    let mut actions = vec![0; size];
    let mut observation = vec![0; spec.observation_bytes()];
    let (began, worker_cpu, rust_cpu) = (Instant::now(), set.worker_cpu_time()?, thread_cpu()?);
    let mut draw = |actions: &mut Vec<usize>| actions.fill_with(|| random.below(spec.actions()));
    for group in 0..groups {
        draw(&mut actions);
        set.start(group, &actions)?;
    }
    for step in 1..=steps {
        for group in 0..groups {
            set.finish(group)?;
            for env in 0..size {
                set.observation(group, env, &mut observation);
            }
            if step < steps {
                draw(&mut actions);
                set.start(group, &actions)?;
            }
        }
    }
    if let Some(fault) = set.take_faults().first() {
        bail!("the measurement is void: {fault}");
    }
    Ok(Round {
        steps: steps * groups * size,
        frames: (steps * groups * size) as u64 * u64::from(spec.frames_per_step),
        wall: began.elapsed(),
        worker_cpu: set.worker_cpu_time()? - worker_cpu,
        rust_cpu: thread_cpu()? - rust_cpu,
    })
}

/// The bare loop in a process of its own, which plays on when it is its turn.
struct BareLoop {
    process: Child,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
}

impl BareLoop {
    fn start(game: &str, environments: usize) -> Result<Self> {
        let mut process = Command::new(home::python()?)
            .arg(home::worker_package()?.join("bare_loop.py"))
            .args([game, "--environments", &environments.to_string(), "--steps", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the bare loop can't be started")?;
        let (orders, reports) = (process.stdin.take(), process.stdout.take());
        let (orders, reports) = orders.zip(reports).context("the bare loop has no pipes")?;
        Ok(Self { process, orders, reports: BufReader::new(reports) })
    }

    fn play(&mut self, steps: usize) -> Result<BareRound> {
        let mut line = String::new();
        let answered = writeln!(self.orders, "{steps}").and_then(|()| self.reports.read_line(&mut line));
        if !answered.is_ok_and(|bytes| bytes > 0) {
            bail!("the bare loop ended; what it said is above");
        }
        serde_json::from_str(&line).context("the bare loop's report can't be read")
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        // It may have ended by itself; either way there is nobody left to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
