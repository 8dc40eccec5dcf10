//! The learner's half of an actor on another machine: its writers, its requests for inference, its policies.
//!
//! The other half runs the environments, their episodic memories and the choice of actions. An observation arrives
//! once, and is used for inference and then for replay.

use std::time::{Duration, Instant};

use agent::acting::{ObservationRows, StepRewards};
use envs::MAX_REWARD;
use half::f16;
use replay::{EncodedFrames, FrameDecoder, SequenceStart, Writer, WriterState};
use thiserror::Error;

use crate::error::TrainError;
use crate::roles::actor_thread::ThreadMessage;
use crate::roles::bandit::PolicySource;
use crate::roles::events::Event;
use crate::roles::inference::Decide;
use crate::roles::inference_server::InferenceClient;
use crate::roles::messages::{ActRequest, ActRequests, Decision, EpisodeReport, Position, PreviousStep, Role};
use crate::roles::remote_actors::Lease;
use crate::roles::step_writer::{SeenObservation, WriteOperation, WrittenStep, flush, write};

/// Why an actor on another machine is disconnected.
#[derive(Debug, Error)]
pub enum RemoteActorError {
    /// It sent something that no actor sends.
    #[error("{0}")]
    Peer(String),
    /// Training has failed or is stopping.
    #[error(transparent)]
    Learner(TrainError),
}

fn peer(what: impl ToString) -> RemoteActorError {
    RemoteActorError::Peer(what.to_string())
}

/// What an environment did since its last message, and what it asks.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentUpdate {
    /// What to write to replay, in order.
    pub operations: Vec<WriteOperation>,
    /// Whether the new observation is its episode's first.
    pub first: bool,
    /// Whether an episode ended: its last observation comes before the new one.
    pub ended: bool,
    /// The policy that acts on the new observation.
    pub policy: usize,
    /// Residual blocks that are computed for the new observation, and for the one that ended an episode; all if empty.
    pub kept_blocks: [Vec<bool>; 2],
}

/// Stands for one worker on another machine: the learner's half of its actor.
pub struct RemoteActorProxy {
    lease: Lease,
    environments: Vec<RemoteEnvironment>,
    group_size: usize,
    requests: ActRequests,
    decoder: FrameDecoder,
    client: InferenceClient,
    /// Policies of episodes that have begun and not ended.
    playing: Vec<usize>,
    /// How long its last answer took.
    last_wait: Duration,
}

struct RemoteEnvironment {
    writer: Writer,
    previous: PreviousStep,
    /// Policy of the episode that is written.
    policy: u16,
    /// The observation that was last decided on, and the one that ended the episode before it.
    current: Option<Seen>,
    last: Option<Seen>,
}

/// An observation that the networks have seen.
struct Seen {
    observation: Vec<u8>,
    embedding: Vec<f16>,
    state: Option<Vec<f32>>,
    version: u64,
}

impl Seen {
    fn view(&self) -> SeenObservation<'_> {
        let start = self.state.as_ref().map(|state| SequenceStart { state, parameter_version: self.version });
        SeenObservation { observation: &self.observation, embedding: &self.embedding, start }
    }
}

impl RemoteEnvironment {
    fn write(&mut self, operation: WriteOperation, actions: usize) -> Result<bool, RemoteActorError> {
        let missing = || peer("it wrote a step before its first decision");
        if let WriteOperation::Append(WrittenStep { rewards, .. }) | WriteOperation::End(rewards) = operation {
            let StepRewards { extrinsic, ngu, rnd, episodic } = rewards;
            let is_too_large = |reward: &f32| f64::from(reward.abs()) > MAX_REWARD;
            if let Some(reward) = [extrinsic, ngu, rnd, episodic].into_iter().find(is_too_large) {
                return Err(peer(format!("a reward is {reward:e}, not within ±{MAX_REWARD:e}")));
            }
        }
        match operation {
            WriteOperation::Begin { policy } => {
                self.policy = policy;
                write(&mut self.writer, operation, None).map_err(peer)?;
            }
            WriteOperation::Append(WrittenStep { action, probability, rewards, .. }) => {
                // Only an episode's last observation has none.
                if probability <= 0.0 {
                    return Err(peer(format!("an action's probability is {probability}, not above 0")));
                }
                if usize::from(action) >= actions {
                    return Err(peer(format!("action {action} is not one of {actions}")));
                }
                let seen = self.current.as_ref().ok_or_else(missing)?;
                write(&mut self.writer, operation, Some(seen.view())).map_err(peer)?;
                self.previous = PreviousStep { action: action.into(), rewards, embedding: seen.embedding.clone() };
                return Ok(true);
            }
            WriteOperation::End(_) => {
                // Of the observation that ended the episode, or of the current one if the environment was lost.
                let last = self.last.take();
                let seen = last.as_ref().or(self.current.as_ref()).ok_or_else(missing)?;
                write(&mut self.writer, operation, Some(seen.view())).map_err(peer)?;
            }
            WriteOperation::Abandon => write(&mut self.writer, operation, None).map_err(peer)?,
        }
        Ok(false)
    }
}

impl RemoteActorProxy {
    /// The half of an actor with these environments, after a lease was made for them.
    pub(crate) fn new(lease: Lease, writers: Vec<Writer>) -> Self {
        let client = lease.run.inference.client(Role::Actor);
        let (observation, embedding_length) = (lease.spec().observation_bytes(), lease.run.embedding_length);
        let environment = |writer| RemoteEnvironment {
            writer,
            previous: PreviousStep::zeros(embedding_length),
            policy: 0,
            current: None,
            last: None,
        };
        let environments: Vec<_> = writers.into_iter().map(environment).collect();
        let count = environments.len();
        Self {
            group_size: count / lease.groups(),
            requests: ActRequests::new(ObservationRows::on_host(count, observation)),
            decoder: FrameDecoder::new(count, observation),
            playing: lease.begun_policies(),
            lease,
            environments,
            client,
            last_wait: Duration::ZERO,
        }
    }

    /// What the actor was given.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Takes what a group of environments did since its last message.
    pub fn record(&mut self, group: usize, updates: &[EnvironmentUpdate]) -> Result<(), RemoteActorError> {
        let first = self.first_of(group, updates.len())?;
        let mut steps = 0;
        for (environment, update) in self.environments[first..].iter_mut().zip(updates) {
            for &operation in &update.operations {
                steps += u64::from(environment.write(operation, self.lease.spec().actions())?);
            }
        }
        self.lease.count_steps(steps);
        Ok(())
    }

    /// Decides for a group's new observations, in their order.
    pub fn decide(
        &mut self,
        group: usize,
        updates: &[EnvironmentUpdate],
        frames: &EncodedFrames,
    ) -> Result<Vec<Decision>, RemoteActorError> {
        let first = self.first_of(group, updates.len())?;
        let arrived = self.receive(group, updates, frames)?;
        self.requests.requests.clear();
        let mut seen = Vec::with_capacity(arrived.len());
        let mut arrived = arrived.into_iter();
        for (number, update) in updates.iter().enumerate() {
            let row = first + number;
            let environment = &mut self.environments[row];
            let slot = self.lease.slot(row);
            let [kept_blocks, ended_blocks] = update.kept_blocks.clone().map(|kept| (!kept.is_empty()).then_some(kept));
            if update.ended {
                let last_observation = arrived.next().unwrap_or_default();
                seen.push(last_observation.clone());
                let (policy, previous) = (usize::from(environment.policy), environment.previous.clone());
                let request = ActRequest::new(slot, Role::Actor, policy, previous, ended_blocks);
                self.requests.requests.push(request.for_last(last_observation));
            }
            let observation = arrived.next().unwrap_or_default();
            let row_memory = self.requests.observations.row_mut(row).map_err(|error| learner(error.into()))?;
            row_memory.copy_from_slice(&observation);
            seen.push(observation);
            if update.first {
                environment.previous = PreviousStep::zeros(self.lease.run.embedding_length);
            }
            let (first, wants_state) = (update.first, update.first || environment.writer.wants_start());
            let request = ActRequest::new(slot, Role::Actor, update.policy, environment.previous.clone(), kept_blocks);
            self.requests.requests.push(ActRequest { row, first, wants_state, ..request });
        }
        let decisions = self.client.decide(&mut self.requests).map_err(learner)?;
        for ((observation, decision), request) in seen.into_iter().zip(&decisions).zip(&self.requests.requests) {
            let embedding = decision.stored_embedding();
            let seen = Seen { observation, embedding, state: decision.state.clone(), version: decision.version };
            let environment = &mut self.environments[request.slot - self.lease.slot(0)];
            match request.last_observation {
                Some(_) => environment.last = Some(seen),
                None => environment.current = Some(seen),
            }
        }
        Ok(decisions)
    }

    /// Decodes a group's new observations. Also done for those that are sent again, as both ends keep the last ones.
    pub fn receive(
        &mut self,
        group: usize,
        updates: &[EnvironmentUpdate],
        frames: &EncodedFrames,
    ) -> Result<Vec<Vec<u8>>, RemoteActorError> {
        let first = self.first_of(group, updates.len())?;
        let mut order = Vec::with_capacity(2 * updates.len());
        for (number, update) in updates.iter().enumerate() {
            if update.policy >= self.lease.policies() {
                return Err(peer(format!("policy {} is not one of {}", update.policy, self.lease.policies())));
            }
            let blocks = self.lease.run.droppable_blocks;
            if update.kept_blocks.iter().any(|kept| !kept.is_empty() && kept.len() != blocks) {
                return Err(peer(format!("the network has {blocks} blocks that may be dropped")));
            }
            order.extend(std::iter::repeat_n(first + number, 1 + usize::from(update.ended)));
        }
        let mut arrived = Vec::with_capacity(order.len());
        let take = |_, observation: &[u8]| {
            arrived.push(observation.to_vec());
            Ok(())
        };
        self.decoder.decode(frames, &order, take).map_err(peer)?;
        Ok(arrived)
    }

    /// First environment of a group, for which there must be this many updates.
    fn first_of(&self, group: usize, updates: usize) -> Result<usize, RemoteActorError> {
        let groups = self.environments.len() / self.group_size.max(1);
        if group >= groups || updates != self.group_size {
            let size = self.group_size;
            return Err(peer(format!("group {group} with {updates} environments is not one of {groups} with {size}")));
        }
        Ok(group * self.group_size)
    }

    /// Inserts complete sequences into replay, and returns whether none are left.
    ///
    /// Waits for the rate limiter at most `timeout`.
    pub fn flush(&mut self, timeout: Duration) -> Result<bool, RemoteActorError> {
        let writers = self.environments.iter_mut().map(|environment| &mut environment.writer);
        flush(writers, timeout).map_err(|error| learner(error.into()))
    }

    /// Chooses the policy of an environment's next episode.
    pub fn choose_policy(&mut self, environment: usize) -> Result<usize, RemoteActorError> {
        let policy = self.lease.run.bandit.choose(Role::Actor, self.environment(environment)?).map_err(learner)?;
        // One more per environment than it can play means that the actor never reports.
        if self.playing.len() < 2 * self.environments.len() {
            self.playing.push(policy);
        }
        Ok(policy)
    }

    /// Index among the environments of all actors.
    fn environment(&self, environment: usize) -> Result<usize, RemoteActorError> {
        if environment < self.environments.len() {
            return Ok(self.lease.environment(environment));
        }
        Err(peer(format!("environment {environment} is not one of {}", self.environments.len())))
    }

    /// Takes the score of a finished episode, or that it was abandoned.
    pub fn report_policy(
        &mut self,
        environment: usize,
        policy: usize,
        score: Option<f64>,
    ) -> Result<(), RemoteActorError> {
        let environment = self.environment(environment)?;
        let Some(index) = self.playing.iter().position(|&playing| playing == policy) else {
            return Err(peer(format!("policy {policy} was not playing")));
        };
        match score {
            Some(score) if !score.is_finite() => return Err(peer("a score is not finite")),
            Some(score) => self.lease.run.bandit.report(Role::Actor, environment, policy, score).map_err(peer)?,
            None => self.lease.run.bandit.abandon(Role::Actor, policy).map_err(peer)?,
        }
        self.playing.swap_remove(index);
        Ok(())
    }

    /// Takes a finished episode, for the metrics.
    pub fn report_episode(&mut self, report: EpisodeReport) -> Result<(), RemoteActorError> {
        let EpisodeReport { environment, policy, score, novelty, distances, .. } = report;
        let numbers = [score, novelty.ngu, novelty.rnd, novelty.episodic, distances.mean];
        let is_valid = environment < self.environments.len() && policy < self.lease.policies();
        if !is_valid || numbers.iter().any(|number| !number.is_finite()) {
            return Err(peer("the report of an episode is invalid"));
        }
        let environment = self.lease.environment(environment);
        self.send(Event::Episode(EpisodeReport { role: Role::Actor, environment, ..report }));
        Ok(())
    }

    /// Takes positions that were new in their episodes.
    pub fn report_positions(&mut self, positions: Vec<Position>) {
        if !positions.is_empty() {
            self.send(Event::Positions(positions));
        }
    }

    /// Takes a fault that the actor has recovered from.
    pub fn report_fault(&mut self, fault: &str) {
        self.send(Event::Fault(format!("{}: {fault}", self.lease.host)));
    }

    fn send(&self, event: Event) {
        // A run that has ended has no use for it.
        let _ = self.lease.run.sender().send(ThreadMessage::Event(event));
    }

    /// Waits for the actor's next message with `receive`, which gets the longest time to wait. Inference does not wait
    /// for an actor that takes longer than it gathers a batch.
    pub fn wait<T>(&mut self, mut receive: impl FnMut(Duration) -> Option<T>, timeout: Duration) -> Option<T> {
        let (start, patience) = (Instant::now(), self.lease.client_wait);
        let mut received = None;
        if self.last_wait <= patience {
            received = receive(patience.min(timeout));
        }
        if received.is_none() {
            let away = self.client.away();
            received = receive(timeout.saturating_sub(start.elapsed()));
            drop(away);
        }
        self.last_wait = if received.is_some() { start.elapsed() } else { self.last_wait.max(start.elapsed()) };
        received
    }

    /// Sends the actor's part of a checkpoint.
    ///
    /// It has the writers and, if it arrived in time, the remote half. Without that half, the actor's episodes end when
    /// the checkpoint is resumed.
    pub fn send_snapshot(&self, pause: u64, state: Option<Vec<u8>>) {
        let writers = self.environments.iter().map(|environment| environment.writer.state());
        let writers: Vec<WriterState> = match state {
            Some(_) => writers.collect(),
            None => writers.map(WriterState::without_episode).collect(),
        };
        let (lease, actor) = (self.lease.number, self.lease.snapshot(state, self.playing.clone()));
        // A run that has ended makes no checkpoint.
        let _ = self.lease.run.sender().send(ThreadMessage::RemoteSnapshot { pause, lease, actor, writers });
    }

    /// Sleeps until the pause is over, without holding up inference.
    pub fn wait_out_pause(&self, pause: u64, timeout: Duration) {
        let _away = self.client.away();
        self.lease.run.control.wait_out_pause_for(pause, timeout);
    }
}

impl Drop for RemoteActorProxy {
    fn drop(&mut self) {
        for environment in &mut self.environments {
            environment.writer.abandon_episode();
            // What the limiter does not admit now is lost: a few sequences at most.
            let _ = environment.writer.flush(Duration::ZERO);
        }
        for &policy in &self.playing {
            // It was one of the bandit's.
            let _ = self.lease.run.bandit.abandon(Role::Actor, policy);
        }
    }
}

fn learner(error: TrainError) -> RemoteActorError {
    RemoteActorError::Learner(error)
}
