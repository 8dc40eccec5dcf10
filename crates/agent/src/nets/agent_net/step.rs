//! One step of many environments without gradients: the same network in as few operations as possible.
//!
//! Every operation is a kernel that queues on a busy GPU, so their number matters more than their size. Consecutive
//! linear operations are folded once per refresh.

use tch::{Kind, Tensor};

use super::{AgentNet, ValueNetwork};
use crate::config::QCombination;
use crate::error::Result;
use crate::nets::core::{CellStates, FoldedCore};
use crate::nets::features::FoldedFeatures;
use crate::nets::heads::{FoldedHeads, FoldedOutputs, combine};
use crate::nets::parameters::{ParameterSet, Weights, overwrite};

/// Parameters as a step uses them.
#[derive(Debug)]
pub struct StepWeights {
    torso: Weights,
    /// Of each network.
    networks: Vec<FoldedNetwork>,
    /// β_j, `[policies, 1]`.
    beta: Tensor,
}

/// Weights of a network behind its torso.
#[derive(Debug)]
struct FoldedNetwork {
    features: FoldedFeatures,
    core: FoldedCore,
    heads: FoldedHeads,
}

/// Input of a step, one row per environment.
#[derive(Debug)]
pub struct StepInput {
    /// Observations as uploaded, `[rows, values]`.
    pub observations: Tensor,
    /// The previous action one-hot, the rescaled rewards and the embedding, `[rows, ..]` in f32.
    pub features: Tensor,
    /// Recurrent states before the step, and the table for those after it.
    pub states: CellStates,
    /// Each row's policy, `[rows]`, i64.
    pub policy: Tensor,
}

/// Outputs for each row's policy, `[rows, actions]` in f32.
#[derive(Debug)]
pub struct StepOutput {
    /// Q_j, rescaled.
    pub q: Tensor,
    /// Logits, with distillation.
    pub logits: Option<Tensor>,
}

impl StepWeights {
    /// Copies newer values in place.
    pub fn copy_from(&mut self, newer: &Self) -> Result<()> {
        self.torso.copy_from(&newer.torso)?;
        for (mine, newer) in self.folded().into_iter().zip(newer.folded()) {
            overwrite(mine, newer)?;
        }
        Ok(())
    }

    fn folded(&self) -> Vec<&Tensor> {
        let mut tensors = vec![];
        for FoldedNetwork { features, core, heads } in &self.networks {
            tensors.extend([features.tensors(), core.tensors(), heads.tensors()].concat());
        }
        tensors
    }
}

impl AgentNet {
    /// Element type behind the torso.
    fn step_kind(&self) -> Kind {
        if self.mixed { Kind::Half } else { Kind::Float }
    }

    /// The parameters as a step uses them; `beta` is β_j, `[policies, 1]`.
    pub fn fold(&self, parameters: &ParameterSet, beta: &Tensor) -> Result<StepWeights> {
        let plain = parameters.weights();
        let mut torso = parameters.weights();
        let kind = self.step_kind();
        // The sum of two heads of one network folds into their weights, unless β_j depends on the row.
        let folds_sum = self.combination == QCombination::Sum && self.networks[0].one_hot == 0;
        let mut networks = vec![];
        for (number, network) in self.networks.iter().enumerate() {
            network.prepare_torso(&mut torso, number)?;
            networks.push(FoldedNetwork {
                features: network.features.fold(&plain)?,
                core: network.core.fold(&plain, kind)?,
                heads: network.heads.fold(&plain, folds_sum.then_some(beta), kind)?,
            });
        }
        Ok(StepWeights { torso, networks, beta: beta.shallow_clone() })
    }

    /// Computes the rows' outputs and updates their recurrent states.
    pub fn step(&self, weights: &StepWeights, input: &StepInput) -> Result<StepOutput> {
        let (mut values, mut logits, mut first) = (vec![], None, 0);
        for number in 0..self.networks.len() {
            let outputs = self.step_network(number, weights, input, first)?;
            values.extend(outputs.values);
            logits = logits.or(outputs.policy);
            first += self.networks[number].core.state_length();
        }
        let rows = input.observations.size()[0];
        let heads = &self.networks[0].heads.sizes;
        let own = |x: &Tensor| -> Result<Tensor> {
            if heads.policies == 1 {
                return Ok(x.f_view([rows, heads.actions])?);
            }
            let x = x.f_view([rows, heads.policies, -1])?;
            let policy = input.policy.f_view([rows, 1, 1])?.f_expand([-1, 1, x.size()[2]], false)?;
            Ok(x.f_gather(1, &policy, false)?.f_squeeze_dim(1)?)
        };
        let values = values.iter().map(own).collect::<Result<Vec<_>>>()?;
        let q = match &values[..] {
            [extrinsic, intrinsic] => {
                let beta = weights.beta.f_index_select(0, &input.policy)?;
                combine(self.combination, extrinsic, intrinsic, &beta)?
            }
            one => one[0].shallow_clone(),
        };
        Ok(StepOutput { q, logits: logits.as_ref().map(own).transpose()? })
    }

    /// The heads' outputs of a network, whose recurrent state begins at `first`.
    fn step_network(
        &self,
        number: usize,
        weights: &StepWeights,
        input: &StepInput,
        first: i64,
    ) -> Result<FoldedOutputs> {
        let network: &ValueNetwork = &self.networks[number];
        let FoldedNetwork { features, core, heads } = &weights.networks[number];
        let (rows, device) = (input.observations.size()[0], input.observations.device());
        let widths = [network.core.width(), network.torso.outputs, network.features.outputs, network.one_hot];
        // First h before the step and the core's input; then h after it replaces h, which gives the heads' input.
        let x = Tensor::f_empty([rows, widths.iter().sum()], (self.step_kind(), device))?;
        let part = |i: usize| x.f_narrow(1, widths[..i].iter().sum(), widths[i]);
        part(1)?.f_copy_(&self.torso_of_frames(&weights.torso, number, &input.observations, None)?)?;
        part(2)?.f_copy_(&network.features.step(features, &input.features)?)?;
        if network.one_hot > 0 {
            let policies = Tensor::f_arange(network.one_hot, (Kind::Int64, device))?;
            part(3)?.f_copy_(&input.policy.f_unsqueeze(1)?.f_eq_tensor(&policies)?)?;
        }
        self.step_core(network, core, &x, &input.states, first)?;
        let x = if network.head_skip { x } else { x.f_narrow(1, 0, widths[0])?.f_contiguous()? };
        network.heads.forward_folded(heads, &x)
    }

    /// Steps a network's core. Beside another network's, its states are a part of each row, which no kernel writes to: they
    /// take a detour.
    fn step_core(
        &self,
        network: &ValueNetwork,
        core: &FoldedCore,
        x: &Tensor,
        states: &CellStates,
        first: i64,
    ) -> Result<()> {
        if self.networks.len() == 1 {
            return network.core.step(core, x, states);
        }
        let part = |states: &Tensor| states.f_narrow(1, first, network.core.state_length());
        let (rows, before) = (x.size()[0], part(&states.before)?.f_contiguous()?);
        let table = before.f_zeros_like()?;
        let own = CellStates { before, table, places: Tensor::f_arange(rows, (Kind::Int64, x.device()))? };
        network.core.step(core, x, &own)?;
        let _ = part(&states.table)?.f_index_copy_(0, &states.places, &own.table)?;
        Ok(())
    }
}
