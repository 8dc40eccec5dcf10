//! The recurrent core: an LSTM or, with recurrence switched off, a linear layer of the same width.

use tch::{Kind, Tensor};
use torch_ext::lstm_cell::{LstmCell, lstm_cell};

use super::layers::{LayerInit, Linear, linear_relu};
use super::parameters::{Init, Layout, ParameterId, Weights};
use crate::error::Result;

/// The core between torso and heads.
#[derive(Clone, Copy, Debug)]
pub enum Core {
    /// One LSTM layer.
    Lstm(Lstm),
    /// A linear layer with a relu.
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
    /// `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.
    parameters: [ParameterId; 4],
    width: i64,
}

impl Core {
    /// Declares `lstm.*` or `core.*`, with a prefix before the names.
    pub fn new(layout: &mut Layout, prefix: &str, recurrent: bool, inputs: i64, width: i64) -> Self {
        if !recurrent {
            let linear = Linear::new(layout.scope(&format!("{prefix}core")), inputs, width, LayerInit::FanIn);
            return Self::FeedForward { linear, width };
        }
        let mut scope = layout.scope(&format!("{prefix}lstm"));
        scope.count_multiplications(4 * width * (inputs + width));
        let init = Init::fan_in_uniform(width as f64);
        let mut declare = |name, shape: &[i64]| scope.declare(name, shape, init);
        let parameters = [
            declare("weight_ih", &[4 * width, inputs]),
            declare("weight_hh", &[4 * width, width]),
            declare("bias_ih", &[4 * width]),
            declare("bias_hh", &[4 * width]),
        ];
        Self::Lstm(Lstm { parameters, width })
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

    /// Packs the weights for 16-bit computation on a GPU, as those of network `network`.
    pub fn pack(&self, weights: &mut Weights, network: usize) -> Result<()> {
        match self {
            Self::Lstm(lstm) => {
                let packed = torch_ext::lstm::prepare(lstm.parameters.map(|id| weights.get(id)))?;
                weights.packed[network].lstm = Some(packed);
                Ok(())
            }
            Self::FeedForward { linear, .. } => linear.convert(weights, Kind::BFloat16),
        }
    }

    /// Like [`forward`](Self::forward), but no gradient reaches the first `burn_in` steps from later ones. They only
    /// bring the recurrent state up to date with the parameters.
    pub fn forward_after(
        &self,
        weights: &Weights,
        network: usize,
        input: &Tensor,
        state: &Tensor,
        burn_in: i64,
    ) -> Result<(Tensor, Tensor)> {
        let steps = input.size()[1];
        if burn_in == 0 || burn_in >= steps {
            return self.forward(weights, network, input, state);
        }
        let (before, state) = self.forward(weights, network, &input.f_narrow(1, 0, burn_in)?, state)?;
        let rest = input.f_narrow(1, burn_in, steps - burn_in)?;
        let (after, state) = self.forward(weights, network, &rest, &state.f_detach()?)?;
        Ok((Tensor::f_cat(&[before, after], 1)?, state))
    }

    /// Maps the inputs of sequences and the state before them to outputs and the state after.
    ///
    /// `[batch, steps, inputs]` and `[batch, state]` become `[batch, steps, width]` and `[batch, state]`.
    pub fn forward(
        &self,
        weights: &Weights,
        network: usize,
        input: &Tensor,
        state: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        match self {
            Self::FeedForward { linear, .. } => Ok((linear.forward(weights, input)?.f_relu()?, state.shallow_clone())),
            Self::Lstm(lstm) => {
                if let Some(packed) = &weights.packed[network].lstm {
                    return lstm.forward_fused(weights, packed, input, state);
                }
                let part = |start| state.f_narrow(1, start, lstm.width)?.f_unsqueeze(0)?.f_contiguous();
                let parameters = lstm.parameters.map(|id| weights.get(id).shallow_clone());
                let initial = [part(0)?, part(lstm.width)?];
                // On a GPU libtorch warns at every call that the weights are not contiguous.
                let lstm = || input.f_lstm(&initial, &parameters, true, 1, 0.0, true, false, true);
                let (output, h, c) = torch_ext::silently(lstm)?;
                Ok((output, Tensor::f_cat(&[h.f_squeeze_dim(0)?, c.f_squeeze_dim(0)?], 1)?))
            }
        }
    }
}

/// Folded weights of a step.
#[derive(Debug)]
pub enum FoldedCore {
    /// One matrix product for all gates.
    Lstm {
        /// `[4 width, width + inputs]`, for h and then the input.
        weight: Tensor,
        /// Two of `[4 width]`, in f32.
        biases: [Tensor; 2],
    },
    /// The layer's weight and bias.
    FeedForward([Tensor; 2]),
}

/// Recurrent states before a step and the table for those after it.
#[derive(Debug)]
pub struct CellStates {
    /// States before the step, h then c, `[rows, state]` in f32.
    pub before: Tensor,
    /// Table that the states after the step are written to, `[.., state]` in f32.
    pub table: Tensor,
    /// Each row's place in the table, `[rows]`, i64.
    pub places: Tensor,
}

impl FoldedCore {
    /// All tensors.
    pub fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Self::Lstm { weight, biases: [ih, hh] } => vec![weight, ih, hh],
            Self::FeedForward(parts) => parts.iter().collect(),
        }
    }
}

impl Core {
    /// Folds f32 weights into those of a step that computes in `kind`.
    pub fn fold(&self, weights: &Weights, kind: Kind) -> Result<FoldedCore> {
        Ok(match self {
            Self::Lstm(lstm) => {
                let [weight_ih, weight_hh, bias_ih, bias_hh] = lstm.parameters.map(|id| weights.get(id));
                FoldedCore::Lstm {
                    weight: Tensor::f_cat(&[weight_hh, weight_ih], 1)?.f_to_kind(kind)?,
                    biases: [bias_ih.shallow_clone(), bias_hh.shallow_clone()],
                }
            }
            Self::FeedForward { linear, .. } => {
                let [weight, bias] = linear.parameters.map(|id| weights.get(id).f_to_kind(kind));
                FoldedCore::FeedForward([weight?, bias?])
            }
        })
    }

    /// One step. `x` is `[rows, width + inputs]` in the kind of the weights: the output goes to its first columns, the
    /// rest is the input.
    pub fn step(&self, folded: &FoldedCore, x: &Tensor, states: &CellStates) -> Result<()> {
        let width = self.width();
        let mut output = x.f_narrow(1, 0, width)?;
        match folded {
            FoldedCore::FeedForward([weight, bias]) => {
                let input = x.f_narrow(1, width, x.size()[1] - width)?;
                output.f_copy_(&linear_relu(&input, weight, bias)?)?;
            }
            FoldedCore::Lstm { weight, biases: [bias_ih, bias_hh] } => {
                output.f_copy_(&states.before.f_narrow(1, 0, width)?)?;
                let gates = x.f_mm(&weight.f_transpose(0, 1)?)?;
                let CellStates { before, table, places } = states;
                if x.device().is_cuda() && x.kind() == Kind::Half {
                    let biases = [bias_ih, bias_hh];
                    let cell = LstmCell { gates: &gates, biases, before, places, table, output: x };
                    return Ok(lstm_cell(&cell)?);
                }
                let gates = gates.f_to_kind(Kind::Float)?.f_add(bias_ih)?.f_add(bias_hh)?;
                let gate = |i| gates.f_narrow(1, i * width, width);
                let kept = gate(1)?.f_sigmoid()?.f_mul(&before.f_narrow(1, width, width)?)?;
                let c = kept.f_add(&gate(0)?.f_sigmoid()?.f_mul(&gate(2)?.f_tanh()?)?)?;
                let h = gate(3)?.f_sigmoid()?.f_mul(&c.f_tanh()?)?;
                output.f_copy_(&h)?;
                let _ = table.shallow_clone().f_index_copy_(0, places, &Tensor::f_cat(&[h, c], 1)?)?;
            }
        }
        Ok(())
    }
}

impl Lstm {
    /// The forward pass with packed f16 weights, on a GPU.
    fn forward_fused(
        &self,
        weights: &Weights,
        packed: &Tensor,
        input: &Tensor,
        state: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let [h, c] = [state.f_narrow(1, 0, self.width)?, state.f_narrow(1, self.width, self.width)?];
        let parameters = self.parameters.map(|id| weights.get(id));
        let (output, [h, c]) = torch_ext::lstm::lstm(input, parameters, packed, [&h, &c])?;
        Ok((output, Tensor::f_cat(&[h, c], 1)?))
    }
}
