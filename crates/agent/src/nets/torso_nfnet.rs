//! The normalizer-free residual torso: scaled weight standardisation instead of normalisation layers.

use tch::{Kind, Tensor};
use torch_ext::nf_torso::{BlockSpec, ConvSpec, LinearSpec, TorsoSpec};

use super::layers::{LayerInit, Linear, Window, convolve, kernel_shape};
use super::parameters::{Init, Layout, Parameter, ParameterId, Scope, Weights};
use super::torso::{BlockPlan, block_plans};
use crate::config::{Activation, TorsoConfig};
use crate::error::Result;
use crate::observation::ImageShape;

/// Lower bound of variance times fan-in in the standardisation.
const VARIANCE_FLOOR: f64 = 1e-4;

/// A convolution whose kernel is standardised before use.
#[derive(Clone, Copy, Debug)]
struct StandardisedConv {
    weight: ParameterId,
    gain: ParameterId,
    bias: ParameterId,
    fan_in: i64,
    window: Window,
    /// Constant factors of the input: scaling the kernel is cheaper than scaling the activations.
    scale: f64,
}

impl StandardisedConv {
    /// Declares `weight`, `gain` and `bias`; `image` becomes the shape of the output.
    fn new(mut scope: Scope<'_>, image: &mut ImageShape, outputs: i64, window: Window, scale: f64) -> Self {
        let shape = kernel_shape(&mut scope, image, outputs, window);
        let fan_in = shape[1..].iter().product();
        let std = 1.0 / (fan_in as f64).sqrt();
        Self {
            weight: scope.declare("weight", &shape, Init::Normal { std }),
            gain: scope.declare("gain", &[outputs], Init::Constant(1.0)),
            bias: scope.declare("bias", &[outputs], Init::Constant(0.0)),
            fan_in,
            window,
            scale,
        }
    }

    /// scale · gain · (W - mean) / √max(var · fan_in, 1e-4), mean and population variance for each output channel.
    ///
    /// The kernel becomes channels-last, and so does everything computed from it.
    fn standardise(&self, weights: &mut Weights) -> Result<()> {
        let weight = weights.get(self.weight);
        let (variance, mean) = weight.f_var_mean_correction(&[1i64, 2, 3][..], 0, true)?;
        let factor = variance.f_mul_scalar(self.fan_in as f64)?.f_clamp_min(VARIANCE_FLOOR)?.f_rsqrt()?;
        let factor = factor.f_mul(&weights.get(self.gain).f_view([-1, 1, 1, 1])?)?.f_mul_scalar(self.scale)?;
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
struct NfBlock {
    conv1: StandardisedConv,
    conv2: StandardisedConv,
    /// Where stride or channels change.
    shortcut: Option<StandardisedConv>,
    squeeze: Linear,
    excite: Linear,
    skip_gain: ParameterId,
    stride: i64,
}

/// The normalizer-free torso.
#[derive(Clone, Debug)]
pub struct NfNet {
    stem: StandardisedConv,
    blocks: Vec<NfBlock>,
    activation: Activation,
    alpha: f64,
}

impl NfNet {
    /// Declares stem and stages for images of any size; `image` becomes the shape of the output.
    pub fn new(mut scope: Scope<'_>, config: &TorsoConfig, image: &mut ImageShape) -> Self {
        let (gamma, stem) = (gamma(config.activation), &config.stem);
        let stem = StandardisedConv::new(scope.scope("stem"), image, stem.channels as i64, stem.window(), 1.0);
        let (mut blocks, mut variance) = (vec![], 1.0f64);
        for BlockPlan { name, channels: outputs, stride, first } in block_plans(config) {
            if first {
                variance = 1.0;
            }
            let (mut scope, channels) = (scope.scope(&name), image.channels);
            let (window, single) = (Window::same(3, stride), Window::same(3, 1));
            let squeezed = ((outputs as f64 * config.squeeze_excite_ratio) as i64).max(1);
            // β, 1 / the expected standard deviation of the block's input.
            let beta = 1.0 / variance.sqrt();
            let conv1 = StandardisedConv::new(scope.scope("conv1"), image, outputs, window, gamma * beta);
            let mut pooled = ImageShape { channels, ..*image };
            blocks.push(NfBlock {
                conv1,
                conv2: StandardisedConv::new(scope.scope("conv2"), image, outputs, single, gamma),
                shortcut: (stride > 1 || channels != outputs).then(|| {
                    let scale = gamma * beta * stride as f64;
                    StandardisedConv::new(scope.scope("shortcut"), &mut pooled, outputs, single, scale)
                }),
                squeeze: Linear::new(scope.scope("squeeze_excite.down"), outputs, squeezed, LayerInit::FanIn),
                excite: Linear::new(scope.scope("squeeze_excite.up"), squeezed, outputs, LayerInit::FanIn),
                skip_gain: scope.declare("skip_gain", &[1], Init::Constant(0.0)),
                stride,
            });
            variance += config.alpha * config.alpha;
        }
        Self { stem, blocks, activation: config.activation, alpha: config.alpha }
    }

    /// The specification of this torso for the fused GPU kernels, for images of bytes.
    ///
    /// `network` are the parameters of the network that begins with the torso's; offsets count from its `start`. `None` if
    /// there are no kernels for this activation or stem.
    pub fn fused_spec(
        &self,
        network: &[Parameter],
        layout: &Layout,
        image: ImageShape,
        start: i64,
    ) -> Option<TorsoSpec> {
        let ImageShape { height, width, .. } = image;
        let place = |id| layout.parameter(id).offset - start;
        let conv = |conv: &StandardisedConv| {
            let [outputs, inputs, ..] = layout.parameter(conv.weight).shape[..] else {
                unreachable!("a kernel has four dimensions")
            };
            ConvSpec {
                weight: place(conv.weight),
                gain: place(conv.gain),
                bias: place(conv.bias),
                inputs,
                outputs,
                scale: conv.scale,
            }
        };
        let linear = |linear: &Linear| {
            let [weight, bias] = linear.parameters.map(place);
            LinearSpec { weight, bias }
        };
        let blocks = self
            .blocks
            .iter()
            .map(|block| BlockSpec {
                conv1: conv(&block.conv1),
                conv2: conv(&block.conv2),
                shortcut: block.shortcut.as_ref().map(conv),
                down: linear(&block.squeeze),
                up: linear(&block.excite),
                squeezed: layout.parameter(block.squeeze.parameters[0]).shape[0],
                skip_gain: place(block.skip_gain),
                stride: block.stride,
            })
            .collect();
        let own = network.iter().take_while(|parameter| parameter.name.contains("torso."));
        let parameters: Vec<_> = own.map(|parameter| (parameter.offset - start, parameter.shape.clone())).collect();
        let length = parameters.iter().map(|(place, shape)| place + shape.iter().product::<i64>()).max()?;
        (self.activation == Activation::Relu && self.stem.window == Window::same(7, 4)).then_some(TorsoSpec {
            height,
            width,
            stem: conv(&self.stem),
            blocks,
            branch_scale: 2.0 * self.alpha,
            output_scale: gamma(self.activation),
            length,
            parameters,
        })
    }

    /// Number of residual blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Standardises every kernel, once per forward pass.
    pub fn prepare(&self, weights: &mut Weights) -> Result<()> {
        let blocks =
            self.blocks.iter().flat_map(|block| [&block.conv1, &block.conv2].into_iter().chain(&block.shortcut));
        [&self.stem].into_iter().chain(blocks).try_for_each(|conv| conv.standardise(weights))
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
        Ok(self.act(&x)?.f_mul_scalar(gamma(self.activation))?.f_flatten(1, -1)?)
    }

    /// out = shortcut + α · skip gain · keep · SE(conv2(act(conv1(a)))), with a = act(x) · β.
    fn block(&self, weights: &Weights, block: &NfBlock, x: &Tensor, keep: Option<&Tensor>) -> Result<Tensor> {
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
        // One factor per frame and channel: squeeze-excite, alpha, skip gain and stochastic depth.
        let mut factor = gate.f_mul(weights.get(block.skip_gain))?;
        if let Some(keep) = keep {
            factor = factor.f_mul(&keep.f_unsqueeze(-1)?)?;
        }
        Ok(shortcut.f_addcmul(&h, &factor.f_unsqueeze(-1)?.f_unsqueeze(-1)?)?)
    }

    /// relu or gelu without the factor [`gamma`], which is folded into the kernels.
    fn act(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self.activation {
            Activation::Relu => x.f_relu()?,
            Activation::Gelu => x.f_gelu("none")?,
        })
    }
}

/// The factor by which an activation keeps the variance of a standard normal input.
fn gamma(activation: Activation) -> f64 {
    match activation {
        Activation::Relu => 1.713_958_859_443_664_6,
        Activation::Gelu => 1.701_504_349_708_557_1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetworkConfig;

    #[test]
    fn fused_kernels_support_the_large_presets_and_refuse_inconsistent_specifications() {
        let quick = include_str!("../../../../configs/quick.toml");
        let quick: NetworkConfig = config_schema::read_table(quick, "agent.network").unwrap();
        let paper = NetworkConfig::default();
        for (network, channels, height, width) in [(&paper, 1, 210, 160), (&paper, 3, 84, 84), (&quick, 4, 105, 80)] {
            let image = ImageShape { channels, height, width };
            let mut layout = Layout::default();
            let torso = NfNet::new(layout.scope("torso"), &network.torso, &mut image.clone());
            let spec = torso.fused_spec(layout.parameters(), &layout, image, 0).unwrap();
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
