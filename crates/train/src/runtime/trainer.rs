//! A run from its first frame to its last: moves the runtime, keeps the metrics accumulator, writes metrics and checkpoints.

use std::thread;
use std::time::{Duration, Instant};

use envs::games::Game;

use crate::config::{Config, Device};
use crate::error::{Result, TrainError};
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Checkpoints, Saved, Saving};
use crate::run::stop::Stop;
use crate::run::{EventWriter, MetricsWriter, Repair, Row, RunDirectory};
use crate::runtime::assembly::{Parts, Task};
use crate::runtime::events::Event;
use crate::runtime::lockstep::Lockstep;
use crate::runtime::metrics_accumulator::MetricsAccumulator;
use crate::runtime::status::{Rates, RunStatus, samples_per_insert};
use crate::runtime::threads::Threads;
use crate::runtime::timesheet::{ActivityTimes, TimeShare};
use crate::runtime::usage::ResourceUsage;
use crate::runtime::{AfterCopy, TrainingRuntime};
use crate::saving::Copied;
use crate::weights;

/// How long to wait before it is looked again whether a save is finished.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Whoever shows a person how the run goes.
pub trait ProgressDisplay {
    /// How it stands; called often.
    fn status(&mut self, status: &RunStatus);
    /// Something a person should know: a sentence.
    fn say(&mut self, sentence: &str);
}

/// Trains until the frames are played or a stop is asked for, saves, and returns how it stands. A run that goes on does so
/// `from` a checkpoint.
pub fn train(
    task: &Task,
    config: &Config,
    directory: &RunDirectory,
    from: Option<Checkpoint>,
    stop: &Stop,
    display: &mut dyn ProgressDisplay,
) -> Result<RunStatus> {
    let mut trainer = Trainer::open(task, config, directory, from, display)?;
    let outcome = match trainer.run(stop, display) {
        // A run that would hold whoever comes back to settings with which nothing was played.
        Ok(()) if trainer.runtime.frames() == 0 => Err(TrainError::NothingPlayed),
        Ok(()) => trainer.finish(display),
        // What was learned does not depend on it.
        Err(error) if error.is_of_an_environment() && trainer.runtime.frames() > 0 => match trainer.finish(display) {
            Ok(RunStatus { frames, .. }) => Err(TrainError::SavedAfter { error: Box::new(error), frames }),
            Err(unsaved) => {
                display.say(&error.to_string());
                Err(unsaved)
            }
        },
        Err(error) => Err(error),
    };
    trainer.finish_files(display);
    outcome
}

/// The same for a new run whose end is not saved: it is only to be measured, and its folder is thrown away.
pub fn rehearse(
    task: &Task,
    config: &Config,
    directory: &RunDirectory,
    stop: &Stop,
    display: &mut dyn ProgressDisplay,
) -> Result<RunStatus> {
    let mut trainer = Trainer::open(task, config, directory, None, display)?;
    let outcome = trainer.run(stop, display);
    trainer.finish_files(display);
    outcome.map(|()| trainer.status())
}

struct Trainer<'a> {
    config: &'a Config,
    directory: &'a RunDirectory,
    game: Option<&'static Game>,
    runtime: Box<dyn TrainingRuntime>,
    metrics: MetricsAccumulator,
    files: TrainerFiles,
    rates: Rates,
    /// Up to when the metrics accumulator know of the time.
    last_time: Instant,
    last_row: Instant,
    last_times: ActivityTimes,
    last_save: Instant,
    saving: Option<Saving>,
    keeping: Option<Saving<Option<Saved>>>,
}

struct TrainerFiles {
    store: CheckpointStore,
    metrics: MetricsWriter,
    events: EventWriter,
}

/// Passes faults to the display and counts everything else.
fn recorder<'a>(metrics: &'a mut MetricsAccumulator, display: &'a mut dyn ProgressDisplay) -> impl FnMut(Event) + 'a {
    move |event| match event {
        Event::Fault(sentence) => display.say(&sentence),
        event => metrics.record(&event),
    }
}

impl<'a> Trainer<'a> {
    /// Goes on from a checkpoint, or begins.
    fn open(
        task: &Task,
        config: &'a Config,
        directory: &'a RunDirectory,
        from: Option<Checkpoint>,
        display: &mut dyn ProgressDisplay,
    ) -> Result<Self> {
        let folder = directory.files().checkpoints_folder();
        let store = CheckpointStore::open(&folder, config.checkpoint.keep_last)?;
        let (trainer, repair) = Self::new(task, config, directory, store, from.as_ref())?;
        let saved = from.as_ref().map(Checkpoint::frames);
        if let Some(sentence) = begun(saved, repair.dropped_to) {
            display.say(&sentence);
        }
        match saved {
            // The process that saved it may have been killed before it noted that.
            Some(_) => trainer.note_saved(display),
            None => {
                if let Some(aside) = trainer.files.store.set_best_aside()? {
                    display.say(&format!("the best parameters of what was never saved are in {} now", aside.display()));
                }
            }
        }
        Ok(trainer)
    }

    fn new(
        task: &Task,
        config: &'a Config,
        directory: &'a RunDirectory,
        store: CheckpointStore,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<(Self, Repair)> {
        let parts = Parts::new(task, config, device(config)?, checkpoint)?;
        let metrics = match checkpoint {
            Some(checkpoint) => crate::saving::metrics(checkpoint)?,
            None => MetricsAccumulator::new(config),
        };
        let runtime: Box<dyn TrainingRuntime> = if config.run.lockstep {
            Box::new(Lockstep::new(parts, config)?)
        } else {
            Box::new(Threads::start(parts, config)?)
        };
        let files = directory.files();
        // Rows after the last one in these metrics accumulator will be written again.
        let at = checkpoint.map(|_| metrics.last_row());
        let (writer, repair) = MetricsWriter::open(&files.metrics_file(), at)?;
        let events = EventWriter::create(&files.events_folder(), at)?;
        let now = Instant::now();
        let trainer = Self {
            config,
            directory,
            game: task.environment.game(),
            rates: Rates::new(runtime.frames(), metrics.last_update()),
            runtime,
            metrics,
            files: TrainerFiles { store, metrics: writer, events },
            last_time: now,
            last_row: now,
            last_times: ActivityTimes::default(),
            last_save: now,
            saving: None,
            keeping: None,
        };
        Ok((trainer, repair))
    }

    fn run(&mut self, stop: &Stop, display: &mut dyn ProgressDisplay) -> Result<()> {
        while self.runtime.frames() < self.config.run.frames && !stop.is_requested() {
            let before = self.runtime.frames();
            self.runtime.advance(&mut recorder(&mut self.metrics, display))?;
            if self.is_time_for_a_row(before) {
                self.write_row(display);
                self.keep_best(display);
            }
            self.finish_saving(false, display);
            self.finish_keeping(false, display);
            if self.last_save.elapsed() >= Duration::from_secs_f64(self.config.checkpoint.every_minutes * 60.0) {
                self.save(display)?;
            }
            display.status(&self.status());
        }
        Ok(())
    }

    /// The last row of metrics, and a last checkpoint; how the run stands in it.
    fn finish(&mut self, display: &mut dyn ProgressDisplay) -> Result<RunStatus> {
        self.finish_saving(true, display);
        // Nothing goes on after this copy, and no next save is tried.
        let copied = self.copy(AfterCopy::StayPaused, display)?;
        self.close_metrics(display);
        let status = self.status();
        let saved = self.begin_save(copied.ending(&status)).and_then(|saving| {
            self.saving = Some(saving);
            Ok(self.await_save(display)?)
        });
        match saved {
            Ok(saved) => saved.iter().for_each(|saved| self.tell_saved(saved, display)),
            Err(error) => {
                let checkpoints = Checkpoints::in_folder(&self.directory.files().checkpoints_folder());
                // Where they can't be listed either, why the last one failed says more.
                let saved = checkpoints.list().unwrap_or_default().last().copied();
                return Err(TrainError::LastSave { error: Box::new(error), saved });
            }
        }
        Ok(status)
    }

    fn status(&mut self) -> RunStatus {
        self.rates.measure(self.runtime.frames(), self.metrics.last_update());
        let saving = self.saving.as_ref().map(Saving::bytes);
        RunStatus::new(self.config, self.runtime.as_ref(), &self.metrics, &self.rates, self.game, saving)
    }

    /// By the clock, where something was played since the last row, or in lockstep by the frames, so that rows are the
    /// same in every run.
    fn is_time_for_a_row(&self, frames_before: u64) -> bool {
        if self.config.run.lockstep {
            let every = self.config.metrics.lockstep_frames;
            return self.runtime.frames() / every > frames_before / every;
        }
        let played = self.runtime.frames() > self.metrics.last_row();
        played && self.last_row.elapsed().as_secs_f64() >= self.config.metrics.interval_seconds
    }

    /// Writes how the run ended, if that is not in the last row, and keeps its parameters if they are the best. In
    /// lockstep the row comes out of its turn, so the metrics accumulator do not know of it: a run that goes on writes it over, and
    /// its rows are those of a run that never stopped.
    fn close_metrics(&mut self, display: &mut dyn ProgressDisplay) {
        if self.runtime.frames() <= self.metrics.last_row() {
            return;
        }
        let metrics = self.metrics.clone();
        self.write_row(display);
        // A run in lockstep that goes on keeps what one that never stopped would.
        if !self.config.run.lockstep || self.runtime.frames() >= self.config.run.frames {
            self.keep_best(display);
        }
        if self.config.run.lockstep {
            self.metrics = metrics;
        }
    }

    /// That a row could not be written is said; training goes on, and the next row is tried.
    fn write_row(&mut self, display: &mut dyn ProgressDisplay) {
        let frames = self.runtime.frames();
        let accounting = self.runtime.agent().learner_loop.replay().accounting();
        let mut row = self.metrics.row(frames, &self.runtime.agent().bandit, &accounting);
        row.scalar("replay/samples_per_insert", samples_per_insert(self.config, &accounting));
        if let Some(times) = self.runtime.times() {
            for TimeShare { role, activity, share } in times.shares_since(&self.last_times) {
                row.scalar(format!("time/{role}_{activity}"), share);
            }
            self.last_times = times;
        }
        if !self.config.run.lockstep {
            self.rates.measure(frames, self.metrics.last_update());
            row.scalar("speed/seconds", self.spend_time());
            row.scalar("speed/frames_per_second", self.rates.frames_per_second);
            row.scalar("speed/updates_per_second", self.rates.updates_per_second);
            row.scalar("replay/bytes_per_step", accounting.bytes_per_step());
            self.note_memory(&mut row, accounting.bytes());
        }
        let metrics = self.files.metrics.append(&row).map_err(TrainError::from);
        let events = self.files.events.append(&row).map_err(TrainError::from);
        for error in [metrics, events].into_iter().filter_map(Result::err) {
            display.say(&format!("metrics could not be written, and training goes on: {error}"));
        }
        self.last_row = Instant::now();
    }

    /// What the run takes of the machine. What can't be seen is left out.
    fn note_memory(&self, row: &mut Row, replay: u64) {
        if let Ok(usage) = ResourceUsage::now(false) {
            row.scalar("memory/process", usage.own_bytes as f64);
            row.scalar("memory/workers", usage.worker_bytes as f64);
        }
        row.scalar("memory/replay", replay as f64);
        if let Ok(Some(memory)) = self.runtime.agent().learner_loop.learner().device_memory() {
            row.scalar("memory/device", memory as f64);
        }
    }

    /// Enters the time since the last entry; how long training has taken in all.
    fn spend_time(&mut self) -> f64 {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.last_time, now);
        self.metrics.add_time(time)
    }

    /// Keeps the averaged parameters beside training if they have the best evaluation so far. That it failed is said;
    /// training goes on.
    fn keep_best(&mut self, display: &mut dyn ProgressDisplay) {
        let Some(score) = self.metrics.new_evaluation().filter(|_| self.config.checkpoint.keep_best) else { return };
        self.finish_keeping(true, display);
        match self.begin_keeping(score) {
            Ok(keeping) => self.keeping = keeping,
            Err(error) => display.say(&not_kept(&error)),
        }
    }

    fn begin_keeping(&self, score: f64) -> Result<Option<Saving<Option<Saved>>>> {
        self.directory.check_held()?;
        let store = &self.files.store;
        if !store.would_be_best(score)? {
            return Ok(None);
        }
        let copied = weights::Copied::new(self.runtime.agent())?;
        let frames = self.runtime.frames();
        Ok(Some(store.save_best_in_background(frames, score, move |checkpoint| copied.write(checkpoint))?))
    }

    fn finish_keeping(&mut self, wait: bool, display: &mut dyn ProgressDisplay) {
        let finished = self.keeping.take_if(|keeping| wait || keeping.is_finished());
        if let Some(Err(error)) = finished.map(Saving::finish) {
            display.say(&not_kept(&error.into()));
        }
    }

    /// Saves beside training. That it failed is said; training goes on, and the next save is tried in its turn.
    fn save(&mut self, display: &mut dyn ProgressDisplay) -> Result<()> {
        if self.saving.is_some() {
            return Ok(());
        }
        let copied = self.copy(AfterCopy::Continue, display)?;
        match self.begin_save(copied) {
            Ok(saving) => self.saving = Some(saving),
            Err(error) => display.say(&format!("saving failed, and training goes on: {error}")),
        }
        Ok(())
    }

    /// Copies everything, which can fail only as training itself can.
    fn copy(&mut self, after: AfterCopy, display: &mut dyn ProgressDisplay) -> Result<Copied> {
        let copied = self.runtime.copy(after, &mut recorder(&mut self.metrics, display))?;
        if !self.config.run.lockstep {
            self.spend_time();
        }
        Ok(copied)
    }

    /// Has a copy written on a thread of its own, with the metrics accumulator as they are.
    fn begin_save(&mut self, copied: Copied) -> Result<Saving> {
        let (metrics, frames) = (self.metrics.clone(), copied.frames());
        self.last_save = Instant::now();
        self.directory.check_held()?;
        // Rows up to the checkpoint stay when the run goes on from it, so they must be on the disk before it.
        self.files.metrics.sync()?;
        Ok(self.files.store.save_in_background(frames, move |checkpoint| copied.write(&metrics, checkpoint))?)
    }

    fn finish_saving(&mut self, wait: bool, display: &mut dyn ProgressDisplay) {
        if !wait && self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        match self.await_save(display) {
            Ok(saved) => saved.iter().for_each(|saved| self.tell_saved(saved, display)),
            Err(error) if wait => display.say(&format!("the save that was under way failed: {error}")),
            Err(error) => display.say(&format!("saving failed, and training goes on: {error}")),
        }
    }

    /// Waits for the save under way, if there is one, and shows how far it is.
    fn await_save(&mut self, display: &mut dyn ProgressDisplay) -> Result<Option<Saved>, CheckpointError> {
        while self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            display.status(&self.status());
            thread::sleep(LOOK_AGAIN);
        }
        self.saving.take().map(Saving::finish).transpose()
    }

    /// Waits for what is being written. Also when training failed: a save under way is whole, of a moment before.
    fn finish_files(&mut self, display: &mut dyn ProgressDisplay) {
        self.finish_saving(true, display);
        self.finish_keeping(true, display);
    }

    fn tell_saved(&self, saved: &Saved, display: &mut dyn ProgressDisplay) {
        saved.not_removed.iter().for_each(|error| display.say(&error.to_string()));
        for path in &saved.made_room {
            display.say(&format!("the disk is full: {} had to make room for {}", path.display(), saved.path.display()));
        }
        self.note_saved(display);
    }

    /// That it could not be noted is said; the next save tries again.
    fn note_saved(&self, display: &mut dyn ProgressDisplay) {
        if let Err(error) = self.directory.note_saved() {
            display.say(&format!("that there is a checkpoint could not be noted: {error}"));
        }
    }
}

fn not_kept(error: &TrainError) -> String {
    format!("the best parameters so far could not be kept: {error}")
}

/// Where a run goes on from, and what was lost that had been played up to `played` frames. Those are the last row's, so
/// it may be a little more.
fn begun(saved: Option<u64>, played: u64) -> Option<String> {
    match (saved, played.saturating_sub(saved.unwrap_or(0))) {
        (None, 0) => None,
        (None, lost) => Some(format!("about {lost} frames that were never saved are played again")),
        (Some(saved), 0) => Some(format!("going on from {saved} frames")),
        (Some(saved), lost) => {
            Some(format!("going on from {saved} frames; about {lost} frames played after that save are played again"))
        }
    }
}

/// Where the networks run, if it is there. Lockstep repeats bit for bit on the CPU only.
pub fn device(config: &Config) -> Result<tch::Device> {
    match config.run.device {
        Device::Cpu => Ok(tch::Device::Cpu),
        Device::Auto if config.run.lockstep => Ok(tch::Device::Cpu),
        Device::Auto => Ok(agent::gpu().unwrap_or(tch::Device::Cpu)),
        Device::Cuda => agent::gpu().map_err(|error| TrainError::NoGpu { reason: error.to_string() }),
    }
}
