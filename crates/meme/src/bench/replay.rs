//! `meme bench replay`: what the replay costs, beside an uncompressed ring of the same steps in the same run.

mod recording;
mod ring;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rand::SeedableRng;
use rand_xoshiro::SplitMix64;
use replay::{RateLimiterConfig, Replay, ReplayConfig, Sampler, SequenceBatch, Snapshot, Writer};
use serde::Serialize;
use train::runtime::usage;

use self::recording::Recording;
use self::ring::Ring;
use super::measure::{median, thread_cpu};
use crate::console::ProgressLine;
use crate::{install, output};

/// Options of `meme bench replay`.
#[derive(Args)]
pub struct ReplayArgs {
    /// The game or task to play, with random actions
    #[arg(long, default_value = "pong")]
    game: String,
    /// Agent steps to record
    #[arg(long, default_value_t = 8_000)]
    steps: usize,
    /// Environments that play at once
    #[arg(long, default_value_t = 8)]
    envs: usize,
    /// Sequences of a batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Observations of a sequence; a new one begins after half of them
    #[arg(long, default_value_t = 160)]
    trace: usize,
    /// Times that the recording is inserted; the median of them is reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Batches to sample for each number of threads
    #[arg(long, default_value_t = 20)]
    batches: usize,
    /// Fill a replay with so many sequences by writing the recording again and again, and time a snapshot of it
    #[arg(long, value_name = "SEQUENCES")]
    fill: Option<usize>,
    /// Where the snapshot of --fill is written, and then removed
    #[arg(long, default_value = "bench-replay.snapshot", requires = "fill")]
    snapshot: PathBuf,
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    game: String,
    observation_bytes: usize,
    steps: u64,
    sequences: u64,
    episodes: usize,
    /// Everything counted: frames, other columns, states, indices.
    bytes_per_step: f64,
    frame_bytes_per_step: f64,
    insert: Insert,
    ring_insert: Insert,
    sampling: Vec<Sampling>,
    forecast: String,
    fill: Option<Fill>,
}

#[derive(Serialize)]
struct Insert {
    steps_per_second: f64,
    cpu_us_per_step: f64,
}

#[derive(Serialize)]
struct Sampling {
    threads: usize,
    batch: usize,
    trace: usize,
    /// Sampled observations a second of wall time.
    frames_per_second: f64,
    /// Sampled observations a second of CPU time, on one thread only.
    frames_per_cpu_second: Option<f64>,
    median_batch_ms: f64,
    ring_frames_per_second: f64,
    ring_frames_per_cpu_second: Option<f64>,
    ring_median_batch_ms: f64,
}

#[derive(Serialize)]
struct Fill {
    sequences: u64,
    steps: u64,
    bytes: u64,
    resident_bytes: Option<u64>,
    seconds: f64,
    snapshot_bytes: u64,
    snapshot_locked_ms: f64,
    snapshot_seconds: f64,
    restore_seconds: f64,
}

/// Measures and prints.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let counts = [args.steps, args.batch, args.batches, args.rounds];
    ensure!(!counts.contains(&0), "--steps, --batch, --batches and --rounds must be at least 1");
    let mut worker = install::worker_config(args.game.parse()?)?;
    worker.environments = args.envs;
    let recording = Recording::play(&worker, |spec| config(args, spec.observation_bytes()).layout, args.steps)?;
    let config = config(args, recording.spec.observation_bytes());
    let replay = Replay::new(config)?;
    let mut ring = Ring::new(config.layout, recording.observations());
    let mut writers: Vec<Writer> = (0..config.shards as u32).map(|actor| Writer::new(&replay, actor)).collect();
    let insert = measure_insert(args, &recording, |number, episode| {
        let writer = &mut writers[number % config.shards];
        recording.write(&config.layout, episode, writer)?;
        writer.flush(Duration::ZERO)?;
        Ok(())
    })?;
    let ring_insert = measure_insert(args, &recording, |number, episode| {
        if number == 0 {
            ring.clear();
        }
        ring.insert(episode);
        Ok(())
    })?;
    let sampling =
        thread_counts().map(|threads| measure_sampling(args, &replay, &ring, threads)).collect::<Result<_>>()?;
    let held = replay.accounting();
    let forecast = config.forecast();
    let index_bytes_per_step = forecast.index_bytes as f64 / forecast.steps as f64;
    drop((writers, replay, ring));
    let report = Report {
        game: args.game.clone(),
        observation_bytes: config.layout.observation_bytes,
        steps: recording.observations() as u64,
        sequences: held.sequences / args.rounds as u64,
        episodes: recording.episodes.len(),
        bytes_per_step: held.bytes_per_step() + index_bytes_per_step,
        frame_bytes_per_step: held.frame_bytes_per_step(),
        insert,
        ring_insert,
        sampling,
        forecast: forecast.to_string(),
        fill: args.fill.map(|sequences| measure_fill(args, &recording, config, sequences)).transpose()?,
    };
    if args.json { output::print_json(&report) } else { output::print(&lines(&report)) }
}

/// The paper's replay, nothing waiting for anything.
fn config(args: &ReplayArgs, observation_bytes: usize) -> ReplayConfig {
    let mut config = ReplayConfig::paper(observation_bytes, 2 * 1024);
    config.layout.trace = args.trace;
    config.layout.period = args.trace / 2;
    config.rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
    config
}

/// Inserts the recording several times over; the median round counts.
fn measure_insert(
    args: &ReplayArgs,
    recording: &Recording,
    mut insert: impl FnMut(usize, &recording::Episode) -> Result<()>,
) -> Result<Insert> {
    let steps = recording.observations() as f64;
    let (mut wall_times, mut cpu_times) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let (begun, cpu) = (Instant::now(), thread_cpu()?);
        for (number, episode) in recording.episodes.iter().enumerate() {
            insert(number, episode)?;
        }
        cpu_times.push((thread_cpu()? - cpu).as_secs_f64());
        wall_times.push(begun.elapsed().as_secs_f64());
    }
    Ok(Insert {
        steps_per_second: steps / median(&mut wall_times),
        cpu_us_per_step: median(&mut cpu_times) * 1e6 / steps,
    })
}

/// 1, 2, 4 ... up to the machine's cores.
fn thread_counts() -> impl Iterator<Item = usize> {
    let cores = available_parallelism().map_or(1, usize::from);
    std::iter::successors(Some(1), move |threads| Some(threads * 2).filter(|&threads| threads <= cores))
}

fn measure_sampling(args: &ReplayArgs, replay: &Arc<Replay>, ring: &Ring, threads: usize) -> Result<Sampling> {
    let mut batch = SequenceBatch::new(&replay.config().layout, args.batch);
    let mut sampler = Sampler::new(replay, threads);
    let ours = measure_batches(args, || {
        sampler.sample(&mut batch, Duration::ZERO)?;
        Ok(())
    })?;
    let mut random = SplitMix64::seed_from_u64(1);
    let beside = measure_batches(args, || {
        ring.sample(&mut random, &mut batch.observations, threads);
        Ok(())
    })?;
    let on_one = |cpu: f64| (threads == 1).then_some(cpu);
    Ok(Sampling {
        threads,
        batch: args.batch,
        trace: args.trace,
        frames_per_second: ours.per_second,
        frames_per_cpu_second: on_one(ours.per_cpu_second),
        median_batch_ms: ours.median_ms,
        ring_frames_per_second: beside.per_second,
        ring_frames_per_cpu_second: on_one(beside.per_cpu_second),
        ring_median_batch_ms: beside.median_ms,
    })
}

struct Batches {
    per_second: f64,
    per_cpu_second: f64,
    median_ms: f64,
}

fn measure_batches(args: &ReplayArgs, mut sample: impl FnMut() -> Result<()>) -> Result<Batches> {
    // The first batch touches the memory of the buffers for the first time.
    sample()?;
    let mut times = Vec::new();
    let (begun, cpu) = (Instant::now(), thread_cpu()?);
    for _ in 0..args.batches {
        let begun = Instant::now();
        sample()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let (wall, cpu) = (begun.elapsed(), thread_cpu()? - cpu);
    let frames = (args.batches * args.batch * args.trace) as f64;
    Ok(Batches {
        per_second: frames / wall.as_secs_f64(),
        per_cpu_second: frames / cpu.as_secs_f64(),
        median_ms: median(&mut times),
    })
}

fn measure_fill(args: &ReplayArgs, recording: &Recording, mut config: ReplayConfig, sequences: usize) -> Result<Fill> {
    config.capacity = sequences;
    let replay = Replay::new(config)?;
    let begun = Instant::now();
    let mut progress = ProgressLine::new();
    let mut writers: Vec<Writer> = (0..config.shards as u32).map(|actor| Writer::new(&replay, actor)).collect();
    'full: loop {
        for episode in &recording.episodes {
            for writer in &mut writers {
                recording.write(&config.layout, episode, writer)?;
                writer.flush(Duration::ZERO)?;
            }
            let held = replay.accounting();
            if held.sequences == sequences as u64 {
                break 'full;
            }
            progress.show(|| format!("filling: {held}"));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let held = replay.accounting();
    let resident_bytes = usage::resident_bytes();
    progress.show(|| "writing the snapshot".to_owned());
    let begun = Instant::now();
    let snapshot = Snapshot::take(&replay, writers.iter().map(Writer::state).collect());
    let locked = begun.elapsed();
    let path = &args.snapshot;
    let written = write(&snapshot, path);
    if written.is_err() {
        // The disk may be full: what can't be used should not stay there. Nothing is lost if this fails too.
        let _ = fs::remove_file(path);
    }
    let snapshot_bytes = written.with_context(|| format!("{} can't be written", path.display()))?;
    let snapshot_seconds = begun.elapsed().as_secs_f64();
    drop((writers, replay));
    let begun = Instant::now();
    let restored = Snapshot::restore_from(File::open(path)?, &config);
    let restore_seconds = begun.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    progress.clear();
    let restored = restored?.replay.accounting();
    ensure!(restored == held, "the restored replay differs: {restored} instead of {held}");
    Ok(Fill {
        sequences: held.sequences,
        steps: held.steps,
        bytes: held.bytes(),
        resident_bytes,
        seconds,
        snapshot_bytes,
        snapshot_locked_ms: locked.as_secs_f64() * 1e3,
        snapshot_seconds,
        restore_seconds,
    })
}

/// Writes a snapshot to the disk; its bytes.
fn write(snapshot: &Snapshot, path: &Path) -> Result<u64> {
    let mut file = File::create(path)?;
    snapshot.write_to(&mut file)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn lines(report: &Report) -> String {
    let mut text = format!(
        "{}: {} steps of {} bytes, {} episodes, {} sequences\n\
         bytes a step         {:>10.1}  everything counted, of which frames {:.1}\n\
         inserting            {:>10.0}  steps/s, {:.1} us of CPU a step\n\
         {:>31.0}  uncompressed ring, {:.1} us\n",
        report.game,
        output::grouped(report.steps),
        output::grouped(report.observation_bytes as u64),
        report.episodes,
        report.sequences,
        report.bytes_per_step,
        report.frame_bytes_per_step,
        report.insert.steps_per_second,
        report.insert.cpu_us_per_step,
        report.ring_insert.steps_per_second,
        report.ring_insert.cpu_us_per_step,
    );
    for s in &report.sampling {
        let cpu = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!(", {rate:.0} a second of CPU"));
        text += &format!(
            "sampling, {:>2} thread{} {:>10.0}  frames/s, batch of {} x {} in {:.1} ms{}\n\
             {:>31.0}  uncompressed ring, {:.1} ms{}\n",
            s.threads,
            if s.threads == 1 { " " } else { "s" },
            s.frames_per_second,
            s.batch,
            s.trace,
            s.median_batch_ms,
            cpu(s.frames_per_cpu_second),
            s.ring_frames_per_second,
            s.ring_median_batch_ms,
            cpu(s.ring_frames_per_cpu_second),
        );
    }
    text += &format!("{}\n", report.forecast);
    if let Some(fill) = &report.fill {
        text += &format!(
            "filled with {} sequences, {} steps in {:.0} s: {:.2} GB held{}\n\
             snapshot of {:.2} GB in {:.1} s, of which locked {:.0} ms; restored in {:.1} s\n",
            output::grouped(fill.sequences),
            output::grouped(fill.steps),
            fill.seconds,
            fill.bytes as f64 / 1e9,
            fill.resident_bytes
                .map_or(String::new(), |b| format!(", {:.2} GB resident with the recording", b as f64 / 1e9)),
            fill.snapshot_bytes as f64 / 1e9,
            fill.snapshot_seconds,
            fill.snapshot_locked_ms,
            fill.restore_seconds,
        );
    }
    text
}
