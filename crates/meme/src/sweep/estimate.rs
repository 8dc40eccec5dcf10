//! What a sweep will cost: processor time and disk.

use std::fs;
use std::path::Path;

use anyhow::Result;
use envs::EnvId;
use train::run::{MetricsSummary, RunFiles};

use super::manifest::{Manifest, SweepRun};
use crate::config;

/// Figures that `docs/performance.md` publishes for a preset.
struct Published {
    preset: &'static str,
    frames_per_second: f64,
    /// Bytes of a checkpoint without replay.
    networks: f64,
    /// Whether they were measured on one H200; otherwise on a 2-core x86-64 VM.
    gpu: bool,
}

const PUBLISHED: [Published; 4] = [
    Published { preset: "paper", frames_per_second: 16_465.0, networks: 1.0e9, gpu: true },
    Published { preset: "quick", frames_per_second: 46_600.0, networks: 0.5e9, gpu: true },
    Published { preset: "cpu", frames_per_second: 900.0, networks: 0.02e9, gpu: false },
    Published { preset: "tiny", frames_per_second: 4_000.0, networks: 0.01e9, gpu: false },
];
/// Bytes of one agent step in replay: about 200 in most games, more in noisy ones.
const BYTES_PER_STEP: f64 = 300.0;

/// What a sweep will cost.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepEstimate {
    preset: String,
    /// Emulator frames, summed over the runs.
    frames: f64,
    /// Bytes of checkpoints, summed over the runs.
    bytes: f64,
    /// Frames per second, if known.
    speed: Option<f64>,
    /// Whether that speed was measured by runs in the same directory.
    measured: bool,
    /// Whether the preset is one for a GPU, which the machine that starts the sweep need not have.
    gpu: bool,
}

impl SweepEstimate {
    /// Estimates the cost of these runs. Their speed is that of other runs in `root` with the same preset, or the
    /// published one.
    pub fn of(manifest: &Manifest, runs: &[&SweepRun], root: &Path) -> Result<Self> {
        let preset = manifest.preset.clone();
        let published = |name: &str| PUBLISHED.iter().find(|published| published.preset == name);
        // An agent's networks are about as large as those of its size (`agent57-tiny`); without one, at most as large
        // as the paper's.
        let size = preset.split_once('-').map_or(preset.as_str(), |(_, size)| size);
        let &Published { networks, gpu, .. } = published(size).unwrap_or(&PUBLISHED[0]);
        let measured = measured_speed(root, &preset);
        let speed = measured.or(published(&preset).map(|published| published.frames_per_second));
        let mut estimate = Self { preset, frames: 0.0, bytes: 0.0, speed, measured: measured.is_some(), gpu };
        for run in runs {
            let config = config::load(&manifest.sources(run)?)?.config;
            let repeat = if matches!(run.environment.parse()?, EnvId::Atari(_)) { config.env.action_repeat } else { 1 };
            let steps = config.run.frames as f64 / f64::from(repeat);
            let stored = steps.min(config.replay.capacity as f64 * config.replay.period as f64);
            let replay = (stored * BYTES_PER_STEP).min(config.replay.memory_limit_gb * 1e9);
            // One more than are kept is written before the oldest is removed; the best has no replay.
            let checkpoints = (config.checkpoint.keep_last + 1) as f64;
            estimate.bytes += checkpoints * (replay + networks) + networks;
            estimate.frames += config.run.frames as f64;
        }
        Ok(estimate)
    }

    /// Hours of training, if the speed is known.
    fn hours(&self) -> Option<f64> {
        self.speed.map(|speed| self.frames / speed / 3600.0)
    }

    /// The estimate in words.
    pub fn text(&self) -> String {
        let disk = match self.bytes / 1e9 {
            gigabytes if gigabytes < 10.0 => format!("{gigabytes:.1} GB"),
            gigabytes => format!("{gigabytes:.0} GB"),
        };
        let Some((hours, speed)) = self.hours().zip(self.speed) else {
            return format!(
                "time unknown (no speed of preset {} was measured or published), and up to {disk} of disk",
                self.preset
            );
        };
        let (unit, machine) =
            if self.gpu { ("GPU hours", "one H200") } else { ("hours", "a 2-core x86-64 VM without GPU") };
        let source =
            if self.measured { "measured by runs here".to_owned() } else { format!("published for {machine}") };
        let hours = match hours {
            hours if hours < 0.1 => format!("{:.0} s of training", hours * 3600.0),
            hours if hours < 10.0 => format!("{hours:.1} {unit}"),
            hours => format!("{hours:.0} {unit}"),
        };
        format!("about {hours} at {speed:.0} frames/s ({source}), and up to {disk} of disk")
    }
}

/// Mean speed of the runs with a preset, in `root` and in its sweeps.
fn measured_speed(root: &Path, preset: &str) -> Option<f64> {
    let directories = fs::read_dir(root).ok()?.flatten().map(|entry| entry.path());
    let runs = directories.flat_map(|directory| match directory.join("sweep.json").is_file() {
        true => RunFiles::all(&directory).unwrap_or_default(),
        false => vec![RunFiles::in_directory(&directory)],
    });
    let with_preset = runs.filter(|run| run.description().is_ok_and(|description| description.preset == preset));
    let speeds: Vec<f64> = with_preset
        .filter_map(|run| MetricsSummary::of_last_rows(&run.metrics_file()).ok()?.frames_per_second)
        .collect();
    (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64)
}

#[cfg(test)]
mod tests {
    use train::run::{ExistingRun, RunDescription, RunDirectory};

    use super::*;
    use crate::sweep::axes::SweepFile;

    #[test]
    fn estimate_counts_frames_and_checkpoints() {
        let scratch = tempfile::tempdir().unwrap();
        let file: SweepFile = toml::from_str("preset = 'quick'\ngames = 'pong'\nseeds = '1-2'").unwrap();
        let set = ["run.frames=46600000", "replay.capacity=1000000"].map(str::to_owned);
        let manifest = file.plan("id".into(), &set).unwrap();
        let runs: Vec<_> = manifest.runs.iter().collect();
        let estimate = SweepEstimate::of(&manifest, &runs, scratch.path()).unwrap();
        assert!((estimate.hours().unwrap() - 2.0 * 1000.0 / 3600.0).abs() < 1e-9, "{estimate:?}");
        let replay = 46_600_000.0 / 4.0 * BYTES_PER_STEP;
        assert!((estimate.bytes - 2.0 * (3.0 * (replay + 0.5e9) + 0.5e9)).abs() < 1.0, "{estimate:?}");
        let text = estimate.text();
        assert!(text.starts_with("about 0.6 GPU hours at 46600 frames/s (published for one H200)"), "{text}");
        let on_cpu = SweepEstimate { gpu: false, ..estimate.clone() }.text();
        assert!(on_cpu.starts_with("about 0.6 hours at "), "{on_cpu}");

        let description = RunDescription::new("pong", "quick", 1);
        let (run, _) = RunDirectory::open(scratch.path(), "old", ExistingRun::Resume, description, "").unwrap();
        fs::write(run.files.metrics_file(), "{\"frames\":4,\"speed/frames_per_second\":23300}\n").unwrap();
        let slower = SweepEstimate::of(&manifest, &runs, scratch.path()).unwrap();
        assert!((slower.hours().unwrap() - 2.0 * estimate.hours().unwrap()).abs() < 1e-9, "{slower:?}");
        assert!(slower.text().contains("23300 frames/s (measured by runs here)"));
    }

    #[test]
    fn speed_of_another_preset_is_not_assumed() {
        let scratch = tempfile::tempdir().unwrap();
        for (preset, gigabytes) in [("agent57-tiny", "3.0"), ("r2d2", "14")] {
            let file: SweepFile = toml::from_str(&format!("preset = '{preset}'\ngames = 'pong'")).unwrap();
            let set = ["run.frames=46600000", "replay.capacity=1000000", "checkpoint.keep_last=2"].map(str::to_owned);
            let manifest = file.plan("id".into(), &set).unwrap();
            let runs: Vec<_> = manifest.runs.iter().collect();
            let estimate = SweepEstimate::of(&manifest, &runs, scratch.path()).unwrap();
            assert_eq!((estimate.speed, estimate.hours()), (None, None));
            let text = format!(
                "time unknown (no speed of preset {preset} was measured or published), and up to {gigabytes} GB of disk"
            );
            assert_eq!(estimate.text(), text);
        }
    }
}
