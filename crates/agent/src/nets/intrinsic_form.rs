//! f and RND in the form that a GPU computes fast, for acting in f16 and for learning in f32; the outputs are f32.
//!
//! Everything is channels-last. The first convolution sees one channel, which tensor cores can do little with. Where its
//! stride divides its side, its squares of stride by stride pixels become channels, and it a smaller convolution of
//! stride 1 over them.

use tch::{Kind, Tensor};

use super::action_prediction::ActionPrediction;
use super::encoder::Encoder;
use super::layers::{Conv, Linear, Window, convolve};
use super::parameters::{Weights, overwrite};
use super::rnd::RndPair;
use crate::error::Result;
use crate::observation::{InputShape, ObservationInput};

/// f and RND's two networks with the shapes that they share.
#[derive(Clone, Debug)]
pub struct IntrinsicForm {
    networks: [(Encoder, Linear); 3],
    image: Image,
    /// Side of the squares that become channels; 1 where none do.
    square: i64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Image {
    channels: i64,
    height: i64,
    width: i64,
}

/// Weights of the three networks.
#[derive(Debug)]
pub struct IntrinsicWeights {
    /// Of f.
    pub f: EmbeddingWeights,
    /// Of RND's pair.
    pub rnd: RndWeights,
}

/// Weights of f.
#[derive(Debug)]
pub struct EmbeddingWeights(FoldedNet);

/// Weights of RND's target and of its predictor.
#[derive(Debug)]
pub struct RndWeights {
    target: FoldedNet,
    predictor: FoldedNet,
}

#[derive(Debug)]
struct FoldedNet {
    convolutions: Vec<FoldedConv>,
    /// `[outputs, rows · columns · channels]`.
    output: Tensor,
    /// In f32.
    output_bias: Tensor,
}

/// Channels-last, with relu.
#[derive(Debug)]
struct FoldedConv {
    weight: Tensor,
    bias: Tensor,
    stride: i64,
    padding: i64,
}

impl IntrinsicWeights {
    /// Takes over newer values in the memory that these have.
    pub fn take_over(&mut self, newer: &Self) -> Result<()> {
        for (mine, newer) in self.tensors().zip(newer.tensors()) {
            overwrite(mine, newer)?;
        }
        Ok(())
    }

    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.f.0, &self.rnd.target, &self.rnd.predictor].into_iter().flat_map(FoldedNet::tensors)
    }
}

impl FoldedNet {
    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let convolutions = self.convolutions.iter().flat_map(|conv| [&conv.weight, &conv.bias]);
        convolutions.chain([&self.output, &self.output_bias])
    }
}

impl IntrinsicForm {
    /// For networks that see images of bytes; those that see anything else have none.
    pub fn new(f: &ActionPrediction, rnd: &RndPair, input: &ObservationInput, kind: Kind) -> Option<Self> {
        let InputShape::Image { channels, height, width } = input.shape() else { return None };
        let [target, predictor] = rnd.layers();
        let networks = [f.embedding_layers(), target, predictor].map(|(encoder, output)| (encoder.clone(), output));
        let Window { kernel, stride, padding } = networks[0].0.convolutions().first()?.window();
        let squares = channels == 1 && padding == 0 && kernel % stride == 0;
        let square = if squares { stride } else { 1 };
        input.takes_bytes().then_some(Self { networks, image: Image { channels, height, width }, square, kind })
    }

    /// Folds f32 weights of f, of RND's target and of its predictor. Gradients find their way back to those.
    pub fn fold(&self, weights: [&Weights; 3]) -> Result<IntrinsicWeights> {
        let [f, target, predictor] = weights;
        let f = EmbeddingWeights(self.fold_one(&self.networks[0], f)?);
        Ok(IntrinsicWeights { f, rnd: self.fold_rnd([target, predictor])? })
    }

    /// Folds f32 weights of RND's target and of its predictor.
    pub fn fold_rnd(&self, [target, predictor]: [&Weights; 2]) -> Result<RndWeights> {
        Ok(RndWeights {
            target: self.fold_one(&self.networks[1], target)?,
            predictor: self.fold_one(&self.networks[2], predictor)?,
        })
    }

    fn fold_one(&self, (encoder, output): &(Encoder, Linear), weights: &Weights) -> Result<FoldedNet> {
        let Image { mut channels, mut height, mut width } = self.image;
        let mut convolutions = vec![];
        for (i, conv) in encoder.convolutions().iter().enumerate() {
            let window = conv.window();
            convolutions.push(if i == 0 { self.first(conv, weights)? } else { self.folded(conv, weights, 1.0)? });
            (height, width) = (window.output(height), window.output(width));
            channels = weights.get(conv.parameters()[1]).size()[0];
        }
        let [weight, bias] = output.parameters().map(|id| weights.get(id));
        let by_pixel = weight.f_view([-1, channels, height, width])?.f_permute([0, 2, 3, 1])?;
        Ok(FoldedNet {
            convolutions,
            output: by_pixel.f_reshape([weight.size()[0], -1])?.f_to_kind(self.kind)?,
            output_bias: bias.shallow_clone(),
        })
    }

    fn folded(&self, conv: &Conv, weights: &Weights, scale: f64) -> Result<FoldedConv> {
        let Window { stride, padding, .. } = conv.window();
        let [weight, bias] = conv.parameters().map(|id| weights.get(id));
        let weight = weight.f_mul_scalar(scale)?.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_to_kind(self.kind)?;
        Ok(FoldedConv { weight: weight.f_permute([0, 3, 1, 2])?, bias: bias.f_to_kind(self.kind)?, stride, padding })
    }

    /// The first convolution, which sees bytes.
    fn first(&self, conv: &Conv, weights: &Weights) -> Result<FoldedConv> {
        let mut folded = self.folded(conv, weights, 1.0 / 255.0)?;
        if self.square > 1 {
            let side = conv.window().kernel / self.square;
            let outputs = folded.weight.size()[0];
            let squares = folded.weight.f_contiguous()?.f_view([outputs, side, self.square, side, self.square])?;
            let last = squares.f_permute([0, 1, 3, 2, 4])?.f_reshape([outputs, side, side, -1])?;
            (folded.weight, folded.stride) = (last.f_permute([0, 3, 1, 2])?, 1);
        }
        Ok(folded)
    }

    /// Observations as uploaded, `[rows, bytes]`, to what the first convolutions see, `[rows, down, across, channels]`.
    pub fn frames(&self, observations: &Tensor) -> Result<Tensor> {
        let Image { channels, height, width } = self.image;
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

impl EmbeddingWeights {
    /// f(x) of [frames](IntrinsicForm::frames), `[rows, embedding]`, in f32.
    pub fn embed(&self, frames: &Tensor) -> Result<Tensor> {
        Ok(self.0.forward(frames)?.f_add(&self.0.output_bias)?)
    }
}

impl RndWeights {
    /// ‖ĝ(x) - g(x)‖² of [frames](IntrinsicForm::frames), `[rows]`, in f32.
    pub fn error(&self, frames: &Tensor) -> Result<Tensor> {
        let Self { target, predictor } = self;
        let difference = predictor.forward(frames)?.f_sub(&target.forward(frames)?)?;
        let difference = difference.f_add(&predictor.output_bias)?.f_sub(&target.output_bias)?;
        Ok(difference.f_square()?.f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?)
    }
}

impl FoldedNet {
    /// The output without its bias, in f32.
    fn forward(&self, frames: &Tensor) -> Result<Tensor> {
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
        // The kernel that does all at once has no gradient.
        if !x.device().is_cuda() || x.kind() == Kind::Float {
            return Ok(convolve(x, weight, bias, *stride, *padding)?.f_relu_()?);
        }
        Ok(x.f_cudnn_convolution_relu(weight, Some(bias), [*stride; 2], [*padding; 2], [1, 1], 1)?)
    }
}
