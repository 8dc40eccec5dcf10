//! `meme bench inference`: network steps for many environments, alone or next to a running learner.
//!
//! In training, a batch waits for the last actor thread to send its observations; the others have sent theirs. The
//! benchmark does the same: before the clock starts, all threads but one have copied new observations and started to send
//! them to the device. The measured round trip consists of the last thread's copy and transfer, checking and packing all
//! rows, the network step, and the results on the host. The last thread changes from step to step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent::Random;
use agent::acting::{Observation, ObservationRows, RecurrentStates, StepRewards};
use agent::networks::NetworkParameters;
use agent::{ActingNetwork, ActingRow, Learner, ObservationKind, ObservationSpec, random_batch};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use half::f16;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use serde::Serialize;
use tch::Device;
use train::config::Config;

use super::measure::{median, milliseconds};
use super::{NetworkArgs, peak_gpu_bytes, text};
use crate::console::ProgressLine;
use crate::options;

/// Arguments of `meme bench inference`. The default preset is paper.
#[derive(Args)]
pub struct InferenceArgs {
    #[command(flatten)]
    network: NetworkArgs,
    /// Numbers of environments to measure, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [128, 512], value_parser = options::count::<usize>())]
    environments: Vec<usize>,
    /// Number of steps to measure, after a warm-up; with --beside-learner more, until 20 updates are done
    #[arg(long, default_value_t = 300, value_parser = options::count::<usize>())]
    steps: usize,
    /// Run a learner in another thread at the same time
    #[arg(long)]
    beside_learner: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Steps between the starts of two sequences of an environment, as in the paper.
const SEQUENCE_PERIOD: usize = 80;
/// Steps of the warm-up.
const WARM_UP: usize = 10;
/// Learner updates of the warm-up.
const LEARNER_WARM_UP: u64 = 3;
/// Fewest updates next to which steps are measured, as the load varies within an update.
const LEARNER_UPDATES: u64 = 20;

#[derive(Serialize)]
struct InferenceTimes {
    environments: usize,
    /// Median on the device, without copies; unknown without a GPU.
    milliseconds: Option<f64>,
    /// Median from the last thread's observations to the results on the host.
    round_trip_milliseconds: f64,
    round_trip_p95_milliseconds: f64,
    slowest_milliseconds: f64,
    /// Emulator frames per second that the round trip allows, at `env.action_repeat` frames per step.
    frames_per_second: f64,
    /// Of the value and policy network on the device, or in the round trip without a GPU.
    teraflops_per_second: f64,
    /// Largest GPU memory in tensors, including the learner's.
    peak_gpu_bytes: Option<u64>,
    /// Speed of the learner.
    updates_per_second: Option<f64>,
}

/// Measures and prints.
pub fn run(args: &InferenceArgs) -> Result<()> {
    let device = args.network.device.libtorch()?;
    let (preset, config) = args.network.config.load("paper")?;
    let observation = ObservationSpec::array(vec![210, 160], ObservationKind::U8);
    let bench = InferenceBench { config: &config, observation: &observation, actions: args.network.actions, device };
    let learner = args.beside_learner.then(|| bench.start_learner()).transpose()?;
    let mut progress = ProgressLine::new();
    let mut rows = vec![];
    for &environments in &args.environments {
        let mut show = |step: usize| progress.show(|| format!("{environments} environments, step {step}"));
        rows.push(bench.measure(environments, args.steps, learner.as_ref(), &mut show)?);
    }
    progress.clear();
    if let Some(learner) = learner {
        learner.finish()?;
    }
    let beside = if args.beside_learner { ", next to a learner" } else { "" };
    let title = format!("inference, preset {preset}, 210x160, {} actions, {device:?}{beside}", args.network.actions);
    text::print(args.json, &title, &rows)
}

/// The networks to measure.
struct InferenceBench<'a> {
    config: &'a Config,
    observation: &'a ObservationSpec,
    actions: usize,
    device: Device,
}

impl InferenceBench<'_> {
    fn measure(
        &self,
        environments: usize,
        steps: usize,
        learner: Option<&BackgroundLearner>,
        show: &mut dyn FnMut(usize),
    ) -> Result<InferenceTimes> {
        let mut network = ActingNetwork::new(&self.config.agent, self.observation, self.actions, self.device)?;
        let parameters = NetworkParameters::initialised(&network.networks, &mut Random::seed_from_u64(1), Device::Cpu)?;
        network.refresh(&parameters)?;
        let mut states = RecurrentStates::new(&network.networks, environments, self.device)?;
        let actors = &self.config.actors;
        let mut inputs = ActingInputs::random(&network, environments, actors.environments_per_worker / actors.groups)?;
        let (mut trips, mut device) = (vec![], vec![]);
        let mut updates = None;
        for step in 0.. {
            let is_done = |learner: &BackgroundLearner| updates.is_some_and(|mark| learner.is_done_since(mark));
            if step >= WARM_UP + steps && learner.is_none_or(is_done) {
                break;
            }
            show(step);
            if step == WARM_UP {
                updates = learner.map(|learner| learner.mark());
            }
            let last = step % inputs.threads.len();
            for thread in (0..inputs.threads.len()).filter(|&thread| thread != last) {
                inputs.observe(step, thread)?;
                network.send(&inputs.observations(thread)?, &states)?;
            }
            let begun = Instant::now();
            inputs.observe(step, last)?;
            network.send(&inputs.observations(last)?, &states)?;
            network.step(&inputs.rows(step)?, &mut states)?;
            if step >= WARM_UP {
                trips.push(milliseconds(begun));
                device.extend(network.device_milliseconds()?);
            }
        }
        let updates_per_second = learner.zip(updates).map(|(learner, mark)| learner.rate_since(mark));
        let device_milliseconds = (!device.is_empty()).then(|| median(&mut device));
        let round_trip_milliseconds = median(&mut trips);
        let flops = environments as f64 * network.networks.agent.layout.flops();
        Ok(InferenceTimes {
            environments,
            milliseconds: device_milliseconds,
            round_trip_milliseconds,
            round_trip_p95_milliseconds: trips[(trips.len() * 95 / 100).min(trips.len() - 1)],
            slowest_milliseconds: trips[trips.len() - 1],
            frames_per_second: environments as f64 * f64::from(self.config.env.action_repeat) * 1e3
                / round_trip_milliseconds,
            teraflops_per_second: flops / device_milliseconds.unwrap_or(round_trip_milliseconds) / 1e9,
            peak_gpu_bytes: peak_gpu_bytes(self.device)?,
            updates_per_second,
        })
    }

    /// Starts a learner on its own thread and waits for its first updates.
    fn start_learner(&self) -> Result<BackgroundLearner> {
        let (stop, updates) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut learner = Learner::new(&self.config.agent, self.observation, self.actions, 0, self.device)?;
        let (trace, batch) = (self.config.replay.trace, self.config.learner.batch_size);
        let (stopping, counted) = (Arc::clone(&stop), Arc::clone(&updates));
        let run = move || -> Result<()> {
            let sequences = random_batch(&learner.networks, trace, &vec![trace; batch], &mut Random::seed_from_u64(3));
            while !stopping.load(Ordering::Relaxed) {
                learner.step(&sequences)?;
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let thread =
            thread::Builder::new().name("learner".to_owned()).spawn(run).context("cannot start the learner")?;
        let learner = BackgroundLearner { thread, stop, updates };
        while learner.updates.load(Ordering::Relaxed) < LEARNER_WARM_UP && !learner.thread.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        if learner.thread.is_finished() {
            learner.finish()?;
            bail!("the learner ended early");
        }
        Ok(learner)
    }
}

/// Random inputs of the networks.
struct ActingInputs {
    /// One per environment.
    observations: Vec<Vec<u8>>,
    /// Memory in which each actor thread puts the observations of its environments.
    threads: Vec<ObservationRows>,
    embedding: Vec<f16>,
    actions: usize,
    policies: usize,
}

impl ActingInputs {
    fn random(network: &ActingNetwork, environments: usize, per_thread: usize) -> Result<Self> {
        let mut random = Random::seed_from_u64(2);
        let networks = &network.networks;
        let bytes = networks.input().spec().bytes();
        let shares: Vec<usize> =
            (0..environments).step_by(per_thread).map(|first| per_thread.min(environments - first)).collect();
        let mut normal = || f16::from_f64(random.sample::<f64, _>(StandardNormal));
        let embedding = (0..networks.embedding_length).map(|_| normal()).collect();
        Ok(Self {
            observations: (0..environments).map(|_| (0..bytes).map(|_| random.random::<u8>()).collect()).collect(),
            threads: network.observation_rows(&shares)?,
            embedding,
            actions: networks.actions,
            policies: networks.policies,
        })
    }

    /// The first environment of a thread.
    fn first(&self, thread: usize) -> usize {
        self.threads[..thread].iter().map(ObservationRows::rows).sum()
    }

    /// Copies the observations of a thread's environments, different ones in each step. In training, threads do this in
    /// parallel.
    fn observe(&mut self, step: usize, thread: usize) -> Result<()> {
        let first = self.first(thread) + step;
        let rows = &mut self.threads[thread];
        for row in 0..rows.rows() {
            let observation = &self.observations[(first + row) % self.observations.len()];
            rows.row_mut(row)?.copy_from_slice(observation);
        }
        Ok(())
    }

    /// A thread's environments and their observations.
    fn observations(&self, thread: usize) -> Result<Vec<(usize, Observation<'_>)>> {
        let (first, rows) = (self.first(thread), &self.threads[thread]);
        (0..rows.rows()).map(|row| Ok((first + row, rows.row(row)?))).collect()
    }

    /// The rows of all environments; the recurrent state is requested where a sequence starts.
    fn rows(&self, step: usize) -> Result<Vec<ActingRow<'_>>> {
        let observations = self.threads.iter().flat_map(|rows| (0..rows.rows()).map(move |row| rows.row(row)));
        let row = |(environment, observation): (usize, agent::Result<_>)| {
            Ok(ActingRow {
                environment,
                first: false,
                wants_state: (step + environment).is_multiple_of(SEQUENCE_PERIOD),
                observation: observation?,
                action: ((step + environment) % self.actions) as i64,
                rewards: StepRewards { extrinsic: 1.0, ngu: 0.1, rnd: 1.5, episodic: 0.2 },
                embedding: &self.embedding,
                policy: environment % self.policies,
                kept_blocks: None,
            })
        };
        observations.enumerate().map(row).collect()
    }
}

/// A learner that runs on its own thread.
struct BackgroundLearner {
    thread: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    updates: Arc<AtomicU64>,
}

impl BackgroundLearner {
    fn mark(&self) -> (Instant, u64) {
        (Instant::now(), self.updates.load(Ordering::Relaxed))
    }

    fn rate_since(&self, (instant, updates): (Instant, u64)) -> f64 {
        (self.updates.load(Ordering::Relaxed) - updates) as f64 / instant.elapsed().as_secs_f64()
    }

    /// Whether it has done enough updates since `mark`, or has failed, which `finish` reports.
    fn is_done_since(&self, (_, updates): (Instant, u64)) -> bool {
        self.updates.load(Ordering::Relaxed) >= updates + LEARNER_UPDATES || self.thread.is_finished()
    }

    fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the learner thread panicked"))?
    }
}
