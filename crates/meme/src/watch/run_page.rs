//! Details of one run: its config, what differs from its preset, and its last messages.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use train::config::{self, Sources};
use train::run::RunFiles;

use super::live::{ListedRun, LiveRuns};
use super::video::{Recorder, VideoState};
use crate::run_args::run_config;

/// Maximum number of bytes of a log that are shown.
const LOG_BYTES: u64 = 16 << 10;

/// Everything about a run except its charts.
#[derive(Serialize)]
pub struct RunDetails {
    run: ListedRun,
    config: String,
    /// Fields that differ from the preset: field, the preset's value, the run's value.
    differences: Vec<[String; 3]>,
    log: Vec<String>,
    video: VideoState,
}

/// Collects the details.
pub fn details(run: &RunFiles, name: &str, runs: &LiveRuns, recorder: &Recorder) -> Result<RunDetails> {
    let listed = runs.one(run, name)?;
    let preset = Sources { preset: Some(listed.preset().to_owned()), ..Sources::default() }.load();
    let preset = preset.map(|preset| preset.config).unwrap_or_default();
    let differences = config::differences(&preset, &run_config(run)?)?;
    let written = |difference: &config::Difference| {
        let [left, right] = difference.written();
        [difference.path.to_owned(), left, right]
    };
    let video = recorder.state(run, name, listed.newest_checkpoint());
    Ok(RunDetails {
        run: listed,
        config: run.config()?,
        differences: differences.iter().map(written).collect(),
        log: log(run)?,
        video,
    })
}

/// The last lines of the run's messages, or of the output that its sweep has kept.
fn log(run: &RunFiles) -> Result<Vec<String>> {
    let own = run.log_file();
    let of_sweep = run.path.parent().map(|sweep| sweep.join("logs").join(format!("{}.log", run.name())));
    for path in [Some(own), of_sweep].into_iter().flatten() {
        // Not through a link, which could lead anywhere.
        if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
            return Ok(last_lines(&path)?);
        }
    }
    Ok(Vec::new())
}

fn last_lines(path: &Path) -> std::io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line may be a part of one.
    Ok(text.lines().skip(usize::from(start > 0)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_logs_begin_with_a_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.txt");
        std::fs::write(&path, (0..9000).map(|i| format!("line {i}\n")).collect::<String>()).unwrap();
        let lines = last_lines(&path).unwrap();
        assert!(lines.len() < 2000 && lines.iter().all(|line| line.starts_with("line ")));
        assert_eq!(lines.last().unwrap(), "line 8999");
    }
}
