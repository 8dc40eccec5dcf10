//! The same stages as the normalizer-free torso, as a residual network with layer norm.

use tch::Tensor;

use super::layers::{Conv, Window};
use super::parameters::{Init, ParameterId, Scope, Weights};
use crate::config::TorsoConfig;
use crate::error::Result;
use crate::observation::InputShape;

/// Layer norm over channels, rows and columns of a frame, with a gain and a bias for each channel.
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
struct Block {
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
    blocks: Vec<Block>,
    norm: LayerNorm,
    outputs: i64,
    flops: f64,
}

impl ResNet {
    /// Declares stem and stages for images of any size.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, input: InputShape) -> Self {
        let (mut channels, mut height, mut width) = input.image();
        let window = config.stem.window();
        let stem_channels = config.stem.channels as i64;
        let stem = Conv::new(scope.scope("stem"), channels, stem_channels, window);
        (height, width) = (window.output(height), window.output(width));
        let mut flops = 2.0 * (height * width * stem_channels * channels * window.kernel * window.kernel) as f64;
        channels = stem_channels;
        let mut blocks = vec![];
        for (s, stage) in config.stages.iter().enumerate() {
            let outputs = stage.channels as i64;
            for b in 0..stage.blocks {
                let stride = if b == 0 { stage.stride as i64 } else { 1 };
                let mut scope = scope.scope(&format!("stage{s}.block{b}"));
                let window = Window::same(3, stride);
                let changes = stride > 1 || channels != outputs;
                blocks.push(Block {
                    norm1: LayerNorm::new(scope.scope("norm1"), channels),
                    conv1: Conv::new(scope.scope("conv1"), channels, outputs, window),
                    norm2: LayerNorm::new(scope.scope("norm2"), outputs),
                    conv2: Conv::new(scope.scope("conv2"), outputs, outputs, Window::same(3, 1)),
                    shortcut: changes
                        .then(|| Conv::new(scope.scope("shortcut"), channels, outputs, Window::same(1, stride))),
                });
                (height, width) = (window.output(height), window.output(width));
                let kernels = 9 * (channels + outputs) + channels * i64::from(changes);
                flops += 2.0 * (height * width * outputs * kernels) as f64;
                channels = outputs;
            }
        }
        let norm = LayerNorm::new(scope.scope("norm"), channels);
        Self { stem, blocks, norm, outputs: channels * height * width, flops }
    }

    /// Number of values that come out.
    pub fn outputs(&self) -> i64 {
        self.outputs
    }

    /// Operations of one forward pass of one frame.
    pub fn flops(&self) -> f64 {
        self.flops
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
