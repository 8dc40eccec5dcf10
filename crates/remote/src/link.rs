//! What an actor's environments see of the learner: decisions and policies.

use std::cell::RefCell;

use replay::FrameEncoder;
use tonic::Status;
use train::roles::bandit::PolicySource;
use train::roles::events::Event;
use train::roles::inference::Decide;
use train::roles::messages::{ActRequests, Decision, Role};
use train::roles::step_writer::WriteOperation;
use train::{Result, TrainError};

use crate::client::Connection;
use crate::limits::ANSWER_TIMEOUT;
use crate::proto::actor_message::Kind;
use crate::proto::learner_message::Kind as Reply;
use crate::proto::{Act, ChoosePolicy, EnvironmentStep, PolicyReport, StatePart};
use crate::session::state_parts;
use crate::wire::{decode_decisions, encode_operation};

/// Why there are no decisions.
#[derive(Debug)]
pub enum Interruption {
    /// The learner saves, and wants the state of the actor.
    Save,
    /// The learner has ended; `true` if the run is finished.
    Goodbye(bool),
    /// The connection is lost or unusable.
    Lost(Status),
}

/// An actor's connection to the learner.
pub struct Link(RefCell<LinkState>);

struct LinkState {
    connection: Connection,
    encoder: Option<FrameEncoder>,
    embedding_length: usize,
    /// Whether there were decisions.
    has_decided: bool,
    reports: Vec<PolicyReport>,
    /// Reports to send with the next message.
    pending: Act,
    interruption: Option<Interruption>,
}

impl Link {
    /// A link over a connection that was welcomed.
    pub fn new(connection: Connection, embedding_length: usize) -> Self {
        Self(RefCell::new(LinkState {
            connection,
            encoder: None,
            embedding_length,
            has_decided: false,
            reports: Vec::new(),
            pending: Act::default(),
            interruption: None,
        }))
    }

    /// Prepares for the observations of this many environments.
    pub fn expect(&self, environments: usize, observation_bytes: usize) -> Result<()> {
        self.0.borrow_mut().encoder = Some(FrameEncoder::new(environments, observation_bytes)?);
        Ok(())
    }

    /// Whether the learner has decided for the environments, which have thus started.
    pub fn has_decided(&self) -> bool {
        self.0.borrow().has_decided
    }

    /// Why the last call failed.
    pub fn take_interruption(&self) -> Option<Interruption> {
        self.0.borrow_mut().interruption.take()
    }

    /// Notes why the connection is of no use, for whoever asks next.
    pub fn interrupt(&self, interruption: Interruption) {
        self.0.borrow_mut().interruption = Some(interruption);
    }

    /// Reports an event to the learner, with the next message.
    pub fn report(&self, event: Event) {
        let pending = &mut self.0.borrow_mut().pending;
        match event {
            // Its length is fixed, so this cannot fail.
            Event::Episode(report) => pending.episodes.extend(postcard::to_stdvec(&report)),
            Event::Positions(positions) => pending.positions.extend(positions.iter().map(|position| position.0)),
            Event::Fault(fault) | Event::Notice(fault) => pending.faults.push(fault),
            Event::Update(_) | Event::Evaluation(_) => {}
        }
    }

    /// Sends what a group's environments have written, and no observations.
    pub fn record(&self, group: usize, operations: &[Vec<WriteOperation>]) -> std::result::Result<(), Status> {
        let mut state = self.0.borrow_mut();
        let environments = operations.iter().map(|own| EnvironmentStep {
            operations: own.iter().map(encode_operation).collect(),
            ..EnvironmentStep::default()
        });
        let environments = environments.collect();
        let pending = std::mem::take(&mut state.pending);
        let act = Act { group: group as u32, environments, ..pending };
        state.connection.send(Kind::Act(act).into())
    }

    /// Sends the actor's state.
    pub fn send_state(&self, saved: &[u8]) -> std::result::Result<(), Status> {
        let mut state = self.0.borrow_mut();
        state_parts(saved).try_for_each(|part: StatePart| state.connection.send(Kind::State(part).into()))
    }
}

impl LinkState {
    /// Waits for an answer, while the learner says that it is still there.
    fn answer(&mut self) -> std::result::Result<Reply, Interruption> {
        loop {
            let message = self.connection.receive(ANSWER_TIMEOUT).map_err(Interruption::Lost)?;
            match message.kind {
                Some(Reply::Waiting(_)) => {}
                Some(Reply::Save(_)) => return Err(Interruption::Save),
                Some(Reply::Goodbye(goodbye)) => return Err(Interruption::Goodbye(goodbye.finished)),
                Some(reply) => return Ok(reply),
                None => return Err(lost("the learner sent an empty message")),
            }
        }
    }

    fn ask(&mut self, question: Kind) -> std::result::Result<Reply, Interruption> {
        self.connection.send(question.into()).map_err(Interruption::Lost)?;
        self.answer()
    }

    fn interrupted<T>(&mut self, outcome: std::result::Result<T, Interruption>) -> Result<T> {
        outcome.map_err(|interruption| {
            self.interruption = Some(interruption);
            TrainError::ConnectionLost
        })
    }

    fn decide(&mut self, group: usize, requests: &ActRequests) -> Result<Vec<Decision>> {
        let encoder = self.encoder.as_mut().ok_or(TrainError::ConnectionLost)?;
        let mut environments: Vec<EnvironmentStep> = Vec::with_capacity(requests.operations.len());
        let mut last = None;
        for request in &requests.requests {
            // The observation that ended an episode comes before the next one of its environment.
            if request.last_observation.is_some() {
                last = Some(request);
                continue;
            }
            let ended = last.take();
            for request in ended.into_iter().chain([request]) {
                encoder
                    .push(environments.len() + group * requests.operations.len(), &requests.observation(request)?)?;
            }
            let operations = requests.operations.get(environments.len()).map(Vec::as_slice).unwrap_or_default();
            environments.push(EnvironmentStep {
                operations: operations.iter().map(encode_operation).collect(),
                first: request.first,
                ended: ended.is_some(),
                policy: request.policy as u32,
                kept_blocks: request.kept_blocks.clone().unwrap_or_default(),
                ended_kept_blocks: ended.and_then(|ended| ended.kept_blocks.clone()).unwrap_or_default(),
            });
        }
        let frames = encoder.finish()?;
        let pending = std::mem::take(&mut self.pending);
        let streams = frames.streams.to_vec();
        let act = Act { group: group as u32, environments, frames: frames.bytes, streams, ..pending };
        let reply = self.ask(Kind::Act(act)).and_then(|reply| match reply {
            Reply::Decisions(decisions) => {
                decode_decisions(&decisions, requests.requests.len(), self.embedding_length).map_err(lost)
            }
            _ => Err(lost("the learner sent something other than decisions")),
        });
        self.has_decided |= reply.is_ok();
        self.interrupted(reply)
    }

    fn choose(&mut self, environment: usize) -> Result<usize> {
        let reports = std::mem::take(&mut self.reports);
        let reply =
            self.ask(Kind::ChoosePolicy(ChoosePolicy { reports, environment: environment as u32 })).and_then(|reply| {
                match reply {
                    Reply::Policy(policy) => Ok(policy.policy as usize),
                    _ => Err(lost("the learner sent something other than a policy")),
                }
            });
        self.interrupted(reply)
    }
}

fn lost(what: impl ToString) -> Interruption {
    Interruption::Lost(Status::internal(what.to_string()))
}

impl PolicySource for Link {
    fn choose(&self, _: Role, environment: usize) -> Result<usize> {
        self.0.borrow_mut().choose(environment)
    }

    fn report(&self, _: Role, environment: usize, policy: usize, score: f64) -> Result<()> {
        let (policy, environment) = (policy as u32, environment as u32);
        self.0.borrow_mut().reports.push(PolicyReport { policy, score: Some(score), environment });
        Ok(())
    }

    fn abandon(&self, _: Role, policy: usize) -> Result<()> {
        self.0.borrow_mut().reports.push(PolicyReport { policy: policy as u32, score: None, environment: 0 });
        Ok(())
    }
}

/// Asks for decisions about one group.
pub struct GroupLink<'a> {
    pub link: &'a Link,
    pub group: usize,
}

impl Decide for GroupLink<'_> {
    fn decide(&mut self, requests: &mut ActRequests) -> Result<Vec<Decision>> {
        self.link.0.borrow_mut().decide(self.group, requests)
    }
}
