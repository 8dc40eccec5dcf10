//! `meme bench inference`: one step of many environments through the networks, alone or beside a learner.
//!
//! In a run a batch waits for whoever asks last: the others' observations are sent to the networks while it does. So it
//! is here. Before the clock starts, all players but one have copied their observations, new ones for each step, to
//! where the networks take them from, and have sent them; nobody waits until they have arrived. Inside the clock are the
//! last player's copies and their sending, checking and packing all rows, the step, and the answers on the host. The
//! last player is another one each step.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent::Random;
use agent::acting::{Observation, ObservationRows, RecurrentStates, StepRewards};
use agent::networks::NetworkParameters;
use agent::{ActingNetwork, ActingRow, AgentConfig, Learner, ObservationKind, ObservationSpec, OwnedBatch};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use half::f16;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use serde::Serialize;
use tch::Device;
use train::config::{Config, Sources};

use super::compute::ComputeDevice;
use super::measure::median;
use crate::console::ProgressLine;
use crate::output;

/// Options of `meme bench inference`.
#[derive(Args)]
pub struct InferenceArgs {
    /// The preset that the config starts from: paper, quick, desktop, cpu or tiny
    #[arg(long, value_name = "NAME", default_value = "paper")]
    preset: String,
    /// A setting over it, such as agent.network.core=512; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Numbers of environments
    #[arg(long, value_delimiter = ',', default_values_t = [128, 512])]
    environments: Vec<usize>,
    /// Number of actions
    #[arg(long, default_value_t = 18)]
    actions: usize,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = ComputeDevice::Cpu)]
    device: ComputeDevice,
    /// Steps that are measured, after ten that are not; beside a learner as many as fit 20 updates, if that is more
    #[arg(long, default_value_t = 300)]
    steps: usize,
    /// Let a learner update on another thread meanwhile
    #[arg(long)]
    beside_learner: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Steps between the beginnings of two sequences of an environment, the paper's.
const SEQUENCE_PERIOD: usize = 80;
/// Steps before anything is measured.
const WARM_UP: usize = 10;
/// Updates of the learner before anything is measured.
const LEARNER_WARM_UP: u64 = 3;
/// Updates that steps are measured beside, at least: each update has quiet and crowded moments.
const LEARNER_UPDATES: u64 = 20;

#[derive(Serialize)]
struct Row {
    environments: usize,
    /// Median on the device, copies left out; absent without a GPU.
    milliseconds: Option<f64>,
    /// Median from when the last player's environments have their observations, the others' being sent, to the answers
    /// on the host.
    round_trip_milliseconds: f64,
    round_trip_p95_milliseconds: f64,
    slowest_milliseconds: f64,
    /// Of the emulator that the round trip would be fast enough for: each decision holds for `env.action_repeat` frames.
    frames_per_second: f64,
    /// Of the value and policy network on the device, or in the round trip without a GPU.
    teraflops_per_second: f64,
    /// Most GPU memory in tensors, the learner's included.
    peak_gpu_bytes: Option<u64>,
    /// Of the learner beside it.
    updates_per_second: Option<f64>,
}

/// Measures and prints.
pub fn run(args: &InferenceArgs) -> Result<()> {
    ensure!(args.steps > 0 && args.actions > 0, "--steps and --actions need at least 1");
    ensure!(args.environments.iter().all(|&n| n > 0), "--environments are numbers of at least 1");
    let device = args.device.libtorch()?;
    let sources = Sources { preset: Some(args.preset.clone()), file: None, set: args.set.clone() };
    let config = crate::config::load(&sources)?.config;
    let observation = ObservationSpec { shape: vec![210, 160], kind: ObservationKind::U8 };
    let learner = match args.beside_learner {
        true => Some(BesideLearner::start(&config, &observation, args.actions, device)?),
        false => None,
    };
    let mut progress = ProgressLine::new();
    let mut rows = vec![];
    for &environments in &args.environments {
        let mut show = |step: usize| progress.show(|| format!("{environments} environments, step {step}"));
        let (agent, observation, actions) = (&config.agent, &observation, args.actions);
        let player = config.actors.environments_per_worker / config.actors.groups;
        let frames = config.env.action_repeat;
        let bench = Bench { config: agent, observation, actions, frames, player, device };
        rows.push(bench.measure(environments, args.steps, learner.as_ref(), &mut show)?);
    }
    progress.clear();
    if let Some(learner) = learner {
        learner.finish()?;
    }
    if args.json { output::print_json(&rows) } else { output::print(&table(args, device, &rows)) }
}

/// What is measured.
struct Bench<'a> {
    config: &'a AgentConfig,
    observation: &'a ObservationSpec,
    actions: usize,
    /// That a decision holds for.
    frames: u32,
    /// Environments that a player asks for at a time.
    player: usize,
    device: Device,
}

impl Bench<'_> {
    fn measure(
        &self,
        environments: usize,
        steps: usize,
        learner: Option<&BesideLearner>,
        show: &mut dyn FnMut(usize),
    ) -> Result<Row> {
        let mut network = ActingNetwork::new(self.config, self.observation, self.actions, self.device)?;
        let parameters =
            NetworkParameters::initialised(network.networks(), &mut Random::seed_from_u64(1), Device::Cpu)?;
        network.refresh(&parameters)?;
        let mut states = RecurrentStates::new(network.networks(), environments, self.device)?;
        let mut told = Told::random(&network, environments, self.player)?;
        let (mut trips, mut device) = (vec![], vec![]);
        let mut updates = None;
        for step in 0.. {
            let measured = |learner: &BesideLearner| updates.is_some_and(|mark| learner.has_seen_enough(mark));
            if step >= WARM_UP + steps && learner.is_none_or(measured) {
                break;
            }
            show(step);
            if step == WARM_UP {
                updates = learner.map(|learner| learner.mark());
            }
            let last = step % told.players.len();
            for player in (0..told.players.len()).filter(|&player| player != last) {
                told.see(step, player)?;
                network.send(&told.seen(player)?, &states)?;
            }
            let begun = Instant::now();
            told.see(step, last)?;
            network.send(&told.seen(last)?, &states)?;
            network.step(&told.rows(step)?, &mut states)?;
            if step >= WARM_UP {
                trips.push(begun.elapsed().as_secs_f64() * 1e3);
                device.extend(network.device_milliseconds()?);
            }
        }
        let updates_per_second = learner.zip(updates).map(|(learner, mark)| learner.rate_since(mark));
        let milliseconds = (!device.is_empty()).then(|| median(&mut device));
        let round_trip_milliseconds = median(&mut trips);
        let flops = environments as f64 * network.networks().agent.flops();
        Ok(Row {
            environments,
            milliseconds,
            round_trip_milliseconds,
            round_trip_p95_milliseconds: trips[(trips.len() * 95 / 100).min(trips.len() - 1)],
            slowest_milliseconds: trips[trips.len() - 1],
            frames_per_second: environments as f64 * f64::from(self.frames) * 1e3 / round_trip_milliseconds,
            teraflops_per_second: flops / milliseconds.unwrap_or(round_trip_milliseconds) / 1e9,
            peak_gpu_bytes: match self.device.is_cuda() {
                true => Some(torch_ext::memory_statistics()?.peak_allocated),
                false => None,
            },
            updates_per_second,
        })
    }
}

/// Made-up observations and what goes with them.
struct Told {
    /// As the environments have them.
    observations: Vec<Vec<u8>>,
    /// Where each player puts those of its environments.
    players: Vec<ObservationRows>,
    embedding: Vec<f16>,
    actions: usize,
    policies: usize,
}

impl Told {
    fn random(network: &ActingNetwork, environments: usize, player: usize) -> Result<Self> {
        let mut random = Random::seed_from_u64(2);
        let networks = network.networks();
        let bytes = networks.input().spec().bytes();
        let shares: Vec<usize> =
            (0..environments).step_by(player).map(|first| player.min(environments - first)).collect();
        Ok(Self {
            observations: (0..environments).map(|_| (0..bytes).map(|_| random.random::<u8>()).collect()).collect(),
            players: network.observation_rows(&shares)?,
            embedding: (0..networks.embedding_length())
                .map(|_| f16::from_f64(random.sample::<f64, _>(StandardNormal)))
                .collect(),
            actions: networks.actions(),
            policies: networks.policies(),
        })
    }

    /// The first environment of a player.
    fn first(&self, player: usize) -> usize {
        self.players[..player].iter().map(ObservationRows::rows).sum()
    }

    /// A player takes its environments' observations, others than the step before. In a run each does so on a thread of
    /// its own.
    fn see(&mut self, step: usize, player: usize) -> Result<()> {
        let first = self.first(player) + step;
        let player = &mut self.players[player];
        for row in 0..player.rows() {
            let observation = &self.observations[(first + row) % self.observations.len()];
            player.row_mut(row)?.copy_from_slice(observation);
        }
        Ok(())
    }

    /// A player's environments and what they see.
    fn seen(&self, player: usize) -> Result<Vec<(usize, Observation<'_>)>> {
        let (first, player) = (self.first(player), &self.players[player]);
        (0..player.rows()).map(|row| Ok((first + row, player.row(row)?))).collect()
    }

    /// Each environment's state is wanted where a sequence begins.
    fn rows(&self, step: usize) -> Result<Vec<ActingRow<'_>>> {
        let places = self.players.iter().flat_map(|player| (0..player.rows()).map(move |row| player.row(row)));
        let row = |(environment, place): (usize, agent::Result<_>)| {
            Ok(ActingRow {
                environment,
                first: false,
                wants_state: (step + environment).is_multiple_of(SEQUENCE_PERIOD),
                observation: place?,
                action: ((step + environment) % self.actions) as i64,
                rewards: StepRewards { extrinsic: 1.0, ngu: 0.1, rnd: 1.5, episodic: 0.2 },
                embedding: &self.embedding,
                policy: environment % self.policies,
            })
        };
        places.enumerate().map(row).collect()
    }
}

/// A learner that updates on a thread of its own.
struct BesideLearner {
    thread: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    updates: Arc<AtomicU64>,
}

impl BesideLearner {
    /// Starts it and waits for its first updates.
    fn start(config: &Config, observation: &ObservationSpec, actions: usize, device: Device) -> Result<Self> {
        let (stop, updates) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut learner = Learner::new(&config.agent, observation, actions, 0, device)?;
        let (trace, batch) = (config.replay.trace, config.learner.batch_size);
        let (stopping, counted) = (Arc::clone(&stop), Arc::clone(&updates));
        let run = move || -> Result<()> {
            let sequences =
                OwnedBatch::random(learner.networks(), trace, &vec![trace; batch], &mut Random::seed_from_u64(3));
            while !stopping.load(Ordering::Relaxed) {
                learner.step(&sequences.batch())?;
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let thread = thread::Builder::new().name("learner".to_owned()).spawn(run).context("starting the learner")?;
        let learner = Self { thread, stop, updates };
        while learner.updates.load(Ordering::Relaxed) < LEARNER_WARM_UP && !learner.thread.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        if learner.thread.is_finished() {
            learner.finish()?;
            bail!("the learner stopped by itself");
        }
        Ok(learner)
    }

    fn mark(&self) -> (Instant, u64) {
        (Instant::now(), self.updates.load(Ordering::Relaxed))
    }

    fn rate_since(&self, (instant, updates): (Instant, u64)) -> f64 {
        (self.updates.load(Ordering::Relaxed) - updates) as f64 / instant.elapsed().as_secs_f64()
    }

    /// Whether it has made enough updates since, or has failed, as `finish` will tell.
    fn has_seen_enough(&self, (_, updates): (Instant, u64)) -> bool {
        self.updates.load(Ordering::Relaxed) >= updates + LEARNER_UPDATES || self.thread.is_finished()
    }

    fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the learner's thread panicked"))?
    }
}

fn table(args: &InferenceArgs, device: Device, rows: &[Row]) -> String {
    let beside = if args.beside_learner { ", a learner beside it" } else { "" };
    let mut text = format!(
        "inference, {} networks, observations of 210x160, {} actions, {device:?}{beside}; {} steps\n\n\
         environments   device ms   round trip ms   p95 ms   slowest ms   frames/s   TFLOP/s   GPU memory   updates/s\n",
        args.preset, args.actions, args.steps,
    );
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:>12} {:>11} {:>15.3} {:>8.3} {:>12.3} {:>10.0} {:>9.1} {:>12} {:>11}",
            row.environments,
            or_dash(row.milliseconds.map(|ms| format!("{ms:.3}"))),
            row.round_trip_milliseconds,
            row.round_trip_p95_milliseconds,
            row.slowest_milliseconds,
            row.frames_per_second,
            row.teraflops_per_second,
            or_dash(row.peak_gpu_bytes.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9))),
            or_dash(row.updates_per_second.map(|rate| format!("{rate:.2}"))),
        );
    }
    text
}
