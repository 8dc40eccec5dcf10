//! `meme bench learner`: one update of the learner on made-up sequences, and where its time goes.

use std::fmt::Write;
use std::time::Instant;

use agent::learner::{Part, StepOptions};
use agent::random::Random;
use agent::{AgentConfig, Learner, NetworkPreset, ObservationKind, ObservationSpec, OwnedBatch};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tch::Device;

use super::measure::median;
use crate::output::{self, Progress, grouped};

/// Options of `meme bench learner`.
#[derive(Args)]
pub struct LearnerArgs {
    /// The networks
    #[arg(long, value_enum, default_value_t = Preset::Tiny)]
    preset: Preset,
    /// Sequences of a batch; 64 for paper and desktop, else 16
    #[arg(long)]
    batch: Option<usize>,
    /// Observations of a sequence; 160 for paper and desktop, else 40
    #[arg(long)]
    trace: Option<usize>,
    /// Height and width of an observation; 210x160 for paper and desktop, else 24x24
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
    /// Updates that are measured, after three that are not
    #[arg(long, default_value_t = 20)]
    updates: usize,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    Paper,
    Desktop,
    Tiny,
}

#[derive(Clone, Copy, ValueEnum)]
enum ComputeDevice {
    Cpu,
    Cuda,
}

/// Updates before anything is measured.
const WARM_UP: usize = 3;

/// Every part of an update with its name.
const PARTS: [(Part, &str); 7] = [
    (Part::Batch, "batch check and upload"),
    (Part::OnlineForward, "online forward"),
    (Part::TargetForward, "target forward"),
    (Part::Loss, "returns and loss"),
    (Part::Backward, "backward"),
    (Part::Intrinsic, "action prediction and RND"),
    (Part::Optimizer, "optimizers and statistics"),
];

#[derive(Serialize)]
struct Report {
    preset: String,
    parameters: i64,
    batch: usize,
    trace: usize,
    image: [usize; 2],
    actions: usize,
    device: String,
    threads: i32,
    updates: usize,
    /// Median over the updates.
    step_milliseconds: f64,
    fastest_milliseconds: f64,
    updates_per_second: f64,
    /// Sampled observations that go through the learner in a second.
    frames_per_second: f64,
    /// Forward and backward passes of the value and policy network, counted as four forward passes.
    gigaflops_per_second: f64,
    parts: Vec<PartReport>,
    /// Largest resident memory of the process.
    peak_host_bytes: u64,
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
    let (network, large) = match args.preset {
        Preset::Paper => (NetworkPreset::Paper, true),
        Preset::Desktop => (NetworkPreset::Desktop, true),
        Preset::Tiny => (NetworkPreset::Tiny, false),
    };
    let batch = args.batch.unwrap_or(if large { 64 } else { 16 });
    let trace = args.trace.unwrap_or(if large { 160 } else { 40 });
    let (height, width) = args.image.unwrap_or(if large { (210, 160) } else { (24, 24) });
    ensure!(batch > 0 && trace > 1 && args.updates > 0, "--batch and --updates need at least 1, --trace at least 2");
    let device = match args.device {
        ComputeDevice::Cpu => Device::Cpu,
        ComputeDevice::Cuda if tch::Cuda::is_available() => Device::Cuda(0),
        ComputeDevice::Cuda => bail!("libtorch sees no CUDA device here; `meme doctor` says what is missing"),
    };
    if let Some(threads) = args.threads {
        tch::set_num_threads(i32::try_from(threads).context("--threads is too large")?);
    }
    let config = AgentConfig { network: network.network(), ..AgentConfig::default() };
    let observation = ObservationSpec { shape: vec![height, width], kind: ObservationKind::U8 };
    let mut learner = Learner::new(&config, &observation, args.actions, 0, device)?;
    let sequences = OwnedBatch::random(learner.networks(), trace, &vec![trace; batch], &mut Random::new(1));

    let mut times = vec![vec![]; PARTS.len()];
    let mut steps = vec![];
    let mut progress = Progress::new();
    for update in 0..WARM_UP + args.updates {
        progress.show(|| format!("update {} of {}", update + 1, WARM_UP + args.updates));
        let mut last = Instant::now();
        let start = last;
        let mut observer = |part| {
            if let Device::Cuda(index) = device {
                tch::Cuda::synchronize(index as i64);
            }
            let now = Instant::now();
            if let Some(i) = PARTS.iter().position(|(known, _)| *known == part)
                && update >= WARM_UP
            {
                times[i].push((now - last).as_secs_f64() * 1e3);
            }
            last = now;
        };
        learner.step_with(&sequences.batch(), StepOptions { keep: None, observer: Some(&mut observer) })?;
        if update >= WARM_UP {
            steps.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    progress.clear();

    let fastest_milliseconds = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let step_milliseconds = median(&mut steps);
    let frames = (batch * trace) as f64;
    let parts = PARTS.iter().zip(&mut times).map(|(&(_, part), times)| {
        let milliseconds = median(times);
        PartReport { part, milliseconds, share: milliseconds / step_milliseconds }
    });
    let report = Report {
        preset: args.preset.to_possible_value().map(|p| p.get_name().to_owned()).unwrap_or_default(),
        parameters: learner.networks().agent.layout().elements(),
        batch,
        trace,
        image: [height, width],
        actions: args.actions,
        device: format!("{device:?}"),
        threads: tch::get_num_threads(),
        updates: args.updates,
        step_milliseconds,
        fastest_milliseconds,
        updates_per_second: 1e3 / step_milliseconds,
        frames_per_second: frames * 1e3 / step_milliseconds,
        gigaflops_per_second: 4.0 * frames * learner.networks().agent.flops() / step_milliseconds / 1e6,
        parts: parts.collect(),
        peak_host_bytes: peak_resident_bytes()?,
    };
    if args.json { output::print_json(&report) } else { output::print(&table(&report)) }
}

/// `210x160` as height and width.
fn parse_image(text: &str) -> Result<(usize, usize), String> {
    text.split_once('x')
        .and_then(|(height, width)| Some((height.parse().ok()?, width.parse().ok()?)))
        .ok_or_else(|| "has to be height and width, such as 210x160".to_owned())
}

/// The largest resident memory this process has had.
fn peak_resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in /proc/self/status")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().context("VmHWM in /proc/self/status")?;
    Ok(kibibytes * 1024)
}

fn table(report: &Report) -> String {
    let [height, width] = report.image;
    let mut text = format!(
        "learner, {} networks ({} parameters), {} x {} observations of {height}x{width}, {} actions, {}, {} threads\n\
         medians over {} updates; frames are sampled observations\n\n",
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
    let _ = writeln!(
        text,
        "{:<28} {:>9.2} ms (fastest {:.2} ms)\n\n{:.2} updates/s, {} frames/s, {:.1} GFLOP/s, peak memory {:.0} MB",
        "whole update",
        report.step_milliseconds,
        report.fastest_milliseconds,
        report.updates_per_second,
        grouped(report.frames_per_second as u64),
        report.gigaflops_per_second,
        report.peak_host_bytes as f64 / 1e6,
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

    #[test]
    fn this_process_has_used_some_memory() {
        assert!(peak_resident_bytes().unwrap() > 1 << 20);
    }
}
