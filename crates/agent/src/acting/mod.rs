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
use crate::policy_family::beta_ladder;
use captured::{Captured, Going};
use plain::Plain;

pub use choice::{ChosenAction, choose_action, softmax};
pub use observations::{Observation, ObservationRows};
pub use states::RecurrentStates;

/// What the networks are told of one environment.
#[derive(Clone, Copy, Debug)]
pub struct ActingRow<'a> {
    /// Which recurrent state it goes on from.
    pub environment: usize,
    /// Whether an episode begins here: then the recurrent state does too, whatever it was.
    pub first: bool,
    /// Whether the recurrent state before the step is to be told.
    pub wants_state: bool,
    /// x_t.
    pub observation: Observation<'a>,
    /// a_{t-1}; 0 at an episode's start, as all that follows.
    pub action: i64,
    /// What a_{t-1} led to.
    pub rewards: StepRewards,
    /// f(x_{t-1}).
    pub embedding: &'a [f16],
    /// The policy that acts.
    pub policy: usize,
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
    /// As the network is fed them.
    fn in_order(&self) -> [f32; 4] {
        [self.extrinsic, self.ngu, self.rnd, self.episodic]
    }
}

/// What the networks say, one row for each environment.
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
    /// The recurrent state before the step, of the rows that want it.
    pub state_before: Vec<Option<Vec<f32>>>,
}

impl ActingOutput {
    /// What the acting policy is greedy to: logits, or action values without distillation. `[rows][actions]`.
    pub fn preferences(&self) -> &[f32] {
        if self.logits.is_empty() { &self.q } else { &self.logits }
    }

    /// The same, if all of it is finite: no action is chosen by a NaN, and none is remembered.
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

/// The networks with a copy of their parameters to act with.
#[derive(Debug)]
pub struct ActingNetwork {
    way: Way,
    networks: Networks,
    parameters: NetworkParameters,
    /// β_j, `[policies, 1]`.
    beta: Tensor,
}

/// How a step is computed.
#[derive(Debug)]
enum Way {
    Plain(Box<Plain>),
    /// On a GPU, as recorded graphs.
    Captured(Box<Captured>),
}

/// A step that has begun.
#[must_use = "a step's outcome is told by `finish`"]
pub struct Step<'a>(Progress<'a>);

enum Progress<'a> {
    Done(ActingOutput),
    Going { captured: &'a mut Captured, going: Going },
}

impl Step<'_> {
    /// Waits for its outcome, which is finite.
    pub fn finish(mut self) -> Result<ActingOutput> {
        let output = match std::mem::replace(&mut self.0, Progress::Done(ActingOutput::default())) {
            Progress::Done(output) => output,
            Progress::Going { captured, going } => captured.finish(going)?,
        };
        output.checked()
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let Progress::Going { captured, .. } = &mut self.0 {
            // Nobody wants the outcome, but the observations are to be written over. If waiting fails, the GPU is gone.
            let _ = captured.settle();
        }
    }
}

impl ActingNetwork {
    /// Networks whose parameters are still to be given by [`refresh`](Self::refresh).
    pub fn new(config: &AgentConfig, observation: &ObservationSpec, actions: usize, device: Device) -> Result<Self> {
        let networks = Networks::new(config, observation, actions)?.on(config.network.precision, device)?;
        let beta = beta_ladder(config.policies.count, config.policies.beta_max);
        let beta = Tensor::f_from_slice(&beta)?.f_to_kind(Kind::Float)?.f_view([-1, 1])?;
        if device.is_cuda() && torch_ext::available() {
            let (captured, parameters, beta) = Captured::new(&networks, &beta, device)?;
            return Ok(Self { way: Way::Captured(Box::new(captured)), networks, parameters, beta });
        }
        let parameters = NetworkParameters::zeros(&networks, device)?;
        let way = Way::Plain(Box::new(Plain::new(&networks, &parameters)?));
        Ok(Self { way, networks, parameters, beta: beta.f_to_device(device)? })
    }

    /// Descriptions of the networks.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Memory for observations that steps begin with: several sets of so many rows, for as many owners.
    pub fn observation_rows(&self, rows: &[usize]) -> Result<Vec<ObservationRows>> {
        let bytes = self.networks.input().spec().bytes();
        match &self.way {
            Way::Plain(_) => Ok(rows.iter().map(|&rows| ObservationRows::on_host(rows, bytes)).collect()),
            Way::Captured(_) => ObservationRows::pinned(rows, bytes),
        }
    }

    /// Gets ready for steps of up to `rows` rows of these states, so that none has to be got ready for later: on a GPU
    /// that can't be done while other threads work with it.
    pub fn prepare(&mut self, rows: usize, states: &RecurrentStates) -> Result<()> {
        match &mut self.way {
            Way::Captured(captured) => captured.record(&self.networks, rows, states),
            _ => Ok(()),
        }
    }

    /// Takes over newer parameters, which must be complete: if another thread has them computed on a GPU, it is done.
    pub fn refresh(&mut self, parameters: &NetworkParameters) -> Result<()> {
        let Self { way, networks, parameters: own, beta } = self;
        match way {
            Way::Plain(plain) => {
                own.copy_from(parameters)?;
                **plain = Plain::new(networks, own)?;
                Ok(())
            }
            Way::Captured(captured) => captured.refresh(networks, own, beta, parameters),
        }
    }

    /// Sends environments' observations to where steps are computed, so that they are there when the step begins that
    /// they are for. That saves time on a GPU, for those in [`observation_rows`](Self::observation_rows); a step sends
    /// whatever was not sent before. What was sent serves one step; of an environment's several the last one counts.
    pub fn send(&mut self, observations: &[(usize, Observation<'_>)], states: &RecurrentStates) -> Result<()> {
        for (i, (environment, observation)) in observations.iter().enumerate() {
            let what = || format!("observation {i}");
            states.check(*environment, what)?;
            self.check_observation(observation, what)?;
        }
        match &mut self.way {
            Way::Captured(captured) if !observations.is_empty() => captured.send(&self.networks, observations, states),
            _ => Ok(()),
        }
    }

    /// One step of every row's environment, no two rows the same: what the networks say, and the recurrent states moved
    /// on.
    ///
    /// Rows don't influence one another. If it fails, the states are as they were.
    pub fn step(&mut self, rows: &[ActingRow<'_>], states: &mut RecurrentStates) -> Result<ActingOutput> {
        self.begin(rows, states)?.finish()
    }

    /// Begins a step, so that the caller can begin one of another network before it waits for both. Their rows have
    /// states of their own.
    pub fn begin(&mut self, rows: &[ActingRow<'_>], states: &mut RecurrentStates) -> Result<Step<'_>> {
        self.check(rows, states)?;
        if rows.is_empty() {
            return Ok(Step(Progress::Done(ActingOutput::default())));
        }
        Ok(Step(match &mut self.way {
            Way::Plain(plain) => Progress::Done(plain.step(&self.networks, &self.beta, rows, states)?),
            Way::Captured(captured) => {
                let going = captured.begin(&self.networks, rows, states)?;
                Progress::Going { captured, going }
            }
        }))
    }

    /// How long the GPU took for the last finished step, copies to and from it left out; nothing without one.
    pub fn device_milliseconds(&self) -> Result<Option<f64>> {
        match &self.way {
            Way::Plain(_) => Ok(None),
            Way::Captured(captured) => captured.milliseconds().map(Some),
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
            check_length("embedding", what, self.networks.embedding_length(), row.embedding.len())?;
            states.check(row.environment, what)?;
            if std::mem::replace(&mut used[row.environment], true) {
                return fail("environments", row.environment.to_string(), "different from the rows before".to_owned());
            }
            let actions = self.networks.actions();
            if row.action < 0 || row.action >= actions as i64 {
                return fail("action", row.action.to_string(), format!("an action, 0 to {}", actions - 1));
            }
            let policies = self.networks.policies();
            if row.policy >= policies {
                return fail("policy", row.policy.to_string(), format!("a policy, 0 to {}", policies - 1));
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
