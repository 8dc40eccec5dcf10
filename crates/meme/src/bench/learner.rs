//! `meme bench learner`: one update of the learner on made-up sequences, and where its time goes.

use std::fmt::Write;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use agent::Random;
use agent::learner::{StepOptions, UpdatePart};
use agent::loader::{LoadedBatch, Loader};
use agent::{Learner, ObservationKind, ObservationSpec, OwnedBatch};
use anyhow::{Context, Result, ensure};
use clap::Args;
use rand::SeedableRng;
use serde::Serialize;
use tch::Device;
use train::config::Sources;
use train::runtime::usage::peak_resident_bytes;

use super::compute::ComputeDevice;
use super::measure::median;
use crate::console::ProgressLine;
use crate::output::{self, grouped};

/// Options of `meme bench learner`.
#[derive(Args)]
pub struct LearnerArgs {
    /// The preset that the config starts from: paper, quick, desktop, cpu or tiny
    #[arg(long, value_name = "NAME", default_value = "tiny")]
    preset: String,
    /// A setting over it, such as agent.network.precision=f32; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Sequences of a batch, instead of the preset's
    #[arg(long)]
    batch: Option<usize>,
    /// Observations of a sequence, instead of the preset's
    #[arg(long)]
    trace: Option<usize>,
    /// Height and width of an observation; 24x24 for tiny, else 210x160
    #[arg(long, value_name = "HxW", value_parser = parse_image)]
    image: Option<(usize, usize)>,
    /// Number of actions
    #[arg(long, default_value_t = 18)]
    actions: usize,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = ComputeDevice::Cpu)]
    device: ComputeDevice,
    /// Threads of libtorch on the CPU; its own choice if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Updates that are measured, after some that are not
    #[arg(long, default_value_t = 20)]
    updates: usize,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Updates before anything is measured: the first ones choose algorithms and reserve memory.
const WARM_UP: usize = 4;
/// Updates whose parts are measured, each part waited for; they are slower than the others.
const PART_UPDATES: usize = 5;

/// Every part of an update with its name.
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
struct Report {
    preset: String,
    set: Vec<String>,
    parameters: i64,
    batch: usize,
    trace: usize,
    image: [usize; 2],
    actions: usize,
    device: String,
    threads: i32,
    updates: usize,
    /// Median over the updates, batches being loaded meanwhile.
    milliseconds: f64,
    fastest_milliseconds: f64,
    updates_per_second: f64,
    /// Sampled observations that go through the learner in a second.
    frames_per_second: f64,
    /// Forward and backward passes of the value and policy network, counted as four forward passes.
    teraflops_per_second: f64,
    /// Each waited for, in updates of their own.
    parts: Vec<PartReport>,
    /// Largest resident memory of the process.
    peak_host_bytes: u64,
    /// Largest memory of the GPU in tensors.
    peak_gpu_bytes: Option<u64>,
}

#[derive(Serialize)]
struct PartReport {
    part: &'static str,
    /// Median over the updates.
    milliseconds: f64,
    share: f64,
}

/// Measures and prints.
pub fn run(args: &LearnerArgs) -> Result<()> {
    let sources = Sources { preset: Some(args.preset.clone()), file: None, set: args.set.clone() };
    let config = crate::config::load(&sources)?.config;
    let batch = args.batch.unwrap_or(config.learner.batch_size);
    let trace = args.trace.unwrap_or(config.replay.trace);
    let (height, width) = args.image.unwrap_or(if args.preset == "tiny" { (24, 24) } else { (210, 160) });
    ensure!(batch > 0 && trace > 1 && args.updates > 0, "--batch and --updates need at least 1, --trace at least 2");
    let device = args.device.libtorch()?;
    if let Some(threads) = args.threads {
        tch::set_num_threads(i32::try_from(threads).context("--threads is too large")?);
    }
    let observation = ObservationSpec { shape: vec![height, width], kind: ObservationKind::U8 };
    let mut learner = Learner::new(&config.agent, &observation, args.actions, 0, device)?;
    let sequences = OwnedBatch::random(learner.networks(), trace, &vec![trace; batch], &mut Random::seed_from_u64(1));

    let mut measured = Measured { steps: vec![], parts: vec![vec![]; PARTS.len()] };
    with_batches(&learner.loader()?, &sequences, |next| measured.run(&mut learner, device, args.updates, next))?;

    let fastest_milliseconds = measured.steps.iter().copied().fold(f64::INFINITY, f64::min);
    let milliseconds = median(&mut measured.steps);
    let frames = (batch * trace) as f64;
    let parts: Vec<_> = measured.parts.iter_mut().map(|times| median(times)).collect();
    let whole: f64 = parts.iter().sum();
    let report = Report {
        preset: args.preset.clone(),
        set: args.set.clone(),
        parameters: learner.networks().agent.layout().elements(),
        batch,
        trace,
        image: [height, width],
        actions: args.actions,
        device: format!("{device:?}"),
        threads: tch::get_num_threads(),
        updates: args.updates,
        milliseconds,
        fastest_milliseconds,
        updates_per_second: 1e3 / milliseconds,
        frames_per_second: frames * 1e3 / milliseconds,
        teraflops_per_second: 4.0 * frames * learner.networks().agent.flops() / milliseconds / 1e9,
        parts: PARTS
            .iter()
            .zip(&parts)
            .map(|(&(_, part), &milliseconds)| PartReport { part, milliseconds, share: milliseconds / whole })
            .collect(),
        peak_host_bytes: peak_resident_bytes().context("no VmHWM in /proc/self/status")?,
        peak_gpu_bytes: match device {
            Device::Cuda(_) => Some(torch_ext::memory_statistics()?.peak_allocated),
            _ => None,
        },
    };
    if args.json { output::print_json(&report) } else { output::print(&table(&report)) }
}

struct Measured {
    /// Milliseconds of whole updates.
    steps: Vec<f64>,
    /// Milliseconds of each part.
    parts: Vec<Vec<f64>>,
}

impl Measured {
    /// Whole updates first, as training runs them; then some whose parts are waited for.
    fn run(
        &mut self,
        learner: &mut Learner,
        device: Device,
        updates: usize,
        mut next: impl FnMut() -> Result<LoadedBatch>,
    ) -> Result<()> {
        let mut progress = ProgressLine::new();
        let (whole, all) = (WARM_UP + updates, WARM_UP + updates + PART_UPDATES);
        for update in 0..whole {
            progress.show(|| format!("update {} of {all}", update + 1));
            let start = Instant::now();
            let loaded = next()?;
            if learner.runs_ahead() {
                // It waits for the update before, so that the time between two of them is that of an update.
                learner.begin(&loaded)?;
            } else {
                learner.step_loaded(&loaded, StepOptions::default())?;
            }
            if update >= WARM_UP {
                self.steps.push(start.elapsed().as_secs_f64() * 1e3);
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
                let now = Instant::now();
                if let Some(i) = PARTS.iter().position(|(known, _)| *known == part) {
                    self.parts[i].push((now - last).as_secs_f64() * 1e3);
                }
                last = now;
            };
            learner.step_loaded(&loaded, StepOptions { depth_mask: None, observer: Some(&mut observer) })?;
        }
        progress.clear();
        Ok(())
    }
}

/// Runs `work`, which may ask for one loaded batch after the other: a thread loads them ahead, as in training.
fn with_batches(
    loader: &Loader,
    sequences: &OwnedBatch,
    work: impl FnOnce(&mut dyn FnMut() -> Result<LoadedBatch>) -> Result<()>,
) -> Result<()> {
    thread::scope(|scope| {
        let (ahead, batches) = sync_channel(1);
        scope.spawn(move || {
            let load = || -> Result<_> {
                let mut memory = loader.memory(sequences.sequences, sequences.trace)?;
                memory.bytes()?.copy_from_slice(&sequences.observations);
                Ok(memory)
            };
            let mut memory = match load() {
                Ok(memory) => memory,
                Err(error) => return drop(ahead.send(Err(error))),
            };
            // Until nobody asks any more.
            while ahead.send(loader.load(&sequences.batch(), &mut memory).map_err(Into::into)).is_ok() {}
        });
        work(&mut || batches.recv().context("the thread that loads batches has ended")?)
    })
}

/// `210x160` as height and width.
fn parse_image(text: &str) -> Result<(usize, usize), String> {
    text.split_once('x')
        .and_then(|(height, width)| Some((height.parse().ok()?, width.parse().ok()?)))
        .ok_or_else(|| "it must be height and width, such as 210x160".to_owned())
}

fn table(report: &Report) -> String {
    let [height, width] = report.image;
    let mut text = format!(
        "learner, {} preset ({} parameters), {} x {} observations of {height}x{width}, {} actions, {}, {} threads\n\
         median over {} updates; frames are sampled observations; parts are waited for in updates of their own\n\n",
        report.preset,
        grouped(report.parameters as u64),
        report.batch,
        report.trace,
        report.actions,
        report.device,
        report.threads,
        report.updates,
    );
    for part in &report.parts {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<28} {:>9.2} ms {:>5.1} %", part.part, part.milliseconds, 100.0 * part.share);
    }
    let gpu = report.peak_gpu_bytes.map(|bytes| format!(", on the GPU {:.1} GB", bytes as f64 / 1e9));
    let _ = writeln!(
        text,
        "{:<28} {:>9.2} ms (fastest {:.2} ms)\n\n{:.2} updates/s, {} frames/s, {:.2} TFLOP/s, peak memory {:.0} MB{}",
        "whole update",
        report.milliseconds,
        report.fastest_milliseconds,
        report.updates_per_second,
        grouped(report.frames_per_second as u64),
        report.teraflops_per_second,
        report.peak_host_bytes as f64 / 1e6,
        gpu.unwrap_or_default(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_read_as_height_and_width() {
        assert_eq!(parse_image("210x160"), Ok((210, 160)));
        assert!(parse_image("210").is_err() && parse_image("ax3").is_err());
    }
}
