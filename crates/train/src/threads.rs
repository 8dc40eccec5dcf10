//! Every role on threads of its own: players, inference, the sampler ahead of the learner, and the learner here.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use replay::{Replay, ReplayError, Snapshot, WriterState};

use crate::assembly::Parts;
use crate::bandit::CentralBandit;
use crate::config::Config;
use crate::crew::{Crew, PATIENCE};
use crate::drawing::{Drawing, DrawnBatch};
use crate::error::{Result, TrainError};
use crate::learning::Learning;
use crate::messages::Role;
use crate::player::{Player, SavedPlayer};
use crate::player_thread::{News, PlayerThread};
use crate::saving::{Copied, Play};
use crate::service::Service;
use crate::session::{Afterwards, Session, Watch};
use crate::timesheet::{Activity, Stopwatch, Times, Timesheet};

/// A run on many threads. The caller's thread is the learner's.
pub struct Threads {
    learning: Learning,
    replay: Arc<Replay>,
    bandit: Arc<CentralBandit>,
    service: Option<Service>,
    crew: Arc<Crew>,
    players: Vec<JoinHandle<()>>,
    sampler: Option<JoinHandle<()>>,
    news: Receiver<News>,
    /// Absent when all stop: a sampler that waits for either end then stops waiting.
    batches: Option<Batches>,
    frames_per_step: u64,
    publish_every: u64,
    timesheet: Arc<Timesheet>,
    stopwatch: Stopwatch,
}

/// The learner's ends of the way that batches go round.
struct Batches {
    drawn: Receiver<DrawnBatch>,
    used: Sender<DrawnBatch>,
}

impl Threads {
    /// Starts all threads.
    pub fn start(parts: Parts, config: &Config) -> Result<Self> {
        let Parts { learning, replay, inference, bandit, actors, evaluators, published: _ } = parts;
        let frames_per_step = actors.first().map_or(1, |actor| u64::from(actor.spec().frames_per_step));
        let steps = actors.iter().map(Player::steps).sum();
        let crew = Arc::new(Crew::new(steps, config.actors.environments as u64));
        let timesheet = Arc::new(Timesheet::default());
        // What takes much memory comes first: as long as it may fail, there is no thread to be ended.
        let (used, empty) = channel();
        let (ahead, drawn) = sync_channel(config.learner.prefetch);
        let drawing = Drawing::new(&replay, config.replay.sampler_threads, learning.learner())?;
        for _ in 0..config.learner.prefetch + 2 {
            // The receiver is alive: it is moved into the sampler's thread below.
            let _ = used.send(drawing.memory(config.learner.batch_size)?);
        }
        let service = Service::start(inference, &config.inference, Stopwatch::new(&timesheet))?;
        let (tell, news) = channel();
        // From here on a failure drops it, which ends the threads that are there.
        let mut threads = Self {
            learning,
            replay,
            bandit,
            service: Some(service),
            crew,
            players: Vec::new(),
            sampler: None,
            news,
            batches: Some(Batches { drawn, used }),
            frames_per_step,
            publish_every: config.learner.publish_every,
            stopwatch: Stopwatch::new(&timesheet),
            timesheet,
        };
        let roles = [(Role::Actor, actors), (Role::Evaluator, evaluators)];
        for (role, index, player) in roles
            .into_iter()
            .flat_map(|(role, players)| players.into_iter().enumerate().map(move |(i, p)| (role, i, p)))
        {
            let seat = PlayerThread {
                role,
                index,
                player,
                client: threads.service()?.client(role),
                bandit: Arc::clone(&threads.bandit),
                crew: Arc::clone(&threads.crew),
                tell: tell.clone(),
                stopwatch: Stopwatch::new(&threads.timesheet),
            };
            threads.players.push(spawn("a player", move || seat.run())?);
        }
        let prefetch = Prefetch {
            drawing,
            replay: Arc::clone(&threads.replay),
            crew: Arc::clone(&threads.crew),
            empty,
            ahead,
            stopwatch: Stopwatch::new(&threads.timesheet),
        };
        threads.sampler = Some(spawn("the sampler", move || {
            if let Err(error) = prefetch.run() {
                let _ = tell.send(News::Failed(error));
            }
        })?);
        Ok(threads)
    }

    fn hear(&mut self, watch: &mut dyn Watch) -> Result<()> {
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Episode(report) => watch.episode(&report),
                News::Positions(positions) => watch.positions(&positions),
                News::Fault(sentence) => watch.fault(&sentence),
                News::Failed(error) => return Err(error),
                // Only asked for in `copy`, which waits for them.
                News::Saved { .. } => {}
            }
        }
        Ok(())
    }

    /// Waits for the update under way, if there is one.
    fn finish_update(&mut self, watch: &mut dyn Watch) -> Result<()> {
        let finished = self.learning.finish()?;
        finished.iter().for_each(|update| watch.update(update));
        Ok(())
    }

    fn service(&self) -> Result<&Service> {
        self.service.as_ref().ok_or(TrainError::Gone { role: "inference" })
    }
}

impl Session for Threads {
    fn advance(&mut self, watch: &mut dyn Watch) -> Result<()> {
        self.hear(watch)?;
        self.stopwatch.lap(Activity::LearnerKeepsBooks);
        let Some(batches) = &self.batches else { return Err(TrainError::Gone { role: "the sampler" }) };
        let drawn = batches.drawn.recv_timeout(PATIENCE);
        self.stopwatch.lap(Activity::LearnerWaits);
        match drawn {
            Ok(batch) => {
                // A GPU has the next update to do before the last one is read; elsewhere that would only be late.
                let finished = if self.learning.learner().runs_ahead() {
                    self.learning.begin(&batch)?
                } else {
                    Some(self.learning.update(&batch)?)
                };
                // The sampler may have ended; its batch is then nobody's.
                let _ = batches.used.send(batch);
                if self.learning.learner().updates().is_multiple_of(self.publish_every) {
                    let published = self.learning.publish()?;
                    self.service()?.refresh(published)?;
                }
                self.stopwatch.lap(Activity::LearnerWorks);
                finished.iter().for_each(|update| watch.update(update));
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => self.finish_update(watch),
            Err(RecvTimeoutError::Disconnected) => {
                self.hear(watch)?;
                Err(TrainError::Gone { role: "the sampler" })
            }
        }
    }

    fn frames(&self) -> u64 {
        self.crew.actor_steps() * self.frames_per_step
    }

    fn bandit(&self) -> &CentralBandit {
        &self.bandit
    }

    fn replay(&self) -> &Replay {
        &self.replay
    }

    fn learning(&self) -> &Learning {
        &self.learning
    }

    fn times(&self) -> Option<Times> {
        Some(self.timesheet.times())
    }

    fn copy(&mut self, afterwards: Afterwards, watch: &mut dyn Watch) -> Result<Copied> {
        self.finish_update(watch)?;
        let this_rest = self.crew.begin_rest();
        let mut saved: Vec<(Role, usize, SavedPlayer, Vec<WriterState>)> = Vec::new();
        let mut failure = None;
        while saved.len() < self.players.len() {
            match self.news.recv().map_err(|_| TrainError::Gone { role: "the players" })? {
                News::Saved { rest, role, index, player, writers } if rest == this_rest => {
                    saved.push((role, index, player, writers));
                }
                // Of a rest that an error has ended.
                News::Saved { .. } => {}
                News::Episode(report) => watch.episode(&report),
                News::Positions(positions) => watch.positions(&positions),
                News::Fault(sentence) => watch.fault(&sentence),
                // What it has is still to come.
                News::Failed(error) if error.is_of_an_environment() => failure = failure.or(Some(error)),
                News::Failed(error) => return Err(error),
            }
        }
        match failure {
            Some(error) if afterwards == Afterwards::GoOn => return Err(error),
            Some(error) => watch.fault(&error.to_string()),
            None => {}
        }
        saved.sort_by_key(|(role, index, ..)| (*role == Role::Evaluator, *index));
        let mut play = Play {
            states: self.service()?.save()?,
            bandit: self.bandit.state(),
            actors: Vec::new(),
            evaluators: Vec::new(),
        };
        let mut writers = Vec::new();
        for (role, _, player, own) in saved {
            writers.extend(own);
            match role {
                Role::Actor => play.actors.push(player),
                Role::Evaluator => play.evaluators.push(player),
            }
        }
        let replay = Snapshot::take(&self.replay, writers);
        let frames = self.frames();
        if afterwards == Afterwards::GoOn {
            // Nothing changes the learner but this thread, so nobody need rest for its copy.
            self.crew.end_rest();
        }
        Copied::new(frames, &self.learning, replay, play)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.crew.stop();
        self.replay.limiter().stop();
        self.batches = None;
        for thread in self.players.drain(..).chain(self.sampler.take()) {
            // What it had to say was said through the channel.
            let _ = thread.join();
        }
        if let Some(service) = self.service.take() {
            let _ = service.finish();
        }
    }
}

fn spawn(role: &'static str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(role.to_owned()).spawn(run).map_err(|cause| TrainError::Thread { role, cause })
}

/// Draws batches ahead of the learner.
struct Prefetch {
    drawing: Drawing,
    replay: Arc<Replay>,
    crew: Arc<Crew>,
    empty: Receiver<DrawnBatch>,
    ahead: SyncSender<DrawnBatch>,
    stopwatch: Stopwatch,
}

impl Prefetch {
    /// Until all stop.
    fn run(mut self) -> Result<()> {
        while let Ok(mut batch) = self.empty.recv() {
            self.stopwatch.lap(Activity::SamplerWaitsForLearner);
            loop {
                if self.crew.is_stopping() {
                    return Ok(());
                }
                match self.draw(&mut batch) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(TrainError::Replay(ReplayError::Stopped)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if self.ahead.send(batch).is_err() {
                return Ok(());
            }
            self.stopwatch.lap(Activity::SamplerWaitsForLearner);
        }
        Ok(())
    }

    /// Draws a batch, once there is enough to draw from.
    fn draw(&mut self, batch: &mut DrawnBatch) -> Result<bool> {
        let waited = self.replay.limiter().wait_to_sample(batch.arrays().keys.len() as u64, PATIENCE);
        self.stopwatch.lap(Activity::SamplerWaitsForInserts);
        match waited {
            Ok(()) => {}
            Err(ReplayError::Timeout { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let drawn = self.drawing.draw(batch, PATIENCE);
        self.stopwatch.lap(Activity::SamplerWorks);
        drawn
    }
}
