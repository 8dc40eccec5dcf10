//! `meme bench envs`: what a worker costs beside a bare ale-py loop with the same preprocessing.
//!
//! Workers and bare loop take turns in short rounds, in which both play the same actions of the same episodes, so that
//! they do the same work on the same machine. What is compared is CPU time an agent step, round by round; the median
//! round counts, so that a round in which the machine did something else does not.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use envs::{EnvId, Environments, WorkerConfig, WorkerEnvironments};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::{Deserialize, Serialize};

use super::measure::{Spread, thread_cpu};
use crate::console::ProgressLine;
use crate::{install, output};

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
    #[arg(long, default_value_t = 50)]
    steps: usize,
    /// Rounds, in which workers and bare loop take turns
    #[arg(long, default_value_t = 80)]
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
    rounds: usize,
    frames_per_second: f64,
    worker_cpu_us_per_step: Spread,
    rust_cpu_us_per_step: Spread,
    bare_loop_cpu_us_per_step: Spread,
    /// Worker CPU by bare-loop CPU, an agent step.
    ratio: Spread,
}

/// What one round of all workers came to.
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
    pixels: Vec<u64>,
}

/// A worker's environments, and the actions it is given in a round.
struct Player {
    set: WorkerEnvironments,
    random: SplitMix64,
    /// One for every environment, step by step.
    actions: Vec<Vec<usize>>,
    observation: Vec<u8>,
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
    let mut players = Vec::new();
    for worker in 0..workers {
        let mut config = WorkerConfig::new(environment.clone(), install::python()?, install::worker_package()?);
        config.environments = per_worker;
        config.groups = if per_worker % 2 == 0 { 2 } else { 1 };
        config.first_index = (worker * per_worker) as u64;
        players.push(Player::new(config, worker as u64)?);
    }
    let mut bare_loop = BareLoop::start(game, per_worker)?;
    let mut progress = ProgressLine::new();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    // The first round warms up and does not count.
    for round in 0..=rounds {
        progress.show(|| format!("round {round} of {rounds}"));
        players.iter_mut().for_each(|player| player.draw(steps));
        // Each goes first in every other round, in case that one leaves the machine in a better state than the other.
        let (our_round, bare_round) = if round % 2 == 0 {
            let ours = play(&mut players)?;
            (ours, bare_loop.play(&players[0].actions)?)
        } else {
            let bare = bare_loop.play(&players[0].actions)?;
            (play(&mut players)?, bare)
        };
        let pixels = players[0].pixels();
        ensure!(
            bare_round.pixels == pixels,
            "the measurement is void: after round {round} the first worker's environments show pictures that sum to \
             {pixels:?}, and those of the bare loop to {:?}",
            bare_round.pixels
        );
        if round > 0 {
            ours.push(our_round);
            bare.push(bare_round);
        }
    }
    progress.clear();
    let report = report(args, &ours, &bare);
    if args.json { output::print_json(&report) } else { output::print(&lines(&report)) }
}

fn report(args: &EnvsArgs, ours: &[Round], bare: &[BareRound]) -> Report {
    let a_step = |cpu: fn(&Round) -> Duration| -> Vec<f64> {
        ours.iter().map(|round| cpu(round).as_secs_f64() * 1e6 / round.steps as f64).collect()
    };
    let worker = a_step(|round| round.worker_cpu);
    let bare: Vec<f64> = bare.iter().map(|round| round.cpu_s * 1e6 / round.steps as f64).collect();
    let wall: Duration = ours.iter().map(|round| round.wall).sum();
    Report {
        game: args.game.clone(),
        environments: args.envs,
        workers: args.workers,
        agent_steps: ours.iter().map(|round| round.steps).sum(),
        rounds: args.rounds,
        frames_per_second: ours.iter().map(|round| round.frames).sum::<u64>() as f64 / wall.as_secs_f64(),
        ratio: Spread::of(worker.iter().zip(&bare).map(|(worker, bare)| worker / bare).collect()),
        worker_cpu_us_per_step: Spread::of(worker),
        rust_cpu_us_per_step: Spread::of(a_step(|round| round.rust_cpu)),
        bare_loop_cpu_us_per_step: Spread::of(bare),
    }
}

fn lines(report: &Report) -> String {
    let line = |name: &str, spread: Spread, digits: usize, what: &str| {
        let Spread { lower, median, upper } = spread;
        format!("{name:<20} {median:>10.digits$}  {what} ({lower:.digits$} to {upper:.digits$})\n")
    };
    format!(
        "{}: {} environments in {} worker{}, {} agent steps\n\
         {:<20} {:>10.0}\n{}{}{}{}\
         medians of {} rounds, and where the middle half of them lies\n",
        report.game,
        report.environments,
        report.workers,
        if report.workers == 1 { "" } else { "s" },
        output::grouped(report.agent_steps as u64),
        "frames/s",
        report.frames_per_second,
        line("CPU us an agent step", report.worker_cpu_us_per_step, 1, "worker"),
        line("", report.rust_cpu_us_per_step, 1, "Rust side, observation copied out"),
        line("", report.bare_loop_cpu_us_per_step, 1, "bare ale-py loop in one process"),
        line("worker / bare loop", report.ratio, 3, "same actions, same episodes"),
        report.rounds,
    )
}

impl Player {
    fn new(config: WorkerConfig, seed: u64) -> Result<Self> {
        let mut set = WorkerEnvironments::new(config)?;
        set.reset()?;
        let observation = vec![0; set.spec().observation_bytes()];
        Ok(Self { set, random: SplitMix64::seed_from_u64(seed), actions: Vec::new(), observation })
    }

    /// Draws the actions of the next round.
    fn draw(&mut self, steps: usize) {
        let (environments, actions) = (self.set.groups() * self.set.group_size(), self.set.spec().actions());
        let random = &mut self.random;
        self.actions =
            (0..steps).map(|_| (0..environments).map(|_| random.random_range(0..actions)).collect()).collect();
    }

    fn play(&mut self) -> Result<Round> {
        let Self { set, actions, observation, .. } = self;
        let (groups, size) = (set.groups(), set.group_size());
        let (began, worker_cpu, rust_cpu) = (Instant::now(), set.worker_cpu_time()?, thread_cpu()?);
        for group in 0..groups {
            set.start(group, &actions[0][group * size..(group + 1) * size])?;
        }
        for step in 1..=actions.len() {
            for group in 0..groups {
                set.finish(group)?;
                for env in 0..size {
                    set.observation(group, env, observation);
                }
                if let Some(next) = actions.get(step) {
                    set.start(group, &next[group * size..(group + 1) * size])?;
                }
            }
        }
        let (wall, rust_cpu) = (began.elapsed(), thread_cpu()? - rust_cpu);
        // First of all: a worker that took another's place has used less time than that one.
        if let Some(fault) = set.take_faults().first() {
            bail!("the measurement is void: {fault}");
        }
        let worker_cpu = set.worker_cpu_time()? - worker_cpu;
        let steps = actions.len() * groups * size;
        let frames = steps as u64 * u64::from(set.spec().frames_per_step);
        Ok(Round { steps, frames, wall, worker_cpu, rust_cpu })
    }

    /// The sum of the pixels that each environment shows.
    fn pixels(&mut self) -> Vec<u64> {
        let Self { set, observation, .. } = self;
        let size = set.group_size();
        (0..set.groups() * size)
            .map(|environment| {
                set.observation(environment / size, environment % size, observation);
                observation.iter().map(|&pixel| u64::from(pixel)).sum()
            })
            .collect()
    }
}

/// A round of all workers, one thread each, as actors do it.
fn play(players: &mut [Player]) -> Result<Round> {
    let barrier = Barrier::new(players.len());
    let rounds: Vec<Result<Round>> = thread::scope(|scope| {
        let threads: Vec<_> = players
            .iter_mut()
            .map(|player| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    player.play()
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

/// The bare loop in a process of its own, which plays on when it is its turn.
struct BareLoop {
    process: Child,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
}

impl BareLoop {
    fn start(game: &str, environments: usize) -> Result<Self> {
        let mut process = Command::new(install::python()?)
            .arg(install::worker_package()?.join("bare_loop.py"))
            .args([game, "--environments", &environments.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the bare loop can't be started")?;
        let (orders, reports) = (process.stdin.take(), process.stdout.take());
        let (orders, reports) = orders.zip(reports).context("the bare loop has no pipes")?;
        Ok(Self { process, orders, reports: BufReader::new(reports) })
    }

    fn play(&mut self, actions: &[Vec<usize>]) -> Result<BareRound> {
        let mut line = String::new();
        let order = serde_json::to_string(actions)?;
        let answered = writeln!(self.orders, "{order}").and_then(|()| self.reports.read_line(&mut line));
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
