//! `meme bench learner`: learner updates on random sequences, and where their time goes.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use agent::Random;
use agent::learner::{StepOptions, UpdatePart};
use agent::loader::{LoadedBatch, Loader};
use agent::{Learner, ObservationKind, ObservationSpec, SequenceBatch, random_batch};
use anyhow::{Context, Result};
use clap::Args;
use rand::SeedableRng;
use serde::Serialize;
use tch::Device;
use train::runtime::usage::peak_resident_bytes;

use super::measure::{median, milliseconds};
use super::{NetworkArgs, peak_gpu_bytes, text};
use crate::console::ProgressLine;
use crate::options;

/// Arguments of `meme bench learner`. The default preset is tiny.
#[derive(Args)]
pub struct LearnerArgs {
    #[command(flatten)]
    network: NetworkArgs,
    /// Sequences per batch [default: the config's]
    #[arg(long, value_parser = options::count::<usize>())]
    batch: Option<usize>,
    /// Observations per sequence [default: the config's]
    #[arg(long, value_parser = options::integer::<usize>(2, 1 << 20))]
    trace: Option<usize>,
    /// Height, width and channels of an observation [default: 24x24 for preset tiny, else 210x160; one channel]
    #[arg(long, value_name = "HxW[xC]", value_parser = parse_image)]
    image: Option<[usize; 3]>,
    /// Threads of libtorch on the CPU [default: libtorch's choice]
    #[arg(long, value_parser = options::integer::<i32>(1, 4096))]
    threads: Option<i32>,
    /// Number of updates to measure, after a warm-up
    #[arg(long, default_value_t = 20, value_parser = options::count::<usize>())]
    updates: usize,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Updates of the warm-up: the first ones choose algorithms and reserve memory.
const WARM_UP: usize = 4;
/// Updates whose parts are timed. They are slower, as they wait for each part.
const PART_UPDATES: usize = 5;

/// Parts of an update and their names.
const PARTS: [(UpdatePart, &str); 7] = [
    (UpdatePart::OnlineTorso, "online torso"),
    (UpdatePart::TargetTorso, "target torso"),
    (UpdatePart::CoresAndHeads, "cores and heads of both"),
    (UpdatePart::Intrinsic, "action prediction and RND"),
    (UpdatePart::Loss, "returns and loss"),
    (UpdatePart::Backward, "backward"),
    (UpdatePart::Optimizer, "optimizers and statistics"),
];

#[derive(Serialize)]
struct LearnerReport {
    preset: String,
    set: Vec<String>,
    parameters: i64,
    batch: usize,
    trace: usize,
    image: [usize; 3],
    actions: usize,
    device: String,
    threads: i32,
    updates: usize,
    /// Median, while the next batch is loaded.
    milliseconds: f64,
    fastest_milliseconds: f64,
    updates_per_second: f64,
    /// Sampled observations per second.
    frames_per_second: f64,
    /// Forward and backward passes of the value and policy network, counted as four forward passes.
    teraflops_per_second: f64,
    /// Measured in separate updates.
    parts: Vec<UpdatePartReport>,
    /// Largest resident memory of the process.
    peak_host_bytes: u64,
    /// Largest memory of the GPU in tensors.
    peak_gpu_bytes: Option<u64>,
}

#[derive(Serialize)]
struct UpdatePartReport {
    part: &'static str,
    /// Median.
    milliseconds: f64,
    share: f64,
}

/// Measures and prints.
pub fn run(args: &LearnerArgs) -> Result<()> {
    let (preset, config) = args.network.config.load("tiny")?;
    let batch = args.batch.unwrap_or(config.learner.batch_size);
    let trace = args.trace.unwrap_or(config.replay.trace);
    let image = args.image.unwrap_or(if preset.ends_with("tiny") { [24, 24, 1] } else { [210, 160, 1] });
    let device = args.network.device.libtorch()?;
    if let Some(threads) = args.threads {
        tch::set_num_threads(threads);
    }
    let observation = ObservationSpec::array(image.to_vec(), ObservationKind::U8);
    let mut learner = Learner::new(&config.agent, &observation, args.network.actions, 0, device)?;
    let sequences = random_batch(&learner.networks, trace, &vec![trace; batch], &mut Random::seed_from_u64(1));

    let (mut updates, mut parts) =
        with_batches(&learner.loader()?, &sequences, |next| measure(&mut learner, device, args.updates, next))?;

    let fastest_milliseconds = updates.iter().copied().fold(f64::INFINITY, f64::min);
    let milliseconds = median(&mut updates);
    let frames = (batch * trace) as f64;
    let parts: Vec<_> = parts.iter_mut().map(|times| median(times)).collect();
    let whole: f64 = parts.iter().sum();
    let report = LearnerReport {
        preset,
        set: args.network.config.set.clone(),
        parameters: learner.networks.agent.layout.elements(),
        batch,
        trace,
        image,
        actions: args.network.actions,
        device: format!("{device:?}"),
        threads: tch::get_num_threads(),
        updates: args.updates,
        milliseconds,
        fastest_milliseconds,
        updates_per_second: 1e3 / milliseconds,
        frames_per_second: frames * 1e3 / milliseconds,
        teraflops_per_second: 4.0 * frames * learner.networks.agent.layout.flops() / milliseconds / 1e9,
        parts: PARTS
            .iter()
            .zip(&parts)
            .map(|(&(_, part), &milliseconds)| UpdatePartReport { part, milliseconds, share: milliseconds / whole })
            .collect(),
        peak_host_bytes: peak_resident_bytes().context("no VmHWM in /proc/self/status")?,
        peak_gpu_bytes: peak_gpu_bytes(device)?,
    };
    let title = "learner updates on random sequences, medians; parts are timed in separate updates";
    text::print(args.json, title, &report)
}

/// Measures complete updates, as training runs them, and then parts. Returns the milliseconds of each update and part.
fn measure(
    learner: &mut Learner,
    device: Device,
    updates: usize,
    next: &mut dyn FnMut() -> Result<LoadedBatch>,
) -> Result<(Vec<f64>, Vec<Vec<f64>>)> {
    let (mut times, mut part_times) = (vec![], vec![vec![]; PARTS.len()]);
    let mut progress = ProgressLine::new();
    let (whole, all) = (WARM_UP + updates, WARM_UP + updates + PART_UPDATES);
    for update in 0..whole {
        progress.show(|| format!("update {} of {all}", update + 1));
        let start = Instant::now();
        let loaded = next()?;
        if learner.runs_ahead() {
            // It waits for the previous update, so the time between two calls is that of one update.
            learner.begin(&loaded)?;
        } else {
            learner.step_loaded(&loaded, StepOptions::default())?;
        }
        if update >= WARM_UP {
            times.push(milliseconds(start));
        }
    }
    learner.finish()?;
    for update in whole..all {
        progress.show(|| format!("update {} of {all}", update + 1));
        let loaded = next()?;
        let mut last = Instant::now();
        let mut observer = |part| {
            if let Device::Cuda(index) = device {
                tch::Cuda::synchronize(index as i64);
            }
            if let Some(i) = PARTS.iter().position(|(known, _)| *known == part) {
                part_times[i].push(milliseconds(last));
            }
            last = Instant::now();
        };
        learner.step_loaded(&loaded, StepOptions { depth_mask: None, observer: Some(&mut observer) })?;
    }
    progress.clear();
    Ok((times, part_times))
}

/// Runs `work` with a source of batches that a thread loads ahead, as in training.
fn with_batches<T>(
    loader: &Loader,
    sequences: &SequenceBatch,
    work: impl FnOnce(&mut dyn FnMut() -> Result<LoadedBatch>) -> Result<T>,
) -> Result<T> {
    thread::scope(|scope| {
        let (ahead, batches) = sync_channel(1);
        scope.spawn(move || {
            let load = || -> Result<_> {
                let mut memory = loader.memory(sequences.sequences.len(), sequences.trace)?;
                memory.bytes()?.copy_from_slice(&sequences.observations);
                Ok(memory)
            };
            let mut memory = match load() {
                Ok(memory) => memory,
                Err(error) => return drop(ahead.send(Err(error))),
            };
            // Ends when `work` has ended.
            while ahead.send(loader.load(sequences, &mut memory).map_err(Into::into)).is_ok() {}
        });
        work(&mut || batches.recv().context("the batch loader ended early")?)
    })
}

/// Parses height and width, and channels if there are several.
fn parse_image(text: &str) -> Result<[usize; 3], String> {
    let sides: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    match sides.as_deref() {
        Ok(&[height, width]) => Ok([height, width, 1]),
        Ok(&[height, width, channels]) => Ok([height, width, channels]),
        _ => Err("expected HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, for example 210x160 or 84x84x3".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_size_is_parsed_as_height_width_and_channels() {
        assert_eq!(parse_image("210x160"), Ok([210, 160, 1]));
        assert_eq!(parse_image("84x84x3"), Ok([84, 84, 3]));
        assert!(["210", "ax3", "84x84x", "84x84x3x1"].iter().all(|text| parse_image(text).is_err()));
    }
}
