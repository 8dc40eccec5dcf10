//! The agent's side of one environment: what it remembers of the episode, and what it writes down.

use std::collections::BTreeSet;

use agent::acting::{ChosenAction, choose_action};
use agent::math::episodic_memory::EpisodicMemoryError;
use agent::math::ngu::{DistanceMean, EpisodicNovelty, Kernel, ngu_reward};
use agent::random::Random;
use envs::{Ending, EpisodeEnd, Step};
use half::f16;
use replay::{LastStep, SequenceStart, Writer};
use serde::{Deserialize, Serialize};

use crate::bandit::CentralBandit;
use crate::config::IntrinsicConfig;
use crate::error::{Result, TrainError};
use crate::messages::{
    Decision, EpisodeReport, Novelty, NoveltySums, Place, Position, Previous, Role, Seen, Turn, Turns,
};

/// Everything about one environment that lives on this side of the networks.
///
/// A step goes: [`ask`](Self::ask) with the observation, [`choose`](Self::choose) with the networks' decision, the
/// environment's step, [`take`](Self::take) with its outcome.
#[derive(Debug)]
pub struct Seat {
    place: SeatPlace,
    progress: Progress,
    /// `None`: nothing is written down, as for an evaluator.
    writer: Option<Writer>,
}

/// Who sits here.
#[derive(Clone, Copy, Debug)]
pub struct SeatPlace {
    /// Actor or evaluator.
    pub role: Role,
    /// The number among the environments of the role.
    pub environment: usize,
    /// Which recurrent state is its own.
    pub slot: usize,
    /// Probability of a random action.
    pub epsilon: f64,
    /// Whether the agent is shown no reward of the game.
    pub hides_rewards: bool,
}

/// What continues from a saved run, beside the writer's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    random: Random,
    novelty: EpisodicNovelty,
    policy: usize,
    place: Place,
    previous: Previous,
    /// The observation that the last action was chosen for, and what was decided, until its outcome is known.
    chosen: Option<Chosen>,
    /// The observation that ended the last episode, and its policy, until the networks have seen it.
    ended: Option<Ended>,
    /// How new the episode was so far.
    sums: NoveltySums,
    /// Where the episode has been so far, as far as that is reported.
    positions: BTreeSet<Position>,
    /// The last episode's report, until it is handed out: how new its last observation was is known only with the next
    /// episode's first decision.
    report: Option<EpisodeReport>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Chosen {
    observation: Vec<u8>,
    action: u16,
    probability: f32,
    novelty: Novelty,
    embedding: Vec<f16>,
    state: Option<Vec<f32>>,
    version: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ended {
    observation: Vec<u8>,
    policy: usize,
    previous: Previous,
}

impl Seat {
    /// A seat before its first episode, with the first policy from the bandit.
    pub fn new(
        place: SeatPlace,
        intrinsic: &IntrinsicConfig,
        embedding: usize,
        seed: u64,
        writer: Option<Writer>,
        bandit: &CentralBandit,
    ) -> Result<Self> {
        let kernel: Kernel = intrinsic.kernel.clone();
        let novelty = EpisodicNovelty::new(kernel, intrinsic.memory_capacity, embedding);
        let novelty = novelty.map_err(|error| match error {
            // A checked config asks for no size that is impossible everywhere.
            EpisodicMemoryError::Size { capacity, dimensions } => TrainError::NoRoomForEpisode { capacity, dimensions },
            error => error.into(),
        })?;
        let progress = Progress {
            random: Random::new(seed),
            novelty,
            policy: bandit.choose(place.role),
            place: Place::First,
            previous: Previous::nothing(embedding),
            chosen: None,
            ended: None,
            sums: NoveltySums::default(),
            positions: BTreeSet::new(),
            report: None,
        };
        Ok(Self { place, progress, writer })
    }

    /// A seat that goes on from a saved one.
    pub fn resume(place: SeatPlace, progress: Progress, writer: Option<Writer>) -> Self {
        Self { place, progress, writer }
    }

    /// The same, with the d²_m that a trained agent knows its environment by.
    pub fn knowing(mut self, distances: DistanceMean) -> Self {
        self.progress.novelty.take_distances(distances);
        self
    }

    /// What continues from here, beside the writer's state.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What writes this environment's steps down.
    pub fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    /// The same, to put sequences into replay.
    pub fn writer_mut(&mut self) -> Option<&mut Writer> {
        self.writer.as_mut()
    }

    /// How new the observation is that an action was last chosen for, until the action's outcome is known.
    pub fn novelty(&self) -> Option<Novelty> {
        self.progress.chosen.as_ref().map(|chosen| chosen.novelty)
    }

    /// Adds this environment's turns for its present observation, which is in this row of the player's: one, or two after
    /// an episode's end.
    pub fn ask(&self, row: usize, turns: &mut Turns) {
        let Progress { policy, place, previous, ended, .. } = &self.progress;
        let turn = |place, policy, previous: &Previous, wants_state, observation| Turn {
            slot: self.place.slot,
            role: self.place.role,
            place,
            policy,
            wants_state,
            previous: previous.clone(),
            observation,
        };
        if let Some(ended) = ended {
            let seen = Seen::Last(ended.observation.clone());
            turns.turns.push(turn(Place::Last, ended.policy, &ended.previous, false, seen));
        }
        // An episode is opened for writing only when its first decision is there.
        let begins = self.writer.as_ref().is_some_and(|writer| *place == Place::First || writer.wants_start());
        turns.turns.push(turn(*place, *policy, previous, begins, Seen::Row(row)));
    }

    /// Takes this environment's decisions, as many as it asked for, and chooses the action for `observation`.
    pub fn choose(&mut self, observation: &[u8], decisions: &mut impl Iterator<Item = Decision>) -> Result<usize> {
        if let Some(ended) = self.progress.ended.take() {
            let decision = decisions.next().ok_or(TrainError::MissingDecision)?;
            self.end_episode(&ended, &decision)?;
        }
        if self.progress.place == Place::First {
            self.progress.novelty.start_episode();
            self.progress.sums = NoveltySums::default();
            if let Some(writer) = &mut self.writer {
                writer.begin_episode(self.progress.policy as u16)?;
            }
        }
        let decision = decisions.next().ok_or(TrainError::MissingDecision)?;
        let novelty = self.novelty_of(&decision)?;
        let random = &mut self.progress.random;
        let uniforms = [random.uniform(), random.uniform()];
        let ChosenAction { action, probability } = choose_action(&decision.preferences, self.place.epsilon, uniforms);
        self.progress.chosen = Some(Chosen {
            observation: observation.to_vec(),
            action: action as u16,
            probability,
            novelty,
            embedding: stored(&decision.embedding),
            state: decision.state,
            version: decision.version,
        });
        Ok(action)
    }

    /// Takes where the chosen action led to; true if the episode had not been there.
    pub fn visit(&mut self, position: Position) -> bool {
        self.progress.positions.insert(position)
    }

    /// Takes what the chosen action led to; where that ended the episode, `last` is the observation that did, and the
    /// next episode's policy is asked of the bandit. An episode's report comes with its last step or, where its last
    /// observation is still to be seen by the networks, with the next step.
    pub fn take(
        &mut self,
        step: &Step,
        last: impl FnOnce() -> Vec<u8>,
        bandit: &CentralBandit,
    ) -> Result<Option<EpisodeReport>> {
        let chosen = self.progress.chosen.take().ok_or(TrainError::MissingDecision)?;
        let before = self.progress.report.take();
        let hides = self.place.hides_rewards;
        let step = &Step { reward: if hides { 0.0 } else { step.reward }, ..*step };
        match step.end {
            Some(EpisodeEnd { ending: Ending::CutOff, .. }) => {
                self.cut_off(&chosen)?;
                bandit.abandon(self.place.role, self.progress.policy)?;
                self.next_episode(bandit);
                Ok(before)
            }
            Some(end) => {
                self.write(&chosen, step, if end.ending == Ending::Terminated { 0.0 } else { 1.0 })?;
                let report = EpisodeReport {
                    role: self.place.role,
                    environment: self.place.environment,
                    policy: self.progress.policy,
                    epsilon: self.place.epsilon,
                    score: end.score,
                    frames: end.frames,
                    positions: self.progress.positions.len() as u64,
                    novelty: self.progress.sums,
                    distances: self.progress.novelty.distances(),
                };
                bandit.report(self.place.role, self.progress.policy, if hides { 0.0 } else { end.score })?;
                let (policy, waits) = (self.progress.policy, self.writer.is_some());
                self.next_episode(bandit);
                if !waits {
                    return Ok(Some(report));
                }
                let previous = following(chosen, step);
                self.progress.ended = Some(Ended { observation: last(), policy, previous });
                self.progress.report = Some(report);
                Ok(before)
            }
            None => {
                self.write(&chosen, step, 1.0)?;
                self.progress.previous = following(chosen, step);
                self.progress.place = Place::Middle;
                Ok(before)
            }
        }
    }

    /// Forgets the episode, which can't go on: the environment has begun another. One that has just ended is not
    /// forgotten: the networks have still to see its last observation.
    pub fn abandon(&mut self, bandit: &CentralBandit) -> Result<()> {
        if self.progress.place == Place::First && self.progress.chosen.is_none() {
            return Ok(());
        }
        if let Some(writer) = &mut self.writer {
            writer.abandon_episode();
        }
        bandit.abandon(self.place.role, self.progress.policy)?;
        (self.progress.ended, self.progress.chosen) = (None, None);
        self.next_episode(bandit);
        Ok(())
    }

    fn next_episode(&mut self, bandit: &CentralBandit) {
        self.progress.policy = bandit.choose(self.place.role);
        self.progress.place = Place::First;
        self.progress.positions.clear();
        self.progress.previous = Previous::nothing(self.progress.previous.embedding.len());
    }

    /// r_NGU of the observation that was decided on.
    fn novelty_of(&mut self, decision: &Decision) -> Result<Novelty> {
        let episodic = self.progress.novelty.observe(&decision.embedding)?;
        let ngu = ngu_reward(episodic, f64::from(decision.rnd));
        let novelty = Novelty { ngu: ngu as f32, rnd: decision.rnd, episodic: episodic as f32 };
        self.progress.sums.add(novelty);
        Ok(novelty)
    }

    fn write(&mut self, chosen: &Chosen, step: &Step, discount: f32) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let start = chosen
            .state
            .as_ref()
            .map(|state| SequenceStart { state: state.as_slice(), parameter_version: chosen.version });
        let step = replay::Step {
            action: chosen.action,
            behaviour_probability: chosen.probability,
            reward_extrinsic: step.reward as f32,
            reward_ngu: chosen.novelty.ngu,
            reward_rnd: chosen.novelty.rnd,
            reward_episodic: chosen.novelty.episodic,
            discount,
            embedding: &chosen.embedding,
        };
        Ok(writer.append(&chosen.observation, &step, start)?)
    }

    /// The episode's last observation has been seen by the networks.
    fn end_episode(&mut self, ended: &Ended, decision: &Decision) -> Result<()> {
        let novelty = self.novelty_of(decision)?;
        if let Some(report) = &mut self.progress.report {
            report.novelty = self.progress.sums;
        }
        let embedding = stored(&decision.embedding);
        match &mut self.writer {
            Some(writer) => Ok(writer.end_episode(&ended.observation, &last_step(novelty, &embedding))?),
            None => Ok(()),
        }
    }

    /// The action had no outcome: the observation it was chosen for is the episode's last.
    fn cut_off(&mut self, chosen: &Chosen) -> Result<()> {
        match &mut self.writer {
            Some(writer) => Ok(writer.end_episode(&chosen.observation, &last_step(chosen.novelty, &chosen.embedding))?),
            None => Ok(()),
        }
    }
}

fn last_step(novelty: Novelty, embedding: &[f16]) -> LastStep<'_> {
    LastStep { reward_ngu: novelty.ngu, reward_rnd: novelty.rnd, reward_episodic: novelty.episodic, embedding }
}

/// f(x) as it is kept: acting and learning are fed the same bits.
fn stored(embedding: &[f32]) -> Vec<f16> {
    embedding.iter().map(|&value| f16::from_f32(value)).collect()
}

fn following(chosen: Chosen, step: &Step) -> Previous {
    Previous {
        action: i64::from(chosen.action),
        reward_extrinsic: step.reward as f32,
        novelty: chosen.novelty,
        embedding: chosen.embedding,
    }
}
