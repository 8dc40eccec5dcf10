//! Every role on threads of its own: players, inference, the sampler ahead of the learner, and the learner here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use replay::{Batch, Replay, ReplayError, Sampler, Snapshot, WriterState};

use crate::assembly::Parts;
use crate::bandit::CentralBandit;
use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::learning::{self, Learning};
use crate::messages::{EpisodeReport, Role};
use crate::player::{Player, SavedPlayer};
use crate::saving::{Copied, Play};
use crate::service::{Client, Service};
use crate::session::{Session, Watch};

/// How long a role waits in one go before it looks whether to stop or to rest.
const PATIENCE: Duration = Duration::from_millis(50);

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
}

/// The learner's ends of the way that batches go round.
struct Batches {
    drawn: Receiver<Batch>,
    used: Sender<Batch>,
}

/// What players and sampler tell the learner's thread.
enum News {
    Episode(EpisodeReport),
    Fault(String),
    Saved { role: Role, index: usize, player: SavedPlayer, writers: Vec<WriterState> },
    Failed(TrainError),
}

/// What all threads share.
struct Crew {
    stopping: AtomicBool,
    rest: Mutex<Rest>,
    changed: Condvar,
    actor_steps: AtomicU64,
    actor_environments: u64,
}

/// Whether all are to rest, so that everything can be copied.
#[derive(Clone, Copy, Default)]
struct Rest {
    wanted: bool,
    /// Which rest it is: a player that sleeps through the end of one must notice that the next has begun.
    number: u64,
}

impl Crew {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        // Whole after every statement, so a thread that died while holding it left it usable.
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the rest that is wanted now.
    fn wanted_rest(&self) -> Option<u64> {
        let rest = self.rest();
        rest.wanted.then_some(rest.number)
    }

    fn begin_rest(&self) {
        let mut rest = self.rest();
        *rest = Rest { wanted: true, number: rest.number + 1 };
        drop(rest);
        self.changed.notify_all();
    }

    fn end_rest(&self) {
        self.rest().wanted = false;
        self.changed.notify_all();
    }

    /// Sleeps until the rest of this number is over, or all stop.
    fn wait_out_rest(&self, number: u64) {
        let mut rest = self.rest();
        while rest.wanted && rest.number == number && !self.is_stopping() {
            rest = self.changed.wait(rest).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An evaluator keeps the actors' pace: whether it is ahead after so many steps of each of its environments. Sleeps
    /// a little if so.
    fn is_ahead(&self, steps: u64) -> bool {
        let ahead = || steps > self.actor_steps.load(Ordering::Relaxed) / self.actor_environments;
        if ahead() {
            drop(self.changed.wait_timeout(self.rest(), PATIENCE));
        }
        ahead()
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Under the lock, so that nobody misses it between looking and sleeping.
        drop(self.rest());
        self.changed.notify_all();
    }
}

impl Threads {
    /// Starts all threads.
    pub fn start(parts: Parts, config: &Config) -> Result<Self> {
        let Parts { learning, replay, inference, bandit, actors, evaluators, published: _ } = parts;
        let frames_per_step = actors.first().map_or(1, |actor| u64::from(actor.spec().frames_per_step));
        let crew = Arc::new(Crew {
            stopping: AtomicBool::new(false),
            rest: Mutex::default(),
            changed: Condvar::new(),
            actor_steps: AtomicU64::new(actors.iter().map(Player::steps).sum()),
            actor_environments: config.actors.environments as u64,
        });
        let service = Service::start(inference, &config.inference)?;
        let (tell, news) = channel();
        let mut players = Vec::new();
        let roles = [(Role::Actor, actors), (Role::Evaluator, evaluators)];
        for (role, index, player) in roles
            .into_iter()
            .flat_map(|(role, players)| players.into_iter().enumerate().map(move |(i, p)| (role, i, p)))
        {
            let seat = PlayerThread {
                role,
                index,
                player,
                client: service.client(),
                bandit: Arc::clone(&bandit),
                crew: Arc::clone(&crew),
                tell: tell.clone(),
            };
            players.push(spawn("a player", move || seat.run())?);
        }
        let (used, empty) = channel();
        let (ahead, batches) = sync_channel(config.learner.prefetch);
        let layout = replay.config().layout;
        for _ in 0..config.learner.prefetch + 2 {
            // The receiver is alive: it is moved into the thread below.
            let _ = used.send(Batch::new(&layout, config.learner.batch_size));
        }
        let sampler = Sampler::new(&replay, config.replay.sampler_threads);
        let (sampler_crew, sampler_tell) = (Arc::clone(&crew), tell);
        let sampler = spawn("the sampler", move || {
            if let Err(error) = prefetch(sampler, &sampler_crew, &empty, &ahead) {
                let _ = sampler_tell.send(News::Failed(error));
            }
        })?;
        let publish_every = config.learner.publish_every;
        let (service, sampler) = (Some(service), Some(sampler));
        Ok(Self {
            learning,
            replay,
            bandit,
            service,
            crew,
            players,
            sampler,
            news,
            batches: Some(Batches { drawn: batches, used }),
            frames_per_step,
            publish_every,
        })
    }

    fn hear(&mut self, watch: &mut dyn Watch) -> Result<()> {
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Episode(report) => watch.episode(&report),
                News::Fault(sentence) => watch.fault(&sentence),
                News::Failed(error) => return Err(error),
                // Only asked for in `copy`, which waits for them.
                News::Saved { .. } => {}
            }
        }
        Ok(())
    }

    fn service(&self) -> Result<&Service> {
        self.service.as_ref().ok_or(TrainError::Gone { role: "inference" })
    }
}

impl Session for Threads {
    fn advance(&mut self, watch: &mut dyn Watch) -> Result<()> {
        self.hear(watch)?;
        let Some(batches) = &self.batches else { return Err(TrainError::Gone { role: "the sampler" }) };
        match batches.drawn.recv_timeout(PATIENCE) {
            Ok(batch) => {
                let update = self.learning.update(&batch)?;
                // The sampler may have ended; its batch is then nobody's.
                let _ = batches.used.send(batch);
                watch.update(&update);
                if update.report.update.is_multiple_of(self.publish_every) {
                    let published = self.learning.publish()?;
                    self.service()?.refresh(published)?;
                }
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                self.hear(watch)?;
                Err(TrainError::Gone { role: "the sampler" })
            }
        }
    }

    fn frames(&self) -> u64 {
        self.crew.actor_steps.load(Ordering::Relaxed) * self.frames_per_step
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

    fn copy(&mut self, watch: &mut dyn Watch) -> Result<Copied> {
        self.crew.begin_rest();
        let mut saved: Vec<(Role, usize, SavedPlayer, Vec<WriterState>)> = Vec::new();
        while saved.len() < self.players.len() {
            match self.news.recv().map_err(|_| TrainError::Gone { role: "the players" })? {
                News::Saved { role, index, player, writers } => saved.push((role, index, player, writers)),
                News::Episode(report) => watch.episode(&report),
                News::Fault(sentence) => watch.fault(&sentence),
                News::Failed(error) => return Err(error),
            }
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
        self.crew.end_rest();
        Ok(Copied::new(frames, self.learning.learner().save()?, replay, play))
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

/// Draws batches ahead of the learner until all stop.
fn prefetch(mut sampler: Sampler, crew: &Crew, empty: &Receiver<Batch>, ahead: &SyncSender<Batch>) -> Result<()> {
    while let Ok(mut batch) = empty.recv() {
        loop {
            if crew.is_stopping() {
                return Ok(());
            }
            match learning::draw(&mut sampler, &mut batch, PATIENCE) {
                Ok(true) => break,
                Ok(false) => {}
                Err(TrainError::Replay(ReplayError::Stopped)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if ahead.send(batch).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// One player on a thread.
struct PlayerThread {
    role: Role,
    index: usize,
    player: Player,
    client: Client,
    bandit: Arc<CentralBandit>,
    crew: Arc<Crew>,
    tell: Sender<News>,
}

impl PlayerThread {
    fn run(mut self) {
        // The learner's thread waits for every player when it copies, so it must hear of a panic too.
        let played = catch_unwind(AssertUnwindSafe(|| self.play()));
        if let Err(error) = played.unwrap_or(Err(TrainError::Panicked { role: "a player" }))
            && !self.crew.is_stopping()
        {
            let _ = self.tell.send(News::Failed(error));
        }
    }

    fn play(&mut self) -> Result<()> {
        loop {
            for group in 0..self.player.groups() {
                self.absorb(group)?;
                if let Some(number) = self.crew.wanted_rest() {
                    self.save(number)?;
                }
                if self.crew.is_stopping() {
                    return Ok(());
                }
                self.player.decide(group, &mut self.client)?;
                if !self.flush()? {
                    return Ok(());
                }
            }
            while self.role == Role::Evaluator && self.crew.is_ahead(self.player.steps_each()) {
                if self.crew.wanted_rest().is_some() || self.crew.is_stopping() {
                    break;
                }
            }
        }
    }

    fn absorb(&mut self, group: usize) -> Result<()> {
        let before = self.player.steps();
        let tell = &self.tell;
        self.player.absorb(group, &self.bandit, &mut |report| drop(tell.send(News::Episode(report))))?;
        if self.role == Role::Actor {
            self.crew.actor_steps.fetch_add(self.player.steps() - before, Ordering::Relaxed);
        }
        for fault in self.player.take_faults() {
            drop(tell.send(News::Fault(fault)));
        }
        Ok(())
    }

    /// Puts sequences into replay, as long as that takes; false when all stop.
    fn flush(&mut self) -> Result<bool> {
        loop {
            match self.player.flush(PATIENCE) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(TrainError::Replay(ReplayError::Stopped)) => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.crew.is_stopping() {
                return Ok(false);
            }
            if self.crew.wanted_rest().is_some() {
                // What can't be put in now is saved with the writers.
                return Ok(true);
            }
        }
    }

    /// All groups at rest, a copy handed over, and on when the rest is over.
    fn save(&mut self, rest: u64) -> Result<()> {
        for group in 0..self.player.groups() {
            self.absorb(group)?;
        }
        let (player, writers) = (self.player.save()?, self.player.writers());
        drop(self.tell.send(News::Saved { role: self.role, index: self.index, player, writers }));
        self.crew.wait_out_rest(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_through_the_end_of_a_rest_notices_the_next() {
        let crew = Arc::new(Crew {
            stopping: AtomicBool::new(false),
            rest: Mutex::default(),
            changed: Condvar::new(),
            actor_steps: AtomicU64::new(0),
            actor_environments: 1,
        });
        crew.begin_rest();
        let first = crew.wanted_rest().unwrap();
        crew.end_rest();
        crew.begin_rest();
        let (awake, heard) = channel();
        let sleeper = Arc::clone(&crew);
        let sleeper = thread::spawn(move || {
            sleeper.wait_out_rest(first);
            awake.send(sleeper.wanted_rest()).unwrap();
        });
        let next = heard.recv_timeout(Duration::from_secs(30)).expect("it sleeps on");
        assert_eq!(next, Some(first + 1));
        sleeper.join().unwrap();
    }
}
