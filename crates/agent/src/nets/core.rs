//! What remembers: an LSTM or, with memory switched off, a linear layer of the same width.

use tch::{Kind, Tensor};

use super::layers::{Linear, fan_in_uniform};
use super::parameters::{ParameterId, Scope, Weights};
use crate::error::Result;

/// The core between torso and heads.
#[derive(Clone, Copy, Debug)]
pub enum Core {
    /// Remembers.
    Lstm(Lstm),
    /// Does not.
    FeedForward {
        /// The layer.
        linear: Linear,
        /// Its width.
        width: i64,
    },
}

/// One LSTM layer, gates in the order input, forget, cell, output.
#[derive(Clone, Copy, Debug)]
pub struct Lstm {
    weight_ih: ParameterId,
    weight_hh: ParameterId,
    bias_ih: ParameterId,
    bias_hh: ParameterId,
    width: i64,
}

impl Core {
    /// Declares `lstm.*` or `core.*`.
    pub fn new(layout: &mut super::parameters::Layout, recurrent: bool, inputs: i64, width: i64) -> Self {
        if !recurrent {
            return Self::FeedForward { linear: Linear::new(layout.scope("core"), inputs, width), width };
        }
        let mut scope: Scope<'_> = layout.scope("lstm");
        let init = fan_in_uniform(width);
        Self::Lstm(Lstm {
            weight_ih: scope.declare("weight_ih", &[4 * width, inputs], init),
            weight_hh: scope.declare("weight_hh", &[4 * width, width], init),
            bias_ih: scope.declare("bias_ih", &[4 * width], init),
            bias_hh: scope.declare("bias_hh", &[4 * width], init),
            width,
        })
    }

    /// Width of the output.
    pub fn width(&self) -> i64 {
        match self {
            Self::Lstm(lstm) => lstm.width,
            Self::FeedForward { width, .. } => *width,
        }
    }

    /// Length of the recurrent state: h then c, or nothing.
    pub fn state_length(&self) -> i64 {
        match self {
            Self::Lstm(lstm) => 2 * lstm.width,
            Self::FeedForward { .. } => 0,
        }
    }

    /// Lets the core compute in 16 bits on a GPU.
    pub fn pack(&self, weights: &mut Weights) -> Result<()> {
        match self {
            Self::Lstm(lstm) => {
                let packed = torch_ext::lstm::prepare(lstm.parameters().map(|id| weights.get(id)))?;
                weights.packed.lstm = Some(packed);
                Ok(())
            }
            Self::FeedForward { linear, .. } => linear.convert(weights, Kind::BFloat16),
        }
    }

    /// `[batch, steps, inputs]` and the state `[batch, state]` before them to `[batch, steps, width]` and the state
    /// after them.
    pub fn forward(&self, weights: &Weights, input: &Tensor, state: &Tensor) -> Result<(Tensor, Tensor)> {
        match self {
            Self::FeedForward { linear, .. } => Ok((linear.forward(weights, input)?.f_relu()?, state.shallow_clone())),
            Self::Lstm(lstm) => {
                if let Some(packed) = &weights.packed.lstm {
                    return lstm.forward_fused(weights, packed, input, state);
                }
                let part = |start| state.f_narrow(1, start, lstm.width)?.f_unsqueeze(0)?.f_contiguous();
                let parameters = lstm.parameters().map(|id| weights.get(id).shallow_clone());
                let initial = [part(0)?, part(lstm.width)?];
                let (output, h, c) = input.f_lstm(&initial, &parameters, true, 1, 0.0, true, false, true)?;
                Ok((output, Tensor::f_cat(&[h.f_squeeze_dim(0)?, c.f_squeeze_dim(0)?], 1)?))
            }
        }
    }
}

impl Lstm {
    fn parameters(&self) -> [ParameterId; 4] {
        [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
    }

    /// The same with f16 weights, for GPUs.
    fn forward_fused(
        &self,
        weights: &Weights,
        packed: &Tensor,
        input: &Tensor,
        state: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let [h, c] = [state.f_narrow(1, 0, self.width)?, state.f_narrow(1, self.width, self.width)?];
        let parameters = self.parameters().map(|id| weights.get(id));
        let (output, [h, c]) = torch_ext::lstm::lstm(input, parameters, packed, [&h, &c])?;
        Ok((output, Tensor::f_cat(&[h, c], 1)?))
    }
}
