//! Every role on its own threads: actors, inference, batch prefetch, and the learner on the caller's.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use replay::Snapshot;

use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::roles::actor::Actor;
use crate::roles::actor_thread::{ActorThread, ThreadCopy, ThreadMessage};
use crate::roles::batch_prefetch::{BatchPrefetch, PrefetchedBatch};
use crate::roles::evaluation_rounds::EvaluationRounds;
use crate::roles::inference_server::InferenceServer;
use crate::roles::messages::Role;
use crate::roles::prefetch_thread::PrefetchThread;
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::contents::{EvaluatorStates, RoleStates, TrainingSnapshot};
use crate::runtime::assembly::Assembly;
use crate::runtime::events::Event;
use crate::runtime::remote_actors::{RemoteActors, RemoteRun, SavedRemoteActors};
use crate::runtime::run_control::{POLL, RunControl};
use crate::runtime::timesheet::{Activity, ActivityTimes, Stopwatch, ThreadRole, Timesheet};
use crate::runtime::{AfterCopy, TrainingRuntime};

/// A run on many threads.
pub struct Threads {
    agent: TrainingAgent,
    server: Option<InferenceServer>,
    control: Arc<RunControl>,
    actors: Vec<JoinHandle<()>>,
    sampler: Option<JoinHandle<()>>,
    messages: Receiver<ThreadMessage>,
    /// Absent when the run stops, which ends the sampler's waits.
    batches: Option<BatchChannels>,
    frames_per_step: u64,
    evaluations: EvaluationRounds,
    started: Instant,
    remote: Option<Arc<RemoteActors>>,
    timesheet: Arc<Timesheet>,
    stopwatch: Stopwatch,
}

/// The learner's ends of the channels in which batches circulate.
struct BatchChannels {
    filled: Receiver<PrefetchedBatch>,
    empty: Sender<PrefetchedBatch>,
}

impl Threads {
    /// Starts all threads, and lets remote actors join if there is a place for them.
    pub fn start(assembly: Assembly, config: &Config, remote: Option<Arc<RemoteActors>>) -> Result<Self> {
        let Assembly { agent, inference, actors, evaluators, spec, remote: (saved, writers), .. } = assembly;
        let frames_per_step = u64::from(spec.frames_per_step);
        let steps = saved.steps + actors.iter().map(|actor| actor.steps).sum::<u64>();
        let control = Arc::new(RunControl::new(steps));
        let timesheet = Arc::new(Timesheet::default());
        // Large allocations come first: if one fails, there is no thread to end yet.
        let (empty, empty_batches) = channel();
        let (filled_batches, filled) = sync_channel(config.learner.prefetch);
        let replay = Arc::clone(&agent.learner_loop.replay);
        let prefetch = BatchPrefetch::new(&replay, config.replay.sampler_threads, &agent.learner_loop.learner)?;
        for _ in 0..config.learner.prefetch + 2 {
            // The receiver is alive: it moves into the sampler's thread below.
            let _ = empty.send(prefetch.memory(config.learner.batch_size)?);
        }
        let stopwatch = |role| Stopwatch::new(&timesheet, role);
        let stopwatch_of_server = stopwatch(ThreadRole::Inference);
        let server =
            InferenceServer::start(inference, &config.inference, config.evaluation.refresh, stopwatch_of_server)?;
        let (sender, messages) = channel();
        // From here on an error drops this, which ends the threads that have started.
        let mut threads = Self {
            agent,
            server: Some(server),
            control: Arc::clone(&control),
            actors: Vec::new(),
            sampler: None,
            messages,
            batches: Some(BatchChannels { filled, empty }),
            frames_per_step,
            evaluations: EvaluationRounds::new(&config.evaluation, 0.0),
            started: Instant::now(),
            remote: remote.clone(),
            stopwatch: stopwatch(ThreadRole::Learner),
            timesheet: Arc::clone(&timesheet),
        };
        threads.start_actors(Role::Actor, actors, config, &sender)?;
        threads.start_actors(Role::Evaluator, evaluators, config, &sender)?;
        let sampler = PrefetchThread {
            prefetch,
            replay: Arc::clone(&replay),
            control: Arc::clone(&control),
            empty: empty_batches,
            filled: filled_batches,
            stopwatch: stopwatch(ThreadRole::Sampler),
        };
        let failures = sender.clone();
        threads.sampler = Some(spawn("the sampler", move || {
            if let Err(error) = sampler.run() {
                let _ = failures.send(ThreadMessage::Failed(error));
            }
        })?);
        if let Some(remote) = remote {
            remote.counters().steps.store(saved.steps, Ordering::Relaxed);
            let run = RemoteRun {
                inference: threads.server()?.connector(),
                embedding: threads.agent.learner_loop.learner.networks.embedding_length,
                droppable_blocks: threads.agent.learner_loop.learner.networks.agent.droppable_blocks(),
                replay,
                bandit: Arc::clone(&threads.agent.bandit),
                control,
                messages: Mutex::new(sender),
                config: config.clone(),
                spec,
            };
            remote.open(run, saved.with_writers(writers, config.actors.environments));
        }
        Ok(threads)
    }

    /// Starts one thread per actor or evaluator.
    fn start_actors(
        &mut self,
        role: Role,
        actors: Vec<Actor>,
        config: &Config,
        messages: &Sender<ThreadMessage>,
    ) -> Result<()> {
        let thread_role = match role {
            Role::Actor => ThreadRole::Actor,
            Role::Evaluator => ThreadRole::Evaluator,
        };
        for (index, actor) in actors.into_iter().enumerate() {
            let actor = ActorThread {
                role,
                index,
                episodes_each: config.evaluation.episodes_each(),
                actor,
                client: self.server()?.client(role),
                bandit: Arc::clone(&self.agent.bandit),
                control: Arc::clone(&self.control),
                messages: messages.clone(),
                stopwatch: Stopwatch::new(&self.timesheet, thread_role),
            };
            self.actors.push(spawn("an actor", move || actor.run())?);
        }
        Ok(())
    }

    fn pass_on(&mut self, event: Event, on_event: &mut dyn FnMut(Event)) {
        self.agent.distances.record(&event);
        if let Event::Episode(report) = &event
            && report.role == Role::Evaluator
        {
            self.evaluations.record(report);
        }
        on_event(event);
    }

    /// Reports an evaluation that is complete, and begins the next one when its time has come.
    fn evaluate(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        let (now, frames) = (self.started.elapsed().as_secs_f64(), self.frames());
        let finished = self.evaluations.finish(now, frames, &self.agent)?;
        finished.map(Box::new).map(Event::Evaluation).into_iter().for_each(on_event);
        if self.evaluations.is_due(now) {
            let published = self.agent.learner_loop.published()?;
            self.evaluations.begin(now, frames, &self.agent)?;
            self.server()?.refresh_evaluators(published)?;
            self.control.begin_evaluation(self.agent.distances.mean);
        }
        Ok(())
    }

    /// Passes on the events that have arrived.
    fn pass_on_all(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ThreadMessage::Event(event) => self.pass_on(event, on_event),
                ThreadMessage::Failed(error) => return Err(error),
                // Sent during pauses only, and `copy` waits for them.
                ThreadMessage::Saved { .. } | ThreadMessage::SavedRemote { .. } | ThreadMessage::RemoteLeft { .. } => {}
            }
        }
        Ok(())
    }

    /// Waits for the update in progress, if there is one.
    fn finish_update(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        self.agent.learner_loop.finish()?.map(Event::Update).into_iter().for_each(on_event);
        Ok(())
    }

    fn server(&self) -> Result<&InferenceServer> {
        self.server.as_ref().ok_or(TrainError::Gone { role: "inference" })
    }
}

impl TrainingRuntime for Threads {
    fn advance(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        self.pass_on_all(on_event)?;
        self.evaluate(on_event)?;
        self.stopwatch.lap(Activity::Bookkeeping);
        let Some(batches) = &self.batches else { return Err(TrainError::Gone { role: "the sampler" }) };
        let filled = batches.filled.recv_timeout(POLL);
        self.stopwatch.lap(Activity::Waiting);
        match filled {
            Ok(batch) => {
                // A GPU gets the next update before the last one is read; elsewhere that would only delay it.
                let learner_loop = &mut self.agent.learner_loop;
                let finished = if learner_loop.learner.runs_ahead() {
                    learner_loop.begin(&batch)?
                } else {
                    Some(learner_loop.update(&batch)?)
                };
                // The sampler may have ended, and needs no batch then.
                let _ = batches.empty.send(batch);
                if let Some(published) = learner_loop.publish_if_due()? {
                    self.server()?.refresh(published)?;
                }
                self.stopwatch.lap(Activity::Working);
                finished.map(Event::Update).into_iter().for_each(on_event);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => self.finish_update(on_event),
            Err(RecvTimeoutError::Disconnected) => {
                self.pass_on_all(on_event)?;
                Err(TrainError::Gone { role: "the sampler" })
            }
        }
    }

    fn frames(&self) -> u64 {
        self.control.actor_steps() * self.frames_per_step
    }

    fn agent(&self) -> &TrainingAgent {
        &self.agent
    }

    fn times(&self) -> Option<ActivityTimes> {
        Some(self.timesheet.times())
    }

    fn copy(&mut self, after: AfterCopy, on_event: &mut dyn FnMut(Event)) -> Result<TrainingSnapshot> {
        self.finish_update(on_event)?;
        let this_pause = self.control.begin_pause();
        let mut saved = Vec::new();
        let mut failure = None;
        let mut awaited = self.remote.as_ref().map(|remote| remote.pause()).unwrap_or_default();
        let mut saved_remote = self.remote.as_ref().map(|remote| remote.waiting()).unwrap_or_default();
        while saved.len() < self.actors.len() || !awaited.is_empty() {
            match self.messages.recv().map_err(|_| TrainError::Gone { role: "the actors" })? {
                ThreadMessage::Event(event) => self.pass_on(event, on_event),
                ThreadMessage::Saved { pause, index, copy } if pause == this_pause => saved.push((index, copy)),
                ThreadMessage::SavedRemote { pause, saved: (lease, actor), writers } if pause == this_pause => {
                    awaited.remove(&lease);
                    saved_remote.push((actor, writers));
                }
                ThreadMessage::RemoteLeft { lease } => drop(awaited.remove(&lease)),
                // From a pause that an error ended.
                ThreadMessage::Saved { .. } | ThreadMessage::SavedRemote { .. } => {}
                // Its copy is still to come.
                ThreadMessage::Failed(error) if error.is_from_environment() => failure = failure.or(Some(error)),
                ThreadMessage::Failed(error) => return Err(error),
            }
        }
        match failure {
            Some(error) if after == AfterCopy::Continue => return Err(error),
            Some(error) => on_event(Event::Fault(error.to_string())),
            None => {}
        }
        saved.sort_by_key(|(index, _)| *index);
        let evaluators = EvaluatorStates::default();
        let mut roles = RoleStates { recurrent: self.server()?.save()?, actors: Vec::new(), evaluators };
        let bandit = self.agent.bandit.state();
        let mut writers = Vec::new();
        for (_, copy) in saved {
            match copy {
                ThreadCopy::Actor(actor, own) => {
                    roles.actors.push(actor);
                    writers.extend(own);
                }
                ThreadCopy::Evaluator(episodes) => roles.evaluators.episodes.extend(episodes),
            }
        }
        let remote = self.remote.as_ref().map(|remote| {
            let steps = remote.counters().steps.load(Ordering::Relaxed);
            SavedRemoteActors::new(steps, saved_remote, &mut writers)
        });
        let replay = Snapshot::take(&self.agent.learner_loop.replay, writers);
        let frames = self.frames();
        if after == AfterCopy::Continue {
            // Only this thread changes the learner, so the others need not pause for its copy.
            self.control.end_pause();
            self.remote.iter().for_each(|remote| remote.end_pause());
        }
        Ok(TrainingSnapshot::new(frames, &self.agent, bandit, roles, replay)?.with_remote(remote))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.remote.iter().for_each(|remote| remote.close());
        self.control.stop();
        self.agent.learner_loop.replay.limiter.stop();
        self.batches = None;
        for thread in self.actors.drain(..).chain(self.sampler.take()) {
            // Errors have come through the channel.
            let _ = thread.join();
        }
        if let Some(server) = self.server.take() {
            let _ = server.finish();
        }
    }
}

fn spawn(role: &'static str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(role.to_owned()).spawn(run).map_err(|cause| TrainError::Thread { role, cause })
}
