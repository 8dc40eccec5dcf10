//! `--on local`: the runs of a sweep on this machine, one at a time on each GPU.

use std::collections::VecDeque;
use std::env;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use train::run::stop::Stop;

use super::PlannedSweep;
use super::manifest::SweepRun;
use super::summary::SweepSummary;
use super::task::{Outcome, attempt};
use crate::console::{self, ProgressLine};
use crate::locked::locked;

/// How often the progress line is refreshed.
const REFRESH: Duration = Duration::from_millis(200);

/// Returns a device for each run to train at the same time: a GPU by its name, or `None` for the CPU.
pub fn job_devices(jobs: Option<usize>) -> Vec<Option<String>> {
    let gpus = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    job_devices_on(gpus, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), jobs)
}

/// GPUs are named as `CUDA_VISIBLE_DEVICES` names them; without that variable, by their numbers.
fn job_devices_on(gpus: usize, visible: Option<&str>, jobs: Option<usize>) -> Vec<Option<String>> {
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

/// What happens to a job.
enum JobEvent<'a> {
    Started(&'a SweepRun, Option<String>),
    Ended(&'a SweepRun, Outcome, bool),
}

/// Trains the runs that are left, one at a time on each device; each fails at most `retries` + 1 times.
pub(super) fn train(sweep: &PlannedSweep<'_>, devices: &[Option<String>], stop: &Stop) -> Result<SweepSummary> {
    let total = sweep.left.len();
    let jobs = Jobs { sweep, queue: Mutex::new(sweep.left.iter().copied().collect()), stop };
    let (events, received) = channel();
    let mut summary = SweepSummary::default();
    thread::scope(|scope| {
        for device in devices {
            let (events, jobs) = (events.clone(), &jobs);
            let work = move || jobs.work(device.as_deref(), &events);
            thread::Builder::new()
                .name("sweep".to_owned())
                .spawn_scoped(scope, work)
                .context("cannot start a thread")?;
        }
        drop(events);
        let mut line = ProgressLine::new();
        let mut running = 0;
        loop {
            match received.recv_timeout(REFRESH) {
                Ok(Ok(JobEvent::Started(run, gpu))) => {
                    running += 1;
                    let gpu = gpu.map_or(String::new(), |gpu| format!(" on GPU {gpu}"));
                    line.message(format_args!("training {}{gpu}", run.name));
                }
                Ok(Ok(JobEvent::Ended(run, outcome, again))) => {
                    running -= 1;
                    summary.count(run, outcome, again, &mut line);
                }
                Ok(Err(error)) => {
                    // The other jobs stop too: they would fail for the same reason.
                    stop.request();
                    line.clear();
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
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

/// What the threads of a sweep share.
struct Jobs<'a> {
    sweep: &'a PlannedSweep<'a>,
    queue: Mutex<VecDeque<&'a SweepRun>>,
    stop: &'a Stop,
}

impl<'a> Jobs<'a> {
    /// Trains queued runs one after the other, on a GPU or on the CPU.
    fn work(&self, gpu: Option<&str>, events: &Sender<Result<JobEvent<'a>>>) {
        let PlannedSweep { directory, manifest, retries, .. } = self.sweep;
        let next = || locked(&self.queue).pop_front();
        while let Some(run) = next().filter(|_| !self.stop.is_requested()) {
            for attempts in 0.. {
                // The receiver lives as long as this thread, unless another job failed.
                let _ = events.send(Ok(JobEvent::Started(run, gpu.map(str::to_owned))));
                let outcome = match attempt(directory, manifest, run, gpu, self.stop) {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        let _ = events.send(Err(error));
                        return;
                    }
                };
                let failed = matches!(outcome, Outcome::Failed(_));
                let again = failed && attempts < *retries && !self.stop.is_requested();
                let _ = events.send(Ok(JobEvent::Ended(run, outcome, again)));
                if !again {
                    break;
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
            job_devices_on(gpus, visible, jobs).into_iter().map(|device| device.unwrap_or("cpu".into())).collect()
        };
        assert_eq!(named(2, None, None), ["0", "1"]);
        assert_eq!(named(2, Some("3,5"), None), ["3", "5"]);
        assert_eq!(named(1, Some("GPU-1a2b"), None), ["GPU-1a2b"]);
        assert_eq!(named(2, None, Some(3)), ["0", "1", "0"]);
        assert_eq!(named(0, None, None), ["cpu"]);
        assert_eq!(named(0, Some("0"), Some(2)), ["cpu", "cpu"]);
    }
}
