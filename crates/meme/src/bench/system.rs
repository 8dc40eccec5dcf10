//! `meme bench system`: all of training together on a real task, and where each role's time goes.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use envs::EnvId;
use serde::Serialize;
use train::config::{Config, Device, Sources};
use train::run::stop::Stop;
use train::run::{RunDescription, RunDirectory, Start};
use train::runtime::status::RunStatus;
use train::runtime::timesheet::TimeShare;
use train::runtime::trainer::{self, ProgressDisplay};
use train::runtime::usage::ResourceUsage;

use super::compute::ComputeDevice;
use crate::console::{self, ProgressLine};
use crate::install;
use crate::output::{self, grouped};
use crate::preset::preset_hint;

/// Options of `meme bench system`.
#[derive(Args)]
pub struct SystemArgs {
    /// A game, a task or gym:ENV_ID
    #[arg(default_value = "pong")]
    environment: String,
    /// The preset that the config starts from: paper, quick, desktop, cpu or tiny
    #[arg(long, value_name = "NAME", default_value = "paper")]
    preset: String,
    /// A setting over it, such as replay.minimum_fill=100; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Where to compute [default: a GPU if there is one]
    #[arg(long, value_enum)]
    device: Option<ComputeDevice>,
    /// Seconds that are measured, once learning has begun
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Updates before anything is measured
    #[arg(long, default_value_t = 20)]
    warm_up: u64,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// The stretches of which the slowest is told.
const STRETCH: Duration = Duration::from_secs(10);
/// More frames than are ever played.
const NEVER: u64 = 1 << 50;
/// Between two looks at memory.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks at the GPU's memory, each of which starts a program.
const LOOKS_BETWEEN_DEVICE: u32 = 10;

#[derive(Serialize)]
struct Report {
    environment: String,
    preset: String,
    set: Vec<String>,
    device: String,
    environments: usize,
    evaluators: usize,
    cores: usize,
    warm_up_seconds: f64,
    seconds: f64,
    frames_per_second: f64,
    updates_per_second: f64,
    /// Over the slowest ten seconds.
    lowest_frames_per_second: f64,
    lowest_updates_per_second: f64,
    samples_per_insert: f64,
    /// TimeShare of its time that the learner waited for data.
    learner_idle: f64,
    /// CPU time of this process and its workers by the time that passed.
    cores_used: f64,
    roles: Vec<RoleReport>,
    memory: Memory,
}

#[derive(Serialize)]
struct RoleReport {
    role: &'static str,
    activity: &'static str,
    share: f64,
}

/// The first minute still reserves memory, so that whether it grows shows from half-way to the end.
#[derive(Debug, Serialize)]
struct Memory {
    start: ResourceUsage,
    half_way: ResourceUsage,
    end: ResourceUsage,
    most: ResourceUsage,
    replay_bytes_start: u64,
    replay_bytes_half_way: u64,
    replay_bytes_end: u64,
    readings: Vec<MemoryReading>,
}

/// Memory at one moment of what is measured.
#[derive(Clone, Copy, Debug, Serialize)]
struct MemoryReading {
    /// Since the first reading.
    seconds: f64,
    #[serde(flatten)]
    usage: ResourceUsage,
    replay_bytes: u64,
}

impl Memory {
    /// Of the readings from the first to the last one; half-way is the one after the first that is nearest to it.
    fn new(readings: Vec<MemoryReading>, most: ResourceUsage) -> Option<Self> {
        let (start, end) = (*readings.first()?, *readings.last()?);
        let distance = |reading: &&MemoryReading| (reading.seconds - end.seconds / 2.0).abs();
        let later = readings.iter().skip(1);
        let half_way = *later.min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
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

/// Trains for a while in a folder that is thrown away, and prints.
pub fn run(args: &SystemArgs) -> Result<()> {
    // Before there are threads of libtorch, which must not take signals.
    let stop = Stop::on_signals()?;
    ensure!(args.seconds > 0, "--seconds must be at least 1");
    let environment: EnvId = args.environment.parse()?;
    let mut set = args.set.clone();
    set.extend(args.device.map(|device| match device {
        ComputeDevice::Cpu => "run.device=cpu".to_owned(),
        ComputeDevice::Cuda => "run.device=cuda".to_owned(),
    }));
    let sources = Sources { preset: Some(args.preset.clone()), file: None, set };
    let mut config = crate::config::load(&sources)?.config;
    ensure!(!config.run.lockstep, "in lockstep one thread does everything, so there are no roles to tell apart");
    // It ends by the clock.
    config.run.frames = NEVER;
    if config.run.threads > 0 {
        tch::set_num_threads(i32::try_from(config.run.threads)?);
    }
    if let Some(hint) = preset_hint(&environment, &args.preset, trainer::device(&config)?) {
        console::warn(hint);
    }
    let folder = tempfile::tempdir().context("cannot create a temporary directory")?;
    let description = RunDescription::new(&environment.to_string(), &args.preset, config.run.seed);
    let (directory, _) = RunDirectory::open(folder.path(), "bench", Start::Continue, description, &config.to_toml()?)?;
    let task = install::task(environment)?;
    let on_device = config.run.device != Device::Cpu && tch::Cuda::is_available();
    let watch = MemoryWatch::start(on_device)?;
    let mut bench = Bench {
        warm_up: args.warm_up,
        seconds: Duration::from_secs(args.seconds),
        stop: stop.clone(),
        memory: Arc::clone(&watch.memory),
        begun: Instant::now(),
        progress: ProgressLine::new(),
        readings: Vec::new(),
    };
    let outcome = trainer::rehearse(&task, &config, &directory, &stop, &mut bench);
    bench.progress.clear();
    watch.finish();
    outcome?;
    let report = bench.report(args, &config, on_device)?;
    if args.json { output::print_json(&report) } else { output::print(&table(&report)) }
}

/// Looks at memory from a thread of its own, so that nothing that is measured waits for it.
struct MemoryWatch {
    memory: Arc<Mutex<Looks>>,
    stop: Stop,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Looks {
    last: ResourceUsage,
    most: ResourceUsage,
}

impl MemoryWatch {
    fn start(device: bool) -> Result<Self> {
        let (memory, stop) = (Arc::new(Mutex::new(Looks::default())), Stop::new());
        let (shared, stopping) = (Arc::clone(&memory), stop.clone());
        let look = move || {
            let mut looks = 0;
            loop {
                // What can't be seen is left as it was.
                if let Ok(usage) = ResourceUsage::now(device && looks % LOOKS_BETWEEN_DEVICE == 0) {
                    shared.lock().unwrap_or_else(PoisonError::into_inner).take(usage);
                }
                looks += 1;
                if stopping.wait(LOOK) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("memory".to_owned()).spawn(look);
        let thread = thread.context("the thread that measures memory could not be started")?;
        Ok(Self { memory, stop, thread })
    }

    fn finish(self) {
        self.stop.request();
        // It only looks on: a panic of its own is on the screen already.
        let _ = self.thread.join();
    }
}

impl Looks {
    fn take(&mut self, usage: ResourceUsage) {
        let device_bytes = usage.device_bytes.or(self.last.device_bytes);
        self.last = ResourceUsage { device_bytes, ..usage };
        self.most.own_bytes = self.most.own_bytes.max(usage.own_bytes);
        self.most.worker_bytes = self.most.worker_bytes.max(usage.worker_bytes);
        self.most.device_bytes = self.most.device_bytes.max(usage.device_bytes);
    }
}

/// How the run stood at one moment.
struct Reading {
    at: Instant,
    status: RunStatus,
    usage: ResourceUsage,
}

/// Something that is counted.
type Count = fn(&RunStatus) -> u64;

/// Watches the run, and stops it when enough is measured.
struct Bench {
    warm_up: u64,
    seconds: Duration,
    stop: Stop,
    memory: Arc<Mutex<Looks>>,
    begun: Instant,
    progress: ProgressLine,
    /// From the end of the warm-up on, one a stretch, and one at the end.
    readings: Vec<Reading>,
}

impl ProgressDisplay for Bench {
    fn status(&mut self, status: &RunStatus) {
        let measured = self.readings.first().map(|first| first.at.elapsed());
        let is_done = measured.is_some_and(|measured| measured >= self.seconds);
        let is_due = match self.readings.last() {
            None => status.updates >= self.warm_up,
            Some(last) => last.at.elapsed() >= STRETCH,
        };
        if (is_due || is_done) && !self.stop.is_requested() {
            let mut looks = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            if self.readings.is_empty() {
                looks.most = looks.last;
            }
            let usage = looks.last;
            drop(looks);
            self.readings.push(Reading { at: Instant::now(), status: status.clone(), usage });
        }
        if is_done {
            self.stop.request();
        }
        self.progress.show(|| {
            let doing = match measured {
                None => format!("warming up for {} updates", self.warm_up),
                Some(measured) => format!("{:.0} of {} s", measured.as_secs_f64(), self.seconds.as_secs()),
            };
            let RunStatus { frames, updates, frames_per_second, updates_per_second, .. } = status;
            let waits = status.waits_for.as_ref().map_or(String::new(), |what| format!("; waiting for {what}"));
            format!(
                "{doing}: {} frames, {frames_per_second:.0}/s, {updates} updates, {updates_per_second:.2}/s{waits}",
                grouped(*frames)
            )
        });
    }

    fn say(&mut self, sentence: &str) {
        self.progress.warn(sentence);
    }
}

impl Bench {
    fn report(&self, args: &SystemArgs, config: &Config, on_device: bool) -> Result<Report> {
        let most = self.memory.lock().unwrap_or_else(PoisonError::into_inner).most;
        let ([first, .., last], Some(memory)) = (&self.readings[..], Memory::new(self.memory_readings(), most)) else {
            bail!("the run was stopped before anything was measured");
        };
        let seconds = (last.at - first.at).as_secs_f64();
        let rate = |from: &Reading, to: &Reading, of: Count| {
            (of(&to.status) - of(&from.status)) as f64 / (to.at - from.at).as_secs_f64()
        };
        // The last stretch may be too short to judge by; the only one is all there is.
        let whole: Vec<&[Reading]> =
            self.readings.windows(2).filter(|pair| pair[1].at - pair[0].at >= STRETCH).collect();
        let lowest = |of: Count| {
            let rates = whole.iter().map(|pair| rate(&pair[0], &pair[1], of));
            rates.reduce(f64::min).unwrap_or(rate(first, last, of))
        };
        let frames: Count = |status| status.frames;
        let updates: Count = |status| status.updates;
        let shares: Vec<TimeShare> = match (&first.status.times, &last.status.times) {
            (Some(first), Some(last)) => last.shares_since(first),
            _ => Vec::new(),
        };
        let idle = shares.iter().find(|share| (share.role, share.activity) == ("learner", "waiting"));
        let inserted = last.status.inserted - first.status.inserted;
        Ok(Report {
            environment: args.environment.clone(),
            preset: args.preset.clone(),
            set: args.set.clone(),
            device: if on_device { "cuda".to_owned() } else { "cpu".to_owned() },
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
            roles: shares
                .into_iter()
                .map(|TimeShare { role, activity, share }| RoleReport { role, activity, share })
                .collect(),
            memory,
        })
    }

    fn memory_readings(&self) -> Vec<MemoryReading> {
        let begun = self.readings.first().map_or(self.begun, |first| first.at);
        let of = |reading: &Reading| MemoryReading {
            seconds: (reading.at - begun).as_secs_f64(),
            usage: reading.usage,
            replay_bytes: reading.status.replay_bytes,
        };
        self.readings.iter().map(of).collect()
    }
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{} with the preset {} on {}, {} environments, {} evaluators, {} cores\n\
         measured for {:.0} s after a warm-up of {:.0} s; lowest: over the slowest 10 s\n\n",
        report.environment,
        report.preset,
        report.device,
        report.environments,
        report.evaluators,
        report.cores,
        report.seconds,
        report.warm_up_seconds,
    );
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        text,
        "{:<20} {:>10} (lowest {})\n{:<20} {:>10.2} (lowest {:.2})\n{:<20} {:>10.2}\n{:<20} {:>9.1} %\n{:<20} {:>10.2}",
        "frames/s",
        grouped(report.frames_per_second as u64),
        grouped(report.lowest_frames_per_second as u64),
        "updates/s",
        report.updates_per_second,
        report.lowest_updates_per_second,
        "samples per insert",
        report.samples_per_insert,
        "learner idle",
        100.0 * report.learner_idle,
        "cores used",
        report.cores_used,
    );
    let mut role = "";
    for share in &report.roles {
        if share.role != role {
            let _ = writeln!(text, "\n{}", share.role);
            role = share.role;
        }
        let _ = writeln!(text, "  {:<26} {:>5.1} %", share.activity.replace('_', " "), 100.0 * share.share);
    }
    text + &memory_table(&report.memory)
}

fn memory_table(memory: &Memory) -> String {
    let Memory { start, half_way, end, most, .. } = memory;
    let line = |name: &str, cells: [&str; 4]| {
        let [start, half_way, end, most] = cells;
        format!("{name:<20} {start:>10} {half_way:>10} {end:>10} {most:>10}\n")
    };
    let row = |name: &str, values: [u64; 4]| {
        let cells = values.map(|bytes| grouped(bytes / 1_000_000));
        line(name, cells.each_ref().map(String::as_str))
    };
    let all = |of: fn(&ResourceUsage) -> u64| [start, half_way, end, most].map(of);
    // Replay only grows until it is full, so that the most is at the end.
    let replay = [memory.replay_bytes_start, memory.replay_bytes_half_way, memory.replay_bytes_end];
    let [replay_start, replay_half_way, replay_end] = replay;
    let mut text = format!("\n{}", line("memory, MB", ["at start", "half-way", "at the end", "most"]));
    text += &row("this process", all(|usage| usage.own_bytes));
    text += &row("of it replay", [replay_start, replay_half_way, replay_end, replay_end]);
    text += &row("workers", all(|usage| usage.worker_bytes));
    if [start, half_way, end, most].iter().all(|usage| usage.device_bytes.is_some()) {
        text += &row("GPU", all(|usage| usage.device_bytes.unwrap_or(0)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_remembered_and_the_gpus_memory_kept_between_looks() {
        let mut looks = Looks::default();
        let usage = |own_bytes, device_bytes| ResourceUsage { own_bytes, device_bytes, ..ResourceUsage::default() };
        looks.take(usage(5, Some(7)));
        looks.take(usage(9, None));
        looks.take(usage(3, None));
        assert_eq!((looks.last.own_bytes, looks.last.device_bytes), (3, Some(7)));
        assert_eq!((looks.most.own_bytes, looks.most.device_bytes), (9, Some(7)));
    }

    fn reading(seconds: f64, megabytes: u64) -> MemoryReading {
        let bytes = megabytes * 1_000_000;
        let usage =
            ResourceUsage { own_bytes: bytes, worker_bytes: 7_000_000, device_bytes: None, ..ResourceUsage::default() };
        MemoryReading { seconds, usage, replay_bytes: bytes / 10 }
    }

    #[test]
    fn half_way_stands_between_the_start_and_the_end() {
        let readings = vec![reading(0.0, 1000), reading(10.0, 1500), reading(21.0, 2000), reading(40.0, 2010)];
        let most = ResourceUsage { own_bytes: 2_020_000_000, worker_bytes: 8_000_000, ..ResourceUsage::default() };
        let memory = Memory::new(readings, most).unwrap();
        assert_eq!(
            memory_table(&memory),
            "\n\
             memory, MB             at start   half-way at the end       most\n\
             this process              1 000      2 000      2 010      2 020\n\
             of it replay                100        200        201        201\n\
             workers                       7          7          7          8\n"
        );
        let json = serde_json::to_value(&memory).unwrap();
        assert_eq!(json["half_way"]["own_bytes"], 2_000_000_000u64);
        assert_eq!(json["replay_bytes_half_way"], 200_000_000);
        let series: Vec<_> = json["readings"].as_array().unwrap().iter().map(|one| one["seconds"].as_f64()).collect();
        assert_eq!(series, [0.0, 10.0, 21.0, 40.0].map(Some));
        let keys = ["seconds", "own_bytes", "worker_bytes", "device_bytes", "replay_bytes"];
        assert!(keys.iter().all(|key| json["readings"][2].get(key).is_some()), "{json}");
    }

    #[test]
    fn too_short_a_measurement_has_nothing_half_way_but_its_end() {
        let memory = Memory::new(vec![reading(0.0, 1), reading(5.0, 2)], ResourceUsage::default()).unwrap();
        assert_eq!(memory.half_way.own_bytes, memory.end.own_bytes);
        assert!(Memory::new(vec![reading(0.0, 1)], ResourceUsage::default()).is_none());
    }
}
