//! How far the runs of a sweep are.

use anyhow::Result;
use serde::Serialize;
use train::run::MetricsSummary;

use super::manifest::{Manifest, SweepDirectory, SweepRun};
use super::slurm;
use crate::config;
use crate::runs::RunState;

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
        let metrics = MetricsSummary::of_last_rows(&files.metrics_file()).unwrap_or_default();
        let owner = files.owner();
        let state = RunState::of(&files, owner.is_some(), metrics.frames, || Some(budget));
        let state = match state.unwrap_or(RunState::CutOff) {
            RunState::Running => SweepState::Running,
            RunState::Finished => SweepState::Finished,
            RunState::Stopped | RunState::CutOff if record.failure.is_some() => SweepState::Failed,
            RunState::Stopped | RunState::CutOff if files.is_run() => SweepState::Interrupted,
            RunState::Stopped | RunState::CutOff => SweepState::Waiting,
        };
        let is_running = state == SweepState::Running;
        Ok(Self {
            name: run.name.clone(),
            state,
            frames: metrics.frames,
            budget,
            score: metrics.last_evaluation,
            frames_per_second: metrics.frames_per_second.filter(|_| is_running),
            seconds_left: metrics.seconds_left(budget).filter(|_| is_running),
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
