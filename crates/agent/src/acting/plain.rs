//! The reference step: ordinary forward passes, on any device.

use half::f16;
use tch::{Device, Kind, Tensor};

use super::{ActingOutput, ActingRow, RecurrentStates};
use crate::error::Result;
use crate::nets::agent_net::{DepthMask, NetInput};
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
            let mask = depth_mask(networks, rows, device)?;
            let output = networks.agent.unroll(&self.agent, &net_input, mask.as_ref())?;
            // [rows, 1, policies, actions] to the row of each environment's policy, if there are several.
            let policy = net_input.policy.f_view([count, 1, 1])?.f_expand([-1, 1, networks.actions as i64], false)?;
            let own = |x: &Tensor| -> Result<Vec<f32>> {
                let x = x.f_squeeze_dim(1)?;
                let x = if networks.head_policies() == 1 { x } else { x.f_gather(1, &policy, false)? };
                Ok(Vec::try_from(x.f_flatten(0, -1)?)?)
            };
            let beta = networks.beta_of_heads(beta, &net_input.policy)?;
            let frames = networks.input().prepare(&net_input.observations)?;
            let embedding = networks.action_prediction.embed(&self.action_prediction, &frames)?;
            let error = networks.rnd.error(&self.rnd_target, &self.rnd_predictor, &frames)?;
            let result = ActingOutput {
                logits: output.heads.policy.as_ref().map_or(Ok(vec![]), own)?,
                q: own(&output.heads.combined(&beta)?)?,
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
        policy: to_device(Tensor::f_from_slice(&rows.iter().map(|row| row.policy as i64).collect::<Vec<_>>())?)?,
    })
}

/// The stochastic-depth mask of rows that hold one.
fn depth_mask(networks: &Networks, rows: &[ActingRow<'_>], device: Device) -> Result<Option<DepthMask>> {
    if rows.iter().all(|row| row.kept_blocks.is_none()) {
        return Ok(None);
    }
    let blocks = networks.agent.droppable_blocks();
    let kept = |block: usize, row: &ActingRow<'_>| row.kept_blocks.is_none_or(|kept| kept[block]);
    let keep: Vec<f32> =
        (0..blocks).flat_map(|block| rows.iter().map(move |row| f32::from(kept(block, row)))).collect();
    let keep = Tensor::f_from_slice(&keep)?.f_view([blocks as i64, rows.len() as i64])?;
    networks.agent.depth_mask(&keep, 1, device).map(Some)
}
