//! One environment's agent-side state: episodic memory, recurrent inputs, and the writer of its sequences.

use std::collections::BTreeSet;

use agent::Random;
use agent::acting::{ChosenAction, StepRewards, choose_action, sample_action};
use agent::config::{AgentConfig, HeldMask, StochasticDepthConfig};
use agent::intrinsic::{DistanceMean, EpisodicMemoryError, EpisodicNovelty, ngu_reward};
use envs::{Ending, EpisodeEnd, Step};
use half::f16;
use rand::{RngExt, SeedableRng};
use replay::{SequenceStart, Writer};
use serde::{Deserialize, Serialize};

use crate::config::IntrinsicConfig;
use crate::error::{Result, TrainError};
use crate::roles::bandit::PolicySource;
use crate::roles::messages::{ActRequest, Decision, EpisodeReport, NoveltySums, Position, PreviousStep, Role};
use crate::roles::step_writer::{SeenObservation, StepWriter, WriteOperation, WrittenStep};

/// The agent's side of one environment.
///
/// One step is: [`request`](Self::request) for the observation, [`choose`](Self::choose) with the networks' decision,
/// the environment's step, and [`take`](Self::take) with its outcome.
#[derive(Debug)]
pub struct EnvActor {
    /// What sets it apart from the others.
    pub spec: EnvActorSpec,
    /// What a checkpoint keeps, besides the writer's state.
    pub state: EnvActorState,
    /// Takes this environment's steps; evaluators have none.
    pub writer: Option<StepWriter>,
}

/// What sets one actor environment apart from the others.
#[derive(Clone, Copy, Debug)]
pub struct EnvActorSpec {
    /// Actor or evaluator.
    pub role: Role,
    /// Index among the environments of the role.
    pub environment: usize,
    /// Index of its recurrent state.
    pub slot: usize,
    /// Probability of a random action.
    pub epsilon: f64,
    /// Whether the agent sees 0 instead of the game's rewards.
    pub hides_rewards: bool,
    /// Exploration beyond ε-greedy.
    pub exploration: Exploration,
}

/// What an actor does besides acting ε-greedily; evaluators and the paper's actors do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exploration {
    /// Temperature of π', where the actor samples from it.
    pub temperature: Option<f64>,
    /// Residual blocks of the torso that it drops for a while.
    pub dropped: Option<DroppedBlocks>,
}

/// Residual blocks that an actor drops for a while: approximate Thompson sampling.
#[derive(Clone, Copy, Debug)]
pub struct DroppedBlocks {
    depth: StochasticDepthConfig,
    blocks: usize,
}

impl Exploration {
    /// The exploration of actors whose networks have this many blocks that may be dropped.
    pub fn of_actors(agent: &AgentConfig, blocks: usize) -> Self {
        let depth = agent.network.torso.stochastic_depth;
        Self {
            temperature: agent.policies.sampled.then_some(agent.returns.temperature),
            dropped: (depth.acting != HeldMask::Never).then_some(DroppedBlocks { depth, blocks }),
        }
    }
}

impl DroppedBlocks {
    /// Draws which blocks to keep.
    fn draw(&self, random: &mut Random) -> Vec<bool> {
        let rate = |block| self.depth.block_rate(block, self.blocks);
        (0..self.blocks).map(|block| random.random::<f64>() >= rate(block)).collect()
    }

    /// Whether a mask that was held for this many steps is given up within the episode.
    fn is_over(&self, steps: usize) -> bool {
        self.depth.acting == HeldMask::Steps && steps >= self.depth.acting_steps
    }
}

/// What a checkpoint keeps of an actor environment, besides the writer's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnvActorState {
    random: Random,
    novelty: EpisodicNovelty,
    policy: usize,
    /// Residual blocks that it keeps, if it drops any, and for how many steps it has.
    kept_blocks: Option<Vec<bool>>,
    held: usize,
    /// Whether the current observation is its episode's first.
    first: bool,
    previous: PreviousStep,
    /// The chosen action, until its outcome is known.
    pending: Option<PendingAction>,
    /// Request for the observation that ended the last episode, until the networks have seen it.
    ended: Option<ActRequest>,
    /// Novelty of the episode so far.
    sums: NoveltySums,
    /// Positions that the episode has reached so far.
    positions: BTreeSet<Position>,
    /// Report of the last episode, until the networks have seen its last observation.
    report: Option<EpisodeReport>,
}

/// An action, what it was chosen for, and what replay stores with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingAction {
    observation: Vec<u8>,
    probability: f32,
    /// The action, r_NGU and f of the observation; the extrinsic reward is 0 until the environment has stepped.
    step: PreviousStep,
    /// Recurrent state and parameter version, where a sequence starts.
    state: Option<Vec<f32>>,
    version: u64,
}

impl EnvActor {
    /// An actor environment before its first episode, with the first policy from the bandit.
    pub fn new(
        spec: EnvActorSpec,
        intrinsic: &IntrinsicConfig,
        embedding_length: usize,
        seed: u64,
        writer: Option<Writer>,
        bandit: &dyn PolicySource,
    ) -> Result<Self> {
        let novelty = EpisodicNovelty::new(intrinsic.kernel.clone(), intrinsic.memory_capacity, embedding_length);
        let novelty = novelty.map_err(|error| match error {
            // Validation rejects sizes that no machine can hold, so this machine lacks the memory.
            EpisodicMemoryError::Size { capacity, dimensions } => TrainError::NoRoomForEpisode { capacity, dimensions },
            error => error.into(),
        })?;
        let mut random = Random::seed_from_u64(seed);
        let state = EnvActorState {
            kept_blocks: spec.exploration.dropped.as_ref().map(|dropped| dropped.draw(&mut random)),
            held: 0,
            random,
            novelty,
            policy: bandit.choose(spec.role, spec.environment)?,
            first: true,
            previous: PreviousStep::zeros(embedding_length),
            pending: None,
            ended: None,
            sums: NoveltySums::default(),
            positions: BTreeSet::new(),
            report: None,
        };
        Ok(Self::resume(spec, state, writer))
    }

    /// Continues from a saved state.
    pub fn resume(spec: EnvActorSpec, state: EnvActorState, writer: Option<Writer>) -> Self {
        Self { spec, state, writer: writer.map(|writer| StepWriter::Replay(Box::new(writer))) }
    }

    /// Records the steps for a writer on another machine.
    pub fn recording(self) -> Self {
        Self { writer: Some(StepWriter::Record(Vec::new())), ..self }
    }

    /// Takes what was recorded since the last call.
    pub fn take_operations(&mut self) -> Vec<WriteOperation> {
        match &mut self.writer {
            Some(StepWriter::Record(operations)) => std::mem::take(operations),
            _ => Vec::new(),
        }
    }

    /// Starts from the d²_m of a trained agent.
    pub fn with_distances(mut self, distances: DistanceMean) -> Self {
        self.state.novelty.distance_mean = distances;
        self
    }

    /// Intrinsic rewards of the observation that the pending action was chosen for.
    pub fn pending_rewards(&self) -> Option<StepRewards> {
        self.state.pending.as_ref().map(|pending| pending.step.rewards)
    }

    /// Adds the requests for the current observation, held by this row: one, or two after an episode's end.
    pub fn request(&self, row: usize, requests: &mut Vec<ActRequest>) {
        let EnvActorState { policy, first, ref previous, ref ended, .. } = self.state;
        requests.extend(ended.clone());
        // The writer opens an episode only with its first decision.
        let wants_state =
            self.writer.as_ref().is_some_and(|writer| first && writer.stores_states() || writer.needs_state_now());
        let request = self.act_request(policy, previous.clone(), self.state.kept_blocks.clone());
        requests.push(ActRequest { first, row, wants_state, ..request });
    }

    fn act_request(&self, policy: usize, previous: PreviousStep, kept_blocks: Option<Vec<bool>>) -> ActRequest {
        ActRequest::new(self.spec.slot, self.spec.role, policy, previous, kept_blocks)
    }

    /// Chooses the action for `observation`, taking as many decisions as were requested.
    pub fn choose(&mut self, observation: &[u8], decisions: &mut impl Iterator<Item = Decision>) -> Result<usize> {
        if let Some(ended) = self.state.ended.take() {
            let decision = decisions.next().ok_or(TrainError::MissingDecision)?;
            self.end_episode(&ended, &decision)?;
        }
        if self.state.first {
            self.state.novelty.start_episode();
            self.state.sums = NoveltySums::default();
            if let Some(writer) = &mut self.writer {
                writer.write(WriteOperation::Begin { policy: self.state.policy as u16 }, None)?;
            }
        }
        let decision = decisions.next().ok_or(TrainError::MissingDecision)?;
        let rewards = self.intrinsic_rewards(&decision)?;
        let random = &mut self.state.random;
        let uniforms = [random.random::<f64>(), random.random::<f64>()];
        let (preferences, epsilon) = (&decision.preferences, self.spec.epsilon);
        let ChosenAction { action, probability } = match self.spec.exploration.temperature {
            Some(temperature) => sample_action(preferences, temperature, epsilon, uniforms[0]),
            None => choose_action(preferences, epsilon, uniforms),
        };
        self.state.held += 1;
        if let Some(dropped) = self.spec.exploration.dropped.as_ref().filter(|dropped| dropped.is_over(self.state.held))
        {
            (self.state.kept_blocks, self.state.held) = (Some(dropped.draw(&mut self.state.random)), 0);
        }
        self.state.pending = Some(PendingAction {
            observation: observation.to_vec(),
            probability,
            step: PreviousStep { action: action as i64, rewards, embedding: decision.stored_embedding() },
            state: decision.state,
            version: decision.version,
        });
        Ok(action)
    }

    /// Records the position that the action led to; returns whether it is new in this episode.
    pub fn visit(&mut self, position: Position) -> bool {
        self.state.positions.insert(position)
    }

    /// Takes the outcome of the chosen action. If it ended the episode, `last` returns the final observation, and the
    /// bandit chooses the next policy.
    ///
    /// Returns the report of a finished episode: at once for an evaluator, with the following step for an actor, whose
    /// final observation the networks have to see first.
    pub fn take(
        &mut self,
        step: &Step,
        last: impl FnOnce() -> Vec<u8>,
        bandit: &dyn PolicySource,
    ) -> Result<Option<EpisodeReport>> {
        let EnvActorSpec { role, environment, hides_rewards, .. } = self.spec;
        let mut pending = self.state.pending.take().ok_or(TrainError::MissingDecision)?;
        pending.step.rewards.extrinsic = if hides_rewards { 0.0 } else { step.reward as f32 };
        let report = self.state.report.take();
        let policy = self.state.policy;
        let Some(EpisodeEnd { ending, score, frames }) = step.end else {
            self.write(&pending, 1.0)?;
            (self.state.previous, self.state.first) = (pending.step, false);
            return Ok(report);
        };
        if ending == Ending::CutOff {
            // The action has no outcome: the observation that it was chosen for is the episode's last.
            self.write_last(&pending.observation, pending.step.rewards, &pending.step.embedding)?;
            bandit.abandon(role, policy)?;
            self.next_episode(bandit)?;
            return Ok(report);
        }
        self.write(&pending, if ending == Ending::Terminated { 0.0 } else { 1.0 })?;
        let ended = EpisodeReport {
            role,
            environment,
            policy,
            score,
            frames,
            positions: self.state.positions.len() as u64,
            novelty: self.state.sums,
            distances: self.state.novelty.distance_mean,
        };
        bandit.report(role, environment, policy, if hides_rewards { 0.0 } else { score })?;
        let kept_blocks = self.state.kept_blocks.clone();
        self.next_episode(bandit)?;
        if self.writer.is_none() {
            return Ok(Some(ended));
        }
        self.state.ended = Some(self.act_request(policy, pending.step, kept_blocks).for_last(last()));
        self.state.report = Some(ended);
        Ok(report)
    }

    /// Forgets the current episode and begins the next one with this d²_m.
    ///
    /// An evaluator does so for an evaluation.
    pub fn restart(&mut self, distances: DistanceMean, bandit: &dyn PolicySource) -> Result<()> {
        self.state.pending = None;
        self.state.novelty.distance_mean = distances;
        self.next_episode(bandit)
    }

    /// Abandons the current episode, which its environment cannot continue. An episode that has just ended is kept.
    pub fn abandon(&mut self, bandit: &dyn PolicySource) -> Result<()> {
        if self.state.first && self.state.pending.is_none() {
            return Ok(());
        }
        if let Some(writer) = &mut self.writer {
            writer.write(WriteOperation::Abandon, None)?;
        }
        bandit.abandon(self.spec.role, self.state.policy)?;
        (self.state.ended, self.state.pending) = (None, None);
        self.next_episode(bandit)
    }

    fn next_episode(&mut self, bandit: &dyn PolicySource) -> Result<()> {
        self.state.policy = bandit.choose(self.spec.role, self.spec.environment)?;
        if let Some(dropped) = &self.spec.exploration.dropped {
            (self.state.kept_blocks, self.state.held) = (Some(dropped.draw(&mut self.state.random)), 0);
        }
        self.state.first = true;
        self.state.positions.clear();
        self.state.previous = PreviousStep::zeros(self.state.previous.embedding.len());
        Ok(())
    }

    /// r_NGU of the observation that was decided on, and its parts.
    fn intrinsic_rewards(&mut self, decision: &Decision) -> Result<StepRewards> {
        let episodic = self.state.novelty.observe(&decision.embedding)?;
        let ngu = ngu_reward(episodic, f64::from(decision.rnd)) as f32;
        let rewards = StepRewards { extrinsic: 0.0, ngu, rnd: decision.rnd, episodic: episodic as f32 };
        self.state.sums.add(rewards);
        Ok(rewards)
    }

    fn write(&mut self, pending: &PendingAction, discount: f32) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let PendingAction { observation, probability, step: PreviousStep { action, rewards, embedding }, .. } = pending;
        let start = pending.state.as_ref();
        let start = start.map(|state| SequenceStart { state, parameter_version: pending.version });
        let (action, probability, rewards) = (*action as u16, *probability, *rewards);
        let step = WriteOperation::Append(WrittenStep { action, probability, rewards, discount });
        writer.write(step, Some(SeenObservation { observation, embedding, start }))
    }

    fn write_last(&mut self, observation: &[u8], rewards: StepRewards, embedding: &[f16]) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write(WriteOperation::End(rewards), Some(SeenObservation { observation, embedding, start: None }))
    }

    /// Ends the last episode, whose final observation the networks have seen.
    fn end_episode(&mut self, ended: &ActRequest, decision: &Decision) -> Result<()> {
        let rewards = self.intrinsic_rewards(decision)?;
        if let Some(report) = &mut self.state.report {
            report.novelty = self.state.sums;
        }
        self.write_last(ended.last_observation.as_deref().unwrap_or_default(), rewards, &decision.stored_embedding())
    }
}
