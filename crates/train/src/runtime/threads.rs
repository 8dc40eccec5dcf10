//! Every role on its own threads: actors, inference, batch prefetch, and the learner on the caller's.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use replay::{Snapshot, WriterState};

use crate::config::Config;
use crate::error::{Result, TrainError};
use crate::roles::actor::Actor;
use crate::roles::actor_thread::{ActorThread, ThreadMessage, ThreadSnapshot};
use crate::roles::batch_prefetch::{BatchPrefetch, PrefetchedBatch};
use crate::roles::evaluation_rounds::EvaluationRounds;
use crate::roles::events::Event;
use crate::roles::inference_server::InferenceServer;
use crate::roles::learner_loop::LearnerLoop;
use crate::roles::messages::Role;
use crate::roles::prefetch_thread::PrefetchThread;
use crate::roles::remote_actors::{RemoteActorSnapshot, RemoteActors, RemoteActorsSnapshot, RemoteRun};
use crate::roles::run_control::{POLL, RunControl};
use crate::roles::thread_role::ThreadRole;
use crate::roles::timesheet::{Activity, ActivityTimes, Stopwatch, Timesheet};
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::contents::{EvaluatorStates, RoleStates, TrainingSnapshot};
use crate::runtime::assembly::Assembly;
use crate::runtime::{AfterSnapshot, TrainingRuntime};

/// A run on many threads.
pub struct Threads {
    agent: TrainingAgent,
    server: Option<InferenceServer>,
    control: Arc<RunControl>,
    actors: Vec<JoinHandle<()>>,
    prefetch: Option<JoinHandle<()>>,
    messages: Receiver<ThreadMessage>,
    /// Absent when the run stops, which ends the waits of batch prefetch.
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

/// What the actors and evaluators sent when they paused.
struct PausedRoles {
    /// Each with its thread's index among those of its role.
    threads: Vec<(usize, ThreadSnapshot)>,
    remote: Vec<(RemoteActorSnapshot, Vec<WriterState>)>,
    /// The first failure of an environment.
    failure: Option<TrainError>,
}

impl Threads {
    /// Starts all threads, and lets remote actors join if there is a place for them.
    pub fn start(assembly: Assembly, config: &Config, remote: Option<Arc<RemoteActors>>) -> Result<Self> {
        let Assembly { agent, inference, actors, evaluators, spec, remote: (remote_snapshot, remote_writers), .. } =
            assembly;
        let frames_per_step = u64::from(spec.frames_per_step);
        let steps = remote_snapshot.steps + actors.iter().map(|actor| actor.steps).sum::<u64>();
        let control = Arc::new(RunControl::new(steps));
        let timesheet = Arc::new(Timesheet::default());
        let stopwatch = |role| Stopwatch::new(&timesheet, role);
        // Large allocations come first: if one fails, there is no thread to end yet.
        let (batches, prefetch) =
            prefetch_thread(&agent.learner_loop, config, &control, stopwatch(ThreadRole::Prefetch))?;
        let refresh = config.evaluation.refresh;
        let server = InferenceServer::start(inference, &config.inference, refresh, stopwatch(ThreadRole::Inference))?;
        let (sender, messages) = channel();
        // From here on an error drops this, which ends the threads that have started.
        let mut threads = Self {
            agent,
            server: Some(server),
            control: Arc::clone(&control),
            actors: Vec::new(),
            prefetch: None,
            messages,
            batches: Some(batches),
            frames_per_step,
            evaluations: EvaluationRounds::new(&config.evaluation, 0.0),
            started: Instant::now(),
            remote: remote.clone(),
            stopwatch: stopwatch(ThreadRole::Learner),
            timesheet: Arc::clone(&timesheet),
        };
        threads.start_actors(Role::Actor, actors, config, &sender)?;
        threads.start_actors(Role::Evaluator, evaluators, config, &sender)?;
        let failures = sender.clone();
        threads.prefetch = Some(ThreadRole::Prefetch.spawn(move || {
            if let Err(error) = prefetch.run() {
                let _ = failures.send(ThreadMessage::Failed(error));
            }
        })?);
        if let Some(remote) = remote {
            let networks = &threads.agent.learner_loop.learner.networks;
            remote.counters().steps.store(remote_snapshot.steps, Ordering::Relaxed);
            let run = RemoteRun {
                inference: threads.server()?.connector(),
                embedding_length: networks.embedding_length,
                droppable_blocks: networks.agent.droppable_blocks(),
                replay: Arc::clone(&threads.agent.learner_loop.replay),
                bandit: Arc::clone(&threads.agent.bandit),
                control,
                messages: Mutex::new(sender),
                config: config.clone(),
                spec,
            };
            remote.open(run, remote_snapshot.with_writers(remote_writers, config.actors.environments));
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
        let thread_role = ThreadRole::from(role);
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
            self.actors.push(thread_role.spawn(move || actor.run())?);
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
        self.evaluations.finish_if_complete(now, frames, &self.agent, on_event)?;
        if let Some(published) = self.evaluations.begin_if_due(now, frames, &self.agent)? {
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
                // Sent during pauses only, and `snapshot` waits for them.
                ThreadMessage::Snapshot { .. }
                | ThreadMessage::RemoteSnapshot { .. }
                | ThreadMessage::RemoteLeft { .. } => {}
            }
        }
        Ok(())
    }

    /// Waits for the update in progress, if there is one.
    fn finish_update(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        if let Some(finished) = self.agent.learner_loop.finish()? {
            on_event(Event::Update(finished));
        }
        Ok(())
    }

    /// Pauses all actors and evaluators, and collects their snapshots.
    fn pause(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<PausedRoles> {
        let this_pause = self.control.begin_pause();
        let mut awaited = self.remote.as_ref().map(|remote| remote.pause()).unwrap_or_default();
        let remote = self.remote.as_ref().map(|remote| remote.waiting()).unwrap_or_default();
        let mut paused = PausedRoles { threads: Vec::new(), remote, failure: None };
        while paused.threads.len() < self.actors.len() || !awaited.is_empty() {
            match self.messages.recv().map_err(|_| TrainError::ThreadEnded { role: ThreadRole::Actor })? {
                ThreadMessage::Event(event) => self.pass_on(event, on_event),
                ThreadMessage::Snapshot { pause, index, snapshot } if pause == this_pause => {
                    paused.threads.push((index, snapshot));
                }
                ThreadMessage::RemoteSnapshot { pause, lease, actor, writers } if pause == this_pause => {
                    awaited.remove(&lease);
                    paused.remote.push((actor, writers));
                }
                ThreadMessage::RemoteLeft { lease } => drop(awaited.remove(&lease)),
                // From a pause that an error ended.
                ThreadMessage::Snapshot { .. } | ThreadMessage::RemoteSnapshot { .. } => {}
                // Its snapshot is still to come.
                ThreadMessage::Failed(error) if error.is_from_environment() => {
                    paused.failure.get_or_insert(error);
                }
                ThreadMessage::Failed(error) => return Err(error),
            }
        }
        Ok(paused)
    }

    fn server(&self) -> Result<&InferenceServer> {
        self.server.as_ref().ok_or(TrainError::ThreadEnded { role: ThreadRole::Inference })
    }
}

impl TrainingRuntime for Threads {
    fn advance(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        self.pass_on_all(on_event)?;
        self.evaluate(on_event)?;
        self.stopwatch.lap(Activity::Bookkeeping);
        let Some(batches) = &self.batches else { return Err(TrainError::ThreadEnded { role: ThreadRole::Prefetch }) };
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
                // The prefetch thread may have ended, and needs no batch then.
                let _ = batches.empty.send(batch);
                if let Some(published) = learner_loop.publish_if_due()? {
                    self.server()?.refresh(published)?;
                }
                self.stopwatch.lap(Activity::Working);
                if let Some(finished) = finished {
                    on_event(Event::Update(finished));
                }
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => self.finish_update(on_event),
            Err(RecvTimeoutError::Disconnected) => {
                self.pass_on_all(on_event)?;
                Err(TrainError::ThreadEnded { role: ThreadRole::Prefetch })
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

    fn snapshot(&mut self, after: AfterSnapshot, on_event: &mut dyn FnMut(Event)) -> Result<TrainingSnapshot> {
        self.finish_update(on_event)?;
        let PausedRoles { mut threads, remote, failure } = self.pause(on_event)?;
        match failure {
            Some(error) if after == AfterSnapshot::Continue => return Err(error),
            Some(error) => on_event(Event::Fault(error.to_string())),
            None => {}
        }
        threads.sort_by_key(|(index, _)| *index);
        let evaluators = EvaluatorStates::default();
        let mut roles = RoleStates { recurrent: self.server()?.snapshot()?, actors: Vec::new(), evaluators };
        let bandit = self.agent.bandit.state();
        let mut writers = Vec::new();
        for (_, snapshot) in threads {
            match snapshot {
                ThreadSnapshot::Actor(actor, own) => {
                    roles.actors.push(actor);
                    writers.extend(own);
                }
                ThreadSnapshot::Evaluator(episodes) => roles.evaluators.episodes.extend(episodes),
            }
        }
        let remote = self.remote.as_ref().map(|actors| {
            let steps = actors.counters().steps.load(Ordering::Relaxed);
            RemoteActorsSnapshot::new(steps, remote, &mut writers)
        });
        let replay = Snapshot::take(&self.agent.learner_loop.replay, writers);
        let frames = self.frames();
        if after == AfterSnapshot::Continue {
            // Only this thread changes the learner, so the others need not pause for its snapshot.
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
        for thread in self.actors.drain(..).chain(self.prefetch.take()) {
            // Errors have come through the channel.
            let _ = thread.join();
        }
        if let Some(server) = self.server.take() {
            let _ = server.finish();
        }
    }
}

/// Allocates the batches that circulate between the learner and the prefetch thread.
///
/// The thread is not started yet.
fn prefetch_thread(
    learner_loop: &LearnerLoop,
    config: &Config,
    control: &Arc<RunControl>,
    stopwatch: Stopwatch,
) -> Result<(BatchChannels, PrefetchThread)> {
    let (empty, empty_batches) = channel();
    let (filled_batches, filled) = sync_channel(config.learner.prefetch);
    let LearnerLoop { replay, learner, .. } = learner_loop;
    let prefetch = BatchPrefetch::new(replay, config.replay.sampler_threads, learner)?;
    for _ in 0..config.learner.prefetch + 2 {
        // The receiver is alive: the thread gets it below.
        let _ = empty.send(prefetch.memory(config.learner.batch_size)?);
    }
    let thread = PrefetchThread {
        prefetch,
        replay: Arc::clone(replay),
        control: Arc::clone(control),
        empty: empty_batches,
        filled: filled_batches,
        stopwatch,
    };
    Ok((BatchChannels { filled, empty }, thread))
}
