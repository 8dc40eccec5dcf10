//! The learner's end of one stream: a thread that serves one worker's environments.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::timeout;
use tonic::Status;
use train::roles::messages::Position;
use train::roles::remote_actor_proxy::{RemoteActorError, RemoteActorProxy};
use train::roles::remote_actors::RemoteActorSpec;

use crate::VERSION;
use crate::limits::{
    ANSWER_TIMEOUT, MAX_ENVIRONMENT_STATE_BYTES, MAX_NAME_LENGTH, MAX_STATE_PART_BYTES, POLL_INTERVAL, SAVE_TIMEOUT,
    WAITING_INTERVAL,
};
use crate::proto::actor_message::Kind;
use crate::proto::learner_message::Kind as Reply;
use crate::proto::{Act, ActorMessage, ChoosePolicy, LearnerMessage, Policy, Save, StatePart, Waiting, Welcome};
use crate::wire::{GroupUpdate, decode_act, encode_decisions};

/// Why a session ended.
pub enum SessionEnd {
    /// The run stops.
    Stopping,
    /// The connection is lost, or another one of the same actor has replaced it.
    Gone,
    /// The actor sent something that no actor sends, or nothing for too long.
    Refused(String),
}

impl From<RemoteActorError> for SessionEnd {
    fn from(error: RemoteActorError) -> Self {
        match error {
            RemoteActorError::Peer(what) => Self::Refused(what),
            // Training itself reports what failed.
            RemoteActorError::Learner(_) => Self::Stopping,
        }
    }
}

/// One worker's environments on another machine.
pub struct Session {
    pub actor: RemoteActorProxy,
    pub inbound: Receiver<ActorMessage>,
    pub outbound: Sender<Result<LearnerMessage, Status>>,
    pub handle: Handle,
    /// Name of the run.
    pub run: String,
    /// The pause for which it was saved.
    pub saved: Option<u64>,
}

impl Session {
    /// Serves the actor until one of both ends.
    pub fn serve(&mut self) -> SessionEnd {
        match self.welcome().and_then(|()| self.play()) {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    fn welcome(&mut self) -> Result<(), SessionEnd> {
        let lease = self.actor.lease();
        let RemoteActorSpec { first, environments, capacity, index, embedding_length, droppable_blocks } =
            lease.remote_spec();
        let welcome = Welcome {
            version: VERSION.to_owned(),
            run: self.run.clone(),
            config: lease.config().to_toml().map_err(|error| SessionEnd::Refused(error.to_string()))?,
            environment: lease.spec().name.clone(),
            first: first as u32,
            environments: environments as u32,
            index,
            capacity: capacity as u32,
            resumes: lease.state().is_some(),
            embedding_length: embedding_length as u32,
            droppable_blocks: droppable_blocks as u32,
        };
        let state = lease.state().map(<[u8]>::to_vec);
        self.send(Reply::Welcome(welcome))?;
        if let Some(state) = state {
            for part in state_parts(&state) {
                self.send(Reply::State(part))?;
            }
        }
        Ok(())
    }

    fn play(&mut self) -> Result<std::convert::Infallible, SessionEnd> {
        loop {
            let act = self.next_act()?;
            let saved = self.saved;
            if let Some(pause) = self.actor.lease().wanted_pause().filter(|&pause| saved == Some(pause)) {
                // It was saved without this step.
                self.wait_out(pause)?;
            }
            let update = self.take(act)?;
            let Some(frames) = &update.frames else { continue };
            if let Some(pause) = self.actor.lease().wanted_pause().filter(|&pause| saved != Some(pause)) {
                self.actor.receive(update.group, &update.updates, frames)?;
                self.save(pause)?;
                // The actor asks again, with the state that it has saved.
                continue;
            }
            let decided = self.actor.decide(update.group, &update.updates, frames)?;
            self.send(Reply::Decisions(encode_decisions(&decided)))?;
            self.flush()?;
        }
    }

    /// Takes everything of a message but its observations.
    fn take(&mut self, act: Act) -> Result<GroupUpdate, SessionEnd> {
        let mut update = decode_act(act).map_err(SessionEnd::Refused)?;
        self.actor.record(update.group, &update.updates)?;
        for report in std::mem::take(&mut update.episodes) {
            self.actor.report_episode(report)?;
        }
        self.actor.report_positions(std::mem::take(&mut update.positions).into_iter().map(Position).collect());
        for fault in &update.faults {
            // One line of it, in case it is not ours.
            let line: String = fault.chars().filter(|c| !c.is_control()).take(MAX_NAME_LENGTH).collect();
            self.actor.report_fault(&line);
        }
        Ok(update)
    }

    /// Waits for the next `Act`, and answers what comes before it.
    fn next_act(&mut self) -> Result<Act, SessionEnd> {
        let limits = self.actor.lease().config().env.limits();
        // A worker that has to be replaced takes this long.
        let deadline = Instant::now() + limits.step + 2 * limits.start_up + ANSWER_TIMEOUT;
        let mut pause_began = None;
        loop {
            if let Some(pause) = self.actor.lease().wanted_pause().filter(|&pause| self.saved != Some(pause)) {
                let began = *pause_began.get_or_insert_with(Instant::now);
                if began.elapsed() > SAVE_TIMEOUT {
                    self.actor.send_snapshot(pause, None);
                    self.saved = Some(pause);
                }
            }
            if Instant::now() > deadline {
                return Err(SessionEnd::Refused("it sent nothing for too long".to_owned()));
            }
            match self.receive(POLL_INTERVAL)? {
                Some(Kind::Act(act)) => return Ok(act),
                Some(Kind::ChoosePolicy(choose)) => self.choose_policy(choose)?,
                // The rest of a state that came too late.
                Some(Kind::State(_)) | None => {}
                Some(Kind::Hello(_)) => return Err(SessionEnd::Refused("it sent a second hello".to_owned())),
            }
        }
    }

    fn choose_policy(&mut self, choose: ChoosePolicy) -> Result<(), SessionEnd> {
        for report in choose.reports {
            self.actor.report_policy(report.environment as usize, report.policy as usize, report.score)?;
        }
        let policy = self.actor.choose_policy(choose.environment as usize)? as u32;
        self.send(Reply::Policy(Policy { policy }))
    }

    /// Saves the actor, with its own half if that comes in time, and waits until the pause is over.
    fn save(&mut self, pause: u64) -> Result<(), SessionEnd> {
        self.send(Reply::Save(Save {}))?;
        let state = self.receive_state()?;
        self.actor.send_snapshot(pause, state);
        self.saved = Some(pause);
        self.wait_out(pause)
    }

    fn receive_state(&mut self) -> Result<Option<Vec<u8>>, SessionEnd> {
        let lease = self.actor.lease();
        let spec = lease.remote_spec();
        let memory = lease.config().intrinsic.memory_capacity * (4 * spec.embedding_length + 64);
        let most = spec.environments * (MAX_ENVIRONMENT_STATE_BYTES + memory);
        let began = Instant::now();
        let mut state = Vec::new();
        while began.elapsed() < SAVE_TIMEOUT {
            match self.receive(POLL_INTERVAL)? {
                Some(Kind::State(StatePart { part, last })) => {
                    if state.len() + part.len() > most {
                        return Err(SessionEnd::Refused(format!("its state has more than {most} bytes")));
                    }
                    state.extend_from_slice(&part);
                    if last {
                        return Ok(Some(state));
                    }
                }
                Some(Kind::Act(act)) => drop(self.take(act)?),
                Some(Kind::ChoosePolicy(choose)) => self.choose_policy(choose)?,
                Some(Kind::Hello(_)) => return Err(SessionEnd::Refused("it sent a second hello".to_owned())),
                None => {}
            }
        }
        Ok(None)
    }

    fn wait_out(&mut self, pause: u64) -> Result<(), SessionEnd> {
        while self.actor.lease().wanted_pause() == Some(pause) {
            self.check()?;
            self.actor.wait_out_pause(pause, WAITING_INTERVAL);
            self.send(Reply::Waiting(Waiting {}))?;
        }
        Ok(())
    }

    /// Inserts sequences into replay, however long that takes, unless a pause begins.
    fn flush(&mut self) -> Result<(), SessionEnd> {
        let mut sent = Instant::now();
        while !self.actor.flush(POLL_INTERVAL)? {
            self.check()?;
            if self.actor.lease().wanted_pause().is_some() {
                // The rest is saved with the writers.
                return Ok(());
            }
            if sent.elapsed() > WAITING_INTERVAL {
                sent = Instant::now();
                self.send(Reply::Waiting(Waiting {}))?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SessionEnd> {
        if self.actor.lease().is_stopping() {
            return Err(SessionEnd::Stopping);
        }
        if self.actor.lease().is_replaced() || self.outbound.is_closed() {
            return Err(SessionEnd::Gone);
        }
        Ok(())
    }

    /// Waits a moment for a message.
    fn receive(&mut self, patience: Duration) -> Result<Option<Kind>, SessionEnd> {
        self.check()?;
        let Self { actor, inbound, handle, .. } = self;
        let receive = |time: Duration| handle.block_on(async { timeout(time, inbound.recv()).await.ok() });
        match actor.wait(receive, patience) {
            Some(Some(ActorMessage { kind: Some(kind) })) => Ok(Some(kind)),
            Some(Some(ActorMessage { kind: None })) => Err(SessionEnd::Refused("a message is empty".to_owned())),
            Some(None) => Err(SessionEnd::Gone),
            None => Ok(None),
        }
    }

    fn send(&mut self, reply: Reply) -> Result<(), SessionEnd> {
        let began = Instant::now();
        loop {
            match self.handle.block_on(async { timeout(POLL_INTERVAL, self.outbound.reserve()).await }) {
                Ok(Ok(permit)) => {
                    permit.send(Ok(reply.into()));
                    return Ok(());
                }
                Ok(Err(_)) => return Err(SessionEnd::Gone),
                Err(_) if began.elapsed() > ANSWER_TIMEOUT => {
                    return Err(SessionEnd::Refused("it stopped reading".to_owned()));
                }
                Err(_) => self.check()?,
            }
        }
    }
}

/// Splits a state into messages, of which there is at least one.
pub fn state_parts(state: &[u8]) -> impl Iterator<Item = StatePart> + '_ {
    let mut rest = Some(state);
    std::iter::from_fn(move || {
        let (part, after) = rest?.split_at(rest?.len().min(MAX_STATE_PART_BYTES));
        rest = Some(after).filter(|after| !after.is_empty());
        Some(StatePart { part: part.to_vec(), last: rest.is_none() })
    })
}
