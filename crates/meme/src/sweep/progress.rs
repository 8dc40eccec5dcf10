//! How far the runs of a sweep are.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use train::run::EVALUATION_SCORE;
use train::run::checkpoint::contents;

use super::manifest::{Manifest, SweepDirectory, SweepRun};
use super::slurm;
use crate::config;

/// The end of a metrics file that is read: dozens of rows.
const TAIL: u64 = 256 * 1024;

/// State of a run in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepState {
    /// It has not started.
    Waiting,
    /// It waits for a node of the cluster.
    Queued,
    /// A process trains it.
    Running,
    /// It stopped or was killed, and resumes from its last checkpoint.
    Interrupted,
    /// Its last attempt failed.
    Failed,
    /// All frames are played.
    Finished,
}

impl SweepState {
    /// The state in a word.
    pub fn text(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Finished => "finished",
        }
    }
}

/// How far a run is.
#[derive(Clone, Debug, Serialize)]
pub struct RunProgress {
    /// The run.
    pub name: String,
    /// Its state.
    pub state: SweepState,
    /// Emulator frames so far.
    pub frames: u64,
    /// Frames to play.
    pub budget: u64,
    /// Score of the last evaluation.
    pub score: Option<f64>,
    /// Frames per second, as last measured.
    pub frames_per_second: Option<f64>,
    /// Seconds until the end of a running run.
    pub seconds_left: Option<f64>,
    /// The machine of the last attempt.
    pub node: String,
    /// Attempts so far.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub failure: Option<String>,
}

impl RunProgress {
    /// Reads how far a run is.
    pub fn of(directory: &SweepDirectory, manifest: &Manifest, run: &SweepRun) -> Result<Self> {
        let budget = config::load(&manifest.sources(run)?)?.config.run.frames;
        let record = directory.record(run);
        let files = directory.run(run);
        let LastRows { frames, score, speed } = LastRows::of(&files.metrics_file());
        let owner = files.owner();
        let state = if owner.is_some() {
            SweepState::Running
        } else if frames >= budget && contents::end_is_saved(&files, frames).unwrap_or(false) {
            SweepState::Finished
        } else if record.failure.is_some() {
            SweepState::Failed
        } else if files.is_run() {
            SweepState::Interrupted
        } else {
            SweepState::Waiting
        };
        let is_running = state == SweepState::Running;
        let seconds_left = speed.filter(|&speed| is_running && speed > 0.0);
        Ok(Self {
            name: run.name.clone(),
            state,
            frames,
            budget,
            score,
            frames_per_second: speed.filter(|_| is_running),
            seconds_left: seconds_left.map(|speed| budget.saturating_sub(frames) as f64 / speed),
            node: owner.map_or(record.node, |owner| owner.host),
            attempts: record.attempts,
            failure: record.failure.filter(|_| state == SweepState::Failed),
        })
    }

    /// Reads how far all runs are.
    pub fn of_all(directory: &SweepDirectory, manifest: &Manifest) -> Result<Vec<Self>> {
        let mut all: Vec<Self> =
            manifest.runs.iter().map(|run| Self::of(directory, manifest, run)).collect::<Result<_>>()?;
        for (index, job) in slurm::queued(directory) {
            let Some(run) = all.get_mut(index) else { continue };
            if ![SweepState::Finished, SweepState::Running].contains(&run.state) {
                run.state = SweepState::Queued;
                if job.is_running {
                    run.node = job.node;
                }
            }
        }
        Ok(all)
    }
}

/// What the last rows of a metrics file say.
#[derive(Debug, Default, PartialEq)]
pub struct LastRows {
    pub frames: u64,
    pub score: Option<f64>,
    pub speed: Option<f64>,
}

impl LastRows {
    /// Reads the end of a file, which need not exist; a whole one may have half a gigabyte.
    pub fn of(path: &Path) -> Self {
        let mut rows = Self::default();
        for line in tail(path).unwrap_or_default().split(|&byte| byte == b'\n') {
            let Ok(row) = serde_json::from_slice::<Value>(line) else { continue };
            let number = |name: &str| row.get(name).and_then(Value::as_f64);
            rows.frames = row.get("frames").and_then(Value::as_u64).unwrap_or(rows.frames);
            rows.score = number(EVALUATION_SCORE).or(rows.score);
            rows.speed = number("speed/frames_per_second").or(rows.speed);
        }
        rows
    }
}

fn tail(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_rows_have_the_newest_of_each_value() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("metrics.jsonl");
        assert_eq!(LastRows::of(&path), LastRows::default());
        let mut text: String = (0..20_000).map(|i| format!("{{\"frames\":{i},\"filler\":\"{i:>40}\"}}\n")).collect();
        text += "{\"frames\":30000,\"evaluation/score\":1.5,\"speed/frames_per_second\":200}\n";
        text += "{\"frames\":30040,\"speed/frames_per_second\":250.5}\n{\"frames\":9";
        std::fs::write(&path, text).unwrap();
        assert_eq!(LastRows::of(&path), LastRows { frames: 30_040, score: Some(1.5), speed: Some(250.5) });
    }
}
