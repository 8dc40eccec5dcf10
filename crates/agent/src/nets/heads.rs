//! Dueling action values and the policy, for all N policies of the family at once.

mod folded;

use tch::{Kind, Tensor};

use super::layers::{LayerInit, Linear};
use super::parameters::{Scope, Weights};
use crate::error::Result;

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
    sizes: HeadSizes,
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
}

impl HeadOutputs {
    /// The same values without gradient.
    pub fn detach(&self) -> Result<Self> {
        let detach = |x: &Option<Tensor>| x.as_ref().map(Tensor::f_detach).transpose();
        Ok(Self {
            extrinsic: self.extrinsic.f_detach()?,
            intrinsic: detach(&self.intrinsic)?,
            policy: detach(&self.policy)?,
        })
    }

    /// Q_j = Qe_j + β_j Qi_j, with β `[policies, 1]`; the extrinsic head's values where it is the only one.
    pub fn combined(&self, beta: &Tensor) -> Result<Tensor> {
        match &self.intrinsic {
            Some(intrinsic) => Ok(self.extrinsic.f_add(&intrinsic.f_mul(beta)?)?),
            None => Ok(self.extrinsic.shallow_clone()),
        }
    }
}

impl Heads {
    /// Declares the extrinsic head, and the others where they are trained.
    pub fn new(mut scope: Scope<'_>, sizes: HeadSizes, intrinsic: bool, policy: bool) -> Self {
        let HeadSizes { inputs, hidden, policies, actions } = sizes;
        let mut dueling = |name: &str| {
            let mut scope = scope.scope(name);
            Dueling {
                value: HeadMlp::new(scope.scope("value"), inputs, hidden, policies),
                advantage: HeadMlp::new(scope.scope("advantage"), inputs, hidden, policies * actions),
            }
        };
        let extrinsic = dueling("extrinsic");
        let intrinsic = intrinsic.then(|| dueling("intrinsic"));
        let policy = policy.then(|| HeadMlp::new(scope.scope("policy"), inputs, hidden, policies * actions));
        Self { extrinsic, intrinsic, policy, sizes }
    }

    /// Number of policies.
    pub fn policies(&self) -> i64 {
        self.sizes.policies
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
        })
    }
}
