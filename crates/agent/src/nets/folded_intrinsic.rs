//! f and RND with folded weights for speed on a GPU: f16 for acting, f32 for learning, with f32 outputs.
//!
//! Everything is channels-last. The first convolution sees few channels, which suits tensor cores badly. Where its stride
//! divides its kernel, squares of stride by stride pixels become channels of a smaller convolution with stride 1.

use tch::{Kind, Tensor};

use super::action_prediction::ActionPrediction;
use super::layers::{Conv, EncoderLinear, Window, convolve};
use super::parameters::{Weights, overwrite};
use super::rnd::RndPair;
use crate::error::Result;
use crate::observation::{ImageShape, ObservationInput};

/// f and RND's two networks, which share their input.
#[derive(Clone, Debug)]
pub struct FoldedIntrinsic {
    /// f, RND's target and its predictor.
    networks: [EncoderLinear; 3],
    image: ImageShape,
    /// Side of the squares that become channels; 1 if none do.
    square: i64,
    kind: Kind,
}

/// Folded weights of the three networks.
#[derive(Debug)]
pub struct IntrinsicWeights {
    /// Of f.
    pub f: FoldedNet,
    /// Of RND's pair.
    pub rnd: RndWeights,
}

/// Folded weights of RND's target and of its predictor.
#[derive(Debug)]
pub struct RndWeights {
    target: FoldedNet,
    predictor: FoldedNet,
}

/// Folded weights of one network.
#[derive(Debug)]
pub struct FoldedNet {
    convolutions: Vec<FoldedConv>,
    /// `[outputs, rows · columns · channels]`.
    output: Tensor,
    /// In f32.
    output_bias: Tensor,
}

/// A channels-last convolution with a relu.
#[derive(Debug)]
struct FoldedConv {
    weight: Tensor,
    bias: Tensor,
    stride: i64,
    padding: i64,
}

impl IntrinsicWeights {
    /// Copies newer values in place.
    pub fn copy_from(&mut self, newer: &Self) -> Result<()> {
        self.tensors().zip(newer.tensors()).try_for_each(|(mine, newer)| overwrite(mine, newer))
    }

    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.f, &self.rnd.target, &self.rnd.predictor].into_iter().flat_map(|net| {
            let convolutions = net.convolutions.iter().flat_map(|conv| [&conv.weight, &conv.bias]);
            convolutions.chain([&net.output, &net.output_bias])
        })
    }
}

impl FoldedIntrinsic {
    /// `None` unless observations are exactly one byte image.
    pub fn new(f: &ActionPrediction, rnd: &RndPair, input: &ObservationInput, kind: Kind) -> Option<Self> {
        let image = input.byte_image()?;
        let networks = [&f.embedding, &rnd.target.layers, &rnd.predictor.layers].map(EncoderLinear::clone);
        let Window { kernel, stride, padding } = networks[0].encoders[0].convolutions.first()?.window;
        let squares = padding == 0 && kernel % stride == 0;
        let square = if squares { stride } else { 1 };
        Some(Self { networks, image, square, kind })
    }

    /// Folds the f32 weights of f, RND's target and RND's predictor. Gradients flow to them.
    pub fn fold(&self, [f, target, predictor]: [&Weights; 3]) -> Result<IntrinsicWeights> {
        Ok(IntrinsicWeights { f: self.fold_one(&self.networks[0], f)?, rnd: self.fold_rnd([target, predictor])? })
    }

    /// Folds the f32 weights of RND's target and predictor.
    pub fn fold_rnd(&self, [target, predictor]: [&Weights; 2]) -> Result<RndWeights> {
        Ok(RndWeights {
            target: self.fold_one(&self.networks[1], target)?,
            predictor: self.fold_one(&self.networks[2], predictor)?,
        })
    }

    fn fold_one(&self, net: &EncoderLinear, weights: &Weights) -> Result<FoldedNet> {
        let ImageShape { mut channels, mut height, mut width } = self.image;
        let mut convolutions = vec![];
        for (i, conv) in net.encoders[0].convolutions.iter().enumerate() {
            convolutions.push(if i == 0 { self.first(conv, weights)? } else { self.folded(conv, weights, 1.0)? });
            (height, width) = (conv.window.output(height), conv.window.output(width));
            channels = weights.get(conv.parameters[1]).size()[0];
        }
        let [weight, bias] = net.output.parameters.map(|id| weights.get(id));
        let by_pixel = weight.f_view([-1, channels, height, width])?.f_permute([0, 2, 3, 1])?;
        Ok(FoldedNet {
            convolutions,
            output: by_pixel.f_reshape([weight.size()[0], -1])?.f_to_kind(self.kind)?,
            output_bias: bias.shallow_clone(),
        })
    }

    fn folded(&self, conv: &Conv, weights: &Weights, scale: f64) -> Result<FoldedConv> {
        let Window { stride, padding, .. } = conv.window;
        let [weight, bias] = conv.parameters.map(|id| weights.get(id));
        let weight = weight.f_mul_scalar(scale)?.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_to_kind(self.kind)?;
        Ok(FoldedConv { weight: weight.f_permute([0, 3, 1, 2])?, bias: bias.f_to_kind(self.kind)?, stride, padding })
    }

    /// The first convolution, which sees bytes.
    fn first(&self, conv: &Conv, weights: &Weights) -> Result<FoldedConv> {
        let mut folded = self.folded(conv, weights, 1.0 / 255.0)?;
        if self.square > 1 {
            let side = conv.window.kernel / self.square;
            let pixels = folded.weight.f_permute([0, 2, 3, 1])?;
            let (outputs, channels) = (pixels.size()[0], self.image.channels);
            let squares = pixels.f_view([outputs, side, self.square, side, self.square, channels])?;
            let last = squares.f_permute([0, 1, 3, 2, 4, 5])?.f_reshape([outputs, side, side, -1])?;
            (folded.weight, folded.stride) = (last.f_permute([0, 3, 1, 2])?, 1);
        }
        Ok(folded)
    }

    /// Converts uploaded observations to the first convolution's input.
    ///
    /// `[rows, bytes]` becomes `[rows, down, across, channels]`.
    pub fn frames(&self, observations: &Tensor) -> Result<Tensor> {
        let ImageShape { channels, height, width } = self.image;
        let (rows, square) = (observations.size()[0], self.square);
        let (down, across) = (height / square, width / square);
        let pixels = observations.f_as_strided(
            [rows, down, across, square, square * channels],
            [height * width * channels, square * width * channels, square * channels, width * channels, 1],
            None,
        )?;
        let mut frames = Tensor::f_empty(pixels.size(), (self.kind, observations.device()))?;
        frames.f_copy_(&pixels)?;
        Ok(frames.f_view([rows, down, across, -1])?)
    }
}

impl RndWeights {
    /// ‖ĝ(x) - g(x)‖² of [frames](FoldedIntrinsic::frames), `[rows]`, in f32.
    pub fn error(&self, frames: &Tensor) -> Result<Tensor> {
        let Self { target, predictor } = self;
        let difference = predictor.without_bias(frames)?.f_sub(&target.without_bias(frames)?)?;
        let difference = difference.f_add(&predictor.output_bias)?.f_sub(&target.output_bias)?;
        Ok(difference.f_square()?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
    }
}

impl FoldedNet {
    /// The output for [frames](FoldedIntrinsic::frames), `[rows, outputs]`, in f32.
    pub fn forward(&self, frames: &Tensor) -> Result<Tensor> {
        Ok(self.without_bias(frames)?.f_add(&self.output_bias)?)
    }

    fn without_bias(&self, frames: &Tensor) -> Result<Tensor> {
        let mut x = frames.f_permute([0, 3, 1, 2])?;
        for conv in &self.convolutions {
            x = conv.forward(&x)?;
        }
        let x = x.f_permute([0, 2, 3, 1])?.f_reshape([frames.size()[0], -1])?;
        let weight = self.output.f_transpose(0, 1)?;
        if x.kind() == Kind::Float {
            return Ok(x.f_mm(&weight)?);
        }
        Ok(x.f_mm_dtype(&weight, Kind::Float)?)
    }
}

impl FoldedConv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Self { weight, bias, stride, padding } = self;
        // The fused kernel has no gradient.
        if !x.device().is_cuda() || x.kind() == Kind::Float {
            return Ok(convolve(x, weight, bias, *stride, *padding)?.f_relu_()?);
        }
        Ok(x.f_cudnn_convolution_relu(weight, Some(bias), [*stride; 2], [*padding; 2], [1, 1], 1)?)
    }
}
