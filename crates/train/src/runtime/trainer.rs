//! Trains a run from its first frame to its last: advances the runtime, writes metrics and checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use envs::games::Game;

use crate::config::Config;
use crate::device::device;
use crate::environments::Task;
use crate::error::{Result, TrainError};
use crate::roles::evaluation_rounds::EvaluationReport;
use crate::roles::events::Event;
use crate::roles::remote_actors::{RemoteActors, RemoteCounters};
use crate::roles::timesheet::{ActivityTimes, TimeShare};
use crate::run::checkpoint::contents::{self, TrainingSnapshot};
use crate::run::checkpoint::{Checkpoint, CheckpointError, SavedCheckpoint};
use crate::run::stop::Stop;
use crate::run::{MetricsWriter, RestoredFiles, Row, RunDirectory, SPEED, TensorBoardWriter, regular_file};
use crate::runtime::assembly::Assembly;
use crate::runtime::background_saves::BackgroundSaves;
use crate::runtime::fault_log::FaultLog;
use crate::runtime::lockstep::Lockstep;
use crate::runtime::metrics_accumulator::MetricsAccumulator;
use crate::runtime::rates::Rates;
use crate::runtime::starting_point::StartingPoint;
use crate::runtime::status::{RunStatus, samples_per_insert};
use crate::runtime::threads::Threads;
use crate::runtime::usage::ResourceUsage;
use crate::runtime::{AfterSnapshot, TrainingRuntime};

/// Pause between two checks whether a save has finished.
const POLL: Duration = Duration::from_millis(10);

/// Shows the user how the run is doing.
pub trait ProgressDisplay {
    /// Shows the status; called often.
    fn status(&mut self, status: &RunStatus);
    /// Shows a message.
    fn message(&mut self, text: &str);
    /// Shows a warning.
    fn warn(&mut self, text: &str) {
        self.message(text);
    }
}

/// Run to train, and its starting point.
pub struct TrainingSetup<'a> {
    /// Task that the agent plays.
    pub task: &'a Task,
    /// Config of the run.
    pub config: &'a Config,
    /// Directory of the run.
    pub directory: &'a RunDirectory,
    /// What the run starts from.
    pub from: StartingPoint,
    /// Actors on other machines.
    pub remote: Option<Arc<RemoteActors>>,
}

/// Trains until the frames are played or a stop is requested, saves, and returns the status.
pub fn train(setup: TrainingSetup<'_>, stop: &Stop, display: &mut dyn ProgressDisplay) -> Result<RunStatus> {
    let mut trainer = Trainer::open(setup, display)?;
    let outcome = match trainer.run(stop) {
        // Such a run would bind later commands to settings with which nothing was played.
        Ok(()) if trainer.runtime.frames() == 0 => Err(TrainError::NothingPlayed),
        Ok(()) => trainer.finish(),
        // The learner is not affected.
        Err(error) if error.is_from_environment() && trainer.runtime.frames() > 0 => {
            trainer.faults.end_with(&error.to_string());
            match trainer.finish() {
                Ok(RunStatus { frames, .. }) => Err(TrainError::SavedAfter { error: Box::new(error), frames }),
                Err(unsaved) => {
                    trainer.display.warn(&error.to_string());
                    Err(unsaved)
                }
            }
        }
        Err(error) => Err(error),
    };
    trainer.finish_files();
    if let (Ok(status), Some(remote)) = (&outcome, &trainer.remote)
        && status.is_finished()
    {
        remote.finish();
    }
    outcome
}

/// Trains a new run without saving its end, to measure it; the caller removes its directory.
pub fn rehearse(setup: TrainingSetup<'_>, stop: &Stop, display: &mut dyn ProgressDisplay) -> Result<RunStatus> {
    let mut trainer = Trainer::open(setup, display)?;
    let outcome = trainer.run(stop);
    trainer.finish_files();
    outcome.map(|()| trainer.status())
}

struct Trainer<'a> {
    config: &'a Config,
    directory: &'a RunDirectory,
    display: &'a mut dyn ProgressDisplay,
    game: Option<&'static Game>,
    runtime: Box<dyn TrainingRuntime>,
    remote: Option<Arc<RemoteActors>>,
    metrics: MetricsAccumulator,
    metrics_file: MetricsWriter,
    tensorboard: TensorBoardWriter,
    /// Contents of `history.jsonl`, which does not change during training.
    history: Vec<u8>,
    /// Why the last row could not be written.
    row_error: Option<String>,
    rates: Rates,
    /// When the training time was last added to the metrics.
    time_added_at: Instant,
    row_written_at: Instant,
    last_times: ActivityTimes,
    saves: BackgroundSaves<'a>,
    last_save_began: Instant,
    faults: FaultLog,
    /// An evaluation that may be the best so far.
    evaluated: Option<EvaluationReport>,
}

/// Passes new faults to the display, sets evaluations aside and counts everything.
fn recorder<'a>(
    metrics: &'a mut MetricsAccumulator,
    faults: &'a mut FaultLog,
    display: &'a mut dyn ProgressDisplay,
    evaluated: &'a mut Option<EvaluationReport>,
) -> impl FnMut(Event) + 'a {
    move |event| {
        metrics.record(&event);
        match event {
            Event::Notice(message) => display.message(&message),
            Event::Fault(message) => {
                if let Some(message) = faults.record(&message) {
                    display.warn(&message);
                }
            }
            Event::Evaluation(report) => *evaluated = Some(*report),
            _ => {}
        }
    }
}

impl<'a> Trainer<'a> {
    /// Starts, or resumes from a checkpoint.
    fn open(setup: TrainingSetup<'a>, display: &'a mut dyn ProgressDisplay) -> Result<Self> {
        let TrainingSetup { task, config, directory, from, remote } = setup;
        let files = &directory.files;
        let saves = BackgroundSaves::open(directory, config.checkpoint.keep_last)?;
        let remote_capacity = remote.as_ref().map_or(0, |remote| remote.capacity());
        let mut assembly = Assembly::new(task, config, device(config)?, &from, remote_capacity)?;
        if let Some(message) = assembly.transferred.take() {
            display.message(&message);
        }
        let metrics = match from.resumed() {
            Some(checkpoint) => contents::metrics(checkpoint)?,
            None => MetricsAccumulator::new(config),
        };
        let runtime: Box<dyn TrainingRuntime> = if config.run.lockstep {
            Box::new(Lockstep::new(assembly, config)?)
        } else {
            Box::new(Threads::start(assembly, config, remote.clone())?)
        };
        // Rows after the last one in these metrics will be written again.
        let last_row = from.resumed().map(|_| metrics.last_row);
        let (metrics_file, repair) = MetricsWriter::open(&files.metrics_file(), last_row)?;
        let tensorboard = TensorBoardWriter::create(&files.events_directory(), last_row)?;
        let saved = from.resumed().map(Checkpoint::frames);
        if let Some(message) = start_message(saved, repair.dropped_to) {
            display.message(&message);
        }
        if saved.is_none()
            && let Some(aside) = saves.store.set_best_aside()?
        {
            display.message(&format!("the best checkpoint of the unsaved attempt is now {}", aside.display()));
        }
        let now = Instant::now();
        let trainer = Self {
            config,
            directory,
            display,
            game: task.environment.game(),
            rates: Rates::new(runtime.frames(), metrics.last_update),
            runtime,
            remote,
            metrics,
            metrics_file,
            tensorboard,
            history: regular_file::read(&files.history_file()).unwrap_or_default(),
            row_error: None,
            time_added_at: now,
            row_written_at: now,
            last_times: ActivityTimes::default(),
            saves,
            last_save_began: now,
            faults: FaultLog::default(),
            evaluated: None,
        };
        if saved.is_some() {
            // The process that saved it may have been killed before it recorded that.
            trainer.saves.note_saved(trainer.display);
        }
        Ok(trainer)
    }

    fn run(&mut self, stop: &Stop) -> Result<()> {
        while self.runtime.frames() < self.config.run.frames && !stop.is_requested() {
            let before = self.runtime.frames();
            let mut record = recorder(&mut self.metrics, &mut self.faults, self.display, &mut self.evaluated);
            self.runtime.advance(&mut record)?;
            drop(record);
            self.keep_best();
            if self.is_row_due(before) {
                self.write_row();
            }
            self.finish_saving(false);
            self.finish_best(false);
            if self.last_save_began.elapsed() >= Duration::from_secs_f64(self.config.checkpoint.every_minutes * 60.0) {
                self.save()?;
            }
            // A save requested during another one follows it.
            if !self.saves.is_saving() && self.runtime.frames() > 0 && stop.take_save_request() {
                self.display.message("saving a checkpoint because of SIGUSR1 or SIGUSR2; training continues");
                self.save()?;
            }
            let status = self.status();
            self.display.status(&status);
        }
        Ok(())
    }

    /// Writes the last row of metrics and the last checkpoint, and returns the status.
    fn finish(&mut self) -> Result<RunStatus> {
        self.finish_saving(true);
        // Nothing continues after this snapshot.
        let snapshot = self.take_snapshot(AfterSnapshot::StayPaused)?;
        self.keep_best();
        self.close_metrics();
        let status = self.status();
        match self.begin_save(snapshot.ending(&status)).and_then(|()| Ok(self.await_save()?)) {
            Ok(saved) => saved.iter().for_each(|saved| self.saves.report(saved, self.display)),
            Err(error) => {
                // If they cannot be listed either, the failed save is the error to report.
                let saved = self.saves.store.checkpoints.list().unwrap_or_default().last().copied();
                return Err(TrainError::LastSave { error: Box::new(error), saved });
            }
        }
        Ok(status)
    }

    fn status(&mut self) -> RunStatus {
        self.rates.measure(self.runtime.frames(), self.metrics.last_update);
        let saving = self.saves.bytes();
        RunStatus::new(self.config, self.runtime.as_ref(), &self.metrics, &self.rates, self.game, saving)
    }

    /// Returns whether a row is due: by the clock, if anything was played since the last row; in lockstep by the
    /// frames, so that every run has the same rows.
    fn is_row_due(&self, frames_before: u64) -> bool {
        if self.config.run.lockstep {
            let every = self.config.metrics.lockstep_frames;
            return self.runtime.frames() / every > frames_before / every;
        }
        let played = self.runtime.frames() > self.metrics.last_row;
        played && self.row_written_at.elapsed().as_secs_f64() >= self.config.metrics.interval_seconds
    }

    /// Writes a row for the end of the run, unless the last one is that.
    ///
    /// In lockstep the row is out of turn, so the accumulator forgets it: a resumed run overwrites it, and has the same
    /// rows as one that never stopped.
    fn close_metrics(&mut self) {
        if self.runtime.frames() <= self.metrics.last_row {
            return;
        }
        let metrics = self.metrics.clone();
        self.write_row();
        if self.config.run.lockstep {
            self.metrics = metrics;
        }
    }

    /// Writes a row. A failure is reported, and training continues.
    fn write_row(&mut self) {
        let frames = self.runtime.frames();
        let accounting = self.runtime.agent().learner_loop.replay.accounting();
        let mut row = self.metrics.row(frames, &self.runtime.agent().bandit, &accounting);
        row.scalar("replay/samples_per_insert", samples_per_insert(self.config, &accounting));
        if let Some(times) = self.runtime.times() {
            for TimeShare { role, activity, share } in times.shares_since(&self.last_times) {
                row.scalar(format!("time/{role}_{activity}"), share);
            }
            self.last_times = times;
        }
        if !self.config.run.lockstep {
            self.rates.measure(frames, self.metrics.last_update);
            row.scalar("speed/seconds", self.add_time());
            row.scalar(SPEED, self.rates.frames_per_second);
            row.scalar("speed/updates_per_second", self.rates.updates_per_second);
            row.scalar("replay/bytes_per_step", accounting.bytes_per_step());
            self.add_memory(&mut row, accounting.bytes());
        }
        if let Some(remote) = &self.remote {
            let RemoteCounters { bytes, steps, refused } = remote.counters();
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
            row.scalar("remote/environments", remote.environments() as f64);
            row.scalar("remote/steps", count(steps));
            row.scalar("remote/megabytes", count(bytes) / 1e6);
            row.scalar("remote/refused", count(refused));
        }
        let metrics = self.metrics_file.append(&row).map_err(TrainError::from);
        let tensorboard = self.tensorboard.append(&row).map_err(TrainError::from);
        let errors = [metrics, tensorboard].into_iter().filter_map(Result::err).map(|error| error.to_string());
        let error = errors.reduce(|first, second| format!("{first}; {second}"));
        // As long as nothing changes, once is enough.
        if error != self.row_error
            && let Some(error) = &error
        {
            self.display.warn(&format!("cannot write metrics, training continues: {error}"));
        }
        self.row_error = error;
        self.row_written_at = Instant::now();
    }

    /// Adds the memory that the run uses, where it can be measured.
    fn add_memory(&self, row: &mut Row, replay: u64) {
        if let Ok(usage) = ResourceUsage::now(false) {
            row.scalar("memory/process", usage.own_bytes as f64);
            row.scalar("memory/workers", usage.worker_bytes as f64);
        }
        row.scalar("memory/replay", replay as f64);
        if let Ok(Some(memory)) = self.runtime.agent().learner_loop.learner.device_memory() {
            row.scalar("memory/device", memory as f64);
        }
    }

    /// Adds the time since the last call to the metrics, and returns the total training time.
    fn add_time(&mut self) -> f64 {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.time_added_at, now);
        self.metrics.add_time(time)
    }

    /// Keeps the agent that was evaluated last, if it is the best so far. A failure is reported, and training
    /// continues.
    fn keep_best(&mut self) {
        let Some(evaluated) = self.evaluated.take().filter(|_| self.config.checkpoint.keep_best) else { return };
        self.finish_best(true);
        let begun = self.check_files().and_then(|()| self.saves.begin_best(evaluated));
        self.warn_of_best(begun);
    }

    fn finish_best(&mut self, wait: bool) {
        let finished = self.saves.finish_best(wait);
        self.warn_of_best(finished);
    }

    fn warn_of_best(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.display.warn(&format!("cannot keep the best parameters: {error}"));
        }
    }

    /// Saves in the background. A failure is reported, and training continues until the next save.
    fn save(&mut self) -> Result<()> {
        if self.saves.is_saving() {
            return Ok(());
        }
        let snapshot = self.take_snapshot(AfterSnapshot::Continue)?;
        if let Err(error) = self.begin_save(snapshot) {
            self.warn_of_save(&error);
        }
        Ok(())
    }

    fn warn_of_save(&mut self, error: &TrainError) {
        self.display.warn(&format!("saving failed, training continues: {error}"));
    }

    /// Copies everything, which fails only as training itself does.
    fn take_snapshot(&mut self, after: AfterSnapshot) -> Result<TrainingSnapshot> {
        let mut record = recorder(&mut self.metrics, &mut self.faults, self.display, &mut self.evaluated);
        let snapshot = self.runtime.snapshot(after, &mut record)?;
        drop(record);
        if !self.config.run.lockstep {
            self.add_time();
        }
        Ok(snapshot)
    }

    /// Starts to write a snapshot, with the current metrics.
    fn begin_save(&mut self, snapshot: TrainingSnapshot) -> Result<()> {
        self.last_save_began = Instant::now();
        self.check_files()?;
        // Rows up to the checkpoint stay when the run resumes from it, so they must be on disk before it.
        self.metrics_file.sync()?;
        self.saves.begin(snapshot, self.metrics.clone())
    }

    /// Fails if another process has taken the run. Writes removed files again, and reports them.
    fn check_files(&mut self) -> Result<()> {
        self.directory.check_held()?;
        let RestoredFiles { files, lost_checkpoints } =
            self.directory.restore_files(&self.config.to_toml()?, &self.history)?;
        for file in files {
            self.display.warn(&format!("{file} was removed during training; wrote it again"));
        }
        if lost_checkpoints {
            self.display.warn("the checkpoints directory was removed during training; earlier checkpoints are lost");
        }
        Ok(())
    }

    fn finish_saving(&mut self, wait: bool) {
        if !wait && self.saves.is_writing() {
            return;
        }
        match self.await_save() {
            Ok(saved) => saved.iter().for_each(|saved| self.saves.report(saved, self.display)),
            Err(error) if wait => self.display.warn(&format!("the save that was in progress failed: {error}")),
            Err(error) => self.warn_of_save(&error.into()),
        }
    }

    /// Waits for the save in progress, if there is one, and shows its progress.
    fn await_save(&mut self) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        while self.saves.is_writing() {
            let status = self.status();
            self.display.status(&status);
            thread::sleep(POLL);
        }
        self.saves.finish()
    }

    /// Waits for the saves in progress. They are good even if training failed after they started.
    fn finish_files(&mut self) {
        if let Some(summary) = self.faults.summary() {
            self.display.warn(&summary);
        }
        self.finish_saving(true);
        self.finish_best(true);
    }
}

/// Returns where a run resumes and how many of the `played` frames, those of the last row, were lost.
fn start_message(saved: Option<u64>, played: u64) -> Option<String> {
    match (saved, played.saturating_sub(saved.unwrap_or(0))) {
        (None, 0) => None,
        (None, lost) => Some(format!("about {lost} frames were never saved and will be played again")),
        (Some(saved), 0) => Some(format!("resuming from {saved} frames")),
        (Some(saved), lost) => {
            Some(format!("resuming from {saved} frames; about {lost} frames after that save will be played again"))
        }
    }
}
