//! The normalizer-free residual torso: scaled weight standardisation instead of normalisation layers.

use tch::{Kind, Tensor};
use torch_ext::nf_torso::{BlockSpec, ConvSpec, LinearSpec, TorsoSpec};

use super::layers::{Linear, Window, convolve};
use super::parameters::{Init, Layout, ParameterId, Scope, Weights};
use crate::config::{Activation, TorsoConfig};
use crate::error::Result;
use crate::observation::InputShape;

/// Variance below which a kernel is not scaled up any further.
const VARIANCE_FLOOR: f64 = 1e-4;

/// A convolution whose kernel is standardised before use.
#[derive(Clone, Copy, Debug)]
struct StandardisedConv {
    weight: ParameterId,
    gain: ParameterId,
    bias: ParameterId,
    fan_in: i64,
    window: Window,
}

impl StandardisedConv {
    fn new(mut scope: Scope<'_>, inputs: i64, outputs: i64, window: Window) -> Self {
        let fan_in = inputs * window.kernel * window.kernel;
        let std = 1.0 / (fan_in as f64).sqrt();
        Self {
            weight: scope.declare("weight", &[outputs, inputs, window.kernel, window.kernel], Init::Normal { std }),
            gain: scope.declare("gain", &[outputs], Init::Constant(1.0)),
            bias: scope.declare("bias", &[outputs], Init::Constant(0.0)),
            fan_in,
            window,
        }
    }

    /// scale · gain · (W - mean) / √max(var · fan_in, 1e-4), mean and population variance for each output channel.
    ///
    /// `scale` holds the constant factors of the convolution's input: multiplying the kernel is cheaper than another
    /// pass over the activations. The kernel comes out channels-last, and with it everything that is computed from it.
    fn standardise(&self, weights: &mut Weights, scale: f64) -> Result<()> {
        let weight = weights.get(self.weight);
        let (variance, mean) = weight.f_var_mean_correction(&[1i64, 2, 3][..], 0, true)?;
        let factor = variance.f_mul_scalar(self.fan_in as f64)?.f_clamp_min(VARIANCE_FLOOR)?.f_rsqrt()?;
        let factor = factor.f_mul(&weights.get(self.gain).f_view([-1, 1, 1, 1])?)?.f_mul_scalar(scale)?;
        let standardised = weight.f_sub(&mean)?.f_mul(&factor)?;
        let channels_last = standardised.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?;
        weights.replace(self.weight, channels_last);
        Ok(())
    }

    fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (weights.get(self.weight), weights.get(self.bias));
        convolve(x, weight, bias, self.window.stride, self.window.padding)
    }
}

/// One residual block: two 3x3 convolutions and squeeze-excite on the main path.
#[derive(Clone, Debug)]
struct Block {
    conv1: StandardisedConv,
    conv2: StandardisedConv,
    /// Where stride or channels change.
    shortcut: Option<StandardisedConv>,
    squeeze: Linear,
    excite: Linear,
    skip_gain: ParameterId,
    stride: i64,
    /// 1 / the expected standard deviation of the block's input.
    beta: f64,
}

/// The normalizer-free torso.
#[derive(Clone, Debug)]
pub struct NfNet {
    stem: StandardisedConv,
    blocks: Vec<Block>,
    activation: Activation,
    alpha: f64,
    outputs: i64,
    flops: f64,
}

impl NfNet {
    /// Declares stem and stages for images of any size.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, input: InputShape) -> Self {
        let (mut channels, mut height, mut width) = input.image();
        let window = config.stem.window();
        let stem_channels = config.stem.channels as i64;
        let stem = StandardisedConv::new(scope.scope("stem"), channels, stem_channels, window);
        (height, width) = (window.output(height), window.output(width));
        let mut flops = 2.0 * (height * width * stem_channels * stem.fan_in) as f64;
        channels = stem_channels;
        let mut blocks = vec![];
        for (s, stage) in config.stages.iter().enumerate() {
            let mut variance = 1.0f64;
            let outputs = stage.channels as i64;
            for b in 0..stage.blocks {
                let stride = if b == 0 { stage.stride as i64 } else { 1 };
                let mut scope = scope.scope(&format!("stage{s}.block{b}"));
                let window = Window::same(3, stride);
                let single = Window::same(3, 1);
                let changes = stride > 1 || channels != outputs;
                let squeezed = ((outputs as f64 * config.squeeze_excite_ratio) as i64).max(1);
                blocks.push(Block {
                    conv1: StandardisedConv::new(scope.scope("conv1"), channels, outputs, window),
                    conv2: StandardisedConv::new(scope.scope("conv2"), outputs, outputs, single),
                    shortcut: changes
                        .then(|| StandardisedConv::new(scope.scope("shortcut"), channels, outputs, single)),
                    squeeze: Linear::new(scope.scope("squeeze_excite.down"), outputs, squeezed),
                    excite: Linear::new(scope.scope("squeeze_excite.up"), squeezed, outputs),
                    skip_gain: scope.declare("skip_gain", &[1], Init::Constant(0.0)),
                    stride,
                    beta: 1.0 / variance.sqrt(),
                });
                (height, width) = (window.output(height), window.output(width));
                let kernels = channels * (1 + i64::from(changes)) + outputs;
                flops += 2.0 * (height * width * 9 * outputs * kernels) as f64;
                variance += config.alpha * config.alpha;
                channels = outputs;
            }
        }
        let outputs = channels * height * width;
        Self { stem, blocks, activation: config.activation, alpha: config.alpha, outputs, flops }
    }

    /// The same torso as the fused kernels of a GPU take it, for images of one channel of bytes.
    ///
    /// `layout` begins with the torso's parameters.
    pub fn fused_spec(&self, layout: &Layout, input: InputShape) -> Option<TorsoSpec> {
        let InputShape::Image { height, width, .. } = input else { return None };
        let gamma = self.gamma();
        let place = |id| layout.parameter(id).offset();
        let conv = |conv: &StandardisedConv, scale| {
            let [outputs, inputs, ..] = layout.parameter(conv.weight).shape[..] else {
                unreachable!("a kernel has four dimensions")
            };
            ConvSpec {
                weight: place(conv.weight),
                gain: place(conv.gain),
                bias: place(conv.bias),
                inputs,
                outputs,
                scale,
            }
        };
        let linear = |linear: &Linear| {
            let [weight, bias] = linear.parameters().map(place);
            LinearSpec { weight, bias }
        };
        let blocks = self
            .blocks
            .iter()
            .map(|block| BlockSpec {
                conv1: conv(&block.conv1, gamma * block.beta),
                conv2: conv(&block.conv2, gamma),
                shortcut: block
                    .shortcut
                    .as_ref()
                    .map(|shortcut| conv(shortcut, gamma * block.beta * block.stride as f64)),
                down: linear(&block.squeeze),
                up: linear(&block.excite),
                squeezed: layout.parameter(block.squeeze.parameters()[0]).shape[0],
                skip_gain: place(block.skip_gain),
                stride: block.stride,
            })
            .collect();
        let own = layout.parameters().iter().take_while(|parameter| parameter.name.starts_with("torso."));
        let parameters: Vec<_> = own.map(|parameter| (parameter.offset(), parameter.shape.clone())).collect();
        let length = parameters.iter().map(|(place, shape)| place + shape.iter().product::<i64>()).max()?;
        let stem = conv(&self.stem, 1.0);
        let window = self.stem.window;
        (self.activation == Activation::Relu && window == Window::same(7, 4)).then_some(TorsoSpec {
            height,
            width,
            stem,
            blocks,
            branch_scale: 2.0 * self.alpha,
            output_scale: gamma,
            length,
            parameters,
        })
    }

    /// Number of values that come out.
    pub fn outputs(&self) -> i64 {
        self.outputs
    }

    /// Number of residual blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Operations of one forward pass of one frame.
    pub fn flops(&self) -> f64 {
        self.flops
    }

    /// Standardises every kernel, once for all frames of a pass.
    pub fn prepare(&self, weights: &mut Weights) -> Result<()> {
        let gamma = self.gamma();
        self.stem.standardise(weights, 1.0)?;
        for block in &self.blocks {
            block.conv1.standardise(weights, gamma * block.beta)?;
            block.conv2.standardise(weights, gamma)?;
            if let Some(shortcut) = &block.shortcut {
                shortcut.standardise(weights, gamma * block.beta * block.stride as f64)?;
            }
        }
        Ok(())
    }

    /// `[frames, channels, h, w]` to `[frames, outputs]`, the outputs in the order channel, row, column.
    ///
    /// `keep` is `[blocks, frames]`: 0 where stochastic depth drops a block's main path, else 1.
    pub fn forward(&self, weights: &Weights, input: &Tensor, keep: Option<&Tensor>) -> Result<Tensor> {
        let mut x = self.stem.forward(weights, input)?;
        for (i, block) in self.blocks.iter().enumerate() {
            let keep = keep.map(|keep| keep.f_select(0, i as i64)).transpose()?;
            x = self.block(weights, block, &x, keep.as_ref())?;
        }
        Ok(self.act(&x)?.f_mul_scalar(self.gamma())?.f_flatten(1, -1)?)
    }

    /// out = shortcut + α · skip gain · keep · SE(conv2(act(conv1(a)))), with a = act(x) · β.
    fn block(&self, weights: &Weights, block: &Block, x: &Tensor, keep: Option<&Tensor>) -> Result<Tensor> {
        let a = self.act(x)?;
        let shortcut = match &block.shortcut {
            Some(conv) => {
                let side = [block.stride, block.stride];
                conv.forward(weights, &a.f_avg_pool2d(side, side, [0, 0], true, false, None)?)?
            }
            None => x.shallow_clone(),
        };
        let h = block.conv1.forward(weights, &a)?;
        let h = block.conv2.forward(weights, &self.act(&h)?)?;
        let mean = h.f_mean_dim(&[2i64, 3][..], false, Kind::Float)?;
        let gate = block.squeeze.forward(weights, &mean)?.f_relu()?;
        let gate = block.excite.forward(weights, &gate)?.f_sigmoid()?.f_mul_scalar(2.0 * self.alpha)?;
        // One factor for each frame and channel: squeeze-excite, alpha, skip gain and stochastic depth together.
        let mut factor = gate.f_mul(weights.get(block.skip_gain))?;
        if let Some(keep) = keep {
            factor = factor.f_mul(&keep.f_unsqueeze(-1)?)?;
        }
        Ok(shortcut.f_addcmul(&h, &factor.f_unsqueeze(-1)?.f_unsqueeze(-1)?)?)
    }

    /// relu or gelu, without the factor [`gamma`](Self::gamma), which is in the kernels.
    fn act(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self.activation {
            Activation::Relu => x.f_relu()?,
            Activation::Gelu => x.f_gelu("none")?,
        })
    }

    /// What the activation is multiplied with, so that it keeps the variance of a standard normal input.
    fn gamma(&self) -> f64 {
        match self.activation {
            Activation::Relu => 1.713_958_859_443_664_6,
            Activation::Gelu => 1.701_504_349_708_557_1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetworkPreset;

    #[test]
    fn there_are_kernels_for_the_torsos_of_the_large_presets_and_for_none_that_contradicts_itself() {
        let input = InputShape::Image { channels: 1, height: 210, width: 160 };
        for preset in [NetworkPreset::Paper, NetworkPreset::Desktop] {
            let mut layout = Layout::default();
            let torso = NfNet::new(layout.scope("torso"), &preset.network().torso, input);
            let spec = torso.fused_spec(&layout, input).unwrap();
            assert_eq!(spec.unsupported(), None);
            let mut cut = spec.clone();
            cut.length -= 1;
            let mut wider = spec.clone();
            wider.blocks[1].conv1.inputs *= 2;
            let mut without_shortcut = spec.clone();
            without_shortcut.blocks[0].conv2.outputs *= 2;
            assert!([cut, wider, without_shortcut].iter().all(|spec| spec.unsupported().is_some()));
        }
    }
}
