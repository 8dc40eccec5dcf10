//! How a run stands, in numbers and in one line.

use std::fmt;
use std::time::{Duration, Instant};

use replay::Accounting;
use serde::Serialize;

use crate::books::Books;
use crate::config::Config;
use crate::session::Session;
use crate::timesheet::Times;

/// Speeds over the last seconds.
#[derive(Debug)]
pub struct Rates {
    /// Emulator frames of the actors a second.
    pub frames_per_second: f64,
    /// Updates a second.
    pub updates_per_second: f64,
    since: Instant,
    frames: u64,
    updates: u64,
}

impl Rates {
    /// Speeds are measured over at least this long.
    const WINDOW: Duration = Duration::from_secs(2);

    /// Nothing is known yet.
    pub fn new(frames: u64, updates: u64) -> Self {
        Self { frames_per_second: 0.0, updates_per_second: 0.0, since: Instant::now(), frames, updates }
    }

    /// Measures anew once the window has passed.
    pub fn measure(&mut self, frames: u64, updates: u64) {
        let elapsed = self.since.elapsed();
        if elapsed < Self::WINDOW {
            return;
        }
        self.frames_per_second = frames.saturating_sub(self.frames) as f64 / elapsed.as_secs_f64();
        self.updates_per_second = updates.saturating_sub(self.updates) as f64 / elapsed.as_secs_f64();
        (self.since, self.frames, self.updates) = (Instant::now(), frames, updates);
    }
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Emulator frames of the actors.
    pub frames: u64,
    /// Frames at which training ends.
    pub budget: u64,
    /// Updates.
    pub updates: u64,
    /// Speeds over the last seconds.
    pub frames_per_second: f64,
    /// Updates a second.
    pub updates_per_second: f64,
    /// Sequences in replay, and how many it holds at most.
    pub sequences: u64,
    /// The most that it holds.
    pub capacity: u64,
    /// Bytes of replay.
    pub replay_bytes: u64,
    /// Sequences inserted so far.
    pub inserted: u64,
    /// Sequences drawn so far.
    pub sampled: u64,
    /// Sequences drawn for each one inserted since learning began.
    pub samples_per_insert: f64,
    /// Mean score of the actors' recent episodes.
    pub actor_score: Option<f64>,
    /// Mean score of the last evaluation.
    pub evaluation_score: Option<f64>,
    /// The policy with the best mean return.
    pub favourite_policy: usize,
    /// What the learner waits for, if it has not begun.
    pub waits_for: Option<String>,
    /// Whether a checkpoint is being written.
    pub saving: bool,
    /// How the roles have spent their time since the run was started, where each has threads of its own.
    #[serde(skip)]
    pub times: Option<Times>,
}

/// Sequences drawn for each one inserted since learning began.
pub fn samples_per_insert(config: &Config, accounting: &Accounting) -> f64 {
    let fill = config.replay.minimum_fill as u64;
    accounting.sampled as f64 / accounting.inserted.saturating_sub(fill).max(1) as f64
}

impl Status {
    /// Takes stock.
    pub fn new(
        config: &Config,
        frames: u64,
        updates: u64,
        rates: &Rates,
        books: &Books,
        session: &dyn Session,
        saving: bool,
    ) -> Self {
        let replay = session.replay();
        let accounting = replay.accounting();
        let fill = config.replay.minimum_fill as u64;
        let waits_for = (accounting.inserted < fill)
            .then(|| format!("{} of {fill} sequences before learning begins", accounting.inserted));
        Self {
            frames,
            budget: config.run.frames,
            updates,
            frames_per_second: rates.frames_per_second,
            updates_per_second: rates.updates_per_second,
            sequences: accounting.sequences,
            capacity: config.replay.capacity as u64,
            replay_bytes: accounting.bytes(),
            inserted: accounting.inserted,
            sampled: accounting.sampled,
            samples_per_insert: samples_per_insert(config, &accounting),
            actor_score: books.actor_score(),
            evaluation_score: books.evaluation(),
            favourite_policy: session.bandit().greedy(),
            waits_for,
            saving,
            times: session.times(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.frames as f64 / self.budget as f64;
        write!(f, "{} frames ({share:.0} %), {:.0} frames/s", self.frames, self.frames_per_second)?;
        write!(f, ", update {} ({:.1}/s)", self.updates, self.updates_per_second)?;
        write!(f, ", replay {} ({:.0} MB)", self.sequences, self.replay_bytes as f64 / 1e6)?;
        if let Some(score) = self.actor_score {
            write!(f, ", score {score:.2}")?;
        }
        if let Some(score) = self.evaluation_score {
            write!(f, ", evaluation {score:.2}")?;
        }
        write!(f, ", policy {}", self.favourite_policy)?;
        if self.frames_per_second > 0.0 && self.frames < self.budget {
            let left = (self.budget - self.frames) as f64 / self.frames_per_second;
            write!(f, ", {} left", duration(left))?;
        }
        if let Some(waits_for) = &self.waits_for {
            write!(f, "; waiting for {waits_for}")?;
        }
        if self.saving {
            write!(f, "; saving")?;
        }
        Ok(())
    }
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0) as u64;
    match minutes {
        0 => format!("{seconds:.0} s"),
        1..100 => format!("{minutes} min"),
        _ => format!("{} h", minutes / 60),
    }
}
