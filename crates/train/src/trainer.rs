//! A run from its first frame to its last: moves the session, keeps the books, writes metrics and checkpoints.

use std::thread;
use std::time::{Duration, Instant};

use envs::games::Game;

use crate::assembly::{Parts, Task};
use crate::books::Books;
use crate::config::{Config, Device};
use crate::error::{Result, TrainError};
use crate::learning::Update;
use crate::lockstep::Lockstep;
use crate::messages::{EpisodeReport, Position};
use crate::run::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Checkpoints, Saved, Saving};
use crate::run::stop::Stop;
use crate::run::{EventWriter, MetricsWriter, Repair, Row, RunDirectory};
use crate::saving::Copied;
use crate::session::{Afterwards, Session, Watch};
use crate::status::{Rates, Status, samples_per_insert};
use crate::threads::Threads;
use crate::timesheet::{Share, Times};
use crate::usage::Usage;
use crate::weights;

/// How long to wait before it is looked again whether a save is finished.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Whoever shows a person how the run goes.
pub trait Screen {
    /// How it stands; called often.
    fn status(&mut self, status: &Status);
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
    screen: &mut dyn Screen,
) -> Result<Status> {
    let mut trainer = Trainer::open(task, config, directory, from, screen)?;
    let outcome = match trainer.run(stop, screen) {
        // A run that would hold whoever comes back to settings with which nothing was played.
        Ok(()) if trainer.session.frames() == 0 => Err(TrainError::NothingPlayed),
        Ok(()) => trainer.finish(screen),
        // What was learned does not depend on it.
        Err(error) if error.is_of_an_environment() && trainer.session.frames() > 0 => match trainer.finish(screen) {
            Ok(Status { frames, .. }) => Err(TrainError::SavedAfter { error: Box::new(error), frames }),
            Err(unsaved) => {
                screen.say(&error.to_string());
                Err(unsaved)
            }
        },
        Err(error) => Err(error),
    };
    trainer.finish_files(screen);
    outcome
}

/// The same for a new run whose end is not saved: it is only to be measured, and its folder is thrown away.
pub fn rehearse(
    task: &Task,
    config: &Config,
    directory: &RunDirectory,
    stop: &Stop,
    screen: &mut dyn Screen,
) -> Result<Status> {
    let mut trainer = Trainer::open(task, config, directory, None, screen)?;
    let outcome = trainer.run(stop, screen);
    trainer.finish_files(screen);
    outcome.map(|()| trainer.status())
}

struct Trainer<'a> {
    config: &'a Config,
    directory: &'a RunDirectory,
    game: Option<&'static Game>,
    session: Box<dyn Session>,
    books: Books,
    files: Files,
    rates: Rates,
    /// Up to when the books know of the time.
    last_time: Instant,
    last_row: Instant,
    last_times: Times,
    last_save: Instant,
    saving: Option<Saving>,
    keeping: Option<Saving<Option<Saved>>>,
}

struct Files {
    store: CheckpointStore,
    metrics: MetricsWriter,
    events: EventWriter,
}

/// Passes what happens to the books, and faults to the screen.
struct Desk<'a> {
    books: &'a mut Books,
    screen: &'a mut dyn Screen,
}

impl Watch for Desk<'_> {
    fn episode(&mut self, report: &EpisodeReport) {
        self.books.episode(report);
    }

    fn positions(&mut self, positions: &[Position]) {
        self.books.positions(positions);
    }

    fn update(&mut self, update: &Update) {
        self.books.update(update);
    }

    fn fault(&mut self, sentence: &str) {
        self.screen.say(sentence);
    }
}

impl<'a> Trainer<'a> {
    /// Goes on from a checkpoint, or begins.
    fn open(
        task: &Task,
        config: &'a Config,
        directory: &'a RunDirectory,
        from: Option<Checkpoint>,
        screen: &mut dyn Screen,
    ) -> Result<Self> {
        let folder = directory.files().checkpoints_folder();
        let store = CheckpointStore::open(&folder, config.checkpoint.keep_last)?;
        let (trainer, repair) = Self::new(task, config, directory, store, from.as_ref())?;
        let saved = from.as_ref().map(Checkpoint::frames);
        if let Some(sentence) = begun(saved, repair.dropped_to) {
            screen.say(&sentence);
        }
        match saved {
            // The process that saved it may have been killed before it noted that.
            Some(_) => trainer.note_saved(screen),
            None => {
                if let Some(aside) = trainer.files.store.set_best_aside()? {
                    screen.say(&format!("the best parameters of what was never saved are in {} now", aside.display()));
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
        let books = match checkpoint {
            Some(checkpoint) => crate::saving::books(checkpoint)?,
            None => Books::new(config),
        };
        let session: Box<dyn Session> = if config.run.lockstep {
            Box::new(Lockstep::new(parts, config)?)
        } else {
            Box::new(Threads::start(parts, config)?)
        };
        let files = directory.files();
        // Rows after the last one in these books will be written again.
        let at = checkpoint.map(|_| books.last_row());
        let (metrics, repair) = MetricsWriter::open(&files.metrics_file(), at)?;
        let events = EventWriter::create(&files.events_folder(), at)?;
        let now = Instant::now();
        let trainer = Self {
            config,
            directory,
            game: task.environment.game(),
            rates: Rates::new(session.frames(), books.last_update()),
            session,
            books,
            files: Files { store, metrics, events },
            last_time: now,
            last_row: now,
            last_times: Times::default(),
            last_save: now,
            saving: None,
            keeping: None,
        };
        Ok((trainer, repair))
    }

    fn run(&mut self, stop: &Stop, screen: &mut dyn Screen) -> Result<()> {
        while self.session.frames() < self.config.run.frames && !stop.is_requested() {
            let before = self.session.frames();
            self.session.advance(&mut Desk { books: &mut self.books, screen })?;
            if self.is_time_for_a_row(before) {
                self.write_row(screen);
                self.keep_best(screen);
            }
            self.finish_saving(false, screen);
            self.finish_keeping(false, screen);
            if self.last_save.elapsed() >= Duration::from_secs_f64(self.config.checkpoint.every_minutes * 60.0) {
                self.save(screen)?;
            }
            screen.status(&self.status());
        }
        Ok(())
    }

    /// The last row of metrics, and a last checkpoint; how the run stands in it.
    fn finish(&mut self, screen: &mut dyn Screen) -> Result<Status> {
        self.finish_saving(true, screen);
        // Nothing goes on after this copy, and no next save is tried.
        let copied = self.copy(Afterwards::Rest, screen)?;
        self.close_books(screen);
        let status = self.status();
        let saved = self.begin_save(copied.ending(&status)).and_then(|saving| {
            self.saving = Some(saving);
            Ok(self.await_save(screen)?)
        });
        match saved {
            Ok(saved) => saved.iter().for_each(|saved| self.tell_saved(saved, screen)),
            Err(error) => {
                let checkpoints = Checkpoints::in_folder(&self.directory.files().checkpoints_folder());
                // Where they can't be listed either, why the last one failed says more.
                let saved = checkpoints.list().unwrap_or_default().last().copied();
                return Err(TrainError::LastSave { error: Box::new(error), saved });
            }
        }
        Ok(status)
    }

    fn status(&mut self) -> Status {
        self.rates.measure(self.session.frames(), self.books.last_update());
        let saving = self.saving.as_ref().map(Saving::bytes);
        Status::new(self.config, self.session.as_ref(), &self.books, &self.rates, self.game, saving)
    }

    /// By the clock, where something was played since the last row, or in lockstep by the frames, so that rows are the
    /// same in every run.
    fn is_time_for_a_row(&self, frames_before: u64) -> bool {
        if self.config.run.lockstep {
            let every = self.config.metrics.lockstep_frames;
            return self.session.frames() / every > frames_before / every;
        }
        let played = self.session.frames() > self.books.last_row();
        played && self.last_row.elapsed().as_secs_f64() >= self.config.metrics.interval_seconds
    }

    /// Writes how the run ended, if that is not in the last row, and keeps its parameters if they are the best. In
    /// lockstep the row comes out of its turn, so the books do not know of it: a run that goes on writes it over, and
    /// its rows are those of a run that never stopped.
    fn close_books(&mut self, screen: &mut dyn Screen) {
        if self.session.frames() <= self.books.last_row() {
            return;
        }
        let books = self.books.clone();
        self.write_row(screen);
        // A run in lockstep that goes on keeps what one that never stopped would.
        if !self.config.run.lockstep || self.session.frames() >= self.config.run.frames {
            self.keep_best(screen);
        }
        if self.config.run.lockstep {
            self.books = books;
        }
    }

    /// That a row could not be written is said; training goes on, and the next row is tried.
    fn write_row(&mut self, screen: &mut dyn Screen) {
        let frames = self.session.frames();
        let accounting = self.session.replay().accounting();
        let mut row = self.books.row(frames, self.session.bandit(), &accounting);
        row.scalar("replay/samples_per_insert", samples_per_insert(self.config, &accounting));
        if let Some(times) = self.session.times() {
            for Share { role, activity, share } in times.shares_since(&self.last_times) {
                row.scalar(format!("time/{role}_{activity}"), share);
            }
            self.last_times = times;
        }
        if !self.config.run.lockstep {
            self.rates.measure(frames, self.books.last_update());
            row.scalar("speed/seconds", self.spend_time());
            row.scalar("speed/frames_per_second", self.rates.frames_per_second);
            row.scalar("speed/updates_per_second", self.rates.updates_per_second);
            row.scalar("replay/bytes_per_step", accounting.bytes_per_step());
            self.note_memory(&mut row, accounting.bytes());
        }
        let metrics = self.files.metrics.append(&row).map_err(TrainError::from);
        let events = self.files.events.append(&row).map_err(TrainError::from);
        for error in [metrics, events].into_iter().filter_map(Result::err) {
            screen.say(&format!("metrics could not be written, and training goes on: {error}"));
        }
        self.last_row = Instant::now();
    }

    /// What the run takes of the machine. What can't be seen is left out.
    fn note_memory(&self, row: &mut Row, replay: u64) {
        if let Ok(usage) = Usage::now(false) {
            row.scalar("memory/process", usage.own_bytes as f64);
            row.scalar("memory/workers", usage.worker_bytes as f64);
        }
        row.scalar("memory/replay", replay as f64);
        if let Ok(Some(memory)) = self.session.learning().learner().device_memory() {
            row.scalar("memory/device", memory as f64);
        }
    }

    /// Enters the time since the last entry; how long training has taken in all.
    fn spend_time(&mut self) -> f64 {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.last_time, now);
        self.books.spend(time)
    }

    /// Keeps the averaged parameters beside training if they have the best evaluation so far. That it failed is said;
    /// training goes on.
    fn keep_best(&mut self, screen: &mut dyn Screen) {
        let Some(score) = self.books.new_evaluation().filter(|_| self.config.checkpoint.keep_best) else { return };
        self.finish_keeping(true, screen);
        match self.begin_keeping(score) {
            Ok(keeping) => self.keeping = keeping,
            Err(error) => screen.say(&not_kept(&error)),
        }
    }

    fn begin_keeping(&self, score: f64) -> Result<Option<Saving<Option<Saved>>>> {
        self.directory.check_held()?;
        let store = &self.files.store;
        if !store.would_be_best(score)? {
            return Ok(None);
        }
        let bandit = self.session.bandit().state();
        let copied = weights::Copied::new(self.session.learning(), bandit, self.books.distances())?;
        let frames = self.session.frames();
        Ok(Some(store.save_best_in_background(frames, score, move |checkpoint| copied.write(checkpoint))?))
    }

    fn finish_keeping(&mut self, wait: bool, screen: &mut dyn Screen) {
        let finished = self.keeping.take_if(|keeping| wait || keeping.is_finished());
        if let Some(Err(error)) = finished.map(Saving::finish) {
            screen.say(&not_kept(&error.into()));
        }
    }

    /// Saves beside training. That it failed is said; training goes on, and the next save is tried in its turn.
    fn save(&mut self, screen: &mut dyn Screen) -> Result<()> {
        if self.saving.is_some() {
            return Ok(());
        }
        let copied = self.copy(Afterwards::GoOn, screen)?;
        match self.begin_save(copied) {
            Ok(saving) => self.saving = Some(saving),
            Err(error) => screen.say(&format!("saving failed, and training goes on: {error}")),
        }
        Ok(())
    }

    /// Copies everything, which can fail only as training itself can.
    fn copy(&mut self, afterwards: Afterwards, screen: &mut dyn Screen) -> Result<Copied> {
        let copied = self.session.copy(afterwards, &mut Desk { books: &mut self.books, screen })?;
        if !self.config.run.lockstep {
            self.spend_time();
        }
        Ok(copied)
    }

    /// Has a copy written on a thread of its own, with the books as they are.
    fn begin_save(&mut self, copied: Copied) -> Result<Saving> {
        let (books, frames) = (self.books.clone(), copied.frames());
        self.last_save = Instant::now();
        self.directory.check_held()?;
        // Rows up to the checkpoint stay when the run goes on from it, so they must be on the disk before it.
        self.files.metrics.sync()?;
        Ok(self.files.store.save_in_background(frames, move |checkpoint| copied.write(&books, checkpoint))?)
    }

    fn finish_saving(&mut self, wait: bool, screen: &mut dyn Screen) {
        if !wait && self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        match self.await_save(screen) {
            Ok(saved) => saved.iter().for_each(|saved| self.tell_saved(saved, screen)),
            Err(error) if wait => screen.say(&format!("the save that was under way failed: {error}")),
            Err(error) => screen.say(&format!("saving failed, and training goes on: {error}")),
        }
    }

    /// Waits for the save under way, if there is one, and shows how far it is.
    fn await_save(&mut self, screen: &mut dyn Screen) -> Result<Option<Saved>, CheckpointError> {
        while self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            screen.status(&self.status());
            thread::sleep(LOOK_AGAIN);
        }
        self.saving.take().map(Saving::finish).transpose()
    }

    /// Waits for what is being written. Also when training failed: a save under way is whole, of a moment before.
    fn finish_files(&mut self, screen: &mut dyn Screen) {
        self.finish_saving(true, screen);
        self.finish_keeping(true, screen);
    }

    fn tell_saved(&self, saved: &Saved, screen: &mut dyn Screen) {
        saved.not_removed.iter().for_each(|error| screen.say(&error.to_string()));
        for path in &saved.made_room {
            screen.say(&format!("the disk is full: {} had to make room for {}", path.display(), saved.path.display()));
        }
        self.note_saved(screen);
    }

    /// That it could not be noted is said; the next save tries again.
    fn note_saved(&self, screen: &mut dyn Screen) {
        if let Err(error) = self.directory.note_saved() {
            screen.say(&format!("that there is a checkpoint could not be noted: {error}"));
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
