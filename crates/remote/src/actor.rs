//! The actors' end: environments on this machine that play for a learner elsewhere.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tonic::{Code, Status};
use train::config::Config;
use train::environments::Task;
use train::roles::actor::{Actor, ActorSnapshot};
use train::roles::remote_actors::RemoteActorSpec;
use train::run::host;
use train::run::stop::Stop;

use crate::client::{ConnectOptions, Connection, reason};
use crate::limits::{ANSWER_TIMEOUT, MAX_NAME_LENGTH, MAX_RETRY_PAUSE, MAX_START_ATTEMPTS, MIN_RETRY_PAUSE};
use crate::link::{GroupLink, Interruption, Link};
use crate::proto::actor_message::Kind;
use crate::proto::learner_message::Kind as Reply;
use crate::proto::{Hello, StatePart, Welcome};
use crate::{RemoteError, VERSION, random_hex};

/// What to play, and for whom.
pub struct ActorOptions {
    /// How to reach the learner.
    pub connect: ConnectOptions,
    /// Environments to run on this machine.
    pub environments: usize,
    /// How long to look for a learner that is gone; forever if absent.
    pub patience: Option<Duration>,
}

/// Makes the task of playing in the environment of this name.
pub type MakeTask<'a> = dyn Fn(&str) -> Result<Task, String> + Sync + 'a;

/// Environments on this machine, in as many workers as the run's config says.
pub struct ActorPool<'a> {
    options: &'a ActorOptions,
    task: &'a MakeTask<'a>,
    stop: &'a Stop,
    message: &'a (dyn Fn(&str) + Sync),
    handle: Handle,
    /// Distinguishes this process from others.
    id: String,
    /// Whether the run is finished, or this machine is of no use to it.
    done: AtomicBool,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Why the actors gave up.
    failure: Option<String>,
    /// The last message about a lost learner; all workers lose it together.
    last_message: String,
    /// The run that was played for.
    run: String,
    workers: usize,
}

/// How an attempt to play ended.
enum Attempt {
    Finished,
    Stopped,
    /// To be tried again.
    Lost(String),
    /// The environments did not start, perhaps because this machine cannot run them.
    NotStarted(String),
    /// Of no use to try again.
    Failed(String),
}

impl<'a> ActorPool<'a> {
    /// Plays until the run is finished or a stop is requested. Fails if the learner refuses this machine.
    pub fn play(
        options: &'a ActorOptions,
        task: &'a MakeTask<'a>,
        stop: &'a Stop,
        message: &'a (dyn Fn(&str) + Sync),
    ) -> Result<(), RemoteError> {
        options.connect.check()?;
        let mut builder = Builder::new_multi_thread();
        let runtime =
            builder.worker_threads(1).thread_name("remote").enable_all().build().map_err(RemoteError::Runtime)?;
        let pool = Self {
            options,
            task,
            stop,
            message,
            handle: runtime.handle().clone(),
            id: random_hex::<8>().map_err(RemoteError::Runtime)?,
            done: AtomicBool::new(false),
            state: Mutex::default(),
        };
        thread::scope(|scope| pool.start(scope, options.environments));
        let failure = pool.state().failure.take();
        runtime.shutdown_timeout(Duration::from_millis(200));
        failure.map_or(Ok(()), |failure| Err(RemoteError::Refused(failure)))
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // Each change is one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.done.load(Ordering::SeqCst) || self.stop.is_requested()
    }

    /// Starts a worker for up to this many environments; the first time it joins, another one for the rest.
    fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, wanted: usize) {
        let number = {
            let mut state = self.state();
            state.workers += 1;
            state.workers
        };
        let started = thread::Builder::new()
            .name(format!("actor-{number}"))
            .spawn_scoped(scope, move || self.work(scope, number, wanted));
        if let Err(error) = started {
            self.fail(format!("cannot start a thread: {error}"));
        }
    }

    fn fail(&self, failure: String) {
        self.state().failure.get_or_insert(failure);
        self.done.store(true, Ordering::SeqCst);
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: usize, wanted: usize) {
        let mut wanted = wanted;
        let mut has_joined = false;
        let (mut pause, mut lost, mut not_started) = (MIN_RETRY_PAUSE, Instant::now(), 0);
        while !self.is_over() {
            let mut joined = None;
            let attempt = catch_unwind(AssertUnwindSafe(|| {
                self.attempt(number, wanted, &mut |environments| {
                    joined = Some(environments);
                    if !has_joined && environments < wanted {
                        self.start(scope, wanted - environments);
                    }
                })
            }));
            let attempt = attempt.unwrap_or_else(|_| Attempt::NotStarted("the actor panicked".to_owned()));
            if let Some(environments) = joined {
                (wanted, has_joined) = (environments, true);
                match attempt {
                    Attempt::NotStarted(_) => not_started += 1,
                    _ => (pause, not_started) = (MIN_RETRY_PAUSE, 0),
                }
            }
            match attempt {
                Attempt::Finished => return self.done.store(true, Ordering::SeqCst),
                Attempt::Stopped => return,
                Attempt::Failed(why) => return self.fail(why),
                Attempt::NotStarted(why) if not_started == MAX_START_ATTEMPTS => return self.fail(why),
                Attempt::Lost(why) | Attempt::NotStarted(why) => {
                    if pause == MIN_RETRY_PAUSE {
                        lost = Instant::now();
                    }
                    if self.options.patience.is_some_and(|patience| lost.elapsed() > patience) {
                        return self.fail(format!("gave up after {:.0} s: {why}", lost.elapsed().as_secs_f64()));
                    }
                    self.message_once(&format!("{why}; trying again"));
                    self.stop.wait(pause);
                    pause = (pause * 2).min(MAX_RETRY_PAUSE);
                }
            }
        }
    }

    /// Shows a message, unless a worker has just shown the same one.
    fn message_once(&self, text: &str) {
        let mut state = self.state();
        if state.last_message != text {
            state.last_message = text.to_owned();
            (self.message)(text);
        }
    }

    /// Joins the run and plays until something ends that. Passes to `joined` how many environments it got.
    fn attempt(&self, number: usize, wanted: usize, joined: &mut dyn FnMut(usize)) -> Attempt {
        let hello = Hello {
            version: VERSION.to_owned(),
            actor: format!("{}-{number}", self.id),
            host: host().chars().take(MAX_NAME_LENGTH).collect(),
            environments: u32::try_from(wanted).unwrap_or(u32::MAX),
            run: self.state().run.clone(),
        };
        let mut connection = match self.options.connect.open(&self.handle, Kind::Hello(hello).into()) {
            Ok(connection) => connection,
            Err(status) => return self.refused(&status),
        };
        let (welcome, saved) = match self.welcomed(&mut connection) {
            Ok(welcomed) => welcomed,
            Err(attempt) => return attempt,
        };
        let config = match Config::from_toml(&welcome.config, "the config of the learner") {
            Ok(config) => config,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let task = match (self.task)(&welcome.environment) {
            Ok(task) => task,
            Err(error) => return Attempt::Failed(error),
        };
        let spec = RemoteActorSpec {
            first: welcome.first as usize,
            environments: welcome.environments as usize,
            capacity: welcome.capacity as usize,
            index: welcome.index,
            embedding_length: welcome.embedding_length as usize,
            droppable_blocks: welcome.droppable_blocks as usize,
        };
        joined(spec.environments);
        self.announce(&welcome);
        let link = Link::new(connection, spec.embedding_length);
        let made = spec.build(&task, &config, saved, &link);
        let played = made.and_then(|mut actor| {
            link.expect(spec.environments, actor.spec().observation_bytes())?;
            self.play_on(&link, &mut actor)
        });
        match (played, link.take_interruption()) {
            (Ok(()), _) => Attempt::Stopped,
            (Err(_), Some(Interruption::Goodbye(true))) => Attempt::Finished,
            (Err(_), Some(Interruption::Goodbye(false))) => Attempt::Lost("the learner has stopped".to_owned()),
            (Err(_), Some(Interruption::Lost(status))) => self.refused(&status),
            (Err(error), _) if link.has_decided() => Attempt::Lost(error.to_string()),
            (Err(error), _) => Attempt::NotStarted(error.to_string()),
        }
    }

    fn announce(&self, welcome: &Welcome) {
        let Welcome { run, environment, environments, resumes, .. } = welcome;
        let mut state = self.state();
        state.last_message.clear();
        let how = if *resumes { "continuing" } else { "playing" };
        let previous = mem::replace(&mut state.run, run.clone());
        let other = if previous.is_empty() || previous == *run {
            String::new()
        } else {
            format!(" (previously run {previous})")
        };
        drop(state);
        let what = if *environments == 1 { "environment" } else { "environments" };
        (self.message)(&format!("{how} {environments} {what} of {environment} for run {run}{other}"));
    }

    /// Plays until an error, which the link may explain, or until a stop is requested.
    fn play_on(&self, link: &Link, actor: &mut Actor) -> train::Result<()> {
        let mut report = |event| link.report(event);
        loop {
            for group in 0..actor.groups() {
                actor.wait(group, &mut report)?;
                actor.absorb(group, link, &mut report)?;
                while let Err(error) = actor.decide(group, &mut GroupLink { link, group }) {
                    match link.take_interruption() {
                        Some(Interruption::Save) => self.save(link, actor)?,
                        Some(interruption) => {
                            link.interrupt(interruption);
                            return Err(error);
                        }
                        None => return Err(error),
                    }
                }
                if self.is_over() {
                    return Ok(());
                }
            }
        }
    }

    /// Sends the state of all environments, once they stand still.
    fn save(&self, link: &Link, actor: &mut Actor) -> train::Result<()> {
        let mut report = |event| link.report(event);
        for group in 0..actor.groups() {
            actor.wait(group, &mut report)?;
            actor.absorb(group, link, &mut report)?;
        }
        let mut sent = Ok(());
        for group in 0..actor.groups() {
            let operations = actor.take_operations(group);
            sent = sent.and_then(|()| link.record(group, &operations));
        }
        // Memory is all that it needs.
        let state = postcard::to_stdvec(&actor.snapshot()).unwrap_or_default();
        let sent = sent.and_then(|()| link.send_state(&state));
        sent.map_err(|status| {
            link.interrupt(Interruption::Lost(status));
            train::TrainError::ConnectionLost
        })
    }

    /// Waits for the welcome, and for the state to continue from.
    fn welcomed(&self, connection: &mut Connection) -> Result<(Welcome, Option<ActorSnapshot>), Attempt> {
        let lost = |what: &str| Attempt::Lost(what.to_owned());
        let mut next =
            || connection.receive(ANSWER_TIMEOUT).map(|message| message.kind).map_err(|status| self.refused(&status));
        let welcome = match next()? {
            Some(Reply::Welcome(welcome)) => welcome,
            Some(Reply::Goodbye(goodbye)) if goodbye.finished => return Err(Attempt::Finished),
            Some(Reply::Goodbye(_)) => return Err(lost("the learner is stopping")),
            _ => return Err(lost("the learner did not welcome this actor")),
        };
        if welcome.version != VERSION {
            let (learner, own) = (&welcome.version, VERSION);
            let what = format!("the learner runs meme {learner}, the actor meme {own}; use the same version");
            return Err(Attempt::Failed(what));
        }
        if !welcome.resumes {
            return Ok((welcome, None));
        }
        let mut state = Vec::new();
        loop {
            match next()? {
                Some(Reply::State(StatePart { part, last })) => {
                    state.extend_from_slice(&part);
                    if last {
                        break;
                    }
                }
                Some(Reply::Waiting(_)) => {}
                _ => return Err(lost("the learner sent no state to continue from")),
            }
        }
        let saved = postcard::from_bytes(&state).map_err(|_| lost("the state to continue from is damaged"))?;
        Ok((welcome, Some(saved)))
    }

    /// What to make of an error of the other end.
    fn refused(&self, status: &Status) -> Attempt {
        let (address, what) = (&self.options.connect.address, reason(status));
        match status.code() {
            Code::Unauthenticated | Code::FailedPrecondition => {
                Attempt::Failed(format!("the learner at {address} refused: {what}"))
            }
            Code::PermissionDenied => Attempt::Failed(format!("the learner at {address} is not trusted: {what}")),
            Code::ResourceExhausted => Attempt::Lost(format!("the learner at {address} has no room: {what}")),
            Code::InvalidArgument => Attempt::Lost(format!("the learner at {address} dropped this actor: {what}")),
            _ => Attempt::Lost(format!("cannot reach the run at {address}: {what}")),
        }
    }
}
