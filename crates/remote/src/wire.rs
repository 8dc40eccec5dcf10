//! Between the protocol's messages and what `train` works with.

use agent::acting::StepRewards;
use replay::EncodedFrames;
use train::roles::messages::{Decision, EpisodeReport};
use train::roles::remote_actor_proxy::EnvironmentUpdate;
use train::roles::step_writer::{WriteOperation, WrittenStep};

use crate::proto::operation::Kind;
use crate::proto::{Act, ActorMessage, Decisions, EnvironmentStep, LearnerMessage, Operation};
use crate::proto::{actor_message, learner_message};

impl From<actor_message::Kind> for ActorMessage {
    fn from(kind: actor_message::Kind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl From<learner_message::Kind> for LearnerMessage {
    fn from(kind: learner_message::Kind) -> Self {
        Self { kind: Some(kind) }
    }
}

/// Encodes an operation.
pub fn encode_operation(operation: &WriteOperation) -> Operation {
    let of_rewards = |kind: Kind, rewards: &StepRewards| Operation {
        kind: kind.into(),
        extrinsic: rewards.extrinsic,
        ngu: rewards.ngu,
        rnd: rewards.rnd,
        episodic: rewards.episodic,
        ..Operation::default()
    };
    match operation {
        WriteOperation::Begin { policy } => {
            Operation { kind: Kind::Begin.into(), policy: u32::from(*policy), ..Operation::default() }
        }
        WriteOperation::Append(WrittenStep { action, probability, rewards, discount }) => Operation {
            action: u32::from(*action),
            probability: *probability,
            discount: *discount,
            ..of_rewards(Kind::Append, rewards)
        },
        WriteOperation::End(rewards) => of_rewards(Kind::End, rewards),
        WriteOperation::Abandon => Operation { kind: Kind::Abandon.into(), ..Operation::default() },
    }
}

/// Decodes an operation.
fn decode_operation(operation: &Operation) -> Result<WriteOperation, String> {
    let small = |number: u32, what: &str| u16::try_from(number).map_err(|_| format!("{what} {number} is too large"));
    let Operation { extrinsic, ngu, rnd, episodic, .. } = *operation;
    let rewards = StepRewards { extrinsic, ngu, rnd, episodic };
    Ok(match Kind::try_from(operation.kind).map_err(|_| "an operation has an unknown kind".to_owned())? {
        Kind::Begin => WriteOperation::Begin { policy: small(operation.policy, "policy")? },
        Kind::Append => WriteOperation::Append(WrittenStep {
            action: small(operation.action, "action")?,
            probability: operation.probability,
            rewards,
            discount: operation.discount,
        }),
        Kind::End => WriteOperation::End(rewards),
        Kind::Abandon => WriteOperation::Abandon,
    })
}

/// What an `Act` holds.
pub struct GroupUpdate {
    pub group: usize,
    pub updates: Vec<EnvironmentUpdate>,
    /// Absent if no decision is wanted.
    pub frames: Option<EncodedFrames>,
    pub episodes: Vec<EpisodeReport>,
    pub positions: Vec<u64>,
    pub faults: Vec<String>,
}

/// Decodes an `Act`.
pub fn decode_act(act: Act) -> Result<GroupUpdate, String> {
    let update = |step: EnvironmentStep| {
        let EnvironmentStep { operations, first, ended, policy, kept_blocks, ended_kept_blocks } = step;
        let kept_blocks = [kept_blocks, ended_kept_blocks];
        let operations = operations.iter().map(decode_operation).collect::<Result<_, _>>()?;
        Ok(EnvironmentUpdate { operations, first, ended, policy: policy as usize, kept_blocks })
    };
    let episode = |bytes: &Vec<u8>| postcard::from_bytes(bytes).map_err(|_| "an episode is malformed".to_owned());
    let frames = match act.streams.as_slice() {
        [] if act.frames.is_empty() => None,
        &[map, marks, coarse, fine] => Some(EncodedFrames { streams: [map, marks, coarse, fine], bytes: act.frames }),
        streams => return Err(format!("observations have {} streams", streams.len())),
    };
    Ok(GroupUpdate {
        group: act.group as usize,
        updates: act.environments.into_iter().map(update).collect::<Result<_, String>>()?,
        frames,
        episodes: act.episodes.iter().map(episode).collect::<Result<_, _>>()?,
        positions: act.positions,
        faults: act.faults,
    })
}

/// Encodes decisions, without what only the learner's machine needs.
pub fn encode_decisions(decisions: &[Decision]) -> Decisions {
    Decisions {
        preferences: decisions.iter().flat_map(|decision| decision.preferences.iter().copied()).collect(),
        embeddings: decisions.iter().flat_map(|decision| decision.embedding.iter().copied()).collect(),
        rnd: decisions.iter().map(|decision| decision.rnd).collect(),
    }
}

/// Decodes decisions, of which there must be `count`.
pub fn decode_decisions(decisions: &Decisions, count: usize, embedding_length: usize) -> Result<Vec<Decision>, String> {
    let Decisions { preferences, embeddings, rnd } = decisions;
    let actions = preferences.len() / count.max(1);
    if rnd.len() != count
        || embeddings.len() != count * embedding_length
        || preferences.len() != count * actions
        || actions == 0
    {
        return Err("the learner sent more or fewer decisions than requested".to_owned());
    }
    let all = preferences.iter().chain(embeddings).chain(rnd);
    if all.into_iter().any(|number| number.is_nan()) {
        return Err("the learner sent a decision that is not a number".to_owned());
    }
    let decision = |i: usize| Decision {
        preferences: preferences[i * actions..(i + 1) * actions].to_vec(),
        q: Vec::new(),
        embedding: embeddings[i * embedding_length..(i + 1) * embedding_length].to_vec(),
        rnd: rnd[i],
        state: None,
        version: 0,
    };
    Ok((0..count).map(decision).collect())
}
