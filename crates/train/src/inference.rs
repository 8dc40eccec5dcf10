//! The networks that decide for all environments, and every environment's recurrent state.

use agent::acting::{ActingInput, ActingNetwork, ActingOutput, RecurrentStates};
use agent::math::moments::Moments;
use agent::math::rnd::multiplier_of_error;
use agent::{AgentConfig, ObservationSpec};
use half::f16;
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::config::IntrinsicConfig;
use crate::error::Result;
use crate::messages::{Decision, Place, Role, Turns};
use crate::published::Published;

/// Whoever answers turns: the networks themselves, or a connection to them.
pub trait Decide {
    /// One decision for each turn, in their order. The turns are the caller's again afterwards.
    fn decide(&mut self, turns: &mut Turns) -> Result<Vec<Decision>>;
}

/// Networks for both roles.
#[derive(Debug)]
pub struct Inference {
    online: ActingNetwork,
    average: ActingNetwork,
    states: RecurrentStates,
    observation_bytes: usize,
    version: u64,
    rnd_errors: Moments,
    rnd_scale: f64,
    rnd_clip: f64,
}

/// What continues from a saved run besides the parameters, which the learner publishes anew.
#[derive(Serialize, Deserialize)]
pub struct SavedStates(Vec<Vec<f32>>);

impl Inference {
    /// Networks for `slots` environments, with parameters from the learner.
    pub fn new(
        agent: &AgentConfig,
        intrinsic: &IntrinsicConfig,
        observation: &ObservationSpec,
        actions: usize,
        slots: usize,
        device: Device,
        published: &Published,
    ) -> Result<Self> {
        let online = ActingNetwork::new(agent, observation, actions, device)?;
        let average = ActingNetwork::new(agent, observation, actions, device)?;
        let states = RecurrentStates::new(online.networks(), slots, device)?;
        let mut inference = Self {
            online,
            average,
            states,
            observation_bytes: observation.bytes(),
            version: 0,
            rnd_errors: published.rnd_errors.clone(),
            rnd_scale: intrinsic.rnd_scale,
            rnd_clip: intrinsic.rnd_clip,
        };
        inference.refresh(published)?;
        Ok(inference)
    }

    /// Length of f(x).
    pub fn embedding_length(&self) -> usize {
        self.average.networks().embedding_length()
    }

    /// Takes over newer parameters.
    pub fn refresh(&mut self, published: &Published) -> Result<()> {
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

    /// The rows of one role that are, or are not, an episode's last.
    fn step(&mut self, turns: &Turns, rows: &[usize], role: Role) -> Result<ActingOutput> {
        let of = |pick: fn(&crate::messages::Previous) -> f32| -> Vec<f32> {
            rows.iter().map(|&row| pick(&turns.turns[row].previous)).collect()
        };
        let bytes = self.observation_bytes;
        let observations: Vec<u8> =
            rows.iter().flat_map(|&row| &turns.observations[row * bytes..(row + 1) * bytes]).copied().collect();
        let embedding: Vec<f16> = rows.iter().flat_map(|&row| turns.turns[row].previous.embedding.clone()).collect();
        let input = ActingInput {
            environments: &rows.iter().map(|&row| turns.turns[row].slot).collect::<Vec<_>>(),
            observations: &observations,
            action: &rows.iter().map(|&row| turns.turns[row].previous.action).collect::<Vec<_>>(),
            reward_extrinsic: &of(|previous| previous.reward_extrinsic),
            reward_ngu: &of(|previous| previous.novelty.ngu),
            reward_rnd: &of(|previous| previous.novelty.rnd),
            reward_episodic: &of(|previous| previous.novelty.episodic),
            embedding: &embedding,
            policy: &rows.iter().map(|&row| turns.turns[row].policy).collect::<Vec<_>>(),
        };
        let network = match role {
            Role::Actor => &self.online,
            Role::Evaluator => &self.average,
        };
        Ok(network.step(&input, &mut self.states)?)
    }
}

impl Decide for Inference {
    fn decide(&mut self, turns: &mut Turns) -> Result<Vec<Decision>> {
        let mut decisions: Vec<Option<Decision>> = vec![None; turns.turns.len()];
        // An environment whose episode ended asks twice: its last observation goes first, with the old state.
        for last in [true, false] {
            for role in [Role::Actor, Role::Evaluator] {
                let chosen = |row: &usize| {
                    let turn = &turns.turns[*row];
                    turn.role == role && (turn.place == Place::Last) == last
                };
                let rows: Vec<usize> = (0..turns.turns.len()).filter(chosen).collect();
                if rows.is_empty() {
                    continue;
                }
                let mut states = Vec::with_capacity(rows.len());
                for &row in &rows {
                    let turn = &turns.turns[row];
                    if turn.place == Place::First {
                        self.states.reset(turn.slot)?;
                    }
                    states.push(if turn.wants_state { Some(self.states.read(turn.slot)?) } else { None });
                }
                let output = self.step(turns, &rows, role)?;
                let actions = output.q.len() / rows.len();
                let embedding = output.embedding.len() / rows.len();
                for (i, (&row, state)) in rows.iter().zip(states).enumerate() {
                    let error = f64::from(output.rnd_error[i]);
                    decisions[row] = Some(Decision {
                        preferences: output.preferences()[i * actions..(i + 1) * actions].to_vec(),
                        q: output.q[i * actions..(i + 1) * actions].to_vec(),
                        embedding: output.embedding[i * embedding..(i + 1) * embedding].to_vec(),
                        rnd: multiplier_of_error(error, &self.rnd_errors, self.rnd_scale, self.rnd_clip) as f32,
                        state,
                        version: self.version,
                    });
                }
            }
        }
        Ok(decisions.into_iter().flatten().collect())
    }
}
