//! `meme bench envs`: CPU time of environment workers, compared with a plain ale-py loop.
//!
//! Workers and baseline take turns in short rounds and play the same actions in the same episodes, so that both do the
//! same work on the same machine. The CPU time per agent step is compared round by round; medians ignore rounds in
//! which the machine was busy with something else.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use envs::{EnvId, Environments, WorkerConfig, WorkerEnvironments};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::{Deserialize, Serialize};

use super::measure::{Quartiles, thread_cpu};
use super::text;
use crate::child::KillOnDrop;
use crate::console::ProgressLine;
use crate::{install, options};

/// Arguments of `meme bench envs`.
#[derive(Args)]
pub struct EnvsArgs {
    /// Atari game to play
    #[arg(long, default_value = "pong")]
    game: String,
    /// Number of environments in all workers
    #[arg(long, default_value_t = 8, value_parser = options::count::<usize>())]
    envs: usize,
    /// Number of worker processes
    #[arg(long, default_value_t = 1, value_parser = options::count::<usize>())]
    workers: usize,
    /// Agent steps per environment and round
    #[arg(long, default_value_t = 50, value_parser = options::count::<usize>())]
    steps: usize,
    /// Number of rounds
    #[arg(long, default_value_t = 80, value_parser = options::count::<usize>())]
    rounds: usize,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct EnvsReport {
    game: String,
    environments: usize,
    workers: usize,
    agent_steps: usize,
    rounds: usize,
    frames_per_second: f64,
    worker_cpu_us_per_step: Quartiles,
    rust_cpu_us_per_step: Quartiles,
    bare_loop_cpu_us_per_step: Quartiles,
    /// CPU time of the workers divided by that of the plain loop.
    ratio: Quartiles,
}

/// One round of one or all workers.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerRound {
    steps: usize,
    wall: Duration,
    worker_cpu: Duration,
    rust_cpu: Duration,
}

/// One round of the plain loop.
#[derive(Deserialize)]
struct LoopRound {
    steps: usize,
    cpu_s: f64,
    pixels: Vec<u64>,
}

/// Measures and prints.
pub fn run(args: &EnvsArgs) -> Result<()> {
    let EnvsArgs { envs, workers, steps, rounds, .. } = *args;
    ensure!(envs % workers == 0, "--envs must be a multiple of --workers, got {envs} and {workers}");
    let environment: EnvId = args.game.parse()?;
    let EnvId::Atari(game) = &environment else {
        bail!("--game needs an Atari game, as the baseline is ale-py; got {environment}");
    };
    let per_worker = envs / workers;
    let mut players = Vec::new();
    for worker in 0..workers {
        let mut config = install::worker_config(environment.clone())?;
        config.environments = per_worker;
        config.groups = if per_worker % 2 == 0 { 2 } else { 1 };
        config.first_index = (worker * per_worker) as u64;
        players.push(WorkerPlayer::new(config, worker as u64)?);
    }
    let mut plain_loop = PlainLoop::start(game, per_worker)?;
    let mut progress = ProgressLine::new();
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    // The first round is a warm-up.
    for round in 0..=rounds {
        progress.show(|| format!("round {round} of {rounds}"));
        players.iter_mut().for_each(|player| player.choose_actions(steps));
        // They take turns at going first, in case one leaves the machine in a better state than the other.
        let (our_round, plain_round) = if round % 2 == 0 {
            let ours = play(&mut players)?;
            (ours, plain_loop.play(&players[0].actions)?)
        } else {
            let plain = plain_loop.play(&players[0].actions)?;
            (play(&mut players)?, plain)
        };
        let pixels = players[0].pixels();
        ensure!(
            plain_round.pixels == pixels,
            "invalid measurement: in round {round} the worker and the plain loop show different pictures (sums of \
             pixels: {pixels:?} and {:?})",
            plain_round.pixels
        );
        if round > 0 {
            ours.push(our_round);
            plain.push(plain_round);
        }
    }
    progress.clear();
    let frames_per_step = players[0].environments.spec().frames_per_step;
    let title = "CPU time of environment workers, next to a plain ale-py loop in one process";
    text::print(args.json, title, &report(args, frames_per_step, &ours, &plain))
}

fn report(args: &EnvsArgs, frames_per_step: u32, ours: &[WorkerRound], plain: &[LoopRound]) -> EnvsReport {
    let per_step = |cpu: fn(&WorkerRound) -> Duration| -> Vec<f64> {
        ours.iter().map(|round| cpu(round).as_secs_f64() * 1e6 / round.steps as f64).collect()
    };
    let worker = per_step(|round| round.worker_cpu);
    let plain: Vec<f64> = plain.iter().map(|round| round.cpu_s * 1e6 / round.steps as f64).collect();
    let agent_steps = ours.iter().map(|round| round.steps).sum();
    let wall: Duration = ours.iter().map(|round| round.wall).sum();
    EnvsReport {
        game: args.game.clone(),
        environments: args.envs,
        workers: args.workers,
        agent_steps,
        rounds: args.rounds,
        frames_per_second: agent_steps as f64 * f64::from(frames_per_step) / wall.as_secs_f64(),
        ratio: Quartiles::of(worker.iter().zip(&plain).map(|(worker, plain)| worker / plain).collect()),
        worker_cpu_us_per_step: Quartiles::of(worker),
        rust_cpu_us_per_step: Quartiles::of(per_step(|round| round.rust_cpu)),
        bare_loop_cpu_us_per_step: Quartiles::of(plain),
    }
}

/// A worker's environments and their actions in a round.
struct WorkerPlayer {
    environments: WorkerEnvironments,
    random: SplitMix64,
    /// One action per environment, for each step.
    actions: Vec<Vec<usize>>,
    observation: Vec<u8>,
}

impl WorkerPlayer {
    fn new(config: WorkerConfig, seed: u64) -> Result<Self> {
        let mut environments = WorkerEnvironments::new(config)?;
        environments.reset()?;
        let observation = vec![0; environments.spec().observation_bytes()];
        Ok(Self { environments, random: SplitMix64::seed_from_u64(seed), actions: Vec::new(), observation })
    }

    /// Chooses the actions of the next round.
    fn choose_actions(&mut self, steps: usize) {
        let Self { environments, random, .. } = self;
        let (count, actions) = (environments.groups() * environments.group_size(), environments.spec().actions());
        self.actions = (0..steps).map(|_| (0..count).map(|_| random.random_range(0..actions)).collect()).collect();
    }

    fn play(&mut self) -> Result<WorkerRound> {
        let Self { environments, actions, observation, .. } = self;
        let (groups, size) = (environments.groups(), environments.group_size());
        let (began, worker_cpu, rust_cpu) = (Instant::now(), environments.worker_cpu_time()?, thread_cpu()?);
        for group in 0..groups {
            environments.start(group, &actions[0][group * size..(group + 1) * size])?;
        }
        for step in 1..=actions.len() {
            for group in 0..groups {
                environments.finish(group)?;
                for env in 0..size {
                    environments.observation(group, env, observation);
                }
                if let Some(next) = actions.get(step) {
                    environments.start(group, &next[group * size..(group + 1) * size])?;
                }
            }
        }
        let (wall, rust_cpu) = (began.elapsed(), thread_cpu()? - rust_cpu);
        // Before reading the CPU time, which starts at 0 in a replacement worker.
        if let Some(fault) = environments.take_faults().first() {
            bail!("invalid measurement: {fault}");
        }
        let worker_cpu = environments.worker_cpu_time()? - worker_cpu;
        let steps = actions.len() * groups * size;
        Ok(WorkerRound { steps, wall, worker_cpu, rust_cpu })
    }

    /// Sums the pixels of each environment's observation.
    fn pixels(&mut self) -> Vec<u64> {
        let Self { environments, observation, .. } = self;
        let size = environments.group_size();
        let sum = |environment: usize| {
            environments.observation(environment / size, environment % size, observation);
            observation.iter().map(|&pixel| u64::from(pixel)).sum()
        };
        (0..environments.groups() * size).map(sum).collect()
    }
}

/// Plays a round of all workers, each on its own thread, as actors do.
fn play(players: &mut [WorkerPlayer]) -> Result<WorkerRound> {
    let barrier = Barrier::new(players.len());
    let rounds: Vec<Result<WorkerRound>> = thread::scope(|scope| {
        let play = |player| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                WorkerPlayer::play(player)
            })
        };
        let threads: Vec<_> = players.iter_mut().map(play).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    let mut sum = WorkerRound::default();
    for round in rounds {
        let round = round?;
        sum.steps += round.steps;
        sum.worker_cpu += round.worker_cpu;
        sum.rust_cpu += round.rust_cpu;
        sum.wall = sum.wall.max(round.wall);
    }
    Ok(sum)
}

/// The plain loop in a process of its own, which plays one round per request.
struct PlainLoop {
    _process: KillOnDrop,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl PlainLoop {
    fn start(game: &str, environments: usize) -> Result<Self> {
        let mut process = Command::new(install::python()?)
            .arg(install::worker_package()?.join("bare_loop.py"))
            .args([game, "--environments", &environments.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the plain loop")?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (requests, replies) = pipes.context("the plain loop has no pipes")?;
        Ok(Self { _process: KillOnDrop(process), requests, replies: BufReader::new(replies) })
    }

    fn play(&mut self, actions: &[Vec<usize>]) -> Result<LoopRound> {
        let mut line = String::new();
        let request = serde_json::to_string(actions)?;
        let reply = writeln!(self.requests, "{request}").and_then(|()| self.replies.read_line(&mut line));
        if !reply.is_ok_and(|bytes| bytes > 0) {
            bail!("the plain loop ended early; its error is printed above");
        }
        serde_json::from_str(&line).context("invalid reply of the plain loop")
    }
}
