//! The networks that decide for all environments, and every environment's recurrent state.

use agent::acting::{ActingNetwork, ActingOutput, ActingRow, Observation, ObservationRows};
use agent::acting::{PreviousRewards, RecurrentStates};
use agent::math::moments::Moments;
use agent::math::rnd::multiplier_of_error;
use agent::{AgentConfig, ObservationSpec};
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::config::IntrinsicConfig;
use crate::error::Result;
use crate::messages::{Decision, Place, Role, Seen, Turn, Turns};
use crate::published::Published;

/// Whoever answers turns: the networks themselves, or a connection to them.
pub trait Decide {
    /// One decision for each turn, in their order. The turns are the caller's again afterwards, unless it failed.
    fn decide(&mut self, turns: &mut Turns) -> Result<Vec<Decision>>;
}

/// Networks for both roles.
#[derive(Debug)]
pub struct Inference {
    online: ActingNetwork,
    average: ActingNetwork,
    states: RecurrentStates,
    version: u64,
    rnd_errors: Moments,
    rnd_scale: f64,
    rnd_clip: f64,
}

/// How many environments each role has. Their slots are the actors', then the evaluators'.
#[derive(Clone, Copy, Debug)]
pub struct RoleSizes {
    /// Who ask the online network.
    pub actors: usize,
    /// Who ask its average.
    pub evaluators: usize,
}

/// What continues from a saved run besides the parameters, which the learner publishes anew.
#[derive(Serialize, Deserialize)]
pub struct SavedStates(Vec<Vec<f32>>);

impl Inference {
    /// Networks for so many environments, with parameters from the learner.
    pub fn new(
        agent: &AgentConfig,
        intrinsic: &IntrinsicConfig,
        observation: &ObservationSpec,
        actions: usize,
        roles: RoleSizes,
        device: Device,
        published: &Published,
    ) -> Result<Self> {
        let online = ActingNetwork::new(agent, observation, actions, device)?;
        let average = ActingNetwork::new(agent, observation, actions, device)?;
        let RoleSizes { actors, evaluators } = roles;
        let states = RecurrentStates::new(online.networks(), actors + evaluators, device)?;
        let mut inference = Self {
            online,
            average,
            states,
            version: 0,
            rnd_errors: published.rnd_errors.clone(),
            rnd_scale: intrinsic.rnd_scale,
            rnd_clip: intrinsic.rnd_clip,
        };
        inference.refresh(published)?;
        inference.online.prepare(actors, &inference.states)?;
        inference.average.prepare(evaluators, &inference.states)?;
        Ok(inference)
    }

    /// Length of f(x).
    pub fn embedding_length(&self) -> usize {
        self.average.networks().embedding_length()
    }

    /// Memory for the observations of players with so many environments, in the order of their slots.
    pub fn observation_rows(&self, environments: &[usize]) -> Result<Vec<ObservationRows>> {
        Ok(self.online.observation_rows(environments)?)
    }

    /// Takes over newer parameters, once the learner's device is done with them.
    pub fn refresh(&mut self, published: &Published) -> Result<()> {
        published.wait()?;
        self.online.refresh(&published.online)?;
        self.average.refresh(&published.average)?;
        self.rnd_errors = published.rnd_errors.clone();
        self.version = published.version;
        Ok(())
    }

    /// Every environment's recurrent state.
    pub fn save(&self) -> Result<SavedStates> {
        Ok(SavedStates(
            (0..self.states.environments()).map(|slot| self.states.read(slot)).collect::<agent::Result<_>>()?,
        ))
    }

    /// Goes on from saved recurrent states.
    pub fn restore(&mut self, saved: &SavedStates) -> Result<()> {
        for (slot, state) in saved.0.iter().enumerate() {
            self.states.write(slot, state)?;
        }
        Ok(())
    }

    /// Sends the observations of a player's turns ahead to the networks that will decide, so that they are there when
    /// everybody has asked. What is not sent ahead goes with the decision.
    pub fn send(&mut self, turns: &Turns) -> Result<()> {
        for (role, network) in [(Role::Actor, &mut self.online), (Role::Evaluator, &mut self.average)] {
            let mut observations = Vec::new();
            for one in asked(turns) {
                let Asked { turn, observation } = one?;
                if turn.role == role {
                    observations.push((turn.slot, observation));
                }
            }
            network.send(&observations, &self.states)?;
        }
        Ok(())
    }

    /// One decision for each turn of several players, in their order.
    pub fn decide_together(&mut self, players: &[&Turns]) -> Result<Vec<Decision>> {
        let asked: Vec<Asked<'_>> = players.iter().flat_map(|turns| asked(turns)).collect::<Result<_>>()?;
        let mut decisions: Vec<Option<Decision>> = vec![None; asked.len()];
        // An environment whose episode ended asks twice: its last observation goes first, with the old state.
        for last in [true, false] {
            let [actors, evaluators] = [Role::Actor, Role::Evaluator].map(|role| {
                let chosen = |row: &usize| {
                    let turn = asked[*row].turn;
                    turn.role == role && (turn.place == Place::Last) == last
                };
                let mut chosen: Vec<usize> = (0..asked.len()).filter(chosen).collect();
                // As their observations lie in memory, so that neighbours travel together, whoever asked first.
                chosen.sort_by_key(|&row| asked[row].turn.slot);
                chosen
            });
            let rows = |chosen: &[usize]| chosen.iter().map(|&row| asked[row].row()).collect::<Vec<_>>();
            // Both are under way before either is waited for.
            let step = self.online.begin(&rows(&actors), &mut self.states)?;
            let evaluating = self.average.begin(&rows(&evaluators), &mut self.states)?;
            for (rows, output) in [(actors, step.finish()?), (evaluators, evaluating.finish()?)] {
                for (&row, decision) in rows.iter().zip(self.decisions(output)) {
                    decisions[row] = Some(decision);
                }
            }
        }
        Ok(decisions.into_iter().flatten().collect())
    }

    fn decisions(&self, output: ActingOutput) -> Vec<Decision> {
        let rows = output.rnd_error.len().max(1);
        let (actions, embedding) = (output.q.len() / rows, output.embedding.len() / rows);
        let part = |values: &[f32], i: usize, length: usize| values[i * length..(i + 1) * length].to_vec();
        let preferences = output.preferences();
        let decision = |(i, state): (usize, &Option<Vec<f32>>)| {
            let error = f64::from(output.rnd_error[i]);
            Decision {
                preferences: part(preferences, i, actions),
                q: part(&output.q, i, actions),
                embedding: part(&output.embedding, i, embedding),
                rnd: multiplier_of_error(error, &self.rnd_errors, self.rnd_scale, self.rnd_clip) as f32,
                state: state.clone(),
                version: self.version,
            }
        };
        output.state_before.iter().enumerate().map(decision).collect()
    }
}

/// A turn and its observation.
struct Asked<'a> {
    turn: &'a Turn,
    observation: Observation<'a>,
}

fn asked(turns: &Turns) -> impl Iterator<Item = Result<Asked<'_>>> {
    turns.turns.iter().map(|turn| {
        let observation = match &turn.observation {
            Seen::Row(row) => turns.observations.row(*row)?,
            Seen::Last(bytes) => bytes.as_slice().into(),
        };
        Ok(Asked { turn, observation })
    })
}

impl<'a> Asked<'a> {
    fn row(&self) -> ActingRow<'a> {
        let Turn { slot, place, policy, wants_state, ref previous, .. } = *self.turn;
        ActingRow {
            environment: slot,
            first: place == Place::First,
            wants_state,
            observation: self.observation,
            action: previous.action,
            rewards: PreviousRewards {
                extrinsic: previous.reward_extrinsic,
                ngu: previous.novelty.ngu,
                rnd: previous.novelty.rnd,
                episodic: previous.novelty.episodic,
            },
            embedding: &previous.embedding,
            policy,
        }
    }
}

impl Decide for Inference {
    fn decide(&mut self, turns: &mut Turns) -> Result<Vec<Decision>> {
        self.decide_together(&[turns])
    }
}
