//! `meme bench replay`: cost of replay, compared with an uncompressed ring buffer of the same steps.

mod recording;
mod ring;

use std::fs::File;
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
use tempfile::TempPath;
use train::runtime::usage;

use self::recording::Recording;
use self::ring::RingBuffer;
use super::measure::{median, milliseconds, thread_cpu};
use super::text;
use crate::console::ProgressLine;
use crate::{install, options};

/// Arguments of `meme bench replay`.
#[derive(Args)]
pub struct ReplayArgs {
    /// Game or task to play with random actions
    #[arg(long, default_value = "pong")]
    game: String,
    /// Number of agent steps to record
    #[arg(long, default_value_t = 8_000, value_parser = options::count::<usize>())]
    steps: usize,
    /// Number of environments
    #[arg(long, default_value_t = 8, value_parser = options::count::<usize>())]
    envs: usize,
    /// Sequences per batch
    #[arg(long, default_value_t = 64, value_parser = options::count::<usize>())]
    batch: usize,
    /// Observations per sequence; neighbouring sequences overlap by half
    #[arg(long, default_value_t = 160, value_parser = options::integer::<usize>(2, 1 << 20))]
    trace: usize,
    /// Number of times to insert the recording; the median is reported
    #[arg(long, default_value_t = 5, value_parser = options::count::<usize>())]
    rounds: usize,
    /// Batches to sample per number of threads
    #[arg(long, default_value_t = 20, value_parser = options::count::<usize>())]
    batches: usize,
    /// Also fill a replay with this many sequences and time a snapshot of it
    #[arg(long, value_name = "SEQUENCES", value_parser = options::count::<usize>())]
    fill: Option<usize>,
    /// Temporary file for the snapshot of --fill
    #[arg(long, default_value = "bench-replay.snapshot", requires = "fill")]
    snapshot: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ReplayReport {
    game: String,
    observation_bytes: usize,
    steps: u64,
    sequences: u64,
    episodes: usize,
    /// Frames, other columns, states and indices.
    bytes_per_step: f64,
    frame_bytes_per_step: f64,
    insert: InsertSpeed,
    ring_insert: InsertSpeed,
    sampling: Vec<SamplingSpeed>,
    forecast: String,
    fill: Option<FillReport>,
}

#[derive(Serialize)]
struct InsertSpeed {
    steps_per_second: f64,
    cpu_us_per_step: f64,
}

#[derive(Serialize)]
struct SamplingSpeed {
    threads: usize,
    batch: usize,
    trace: usize,
    /// Sampled observations per second of wall time.
    frames_per_second: f64,
    /// Sampled observations per second of CPU time, for one thread only.
    frames_per_cpu_second: Option<f64>,
    median_batch_ms: f64,
    ring_frames_per_second: f64,
    ring_frames_per_cpu_second: Option<f64>,
    ring_median_batch_ms: f64,
}

#[derive(Serialize)]
struct FillReport {
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
    let mut worker = install::worker_config(args.game.parse()?)?;
    worker.environments = args.envs;
    let recording = Recording::play(&worker, |spec| config(args, spec.observation_bytes()).layout, args.steps)?;
    let config = config(args, recording.spec.observation_bytes());
    let replay = Replay::new(config)?;
    let mut ring = RingBuffer::new(config.layout, recording.observations());
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
    let report = ReplayReport {
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
    text::print(args.json, "replay, next to an uncompressed ring buffer of the same steps", &report)
}

/// The paper's replay, with a rate limiter that never blocks.
fn config(args: &ReplayArgs, observation_bytes: usize) -> ReplayConfig {
    let mut config = ReplayConfig::paper_sized(observation_bytes, 2 * 1024);
    config.layout.trace = args.trace;
    config.layout.period = args.trace / 2;
    config.rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
    config
}

/// Inserts the recording several times and returns the median speed.
fn measure_insert(
    args: &ReplayArgs,
    recording: &Recording,
    mut insert: impl FnMut(usize, &recording::RecordedEpisode) -> Result<()>,
) -> Result<InsertSpeed> {
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
    Ok(InsertSpeed {
        steps_per_second: steps / median(&mut wall_times),
        cpu_us_per_step: median(&mut cpu_times) * 1e6 / steps,
    })
}

/// Returns 1, 2, 4 and so on, up to the number of cores.
fn thread_counts() -> impl Iterator<Item = usize> {
    let cores = available_parallelism().map_or(1, usize::from);
    std::iter::successors(Some(1), move |threads| Some(threads * 2).filter(|&threads| threads <= cores))
}

fn measure_sampling(
    args: &ReplayArgs,
    replay: &Arc<Replay>,
    ring: &RingBuffer,
    threads: usize,
) -> Result<SamplingSpeed> {
    let mut batch = SequenceBatch::new(&replay.config.layout, args.batch);
    let mut sampler = Sampler::new(replay, threads);
    let ours = measure_batches(args, || {
        sampler.sample(&mut batch, Duration::ZERO)?;
        Ok(())
    })?;
    let mut random = SplitMix64::seed_from_u64(1);
    let uncompressed = measure_batches(args, || {
        ring.sample(&mut random, &mut batch.observations, threads);
        Ok(())
    })?;
    let on_one = |cpu: f64| (threads == 1).then_some(cpu);
    Ok(SamplingSpeed {
        threads,
        batch: args.batch,
        trace: args.trace,
        frames_per_second: ours.per_second,
        frames_per_cpu_second: on_one(ours.per_cpu_second),
        median_batch_ms: ours.median_ms,
        ring_frames_per_second: uncompressed.per_second,
        ring_frames_per_cpu_second: on_one(uncompressed.per_cpu_second),
        ring_median_batch_ms: uncompressed.median_ms,
    })
}

/// Speed of sampling batches.
struct BatchSpeed {
    per_second: f64,
    per_cpu_second: f64,
    median_ms: f64,
}

fn measure_batches(args: &ReplayArgs, mut sample: impl FnMut() -> Result<()>) -> Result<BatchSpeed> {
    // The first batch maps the memory of the buffers.
    sample()?;
    let mut times = Vec::new();
    let (begun, cpu) = (Instant::now(), thread_cpu()?);
    for _ in 0..args.batches {
        let begun = Instant::now();
        sample()?;
        times.push(milliseconds(begun));
    }
    let (wall, cpu) = (begun.elapsed(), thread_cpu()? - cpu);
    let frames = (args.batches * args.batch * args.trace) as f64;
    Ok(BatchSpeed {
        per_second: frames / wall.as_secs_f64(),
        per_cpu_second: frames / cpu.as_secs_f64(),
        median_ms: median(&mut times),
    })
}

fn measure_fill(
    args: &ReplayArgs,
    recording: &Recording,
    mut config: ReplayConfig,
    sequences: usize,
) -> Result<FillReport> {
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
    // Removes the file in any case: the disk may be full.
    let path = TempPath::try_from_path(&args.snapshot)?;
    let snapshot_bytes =
        write(&snapshot, &path).with_context(|| format!("cannot write {}", args.snapshot.display()))?;
    let snapshot_seconds = begun.elapsed().as_secs_f64();
    drop((writers, replay));
    let begun = Instant::now();
    let restored = Snapshot::restore_from(File::open(&path)?, &config);
    let restore_seconds = begun.elapsed().as_secs_f64();
    path.close()?;
    progress.clear();
    let restored = restored?.replay.accounting();
    ensure!(restored == held, "the restored replay differs: expected {held}, got {restored}");
    Ok(FillReport {
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

/// Writes a snapshot to disk and returns its size in bytes.
fn write(snapshot: &Snapshot, path: &Path) -> Result<u64> {
    let mut file = File::create(path)?;
    snapshot.write_to(&mut file)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
