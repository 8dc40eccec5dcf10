//! One step of many environments without gradients: the same network in as few operations as possible.
//!
//! Every operation is a kernel that queues on a busy GPU, so their number matters more than their size. Consecutive
//! linear operations are folded once per refresh.

use tch::{Kind, Tensor};

use super::{AgentNet, Compute};
use crate::error::Result;
use crate::nets::core::{CellStates, FoldedCore};
use crate::nets::heads::FoldedHeads;
use crate::nets::layers::linear_relu;
use crate::nets::parameters::{ParameterSet, Weights, overwrite};

/// Parameters as a step uses them.
#[derive(Debug)]
pub struct StepWeights {
    torso: Weights,
    features: [Tensor; 2],
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
        let mut tensors: Vec<_> = self.features.iter().collect();
        tensors.extend(self.core.tensors());
        tensors.extend(self.heads.tensors());
        tensors
    }
}

impl AgentNet {
    /// Element type behind the torso.
    fn step_kind(&self) -> Kind {
        match self.compute {
            Compute::Plain => Kind::Float,
            Compute::Mixed { .. } => Kind::Half,
        }
    }

    /// The parameters as a step uses them; `beta` is β_j, `[policies, 1]`.
    pub fn fold(&self, parameters: &ParameterSet, beta: &Tensor) -> Result<StepWeights> {
        let plain = parameters.weights();
        let mut torso = parameters.weights();
        match &self.compute {
            Compute::Mixed { torso: Some(fused) } => torso.packed.torso = Some(fused.prepare(&torso.flat)?),
            _ => self.torso.prepare(&mut torso)?,
        }
        let kind = self.step_kind();
        Ok(StepWeights {
            torso,
            features: self.features.fold(&plain)?,
            core: self.core.fold(&plain, kind)?,
            heads: self.heads.fold(&plain, beta, kind)?,
        })
    }

    /// Computes the rows' outputs and updates their recurrent states.
    pub fn step(&self, weights: &StepWeights, input: &StepInput) -> Result<StepOutput> {
        let rows = input.observations.size()[0];
        let device = input.observations.device();
        let [torso_width, features_width, width] = [self.torso.outputs, self.features.outputs, self.core.width()];
        // First h before the step and the core's input; then h after it replaces h, which gives the heads' input.
        let x = Tensor::f_empty([rows, width + torso_width + features_width], (self.step_kind(), device))?;
        let part = |start, length| x.f_narrow(1, start, length);
        let torso = self.torso_of_frames(&weights.torso, &input.observations, None)?;
        part(width, torso_width)?.f_copy_(&torso)?;
        let [weight, bias] = &weights.features;
        let features = linear_relu(&input.features, weight, bias)?;
        part(width + torso_width, features_width)?.f_copy_(&features)?;
        self.core.step(&weights.core, &x, &input.states)?;
        let outputs = self.heads.forward_folded(&weights.heads, &x)?;
        let own = |x: &Tensor| -> Result<Tensor> {
            let x = x.f_view([rows, self.heads.sizes.policies, -1])?;
            let policy = input.policy.f_view([rows, 1, 1])?.f_expand([-1, 1, x.size()[2]], false)?;
            Ok(x.f_gather(1, &policy, false)?.f_squeeze_dim(1)?)
        };
        Ok(StepOutput { q: own(&outputs.q)?, logits: outputs.policy.as_ref().map(own).transpose()? })
    }
}
