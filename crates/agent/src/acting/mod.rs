//! Acting: one step of many environments through the networks, without gradients.

mod captured;
mod choice;
mod observations;
mod packing;
mod plain;
mod states;
mod table;

use half::f16;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::config::AgentConfig;
use crate::error::{AgentError, Result};
use crate::networks::{NetworkParameters, Networks};
use crate::observation::ObservationSpec;
use captured::{Captured, PendingOutputs};
use plain::Plain;

pub use choice::{ChosenAction, choose_action, sample_action, softmax};
pub use observations::{Observation, ObservationRows};
pub use states::RecurrentStates;

/// One environment's input to the networks.
#[derive(Clone, Copy, Debug)]
pub struct ActingRow<'a> {
    /// Whose recurrent state it continues.
    pub environment: usize,
    /// Whether an episode begins here, which resets the recurrent state.
    pub first: bool,
    /// Whether to return the recurrent state before the step.
    pub wants_state: bool,
    /// x_t.
    pub observation: Observation<'a>,
    /// a_{t-1}; 0 at the start of an episode, like all fields below.
    pub action: i64,
    /// Rewards of a_{t-1}.
    pub rewards: StepRewards,
    /// f(x_{t-1}).
    pub embedding: &'a [f16],
    /// The policy that acts.
    pub policy: usize,
    /// Whether to compute each residual block of the torso; all of them if not given.
    pub kept_blocks: Option<&'a [bool]>,
}

/// The rewards of the step before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRewards {
    /// r_e,t-1.
    pub extrinsic: f32,
    /// r_NGU(x_{t-1}).
    pub ngu: f32,
    /// Its RND part.
    pub rnd: f32,
    /// Its episodic part.
    pub episodic: f32,
}

impl StepRewards {
    /// In the order of the network's features.
    fn in_order(&self) -> [f32; 4] {
        [self.extrinsic, self.ngu, self.rnd, self.episodic]
    }
}

/// Outputs of the networks, one row per environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActingOutput {
    /// Logits of the acting policy, `[rows][actions]`; empty without distillation.
    pub logits: Vec<f32>,
    /// Q_j(x_t, ·) of the acting policy, rescaled, `[rows][actions]`.
    pub q: Vec<f32>,
    /// f(x_t), `[rows][embedding]`.
    pub embedding: Vec<f32>,
    /// RND error of x_t.
    pub rnd_error: Vec<f32>,
    /// The recurrent state before the step, for the rows that want it.
    pub state_before: Vec<Option<Vec<f32>>>,
}

impl ActingOutput {
    /// Preferences that the greedy action maximises, `[rows][actions]`.
    ///
    /// The logits if the agent [acts by its policy](AgentConfig::acts_by_policy), else the values.
    pub fn preferences(&self, by_policy: bool) -> &[f32] {
        if by_policy { &self.logits } else { &self.q }
    }

    /// Returns the output if all of it is finite, so that no NaN chooses an action or reaches replay.
    fn checked(self) -> Result<Self> {
        let rows = self.rnd_error.len();
        let parts: [(&'static str, &[f32]); 4] = [
            ("an action value", &self.q),
            ("a logit of the policy", &self.logits),
            ("an element of f", &self.embedding),
            ("the RND error", &self.rnd_error),
        ];
        for (what, values) in parts {
            if let Some(i) = values.iter().position(|value| !value.is_finite()) {
                return Err(AgentError::NonFiniteOutput { what, value: values[i], row: i * rows / values.len() });
            }
        }
        Ok(self)
    }
}

/// The networks with their own copy of the parameters, for acting.
#[derive(Debug)]
pub struct ActingNetwork {
    backend: Backend,
    /// Descriptions of the networks.
    pub networks: Networks,
    parameters: NetworkParameters,
    /// β_j, `[policies, 1]`.
    beta: Tensor,
}

/// How a step is computed.
#[derive(Debug)]
enum Backend {
    Plain(Box<Plain>),
    /// Captured graphs on a GPU.
    Captured(Box<Captured>),
}

/// A step that has begun.
#[must_use = "`finish` returns the outputs"]
pub struct PendingStep<'a> {
    /// The outputs, unless they are pending.
    output: ActingOutput,
    pending: Option<(&'a mut Captured, PendingOutputs)>,
}

impl PendingStep<'_> {
    /// Waits for the outputs, which are all finite.
    pub fn finish(mut self) -> Result<ActingOutput> {
        match self.pending.take() {
            Some((captured, pending)) => captured.finish(pending)?.checked(),
            None => std::mem::take(&mut self.output).checked(),
        }
    }
}

impl Drop for PendingStep<'_> {
    fn drop(&mut self) {
        if let Some((captured, _)) = &mut self.pending {
            // The observations may be overwritten from now on. If waiting fails, the GPU is lost.
            let _ = captured.settle();
        }
    }
}

impl ActingNetwork {
    /// Networks with all parameters zero until [`refresh`](Self::refresh).
    pub fn new(config: &AgentConfig, observation: &ObservationSpec, actions: usize, device: Device) -> Result<Self> {
        let networks = Networks::new(config, observation, actions)?.on(config.network.precision, device)?;
        let beta = Tensor::f_from_slice(&config.policies.betas())?.f_to_kind(Kind::Float)?.f_view([-1, 1])?;
        if torch_ext::serves(device) && config.captures_acting() {
            let (captured, parameters, beta) = Captured::new(&networks, &beta, device)?;
            return Ok(Self { backend: Backend::Captured(Box::new(captured)), networks, parameters, beta });
        }
        let parameters = NetworkParameters::zeros(&networks, device)?;
        let backend = Backend::Plain(Box::new(Plain::new(&networks, &parameters)?));
        Ok(Self { backend, networks, parameters, beta: beta.f_to_device(device)? })
    }

    /// Allocates memory for observations that steps read directly: one set per entry of `rows`.
    pub fn observation_rows(&self, rows: &[usize]) -> Result<Vec<ObservationRows>> {
        let bytes = self.networks.input().spec().bytes();
        match &self.backend {
            Backend::Plain(_) => Ok(rows.iter().map(|&rows| ObservationRows::on_host(rows, bytes)).collect()),
            Backend::Captured(_) => ObservationRows::pinned(rows, bytes),
        }
    }

    /// Prepares for steps of up to `rows` rows of these states. On a GPU this cannot be done later, while other threads
    /// use it.
    pub fn prepare(&mut self, rows: usize, states: &RecurrentStates) -> Result<()> {
        match &mut self.backend {
            Backend::Captured(captured) => captured.capture(&self.networks, rows, states),
            _ => Ok(()),
        }
    }

    /// Copies newer parameters. A GPU must have finished computing them.
    pub fn refresh(&mut self, parameters: &NetworkParameters) -> Result<()> {
        let Self { backend, networks, parameters: own, beta } = self;
        match backend {
            Backend::Plain(plain) => {
                own.copy_from(parameters)?;
                **plain = Plain::new(networks, own)?;
                Ok(())
            }
            Backend::Captured(captured) => captured.refresh(networks, own, beta, parameters),
        }
    }

    /// Uploads observations ahead of their step.
    ///
    /// This saves time on a GPU for those in [`observation_rows`](Self::observation_rows); a step uploads whatever is
    /// missing. An upload serves one step; the last one of an environment counts.
    pub fn send(&mut self, observations: &[(usize, Observation<'_>)], states: &RecurrentStates) -> Result<()> {
        for (i, (environment, observation)) in observations.iter().enumerate() {
            let what = || format!("observation {i}");
            states.check(*environment, what)?;
            self.check_observation(observation, what)?;
        }
        match &mut self.backend {
            Backend::Captured(captured) if !observations.is_empty() => {
                captured.send(&self.networks, observations, states)
            }
            _ => Ok(()),
        }
    }

    /// Steps every row's environment, at most one row per environment, and updates the recurrent states.
    ///
    /// Rows do not influence one another. If it fails, the states are unchanged.
    pub fn step(&mut self, rows: &[ActingRow<'_>], states: &mut RecurrentStates) -> Result<ActingOutput> {
        self.begin(rows, states)?.finish()
    }

    /// Begins a step, so that the caller can begin one of another network before waiting for both. The two steps must
    /// not share an environment.
    pub fn begin(&mut self, rows: &[ActingRow<'_>], states: &mut RecurrentStates) -> Result<PendingStep<'_>> {
        self.check(rows, states)?;
        let mut step = PendingStep { output: ActingOutput::default(), pending: None };
        match &mut self.backend {
            _ if rows.is_empty() => {}
            Backend::Plain(plain) => step.output = plain.step(&self.networks, &self.beta, rows, states)?,
            Backend::Captured(captured) => {
                let pending = captured.begin(&self.networks, rows, states)?;
                step.pending = Some((captured, pending));
            }
        }
        Ok(step)
    }

    /// GPU time of the last finished step without copies; `None` without a GPU.
    pub fn device_milliseconds(&self) -> Result<Option<f64>> {
        match &self.backend {
            Backend::Plain(_) => Ok(None),
            Backend::Captured(captured) => captured.milliseconds().map(Some),
        }
    }

    fn check_observation(&self, observation: &Observation<'_>, what: impl FnOnce() -> String) -> Result<()> {
        check_length("observation", what, self.networks.input().spec().bytes(), observation.len())
    }

    fn check(&self, rows: &[ActingRow<'_>], states: &RecurrentStates) -> Result<()> {
        let mut used = vec![false; states.environments()];
        for (i, row) in rows.iter().enumerate() {
            let what = || format!("row {i}");
            let fail = |field, value: String, expected: String| {
                Err(AgentError::Value { field, place: what(), value, expected })
            };
            self.check_observation(&row.observation, what)?;
            check_length("embedding", what, self.networks.embedding_length, row.embedding.len())?;
            states.check(row.environment, what)?;
            if std::mem::replace(&mut used[row.environment], true) {
                return fail("environments", row.environment.to_string(), "different from the rows before".to_owned());
            }
            let actions = self.networks.actions;
            if row.action < 0 || row.action >= actions as i64 {
                return fail("action", row.action.to_string(), format!("an action, 0 to {}", actions - 1));
            }
            let policies = self.networks.policies;
            if row.policy >= policies {
                return fail("policy", row.policy.to_string(), format!("a policy, 0 to {}", policies - 1));
            }
            if let Some(kept) = row.kept_blocks {
                check_length("kept_blocks", what, self.networks.agent.droppable_blocks(), kept.len())?;
            }
            let names = ["reward_extrinsic", "reward_ngu", "reward_rnd", "reward_episodic"];
            for (field, reward) in names.into_iter().zip(row.rewards.in_order()) {
                if !reward.is_finite() {
                    return fail(field, reward.to_string(), "finite".to_owned());
                }
            }
            if let Some(element) = row.embedding.iter().find(|x| !x.is_finite()) {
                return fail("embedding", element.to_string(), "finite".to_owned());
            }
        }
        Ok(())
    }
}

fn check_length(field: &'static str, what: impl FnOnce() -> String, expected: usize, found: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(AgentError::Length { field, what: what(), expected, found }) }
}
