//! `meme bench system`: complete training in an environment, and where each role's time goes.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::config::{Config, Device};
use train::device::device;
use train::roles::timesheet::TimeShare;
use train::run::stop::Stop;
use train::run::{ExistingRun, RunDescription, RunDirectory};
use train::runtime::starting_point::StartingPoint;
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, ProgressDisplay, TrainingSetup};
use train::runtime::usage::ResourceUsage;

use super::{BenchDevice, text};
use crate::config::ConfigArgs;
use crate::console::{self, ProgressLine};
use crate::locked::locked;
use crate::output::grouped;
use crate::preset::preset_warning;
use crate::run_args::set_threads;
use crate::{install, options};

/// Arguments of `meme bench system`. The default preset is paper.
#[derive(Args)]
pub struct SystemArgs {
    /// A game, a task or gym:ENV_ID
    #[arg(default_value = "pong")]
    environment: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Device to compute on [default: a GPU if there is one]
    #[arg(long, value_enum)]
    device: Option<BenchDevice>,
    /// Seconds to measure, once learning has begun
    #[arg(long, default_value_t = 60, value_parser = options::count::<u64>())]
    seconds: u64,
    /// Updates before the measurement
    #[arg(long, default_value_t = 20, value_parser = options::integer::<u64>(0, u32::MAX.into()))]
    warm_up: u64,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Length of the periods of which the slowest is reported.
const PERIOD: Duration = Duration::from_secs(10);
/// More frames than any benchmark plays.
const ENDLESS: u64 = 1 << 50;
/// Time between two readings of memory.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
/// GPU memory is read less often, as each reading starts a program.
const READINGS_PER_GPU_READING: u32 = 10;

#[derive(Serialize)]
struct SystemReport {
    environment: String,
    preset: String,
    set: Vec<String>,
    device: &'static str,
    environments: usize,
    evaluators: usize,
    cores: usize,
    warm_up_seconds: f64,
    seconds: f64,
    frames_per_second: f64,
    updates_per_second: f64,
    /// In the slowest ten seconds.
    lowest_frames_per_second: f64,
    lowest_updates_per_second: f64,
    samples_per_insert: f64,
    /// Share of its time that the learner waits for data.
    learner_idle: f64,
    /// CPU time of this process and its workers per second.
    cores_used: f64,
    roles: Vec<TimeShare>,
    memory: MemoryReport,
}

/// Memory over time. Growth shows between the middle and the end, as the first minute still reserves memory.
#[derive(Debug, Serialize)]
struct MemoryReport {
    start: ResourceUsage,
    half_way: ResourceUsage,
    end: ResourceUsage,
    most: ResourceUsage,
    replay_bytes_start: u64,
    replay_bytes_half_way: u64,
    replay_bytes_end: u64,
    readings: Vec<MemoryReading>,
}

/// Memory at one moment of the measurement.
#[derive(Clone, Copy, Debug, Serialize)]
struct MemoryReading {
    /// Time since the first reading.
    seconds: f64,
    #[serde(flatten)]
    usage: ResourceUsage,
    replay_bytes: u64,
}

impl MemoryReport {
    /// Summarises the readings; `None` if there are fewer than two.
    fn new(readings: Vec<MemoryReading>, most: ResourceUsage) -> Option<Self> {
        let (start, end) = (*readings.first()?, *readings.last()?);
        let distance = |reading: &&MemoryReading| (reading.seconds - end.seconds / 2.0).abs();
        let half_way = *readings.iter().skip(1).min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        Some(Self {
            start: start.usage,
            half_way: half_way.usage,
            end: end.usage,
            most,
            replay_bytes_start: start.replay_bytes,
            replay_bytes_half_way: half_way.replay_bytes,
            replay_bytes_end: end.replay_bytes,
            readings,
        })
    }
}

/// Trains in a temporary directory and prints the results.
pub fn run(args: &SystemArgs) -> Result<()> {
    // Before libtorch starts threads, which must not receive signals.
    let stop = Stop::on_signals()?;
    let environment: EnvId = args.environment.parse()?;
    let (preset, mut config) = args.config.load("paper")?;
    match args.device {
        Some(BenchDevice::Cpu) => config.run.device = Device::Cpu,
        Some(BenchDevice::Cuda) => config.run.device = Device::Cuda,
        None => {}
    }
    ensure!(
        !config.run.lockstep,
        "run.lockstep is on: a single thread does everything, so there are no roles to compare"
    );
    config.run.frames = ENDLESS;
    set_threads(&config)?;
    if let Some(warning) = preset_warning(&environment, &preset, device(&config)?) {
        console::warn(warning);
    }
    let scratch = tempfile::tempdir().context("cannot create a temporary directory")?;
    let description = RunDescription::new(&environment.to_string(), &preset, config.run.seed);
    let (directory, _) =
        RunDirectory::open(scratch.path(), "bench", ExistingRun::Resume, description, &config.to_toml()?)?;
    let on_gpu = config.run.device != Device::Cpu && tch::Cuda::is_available();
    let mut bench = SystemBench {
        warm_up: args.warm_up,
        seconds: Duration::from_secs(args.seconds),
        stop: stop.clone(),
        memory: watch_memory(on_gpu)?,
        begun: Instant::now(),
        progress: ProgressLine::new(),
        readings: Vec::new(),
    };
    let (task, from) = (&install::task(environment)?, StartingPoint::Nothing);
    let setup = TrainingSetup { task, config: &config, directory: &directory, from, remote: None };
    let outcome = trainer::rehearse(setup, &stop, &mut bench);
    bench.progress.clear();
    outcome?;
    text::print(
        args.json,
        "complete training, and where each role's time goes",
        &bench.report(args, preset, &config, on_gpu)?,
    )
}

/// The last reading and the largest values so far.
#[derive(Default)]
struct MemoryPeaks {
    last: ResourceUsage,
    most: ResourceUsage,
}

/// Reads memory on its own thread, so that training does not wait for it, until the result is dropped.
fn watch_memory(gpu: bool) -> Result<Arc<Mutex<MemoryPeaks>>> {
    let memory = Arc::new(Mutex::new(MemoryPeaks::default()));
    let watched = Arc::downgrade(&memory);
    let watch = move || {
        for reading in 0.. {
            let Some(memory) = watched.upgrade() else { return };
            // A failed reading is skipped.
            if let Ok(usage) = ResourceUsage::now(gpu && reading % READINGS_PER_GPU_READING == 0) {
                locked(&memory).add(usage);
            }
            drop(memory);
            thread::sleep(MEMORY_INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("memory".to_owned()).spawn(watch);
    thread.context("cannot start the thread that measures memory")?;
    Ok(memory)
}

impl MemoryPeaks {
    fn add(&mut self, usage: ResourceUsage) {
        let device_bytes = usage.device_bytes.or(self.last.device_bytes);
        self.last = ResourceUsage { device_bytes, ..usage };
        self.most.own_bytes = self.most.own_bytes.max(usage.own_bytes);
        self.most.worker_bytes = self.most.worker_bytes.max(usage.worker_bytes);
        self.most.device_bytes = self.most.device_bytes.max(usage.device_bytes);
    }
}

/// State of the run at one moment.
struct RunReading {
    at: Instant,
    status: RunStatus,
    usage: ResourceUsage,
}

/// A counter of the run.
type Counter = fn(&RunStatus) -> u64;

/// Observes the run and stops it at the end of the measurement.
struct SystemBench {
    warm_up: u64,
    seconds: Duration,
    stop: Stop,
    memory: Arc<Mutex<MemoryPeaks>>,
    begun: Instant,
    progress: ProgressLine,
    /// One per period, from the end of the warm-up, and one at the end.
    readings: Vec<RunReading>,
}

impl ProgressDisplay for SystemBench {
    fn status(&mut self, status: &RunStatus) {
        let measured = self.readings.first().map(|first| first.at.elapsed());
        let is_done = measured.is_some_and(|measured| measured >= self.seconds);
        let is_due = match self.readings.last() {
            None => status.updates >= self.warm_up,
            Some(last) => last.at.elapsed() >= PERIOD,
        };
        if (is_due || is_done) && !self.stop.is_requested() {
            let mut memory = locked(&self.memory);
            if self.readings.is_empty() {
                memory.most = memory.last;
            }
            let usage = memory.last;
            drop(memory);
            self.readings.push(RunReading { at: Instant::now(), status: status.clone(), usage });
        }
        if is_done {
            self.stop.request();
        }
        self.progress.show(|| {
            let phase = match measured {
                None => format!("warm-up of {} updates", self.warm_up),
                Some(measured) => format!("{:.0} of {} s", measured.as_secs_f64(), self.seconds.as_secs()),
            };
            let RunStatus { frames, updates, frames_per_second, updates_per_second, .. } = status;
            let waits = status.waits_for.as_ref().map_or(String::new(), |what| format!("; waiting for {what}"));
            format!(
                "{phase}: {} frames, {frames_per_second:.0}/s, {updates} updates, {updates_per_second:.2}/s{waits}",
                grouped(*frames)
            )
        });
    }

    fn message(&mut self, text: &str) {
        self.progress.message(text);
    }
}

impl SystemBench {
    fn report(&self, args: &SystemArgs, preset: String, config: &Config, on_gpu: bool) -> Result<SystemReport> {
        let most = locked(&self.memory).most;
        let ([first, .., last], Some(memory)) = (&self.readings[..], MemoryReport::new(self.memory_readings(), most))
        else {
            bail!("stopped before anything was measured");
        };
        let seconds = (last.at - first.at).as_secs_f64();
        let rate = |from: &RunReading, to: &RunReading, of: Counter| {
            (of(&to.status) - of(&from.status)) as f64 / (to.at - from.at).as_secs_f64()
        };
        // The last period may be too short.
        let periods: Vec<&[RunReading]> =
            self.readings.windows(2).filter(|pair| pair[1].at - pair[0].at >= PERIOD).collect();
        let lowest = |of: Counter| {
            let rates = periods.iter().map(|pair| rate(&pair[0], &pair[1], of));
            rates.reduce(f64::min).unwrap_or(rate(first, last, of))
        };
        let frames: Counter = |status| status.frames;
        let updates: Counter = |status| status.updates;
        let shares: Vec<TimeShare> = match (&first.status.times, &last.status.times) {
            (Some(first), Some(last)) => last.shares_since(first),
            _ => Vec::new(),
        };
        let idle = shares.iter().find(|share| (share.role, share.activity) == ("learner", "waiting"));
        let inserted = last.status.inserted - first.status.inserted;
        Ok(SystemReport {
            environment: args.environment.clone(),
            preset,
            set: args.config.set.clone(),
            device: if on_gpu { "cuda" } else { "cpu" },
            environments: config.actors.environments,
            evaluators: config.evaluation.evaluators,
            cores: thread::available_parallelism()?.get(),
            warm_up_seconds: (first.at - self.begun).as_secs_f64(),
            seconds,
            frames_per_second: rate(first, last, frames),
            updates_per_second: rate(first, last, updates),
            lowest_frames_per_second: lowest(frames),
            lowest_updates_per_second: lowest(updates),
            samples_per_insert: (last.status.sampled - first.status.sampled) as f64 / inserted.max(1) as f64,
            learner_idle: idle.map_or(0.0, |share| share.share),
            cores_used: (last.usage.cpu.saturating_sub(first.usage.cpu)).as_secs_f64() / seconds,
            roles: shares,
            memory,
        })
    }

    fn memory_readings(&self) -> Vec<MemoryReading> {
        let begun = self.readings.first().map_or(self.begun, |first| first.at);
        let of = |reading: &RunReading| MemoryReading {
            seconds: (reading.at - begun).as_secs_f64(),
            usage: reading.usage,
            replay_bytes: reading.status.replay_bytes,
        };
        self.readings.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_kept_and_gpu_memory_is_carried_over() {
        let mut peaks = MemoryPeaks::default();
        let usage = |own_bytes, device_bytes| ResourceUsage { own_bytes, device_bytes, ..ResourceUsage::default() };
        peaks.add(usage(5, Some(7)));
        peaks.add(usage(9, None));
        peaks.add(usage(3, None));
        assert_eq!((peaks.last.own_bytes, peaks.last.device_bytes), (3, Some(7)));
        assert_eq!((peaks.most.own_bytes, peaks.most.device_bytes), (9, Some(7)));
    }

    fn reading(seconds: f64, megabytes: u64) -> MemoryReading {
        let bytes = megabytes * 1_000_000;
        let usage =
            ResourceUsage { own_bytes: bytes, worker_bytes: 7_000_000, device_bytes: None, ..ResourceUsage::default() };
        MemoryReading { seconds, usage, replay_bytes: bytes / 10 }
    }

    #[test]
    fn half_way_is_between_start_and_end() {
        let readings = vec![reading(0.0, 1000), reading(10.0, 1500), reading(21.0, 2000), reading(40.0, 2010)];
        let most = ResourceUsage { own_bytes: 2_020_000_000, worker_bytes: 8_000_000, ..ResourceUsage::default() };
        let memory = MemoryReport::new(readings, most).unwrap();
        let json = serde_json::to_value(&memory).unwrap();
        assert_eq!(json["half_way"]["own_bytes"], 2_000_000_000u64);
        assert_eq!(
            (&json["end"]["own_bytes"], &json["most"]["own_bytes"]),
            (&2_010_000_000u64.into(), &2_020_000_000u64.into())
        );
        assert_eq!(json["replay_bytes_half_way"], 200_000_000);
        let series: Vec<_> = json["readings"].as_array().unwrap().iter().map(|one| one["seconds"].as_f64()).collect();
        assert_eq!(series, [0.0, 10.0, 21.0, 40.0].map(Some));
        let keys = ["seconds", "own_bytes", "worker_bytes", "device_bytes", "replay_bytes"];
        assert!(keys.iter().all(|key| json["readings"][2].get(key).is_some()), "{json}");
    }

    #[test]
    fn short_measurement_is_half_way_at_its_end() {
        let memory = MemoryReport::new(vec![reading(0.0, 1), reading(5.0, 2)], ResourceUsage::default()).unwrap();
        assert_eq!(memory.half_way.own_bytes, memory.end.own_bytes);
        assert!(MemoryReport::new(vec![reading(0.0, 1)], ResourceUsage::default()).is_none());
    }
}
