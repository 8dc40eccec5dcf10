//! `--on local`: the runs of a sweep on this machine, one at a time on each GPU.

use std::collections::VecDeque;
use std::env;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use train::run::stop::Stop;

use super::Summary;
use super::manifest::{Manifest, SweepDirectory, SweepRun};
use super::task::{Outcome, attempt};
use crate::console::{self, ProgressLine};

/// How often the progress line is refreshed.
const REFRESH: Duration = Duration::from_millis(200);

/// Returns where runs can go at the same time: the GPUs, or `jobs` times the CPU.
pub fn places(jobs: Option<usize>) -> Vec<Option<String>> {
    let gpus = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    places_on(gpus, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), jobs)
}

/// GPUs are named as `CUDA_VISIBLE_DEVICES` names them; without that variable, by their numbers.
fn places_on(gpus: usize, visible: Option<&str>, jobs: Option<usize>) -> Vec<Option<String>> {
    if gpus == 0 {
        return vec![None; jobs.unwrap_or(1)];
    }
    let names: Vec<String> = match visible {
        Some(visible) => visible.split(',').map(|name| name.trim().to_owned()).collect(),
        None => (0..gpus).map(|number| number.to_string()).collect(),
    };
    let names = &names[..gpus.min(names.len())];
    names.iter().cloned().cycle().take(jobs.unwrap_or(names.len())).map(Some).collect()
}

/// What a place reports.
enum Report<'a> {
    Started(&'a SweepRun, Option<String>),
    Ended(&'a SweepRun, Outcome, bool),
}

/// Trains the runs that `left` names; each fails at most `retries` + 1 times.
pub fn train(
    directory: &SweepDirectory,
    manifest: &Manifest,
    left: Vec<&SweepRun>,
    places: &[Option<String>],
    retries: u32,
    stop: &Stop,
) -> Result<Summary> {
    let total = left.len();
    let queue = Mutex::new(VecDeque::from(left));
    let (reports, received) = channel();
    let mut summary = Summary::default();
    thread::scope(|scope| {
        for place in places {
            let (reports, queue) = (reports.clone(), &queue);
            let work = move || work(directory, manifest, queue, place.as_deref(), retries, stop, &reports);
            thread::Builder::new()
                .name("sweep".to_owned())
                .spawn_scoped(scope, work)
                .context("cannot start a thread")?;
        }
        drop(reports);
        let mut line = ProgressLine::new();
        let mut running = 0;
        loop {
            match received.recv_timeout(REFRESH) {
                Ok(Ok(Report::Started(run, gpu))) => {
                    running += 1;
                    let gpu = gpu.map_or(String::new(), |gpu| format!(" on GPU {gpu}"));
                    line.message(format_args!("training {}{gpu}", run.name));
                }
                Ok(Ok(Report::Ended(run, outcome, again))) => {
                    running -= 1;
                    summary.count(run, outcome, again, &mut line);
                }
                Ok(Err(error)) => {
                    // The other places stop too: they would meet the same.
                    stop.request();
                    line.clear();
                    return Err(error);
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
            line.show(|| format!("{} of {total} runs finished, {running} running", summary.finished));
        }
        line.clear();
        Ok(())
    })?;
    if stop.is_requested() {
        console::message("stopped; all runs are saved");
    }
    Ok(summary)
}

fn work<'a>(
    directory: &SweepDirectory,
    manifest: &Manifest,
    queue: &Mutex<VecDeque<&'a SweepRun>>,
    gpu: Option<&str>,
    retries: u32,
    stop: &Stop,
    reports: &Sender<Result<Report<'a>>>,
) {
    let next = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
    while let Some(run) = next().filter(|_| !stop.is_requested()) {
        for attempts in 0.. {
            // The receiver lives as long as this thread, unless another place failed.
            let _ = reports.send(Ok(Report::Started(run, gpu.map(str::to_owned))));
            match attempt(directory, manifest, run, gpu, stop) {
                Ok(outcome) => {
                    let again = matches!(outcome, Outcome::Failed(_)) && attempts < retries && !stop.is_requested();
                    let _ = reports.send(Ok(Report::Ended(run, outcome, again)));
                    if !again {
                        break;
                    }
                }
                Err(error) => {
                    let _ = reports.send(Err(error));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_gets_one_run_at_a_time() {
        let named = |gpus, visible, jobs| -> Vec<String> {
            places_on(gpus, visible, jobs).into_iter().map(|place| place.unwrap_or("cpu".into())).collect()
        };
        assert_eq!(named(2, None, None), ["0", "1"]);
        assert_eq!(named(2, Some("3,5"), None), ["3", "5"]);
        assert_eq!(named(1, Some("GPU-1a2b"), None), ["GPU-1a2b"]);
        assert_eq!(named(2, None, Some(3)), ["0", "1", "0"]);
        assert_eq!(named(0, None, None), ["cpu"]);
        assert_eq!(named(0, Some("0"), Some(2)), ["cpu", "cpu"]);
    }
}
