//! The stages of the normalizer-free torso as a residual network with layer norm.

use tch::Tensor;

use super::layers::{Conv, LayerInit, Window};
use super::parameters::{Init, ParameterId, Scope, Weights};
use super::torso::block_plans;
use crate::config::TorsoConfig;
use crate::error::Result;
use crate::observation::ImageShape;

/// Layer norm over a frame, with a gain and a bias per channel.
#[derive(Clone, Copy, Debug)]
struct LayerNorm {
    gain: ParameterId,
    bias: ParameterId,
}

impl LayerNorm {
    fn new(mut scope: Scope<'_>, channels: i64) -> Self {
        let gain = scope.declare("gain", &[channels], Init::Constant(1.0));
        let bias = scope.declare("bias", &[channels], Init::Constant(0.0));
        Self { gain, bias }
    }

    fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_group_norm(1, Some(weights.get(self.gain)), Some(weights.get(self.bias)), 1e-5, true)?)
    }
}

/// conv2(relu(norm2(conv1(relu(norm1(x)))))) plus x, or a 1x1 convolution of it where stride or channels change.
#[derive(Clone, Debug)]
struct ResBlock {
    norm1: LayerNorm,
    conv1: Conv,
    norm2: LayerNorm,
    conv2: Conv,
    shortcut: Option<Conv>,
}

/// The residual torso with layer norm.
#[derive(Clone, Debug)]
pub struct ResNet {
    stem: Conv,
    blocks: Vec<ResBlock>,
    norm: LayerNorm,
}

fn conv(scope: Scope<'_>, image: &mut ImageShape, outputs: i64, window: Window) -> Conv {
    Conv::new(scope, image, outputs, window, LayerInit::FanIn)
}

impl ResNet {
    /// Declares stem and stages for images of any size; `image` becomes the shape of the output.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, image: &mut ImageShape) -> Self {
        let stem = conv(scope.scope("stem"), image, config.stem.channels as i64, config.stem.window());
        let mut blocks = vec![];
        for plan in block_plans(config) {
            let (mut scope, channels, outputs) = (scope.scope(&plan.name), image.channels, plan.channels);
            let mut input = *image;
            blocks.push(ResBlock {
                norm1: LayerNorm::new(scope.scope("norm1"), channels),
                conv1: conv(scope.scope("conv1"), image, outputs, Window::same(3, plan.stride)),
                norm2: LayerNorm::new(scope.scope("norm2"), outputs),
                conv2: conv(scope.scope("conv2"), image, outputs, Window::same(3, 1)),
                shortcut: (plan.stride > 1 || channels != outputs)
                    .then(|| conv(scope.scope("shortcut"), &mut input, outputs, Window::same(1, plan.stride))),
            });
        }
        let norm = LayerNorm::new(scope.scope("norm"), image.channels);
        Self { stem, blocks, norm }
    }

    /// `[frames, channels, h, w]` to `[frames, outputs]`, the outputs in the order channel, row, column.
    pub fn forward(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        let mut x = self.stem.forward(weights, input)?;
        for block in &self.blocks {
            let a = block.norm1.forward(weights, &x)?.f_relu()?;
            let h = block.conv1.forward(weights, &a)?;
            let h = block.conv2.forward(weights, &block.norm2.forward(weights, &h)?.f_relu()?)?;
            x = match &block.shortcut {
                Some(conv) => conv.forward(weights, &a)?.f_add(&h)?,
                None => x.f_add(&h)?,
            };
        }
        Ok(self.norm.forward(weights, &x)?.f_relu()?.f_flatten(1, -1)?)
    }
}
