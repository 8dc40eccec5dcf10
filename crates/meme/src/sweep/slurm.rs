//! `--on slurm`: the runs of a sweep as one job array.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::manifest::SweepDirectory;
use super::{PlannedSweep, STATUS_RESUMABLE};

/// Seconds before the time limit at which a run is signalled to save itself.
const NOTICE: u32 = 300;

/// What an array of jobs trains.
pub(super) struct SlurmArray<'a> {
    pub sweep: &'a PlannedSweep<'a>,
    /// Options of `sbatch` without their dashes, such as `partition=gpu`.
    pub options: &'a [String],
    /// Maximum number of jobs at the same time.
    pub jobs: Option<usize>,
}

/// A job of an array, as `squeue` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedJob {
    /// Whether it runs; otherwise it waits for a node.
    pub is_running: bool,
    /// Its node, if it runs.
    pub node: String,
}

impl SlurmArray<'_> {
    /// The script that `sbatch` takes.
    pub fn script(&self) -> Result<String> {
        let Self { sweep: PlannedSweep { name, directory, manifest, left, retries }, options, jobs } = self;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let sweep = std::path::absolute(directory.path())?;
        let runs = sweep.parent().unwrap_or(&sweep);
        let indices: Vec<usize> =
            manifest.runs.iter().enumerate().filter(|(_, run)| left.contains(run)).map(|(index, _)| index).collect();
        let at_a_time = jobs.map_or(String::new(), |jobs| format!("%{jobs}"));
        let mut headers = vec![
            format!("job-name=meme-{name}"),
            format!("array={}{at_a_time}", ranges(&indices)),
            "requeue".to_owned(),
            "open-mode=append".to_owned(),
            format!("signal=B:TERM@{NOTICE}"),
            // In quotes, or a space would end it.
            format!("output=\"{}\"", sweep.join("logs/slurm-%A_%a.out").display()),
        ];
        for option in *options {
            if option.is_empty() || option.starts_with('-') || option.contains(char::is_control) {
                bail!("invalid value \"{option}\" for --slurm: expected an option of sbatch such as partition=gpu");
            }
            let key = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
            headers.retain(|header| key(header) != key(option));
            headers.push(option.clone());
        }
        if !headers.iter().any(|header| header.starts_with("gpus") || header.starts_with("gres"))
            && !["cpu", "tiny"].contains(&manifest.preset.as_str())
        {
            headers.push("gpus=1".to_owned());
        }
        let headers: String = headers.iter().map(|header| format!("#SBATCH --{header}\n")).collect();
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let command = [
            quoted(&program.to_string_lossy()),
            "sweep run".to_owned(),
            quoted(name),
            r#""$SLURM_ARRAY_TASK_ID" --id"#.to_owned(),
            quoted(&manifest.id),
            "--runs".to_owned(),
            quoted(&runs.to_string_lossy()),
        ]
        .join(" ");
        Ok(format!(
            r#"#!/usr/bin/env bash
{headers}
# One run of the sweep. SIGTERM comes {NOTICE} s before the time limit: the run saves itself, and the job is queued again.
set -u
{command} &
run=$!
trap 'kill -TERM "$run" 2>/dev/null' TERM INT
wait "$run"
status=$?
while kill -0 "$run" 2>/dev/null; do
    wait "$run"
    status=$?
done
job="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
if [ "$status" -eq {resumable} ] || {{ [ "$status" -ne 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {retries} ]; }}; then
    exec scontrol requeue "$job"
fi
exit "$status"
"#,
            resumable = STATUS_RESUMABLE
        ))
    }

    /// Submits the array and returns its number.
    pub fn submit(&self) -> Result<String> {
        let directory = self.sweep.directory;
        let script = directory.path().join("slurm.sh");
        fs::write(&script, self.script()?).with_context(|| format!("cannot write {}", script.display()))?;
        let output = match Command::new("sbatch").arg("--parsable").arg(&script).stdin(Stdio::null()).output() {
            Err(cause) if cause.kind() == ErrorKind::NotFound => {
                bail!("there is no `sbatch` here; run this on a machine that submits SLURM jobs")
            }
            output => output.context("cannot run `sbatch`")?,
        };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("sbatch refused {}: {}", script.display(), said.lines().next().unwrap_or("no reason given"));
        }
        // `NUMBER` or `NUMBER;CLUSTER`
        let printed = String::from_utf8_lossy(&output.stdout);
        let number = printed.trim().split(';').next().unwrap_or_default().to_owned();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            bail!("sbatch printed {:?} instead of a job number", printed.trim());
        }
        let path = array_file(directory);
        fs::write(&path, format!("{number}\n")).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(number)
    }
}

fn array_file(directory: &SweepDirectory) -> PathBuf {
    directory.path().join("slurm.job")
}

/// The jobs of the sweep's last array that wait or run, by the number of their run. None without SLURM.
pub fn queued(directory: &SweepDirectory) -> BTreeMap<usize, QueuedJob> {
    let Ok(number) = fs::read_to_string(array_file(directory)) else { return BTreeMap::new() };
    let arguments = ["--noheader", "--array", "--format=%K %T %N", "--jobs", number.trim()];
    let output = Command::new("squeue").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(job).collect()
}

/// Reads `INDEX STATE NODE`.
fn job(line: &str) -> Option<(usize, QueuedJob)> {
    let mut words = line.split_whitespace();
    let (index, state) = (words.next()?.parse().ok()?, words.next()?);
    let is_running = ["RUNNING", "COMPLETING", "CONFIGURING"].contains(&state);
    Some((index, QueuedJob { is_running, node: words.next().unwrap_or_default().to_owned() }))
}

/// Writes `0,2-4` for 0, 2, 3, 4.
fn ranges(indices: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &index in indices {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_indices_are_written_as_ranges() {
        assert_eq!(ranges(&[0]), "0");
        assert_eq!(ranges(&[0, 2, 3, 4, 9]), "0,2-4,9");
    }

    #[test]
    fn queue_is_read_line_by_line() {
        let running = QueuedJob { is_running: true, node: "gpu3".to_owned() };
        assert_eq!(job("4 RUNNING gpu3"), Some((4, running)));
        assert_eq!(job("5 PENDING"), Some((5, QueuedJob { is_running: false, node: String::new() })));
        assert_eq!((job(""), job("N/A PENDING")), (None, None));
    }
}
