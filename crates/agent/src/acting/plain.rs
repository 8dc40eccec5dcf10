//! The reference step: ordinary forward passes, on any device.

use half::f16;
use tch::{Device, Kind, Tensor};

use super::{ActingOutput, ActingRow, RecurrentStates};
use crate::error::Result;
use crate::nets::agent_net::NetInput;
use crate::nets::features::FeatureInput;
use crate::nets::parameters::Weights;
use crate::networks::{NetworkParameters, Networks};

/// Weights derived from the parameters, once per refresh.
#[derive(Debug)]
pub(super) struct Plain {
    agent: Weights,
    action_prediction: Weights,
    rnd_target: Weights,
    rnd_predictor: Weights,
}

impl Plain {
    pub fn new(networks: &Networks, parameters: &NetworkParameters) -> Result<Self> {
        Ok(Self {
            agent: tch::no_grad(|| networks.agent.prepare(&parameters.agent))?,
            action_prediction: parameters.action_prediction.weights(),
            rnd_target: parameters.rnd_target.weights(),
            rnd_predictor: parameters.rnd_predictor.weights(),
        })
    }

    /// Steps checked rows, at least one.
    pub fn step(
        &self,
        networks: &Networks,
        beta: &Tensor,
        rows: &[ActingRow<'_>],
        states: &mut RecurrentStates,
    ) -> Result<ActingOutput> {
        let device = beta.device();
        let count = rows.len() as i64;
        tch::no_grad(|| {
            let index =
                |values: Vec<i64>| -> Result<Tensor> { Ok(Tensor::f_from_slice(&values)?.f_to_device(device)?) };
            let environments = index(rows.iter().map(|row| row.environment as i64).collect())?;
            let before = states.table.f_index_select(0, &environments)?;
            let mut state_before = Vec::with_capacity(rows.len());
            for (i, row) in rows.iter().enumerate() {
                let mut state = before.f_select(0, i as i64)?;
                if row.first {
                    let _ = state.f_zero_()?;
                }
                state_before.push(if row.wants_state { Some(Vec::try_from(state)?) } else { None });
            }
            let net_input = upload(networks, rows, before, device)?;
            let output = networks.agent.unroll(&self.agent, &net_input, None)?;
            // [rows, 1, policies, actions] to the row of each environment's policy.
            let policy = index(rows.iter().map(|row| row.policy as i64).collect())?;
            let policy = policy.f_view([count, 1, 1])?.f_expand([-1, 1, networks.actions as i64], false)?;
            let own = |x: &Tensor| -> Result<Vec<f32>> {
                Ok(Vec::try_from(x.f_squeeze_dim(1)?.f_gather(1, &policy, false)?.f_flatten(0, -1)?)?)
            };
            let frames = networks.input().prepare(&net_input.observations)?;
            let embedding = networks.action_prediction.embed(&self.action_prediction, &frames)?;
            let error = networks.rnd.error(&self.rnd_target, &self.rnd_predictor, &frames)?;
            let result = ActingOutput {
                logits: output.heads.policy.as_ref().map_or(Ok(vec![]), own)?,
                q: own(&output.heads.combined(beta)?)?,
                embedding: Vec::try_from(embedding.f_flatten(0, -1)?)?,
                rnd_error: Vec::try_from(error)?,
                state_before,
            };
            let _ = states.table.shallow_clone().f_index_copy_(0, &environments, &output.state)?;
            Ok(result)
        })
    }
}

fn upload(networks: &Networks, rows: &[ActingRow<'_>], state: Tensor, device: Device) -> Result<NetInput> {
    let observations: Vec<u8> = rows.iter().flat_map(|row| row.observation.iter()).copied().collect();
    let action: Vec<i64> = rows.iter().map(|row| row.action).collect();
    let rewards: Vec<f32> = rows.iter().flat_map(|row| row.rewards.in_order()).collect();
    let embedding: Vec<f16> = rows.iter().flat_map(|row| row.embedding).copied().collect();
    let to_device = |tensor: Tensor| tensor.f_to_device(device);
    let by_row = |tensor: Tensor| tensor.f_view([rows.len() as i64, -1]);
    Ok(NetInput {
        observations: networks.input().upload(&observations, rows.len(), device)?,
        features: FeatureInput {
            action: to_device(Tensor::f_from_slice(&action)?)?,
            rewards: to_device(by_row(Tensor::f_from_slice(&rewards)?)?)?,
            embedding: to_device(by_row(Tensor::f_from_slice(&embedding)?)?)?.f_to_kind(Kind::Float)?,
        },
        state,
    })
}
