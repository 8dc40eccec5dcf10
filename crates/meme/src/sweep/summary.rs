//! How the runs of a sweep ended.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::STATUS_RESUMABLE;
use super::manifest::{Manifest, SweepDirectory, SweepRun};
use super::progress::{RunProgress, SweepState};
use super::task::Outcome;
use crate::console::{self, ProgressLine};

/// How the runs of a sweep ended.
#[derive(Debug, Default)]
pub struct SweepSummary {
    pub finished: usize,
    interrupted: usize,
    failed: Vec<(String, String)>,
}

impl SweepSummary {
    /// Returns how the runs have ended so far.
    pub fn of(directory: &SweepDirectory, manifest: &Manifest) -> Result<Self> {
        let mut summary = Self::default();
        for run in RunProgress::of_all(directory, manifest)? {
            match run.state {
                SweepState::Finished => summary.finished += 1,
                SweepState::Failed => summary.failed.push((run.name, run.failure.unwrap_or_default())),
                _ => summary.interrupted += 1,
            }
        }
        Ok(summary)
    }

    /// Counts the end of an attempt and prints it.
    pub fn count(&mut self, run: &SweepRun, outcome: Outcome, again: bool, line: &mut ProgressLine) {
        let name = &run.name;
        match outcome {
            Outcome::Finished => {
                self.finished += 1;
                line.message(format_args!("{name} finished"));
            }
            Outcome::Interrupted => self.interrupted += 1,
            Outcome::Failed(reason) if again => line.warn(format_args!("{name} failed, trying again: {reason}")),
            Outcome::Failed(reason) => {
                line.warn(format_args!("{name} failed: {reason}"));
                self.failed.push((name.clone(), reason));
            }
        }
    }

    /// Prints how the sweep ended; an error names a run that failed.
    pub fn report(&self, name: &str, finished_before: usize, count: usize) -> Result<ExitCode> {
        let finished = finished_before + self.finished;
        if let Some((run, reason)) = self.failed.first() {
            let (failed, again) = (self.failed.len(), "run the same command to try them again");
            bail!("{failed} of {count} runs of sweep {name} failed ({run}: {reason}); {again}");
        }
        if finished < count {
            console::message(format_args!("{finished} of {count} runs finished; run the same command to resume"));
            return Ok(ExitCode::from(STATUS_RESUMABLE));
        }
        console::message(format_args!("all {count} runs of sweep {name} finished"));
        Ok(ExitCode::SUCCESS)
    }
}
