//! Dueling action values and the policy, for all N policies of the family at once.

mod folded;

use tch::{Kind, Tensor};

use super::layers::{LayerInit, Linear};
use super::parameters::{Scope, Weights};
use crate::config::{LossConfig, QCombination, QHeads};
use crate::error::Result;
use crate::rescaling::{rescale, unscale};

pub use folded::{FoldedHeads, FoldedOutputs};

/// Two hidden layers and an output.
#[derive(Clone, Copy, Debug)]
struct HeadMlp {
    hidden1: Linear,
    hidden2: Linear,
    output: Linear,
}

impl HeadMlp {
    fn new(mut scope: Scope<'_>, inputs: i64, hidden: i64, outputs: i64) -> Self {
        Self {
            hidden1: Linear::new(scope.scope("hidden1"), inputs, hidden, LayerInit::FanIn),
            hidden2: Linear::new(scope.scope("hidden2"), hidden, hidden, LayerInit::FanIn),
            output: Linear::new(scope.scope("output"), hidden, outputs, LayerInit::FanIn),
        }
    }

    fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let x = self.hidden1.forward(weights, x)?.f_relu()?;
        let x = self.hidden2.forward(weights, &x)?.f_relu()?;
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
    /// Number of policies.
    pub policies: i64,
    /// Number of actions.
    pub actions: i64,
}

/// All heads of the network. Heads that no loss trains are absent.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    extrinsic: Dueling,
    intrinsic: Option<Dueling>,
    policy: Option<HeadMlp>,
    /// Sizes that all heads share.
    pub sizes: HeadSizes,
    combination: QCombination,
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
/// values of exploring policies too. As returns, h(h⁻¹(Qe) + β_j h⁻¹(Qi)), the combination of Agent57, each head can hold
/// the return of its own reward.
fn combine(combination: QCombination, extrinsic: &Tensor, intrinsic: &Tensor, beta: &Tensor) -> Result<Tensor> {
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

    /// Q_j, with β `[policies, 1]`; the extrinsic head's values where it is the only one.
    pub fn combined(&self, beta: &Tensor) -> Result<Tensor> {
        match &self.intrinsic {
            Some(intrinsic) => combine(self.combination, &self.extrinsic, intrinsic, beta),
            None => Ok(self.extrinsic.shallow_clone()),
        }
    }
}

impl Heads {
    /// Declares the extrinsic head, and the others where `loss` trains them.
    pub fn new(mut scope: Scope<'_>, sizes: HeadSizes, loss: &LossConfig) -> Self {
        let HeadSizes { inputs, hidden, policies, actions } = sizes;
        let mut dueling = |name: &str| {
            let mut scope = scope.scope(name);
            Dueling {
                value: HeadMlp::new(scope.scope("value"), inputs, hidden, policies),
                advantage: HeadMlp::new(scope.scope("advantage"), inputs, hidden, policies * actions),
            }
        };
        let extrinsic = dueling("extrinsic");
        let intrinsic = (loss.q_heads != QHeads::Single).then(|| dueling("intrinsic"));
        let policy = loss.distillation.then(|| HeadMlp::new(scope.scope("policy"), inputs, hidden, policies * actions));
        Self { extrinsic, intrinsic, policy, sizes, combination: loss.q_combination }
    }

    /// Those of the action values, the value's before its advantage's, then the policy's.
    fn mlps(&self) -> Vec<HeadMlp> {
        let dueling = [Some(self.extrinsic), self.intrinsic].into_iter().flatten();
        dueling.flat_map(|head| [head.value, head.advantage]).chain(self.policy).collect()
    }

    /// Lets the hidden layers compute in `kind`; the output layers stay in f32.
    pub fn convert(&self, weights: &mut Weights, kind: Kind) -> Result<()> {
        for mlp in self.mlps() {
            mlp.hidden1.convert(weights, kind)?;
            mlp.hidden2.convert(weights, kind)?;
        }
        Ok(())
    }

    /// `[.., inputs]` to action values and logits.
    pub fn forward(&self, weights: &Weights, x: &Tensor) -> Result<HeadOutputs> {
        let mut shape = x.size();
        shape.pop();
        shape.extend([self.sizes.policies, self.sizes.actions]);
        let dueling = |head: &Dueling| -> Result<Tensor> {
            let value = head.value.forward(weights, x)?.f_unsqueeze(-1)?;
            let advantage = head.advantage.forward(weights, x)?.f_view(&shape[..])?;
            let mean = advantage.f_mean_dim(&[-1i64][..], true, Kind::Float)?;
            Ok(advantage.f_sub(&mean)?.f_add(&value)?)
        };
        Ok(HeadOutputs {
            extrinsic: dueling(&self.extrinsic)?,
            intrinsic: self.intrinsic.as_ref().map(dueling).transpose()?,
            policy: match &self.policy {
                Some(mlp) => Some(mlp.forward(weights, x)?.f_view(&shape[..])?),
                None => None,
            },
            combination: self.combination,
        })
    }
}
