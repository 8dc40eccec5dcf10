//! The heads for acting: all MLPs in four matrix products.
//!
//! Their first layers are one matrix, their second layers one batch. Dueling is linear and folds into the output's weights.
//! So does a plain sum of extrinsic and intrinsic values where β_j is known: Q_j = V + A - mean A + β_j (...) is one product
//! with the hidden layers of all value MLPs side by side. Any other combination takes one product per head.

use tch::{Kind, Tensor};

use super::{Dueling, HeadMlp, Heads};
use crate::error::Result;
use crate::nets::layers::{Linear, linear_relu};
use crate::nets::parameters::Weights;

/// Weights of all heads, folded.
#[derive(Debug)]
pub struct FoldedHeads {
    /// `[mlps · hidden, inputs]` and `[mlps · hidden]`.
    hidden1: [Tensor; 2],
    /// `[mlps, hidden, hidden]` and `[mlps, 1, hidden]`, if there is a second layer.
    hidden2: Option<[Tensor; 2]>,
    /// `[policies · actions, value mlps · hidden]` and `[policies · actions]`, in f32: of all value MLPs, or of each head's.
    q: Vec<[Tensor; 2]>,
    /// The same for the policy's MLP.
    policy: Option<[Tensor; 2]>,
}

/// Outputs of the heads, each `[rows, policies · actions]` in f32.
#[derive(Debug)]
pub struct FoldedOutputs {
    /// Rescaled values: Q_j if the heads' sum was folded, else those of each value head.
    pub values: Vec<Tensor>,
    /// Logits of the policies.
    pub policy: Option<Tensor>,
}

impl FoldedHeads {
    /// All tensors.
    pub fn tensors(&self) -> Vec<&Tensor> {
        [&self.hidden1].into_iter().chain(&self.hidden2).chain(&self.q).chain(&self.policy).flatten().collect()
    }
}

impl Heads {
    /// Folds f32 weights; hidden layers compute in `kind`. With `beta`, `[policies, 1]`, so does the heads' sum.
    pub fn fold(&self, weights: &Weights, beta: Option<&Tensor>, kind: Kind) -> Result<FoldedHeads> {
        let mlps = self.mlps();
        let all = |layers: Vec<Linear>| -> [Vec<&Tensor>; 2] {
            [0, 1].map(|part| layers.iter().map(|layer| weights.get(layer.parameters[part])).collect())
        };
        let [hidden1, bias1] = all(mlps.iter().map(|mlp| mlp.hidden1).collect());
        let second: Option<Vec<Linear>> = mlps.iter().map(|mlp: &HeadMlp| mlp.hidden2).collect();
        let hidden2 = second.map(all).map(|[hidden2, bias2]| -> Result<_> {
            Ok([
                Tensor::f_stack(&hidden2, 0)?.f_to_kind(kind)?,
                Tensor::f_stack(&bias2, 0)?.f_unsqueeze(1)?.f_to_kind(kind)?,
            ])
        });
        let mut q = self.values.iter().map(|head| self.fold_dueling(weights, head)).collect::<Result<Vec<_>>>()?;
        if let (Some(beta), [extrinsic, [weight, bias]]) = (beta, &q[..]) {
            let beta = beta.f_expand([self.sizes.policies, self.sizes.actions], false)?.f_reshape([-1])?;
            q = vec![[
                Tensor::f_cat(&[&extrinsic[0], &weight.f_mul(&beta.f_unsqueeze(1)?)?], 1)?,
                extrinsic[1].f_add(&bias.f_mul(&beta)?)?,
            ]];
        }
        Ok(FoldedHeads {
            hidden1: [Tensor::f_cat(&hidden1, 0)?.f_to_kind(kind)?, Tensor::f_cat(&bias1, 0)?.f_to_kind(kind)?],
            hidden2: hidden2.transpose()?,
            q,
            policy: self.policy.map(|mlp| mlp.output.parameters.map(|id| weights.get(id).shallow_clone())),
        })
    }

    /// V + A - mean_a A as one layer over both MLPs' hidden layers, the value's first.
    fn fold_dueling(&self, weights: &Weights, head: &Dueling) -> Result<[Tensor; 2]> {
        let (policies, actions) = (self.sizes.policies, self.sizes.actions);
        let [value, value_bias] = head.value.output.parameters.map(|id| weights.get(id));
        let [advantage, advantage_bias] = head.advantage.output.parameters.map(|id| weights.get(id));
        let centred = |x: &Tensor| -> Result<Tensor> {
            let x = x.f_view([policies, actions, -1])?;
            Ok(x.f_sub(&x.f_mean_dim(&[1i64][..], true, Kind::Float)?)?.f_view([policies * actions, -1])?)
        };
        let each = |x: &Tensor| x.f_repeat_interleave_self_int(actions, 0, policies * actions);
        let weight = Tensor::f_cat(&[each(value)?, centred(advantage)?], 1)?;
        let bias = each(value_bias)?.f_add(&centred(advantage_bias)?.f_squeeze_dim(1)?)?;
        Ok([weight, bias])
    }

    /// `[rows, inputs]` in the kind of the folded weights to action values and logits.
    pub fn forward_folded(&self, folded: &FoldedHeads, x: &Tensor) -> Result<FoldedOutputs> {
        let (rows, hidden) = (x.size()[0], self.sizes.hidden);
        let [weight, bias] = &folded.hidden1;
        let x = linear_relu(x, weight, bias)?;
        let mlps = x.size()[1] / hidden;
        let mut x = x.f_view([rows, mlps, hidden])?.f_transpose(0, 1)?;
        if let Some([weight, bias]) = &folded.hidden2 {
            x = bias.f_baddbmm(&x, &weight.f_transpose(1, 2)?, 1.0, 1.0)?.f_relu_()?;
        }
        // MLPs side by side again, and to f32, in one pass.
        let mut wide = Tensor::f_empty([rows, mlps, hidden], (Kind::Float, x.device()))?;
        wide.f_copy_(&x.f_transpose(0, 1)?)?;
        let wide = wide.f_view([rows, mlps * hidden])?;
        let mut first = 0;
        let mut next = |[weight, bias]: &[Tensor; 2]| -> Result<Tensor> {
            let inputs = weight.size()[1];
            first += inputs;
            Ok(bias.f_addmm(&wide.f_narrow(1, first - inputs, inputs)?, &weight.f_transpose(0, 1)?)?)
        };
        let values = folded.q.iter().map(&mut next).collect::<Result<_>>()?;
        Ok(FoldedOutputs { values, policy: folded.policy.as_ref().map(next).transpose()? })
    }
}
