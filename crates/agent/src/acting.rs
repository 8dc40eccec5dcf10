//! Acting: one step of many environments through the networks, without gradients.

use half::f16;
use tch::{Device, Kind, Tensor};

use crate::config::AgentConfig;
use crate::error::{AgentError, Result};
use crate::math::ladders::beta_ladder;
use crate::math::policy::argmax;
use crate::nets::agent_net::NetInput;
use crate::nets::features::FeatureInput;
use crate::nets::parameters::Weights;
use crate::networks::{NetworkParameters, Networks};
use crate::observation::ObservationSpec;
use crate::tensor_file::TensorFile;
use crate::weights::import;

/// What the networks are told of a number of environments, one row each.
#[derive(Clone, Copy, Debug)]
pub struct ActingInput<'a> {
    /// Which recurrent state each row goes on from; no two rows the same.
    pub environments: &'a [usize],
    /// x_t, `[rows][observation bytes]`.
    pub observations: &'a [u8],
    /// a_{t-1}; 0 at an episode's start, as all that follows.
    pub action: &'a [i64],
    /// r_e,t-1.
    pub reward_extrinsic: &'a [f32],
    /// r_NGU(x_{t-1}).
    pub reward_ngu: &'a [f32],
    /// Its RND part.
    pub reward_rnd: &'a [f32],
    /// Its episodic part.
    pub reward_episodic: &'a [f32],
    /// f(x_{t-1}), `[rows][embedding]`.
    pub embedding: &'a [f16],
    /// The policy that acts.
    pub policy: &'a [usize],
}

/// What the networks say, one row for each environment.
#[derive(Clone, Debug, PartialEq)]
pub struct ActingOutput {
    /// Logits of the acting policy, `[rows][actions]`; empty without distillation.
    pub logits: Vec<f32>,
    /// Q_j(x_t, ·) of the acting policy, rescaled, `[rows][actions]`.
    pub q: Vec<f32>,
    /// f(x_t), `[rows][embedding]`.
    pub embedding: Vec<f32>,
    /// RND error of x_t.
    pub rnd_error: Vec<f32>,
}

impl ActingOutput {
    /// What the acting policy is greedy to: logits, or action values without distillation. `[rows][actions]`.
    pub fn preferences(&self) -> &[f32] {
        if self.logits.is_empty() { &self.q } else { &self.logits }
    }
}

/// Recurrent states of a number of environments, kept beside the networks.
#[derive(Debug)]
pub struct RecurrentStates {
    /// `[environments, state]`.
    table: Tensor,
}

impl RecurrentStates {
    /// All at an episode's start.
    pub fn new(networks: &Networks, environments: usize, device: Device) -> Result<Self> {
        let size = [environments as i64, networks.state_length() as i64];
        Ok(Self { table: Tensor::f_zeros(size, (Kind::Float, device))? })
    }

    /// Number of environments.
    pub fn environments(&self) -> usize {
        self.table.size()[0] as usize
    }

    /// Puts an environment at an episode's start.
    pub fn reset(&mut self, environment: usize) -> Result<()> {
        let _ = self.row(environment)?.f_zero_()?;
        Ok(())
    }

    /// The state of an environment, h then c.
    pub fn read(&self, environment: usize) -> Result<Vec<f32>> {
        Ok(Vec::try_from(self.row(environment)?)?)
    }

    /// Sets the state of an environment.
    pub fn write(&mut self, environment: usize, state: &[f32]) -> Result<()> {
        let (expected, found) = (self.table.size()[1] as usize, state.len());
        if expected != found {
            let what = "a recurrent state".to_owned();
            return Err(AgentError::Length { field: "state", what, expected, found });
        }
        Ok(self.row(environment)?.f_copy_(&Tensor::f_from_slice(state)?)?)
    }

    fn row(&self, environment: usize) -> Result<Tensor> {
        self.check(environment, "environment".to_owned())?;
        Ok(self.table.f_select(0, environment as i64)?)
    }

    fn check(&self, environment: usize, place: String) -> Result<()> {
        let environments = self.environments();
        if environment < environments {
            return Ok(());
        }
        let expected = format!("one of {environments} environments");
        Err(AgentError::Value { field: "environments", place, value: environment.to_string(), expected })
    }
}

/// The networks with a copy of their parameters to act with.
#[derive(Debug)]
pub struct ActingNetwork {
    networks: Networks,
    parameters: NetworkParameters,
    /// β_j, `[policies, 1]`.
    beta: Tensor,
    prepared: Prepared,
    device: Device,
}

/// What was derived from the parameters, once a refresh.
#[derive(Debug)]
struct Prepared {
    agent: Weights,
    action_prediction: Weights,
    rnd_target: Weights,
    rnd_predictor: Weights,
}

impl Prepared {
    fn new(networks: &Networks, parameters: &NetworkParameters) -> Result<Self> {
        Ok(Self {
            agent: tch::no_grad(|| networks.agent.prepare(&parameters.agent))?,
            action_prediction: parameters.action_prediction.weights(),
            rnd_target: parameters.rnd_target.weights(),
            rnd_predictor: parameters.rnd_predictor.weights(),
        })
    }
}

impl ActingNetwork {
    /// Networks whose parameters are still to be given by [`refresh`](Self::refresh) or
    /// [`load_weights`](Self::load_weights).
    pub fn new(config: &AgentConfig, observation: &ObservationSpec, actions: usize, device: Device) -> Result<Self> {
        let networks = Networks::new(config, observation, actions)?.on(config.network.precision, device)?;
        let parameters = NetworkParameters::zeros(&networks, device)?;
        let beta = beta_ladder(config.policies.count, config.policies.beta_max);
        let beta = Tensor::f_from_slice(&beta)?.f_to_kind(Kind::Float)?.f_view([-1, 1])?.f_to_device(device)?;
        let prepared = Prepared::new(&networks, &parameters)?;
        Ok(Self { networks, parameters, beta, prepared, device })
    }

    /// Descriptions of the networks.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Takes over newer parameters.
    pub fn refresh(&mut self, parameters: &NetworkParameters) -> Result<()> {
        self.parameters.copy_from(parameters)?;
        self.prepared = Prepared::new(&self.networks, &self.parameters)?;
        Ok(())
    }

    /// Takes over the parameters of a safetensors file.
    pub fn load_weights(&mut self, file: &TensorFile) -> Result<()> {
        import(file, &mut self.parameters.sets_mut().map(|set| ("", set)))?;
        self.prepared = Prepared::new(&self.networks, &self.parameters)?;
        Ok(())
    }

    /// One step of every row's environment: what the networks say, and the recurrent states moved on.
    ///
    /// Rows don't influence one another. If it fails, the states are as they were.
    pub fn step(&self, input: &ActingInput<'_>, states: &mut RecurrentStates) -> Result<ActingOutput> {
        self.check(input, states)?;
        let rows = input.environments.len();
        if rows == 0 {
            return Ok(ActingOutput { logits: vec![], q: vec![], embedding: vec![], rnd_error: vec![] });
        }
        tch::no_grad(|| {
            let index = |values: &[usize]| -> Result<Tensor> {
                let values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
                Ok(Tensor::f_from_slice(&values)?.f_to_device(self.device)?)
            };
            let environments = index(input.environments)?;
            let net_input = self.upload(input, &states.table.f_index_select(0, &environments)?)?;
            let output = self.networks.agent.unroll(&self.prepared.agent, &net_input, None)?;
            // [rows, 1, policies, actions] to the row of each environment's policy.
            let actions = self.networks.actions() as i64;
            let policy = index(input.policy)?.f_view([rows as i64, 1, 1])?.f_expand([-1, 1, actions], false)?;
            let own = |x: &Tensor| -> Result<Vec<f32>> {
                Ok(Vec::try_from(x.f_squeeze_dim(1)?.f_gather(1, &policy, false)?.f_flatten(0, -1)?)?)
            };
            let frames = self.networks.input().prepare(&net_input.observations)?;
            let (f, rnd) = (&self.networks.action_prediction, &self.networks.rnd);
            let embedding = f.embed(&self.prepared.action_prediction, &frames)?;
            let error = rnd.error(&self.prepared.rnd_target, &self.prepared.rnd_predictor, &frames)?;
            let result = ActingOutput {
                logits: output.heads.policy.as_ref().map_or(Ok(vec![]), own)?,
                q: own(&output.heads.combined(&self.beta)?)?,
                embedding: Vec::try_from(embedding.f_flatten(0, -1)?)?,
                rnd_error: Vec::try_from(error)?,
            };
            let _ = states.table.f_index_copy_(0, &environments, &output.state)?;
            Ok(result)
        })
    }

    fn upload(&self, input: &ActingInput<'_>, state: &Tensor) -> Result<NetInput> {
        let rows = input.environments.len();
        let rewards: Vec<f32> = (0..rows)
            .flat_map(|row| {
                [input.reward_extrinsic, input.reward_ngu, input.reward_rnd, input.reward_episodic].map(|r| r[row])
            })
            .collect();
        let to_device = |tensor: Tensor| tensor.f_to_device(self.device);
        let embedding = Tensor::f_from_slice(input.embedding)?.f_view([rows as i64, -1])?;
        Ok(NetInput {
            observations: self.networks.input().upload(input.observations, rows, self.device)?,
            features: FeatureInput {
                action: to_device(Tensor::f_from_slice(input.action)?)?,
                rewards: to_device(Tensor::f_from_slice(&rewards)?.f_view([rows as i64, -1])?)?,
                embedding: to_device(embedding)?.f_to_kind(Kind::Float)?,
            },
            state: state.shallow_clone(),
        })
    }

    fn check(&self, input: &ActingInput<'_>, states: &RecurrentStates) -> Result<()> {
        let rows = input.environments.len();
        let length = |field, found: usize, expected: usize| {
            let what = format!("{rows} rows");
            if found == expected { Ok(()) } else { Err(AgentError::Length { field, what, expected, found }) }
        };
        length("observations", input.observations.len(), rows * self.networks.input().spec().bytes())?;
        length("action", input.action.len(), rows)?;
        length("reward_extrinsic", input.reward_extrinsic.len(), rows)?;
        length("reward_ngu", input.reward_ngu.len(), rows)?;
        length("reward_rnd", input.reward_rnd.len(), rows)?;
        length("reward_episodic", input.reward_episodic.len(), rows)?;
        length("embedding", input.embedding.len(), rows * self.networks.embedding_length())?;
        length("policy", input.policy.len(), rows)?;
        let mut used = vec![false; states.environments()];
        for row in 0..rows {
            let fail = |field, value: String, expected: String| {
                Err(AgentError::Value { field, place: format!("row {row}"), value, expected })
            };
            let environment = input.environments[row];
            states.check(environment, format!("row {row}"))?;
            if std::mem::replace(&mut used[environment], true) {
                return fail("environments", environment.to_string(), "different from the rows before".to_owned());
            }
            let (action, actions) = (input.action[row], self.networks.actions());
            if action < 0 || action >= actions as i64 {
                return fail("action", action.to_string(), format!("an action, 0 to {}", actions - 1));
            }
            let (policy, policies) = (input.policy[row], self.networks.policies());
            if policy >= policies {
                return fail("policy", policy.to_string(), format!("a policy, 0 to {}", policies - 1));
            }
            for (field, reward) in [
                ("reward_extrinsic", input.reward_extrinsic[row]),
                ("reward_ngu", input.reward_ngu[row]),
                ("reward_rnd", input.reward_rnd[row]),
                ("reward_episodic", input.reward_episodic[row]),
            ] {
                if !reward.is_finite() {
                    return fail(field, reward.to_string(), "finite".to_owned());
                }
            }
            let length = self.networks.embedding_length();
            let embedding = &input.embedding[row * length..(row + 1) * length];
            if let Some(element) = embedding.iter().find(|x| !x.is_finite()) {
                return fail("embedding", element.to_string(), "finite".to_owned());
            }
        }
        Ok(())
    }
}

/// An action and the probability that it had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenAction {
    /// The action.
    pub action: usize,
    /// μ(a|x), the behaviour probability.
    pub probability: f32,
}

/// ε-greedy on one row of [`ActingOutput::preferences`]: with probability ε a uniform action, else the first best.
///
/// `uniforms` are two draws from [0, 1): whether to explore, and where to.
pub fn choose_action(preferences: &[f32], epsilon: f64, uniforms: [f64; 2]) -> ChosenAction {
    let actions = preferences.len();
    let greedy = argmax(preferences);
    let explored = ((uniforms[1] * actions as f64) as usize).min(actions.saturating_sub(1));
    let action = if uniforms[0] < epsilon { explored } else { greedy };
    let spread = epsilon / actions as f64;
    let probability = if action == greedy { 1.0 - epsilon + spread } else { spread };
    ChosenAction { action, probability: probability as f32 }
}
