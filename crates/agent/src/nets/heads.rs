//! Dueling action values and the policy, for all N policies of the family at once, or for the one given to the core.

mod folded;

use tch::{Kind, Tensor};

use super::layers::{LayerInit, Linear};
use super::parameters::{Scope, Weights};
use crate::config::{LossConfig, QCombination, QHeads, ValueNetworks};
use crate::error::Result;
use crate::rescaling::{rescale, unscale};

pub use folded::{FoldedHeads, FoldedOutputs};

/// One or two hidden layers and an output.
#[derive(Clone, Copy, Debug)]
struct HeadMlp {
    hidden1: Linear,
    hidden2: Option<Linear>,
    output: Linear,
}

impl HeadMlp {
    fn new(mut scope: Scope<'_>, sizes: &HeadSizes, outputs: i64) -> Self {
        let HeadSizes { inputs, hidden, layers, .. } = *sizes;
        let mut linear = |name, inputs, outputs| Linear::new(scope.scope(name), inputs, outputs, LayerInit::FanIn);
        Self {
            hidden1: linear("hidden1", inputs, hidden),
            hidden2: (layers > 1).then(|| linear("hidden2", hidden, hidden)),
            output: linear("output", hidden, outputs),
        }
    }

    fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let mut x = self.hidden1.forward(weights, x)?.f_relu()?;
        if let Some(hidden2) = &self.hidden2 {
            x = hidden2.forward(weights, &x)?.f_relu()?;
        }
        self.output.forward(weights, &x)
    }
}

/// Q(x, a) = V(x) + A(x, a) - mean_a A(x, a).
#[derive(Clone, Copy, Debug)]
struct Dueling {
    value: HeadMlp,
    advantage: HeadMlp,
}

/// Sizes that all heads share.
#[derive(Clone, Copy, Debug)]
pub struct HeadSizes {
    /// Length of the heads' input.
    pub inputs: i64,
    /// Width of the hidden layers.
    pub hidden: i64,
    /// Number of hidden layers.
    pub layers: usize,
    /// Number of policies that a head has outputs for.
    pub policies: i64,
    /// Number of actions.
    pub actions: i64,
}

/// The heads that a network has.
#[derive(Clone, Debug)]
pub struct HeadNames {
    /// Value heads, by name.
    pub values: Vec<&'static str>,
    /// Whether there is a policy head.
    pub policy: bool,
}

impl HeadNames {
    /// The heads that a loss trains, of each network.
    pub fn of(loss: &LossConfig, networks: ValueNetworks) -> Vec<Self> {
        let heads = |values, policy| Self { values, policy };
        match (loss.q_heads, networks) {
            (QHeads::Single, _) => vec![heads(vec![EXTRINSIC], loss.distillation)],
            (_, ValueNetworks::Shared) => vec![heads(vec![EXTRINSIC, INTRINSIC], loss.distillation)],
            (_, ValueNetworks::Separate) => {
                vec![heads(vec![EXTRINSIC], loss.distillation), heads(vec![INTRINSIC], false)]
            }
        }
    }
}

const EXTRINSIC: &str = "extrinsic";
const INTRINSIC: &str = "intrinsic";

/// All heads of a network. Heads that no loss trains are absent.
#[derive(Clone, Debug)]
pub struct Heads {
    values: Vec<Dueling>,
    policy: Option<HeadMlp>,
    /// Sizes that all heads share.
    pub sizes: HeadSizes,
}

/// Outputs of the heads, each `[.., policies, actions]`.
#[derive(Debug)]
pub struct HeadOutputs {
    /// Rescaled extrinsic action values, or those of the only head.
    pub extrinsic: Tensor,
    /// Rescaled intrinsic action values.
    pub intrinsic: Option<Tensor>,
    /// Logits of the policies.
    pub policy: Option<Tensor>,
    /// How the two add up to Q_j.
    pub combination: QCombination,
}

/// Q_j from both heads' rescaled values, with β broadcast over them.
///
/// As a sum, Qe + β_j Qi, the gradient into Qi is β_j times that into Qe, so the extrinsic head learns the intrinsic
/// values of exploring policies too. As returns, h(h⁻¹(Qe) + β_j h⁻¹(Qi)), each head can hold the return of its own
/// reward.
pub(super) fn combine(
    combination: QCombination,
    extrinsic: &Tensor,
    intrinsic: &Tensor,
    beta: &Tensor,
) -> Result<Tensor> {
    match combination {
        QCombination::Sum => Ok(extrinsic.f_add(&intrinsic.f_mul(beta)?)?),
        QCombination::Returns => rescale(&unscale(extrinsic)?.f_add(&unscale(intrinsic)?.f_mul(beta)?)?),
    }
}

impl HeadOutputs {
    /// The same values without gradient.
    pub fn detach(&self) -> Result<Self> {
        let detach = |x: &Option<Tensor>| x.as_ref().map(Tensor::f_detach).transpose();
        Ok(Self {
            extrinsic: self.extrinsic.f_detach()?,
            intrinsic: detach(&self.intrinsic)?,
            policy: detach(&self.policy)?,
            combination: self.combination,
        })
    }

    /// Q_j, with β broadcast to the values; the extrinsic head's values where it is the only one.
    pub fn combined(&self, beta: &Tensor) -> Result<Tensor> {
        match &self.intrinsic {
            Some(intrinsic) => combine(self.combination, &self.extrinsic, intrinsic, beta),
            None => Ok(self.extrinsic.shallow_clone()),
        }
    }
}

impl Heads {
    /// Declares the heads with these names.
    pub fn new(mut scope: Scope<'_>, sizes: HeadSizes, names: &HeadNames) -> Self {
        let HeadSizes { policies, actions, .. } = sizes;
        let mut dueling = |name: &&str| {
            let mut scope = scope.scope(name);
            Dueling {
                value: HeadMlp::new(scope.scope("value"), &sizes, policies),
                advantage: HeadMlp::new(scope.scope("advantage"), &sizes, policies * actions),
            }
        };
        let values = names.values.iter().map(&mut dueling).collect();
        let policy = names.policy.then(|| HeadMlp::new(scope.scope("policy"), &sizes, policies * actions));
        Self { values, policy, sizes }
    }

    /// Those of the action values, the value's before its advantage's, then the policy's.
    fn mlps(&self) -> Vec<HeadMlp> {
        self.values.iter().flat_map(|head| [head.value, head.advantage]).chain(self.policy).collect()
    }

    /// Lets the hidden layers compute in `kind`; the output layers stay in f32.
    pub fn convert(&self, weights: &mut Weights, kind: Kind) -> Result<()> {
        for layer in self.mlps().iter().flat_map(|mlp| [Some(mlp.hidden1), mlp.hidden2]).flatten() {
            layer.convert(weights, kind)?;
        }
        Ok(())
    }

    /// `[.., inputs]` to the action values of each value head, and logits.
    pub fn forward(&self, weights: &Weights, x: &Tensor) -> Result<(Vec<Tensor>, Option<Tensor>)> {
        let mut shape = x.size();
        shape.pop();
        shape.extend([self.sizes.policies, self.sizes.actions]);
        let dueling = |head: &Dueling| -> Result<Tensor> {
            let value = head.value.forward(weights, x)?.f_unsqueeze(-1)?;
            let advantage = head.advantage.forward(weights, x)?.f_view(&shape[..])?;
            let mean = advantage.f_mean_dim(&[-1i64][..], true, Kind::Float)?;
            Ok(advantage.f_sub(&mean)?.f_add(&value)?)
        };
        let policy = match &self.policy {
            Some(mlp) => Some(mlp.forward(weights, x)?.f_view(&shape[..])?),
            None => None,
        };
        Ok((self.values.iter().map(dueling).collect::<Result<_>>()?, policy))
    }
}
