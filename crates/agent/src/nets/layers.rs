//! Linear layers and convolutions, and an encoder made of them.

use tch::{Kind, Tensor};

use super::parameters::{Init, ParameterId, Scope, Weights};
use crate::config::{ConvConfig, StemConfig};
use crate::error::Result;
use crate::observation::{ImageShape, InputPart, InputShape};

/// How a layer's weight and bias start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerInit {
    /// Both uniform in ±1/√fan_in.
    FanIn,
    /// Weights normal with variance 2/fan_in, biases 0: the output of the following relu is as large as the input.
    BeforeRelu,
}

impl LayerInit {
    /// Declares `weight` and `bias`.
    fn declare(self, scope: &mut Scope<'_>, shape: &[i64]) -> [ParameterId; 2] {
        let fan_in = shape[1..].iter().product::<i64>() as f64;
        let (weight, bias) = match self {
            Self::FanIn => (Init::fan_in_uniform(fan_in), Init::fan_in_uniform(fan_in)),
            Self::BeforeRelu => (Init::Normal { std: (2.0 / fan_in).sqrt() }, Init::Constant(0.0)),
        };
        [scope.declare("weight", shape, weight), scope.declare("bias", &shape[..1], bias)]
    }
}

/// y = W x + b.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// Weight and bias.
    pub parameters: [ParameterId; 2],
}

impl Linear {
    /// Declares `weight` and `bias`.
    pub fn new(mut scope: Scope<'_>, inputs: i64, outputs: i64, init: LayerInit) -> Self {
        scope.count_multiplications(inputs * outputs);
        Self { parameters: init.declare(&mut scope, &[outputs, inputs]) }
    }

    /// Converts the weights to this kind; gradients still flow to the parameters.
    pub fn convert(&self, weights: &mut Weights, kind: Kind) -> Result<()> {
        for id in self.parameters {
            let converted = weights.get(id).f_to_kind(kind)?;
            weights.replace(id, converted);
        }
        Ok(())
    }

    /// `[.., inputs]` to `[.., outputs]`, in the kind of the weights.
    pub fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let [weight, bias] = self.parameters.map(|id| weights.get(id));
        Ok(x.f_to_kind(weight.kind())?.f_linear(weight, Some(bias))?)
    }
}

/// Kernel side, stride and zero padding of a convolution, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Kernel side.
    pub kernel: i64,
    /// Stride.
    pub stride: i64,
    /// Zeros added on every side.
    pub padding: i64,
}

impl Window {
    /// A kernel of odd side that keeps ⌈n / stride⌉ of n pixels.
    pub fn same(kernel: i64, stride: i64) -> Self {
        Self { kernel, stride, padding: kernel / 2 }
    }

    /// Pixels per side after the convolution; 0 where the kernel does not fit.
    pub fn output(&self, side: i64) -> i64 {
        let free = side + 2 * self.padding - self.kernel;
        if free < 0 { 0 } else { free / self.stride + 1 }
    }
}

impl ConvConfig {
    /// Kernel, stride and padding.
    pub fn window(&self) -> Window {
        Window { kernel: self.kernel as i64, stride: self.stride as i64, padding: self.padding as i64 }
    }
}

impl StemConfig {
    /// Kernel, stride and padding.
    pub fn window(&self) -> Window {
        Window::same(self.kernel as i64, self.stride as i64)
    }
}

/// Counts a convolution and returns the shape of its kernel; `image` becomes the shape of the output.
pub fn kernel_shape(scope: &mut Scope<'_>, image: &mut ImageShape, outputs: i64, window: Window) -> [i64; 4] {
    let shape = [outputs, image.channels, window.kernel, window.kernel];
    *image = ImageShape { channels: outputs, height: window.output(image.height), width: window.output(image.width) };
    scope.count_multiplications(shape.iter().product::<i64>() * image.height * image.width);
    shape
}

/// A convolution with a bias.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// Weight and bias.
    pub parameters: [ParameterId; 2],
    /// Kernel, stride and padding.
    pub window: Window,
}

impl Conv {
    /// Declares `weight` and `bias`; `image` becomes the shape of the output.
    pub fn new(mut scope: Scope<'_>, image: &mut ImageShape, outputs: i64, window: Window, init: LayerInit) -> Self {
        let shape = kernel_shape(&mut scope, image, outputs, window);
        Self { parameters: init.declare(&mut scope, &shape), window }
    }

    /// `[frames, inputs, h, w]` to `[frames, outputs, h', w']`.
    pub fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let [weight, bias] = self.parameters.map(|id| weights.get(id));
        convolve(x, weight, bias, self.window.stride, self.window.padding)
    }
}

/// Convolution with a square stride and padding.
pub fn convolve(x: &Tensor, weight: &Tensor, bias: &Tensor, stride: i64, padding: i64) -> Result<Tensor> {
    let (_, _, height, width) = weight.size4()?;
    if stride > 1 && (height, width, padding) == (1, 1, 0) {
        // Slices the pixels first: with 4 channels, oneDNN's strided kernel for AVX2 writes the gradient out of bounds.
        let seen = x.f_slice(2, None, None, stride)?.f_slice(3, None, None, stride)?;
        return convolve(&seen, weight, bias, 1, 0);
    }
    Ok(x.f_conv2d(weight, Some(bias), [stride, stride], [padding, padding], [1, 1], 1)?)
}

/// relu(x Wᵀ + b), one kernel on a GPU.
pub fn linear_relu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    // The binding passes its flag as β, the factor of the bias: `true` is 1, and the activation stays relu.
    Ok(bias.f_internal_addmm_activation(x, &weight.f_transpose(0, 1)?, true)?)
}

/// Convolutions for images, or linear layers for flat observations, with a relu after each.
///
/// The body of action prediction, RND and the simpler torsos.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// Layers `conv1`, `conv2`, ...; none for flat observations.
    pub convolutions: Vec<Conv>,
    /// Layers `linear1`, `linear2`, ...; none for images.
    linears: Vec<Linear>,
    /// Number of output values.
    pub outputs: i64,
}

impl Encoder {
    /// Declares the layers for observations of this shape; the convolutions must fit.
    pub fn new(scope: &mut Scope<'_>, convolutions: &[ConvConfig], hidden: &[usize], input: InputShape) -> Self {
        let (mut encoder, init) = (Self { convolutions: vec![], linears: vec![], outputs: 0 }, LayerInit::BeforeRelu);
        match input {
            InputShape::Image(mut image) => {
                for (i, conv) in convolutions.iter().enumerate() {
                    let scope = scope.scope(&format!("conv{}", i + 1));
                    encoder.convolutions.push(Conv::new(scope, &mut image, conv.channels as i64, conv.window(), init));
                }
                encoder.outputs = image.values();
            }
            InputShape::Flat(inputs) => {
                encoder.outputs = inputs;
                for (i, &width) in hidden.iter().enumerate() {
                    let inputs = std::mem::replace(&mut encoder.outputs, width as i64);
                    let scope = scope.scope(&format!("linear{}", i + 1));
                    encoder.linears.push(Linear::new(scope, inputs, width as i64, init));
                }
            }
        }
        encoder
    }

    /// Declares an encoder for each part of an observation.
    pub fn of_parts(
        scope: &mut Scope<'_>,
        convolutions: &[ConvConfig],
        hidden: &[usize],
        parts: &[InputPart],
    ) -> Vec<Self> {
        parts.iter().map(|part| Self::new(&mut scope.part(&part.name), convolutions, hidden, part.shape)).collect()
    }

    /// `[frames, ..]` as prepared from observations to `[frames, outputs]`.
    pub fn forward(&self, weights: &Weights, input: &Tensor) -> Result<Tensor> {
        let mut x = input.shallow_clone();
        for layer in &self.convolutions {
            x = layer.forward(weights, &x)?.f_relu()?;
        }
        for layer in &self.linears {
            x = layer.forward(weights, &x)?.f_relu()?;
        }
        Ok(x.f_flatten(1, -1)?)
    }
}

/// Encoders and a linear layer over all of them.
///
/// This is f, each network of RND, and the plain convolutional torso.
#[derive(Clone, Debug)]
pub struct EncoderLinear {
    /// The convolutions or hidden layers of each part of an observation.
    pub encoders: Vec<Encoder>,
    /// The output layer.
    pub output: Linear,
}

impl EncoderLinear {
    /// Declares the output layer `name` above encoders.
    pub fn new(scope: &mut Scope<'_>, name: &str, encoders: Vec<Encoder>, outputs: i64) -> Self {
        let inputs = encoders.iter().map(|encoder| encoder.outputs).sum();
        let output = Linear::new(scope.scope(name), inputs, outputs, LayerInit::FanIn);
        Self { encoders, output }
    }

    /// `[frames, ..]` of each part as prepared from observations to `[frames, outputs]`.
    pub fn forward(&self, weights: &Weights, inputs: &[Tensor]) -> Result<Tensor> {
        let encoded = self.encoders.iter().zip(inputs).map(|(encoder, input)| encoder.forward(weights, input));
        self.output.forward(weights, &side_by_side(encoded.collect::<Result<_>>()?)?)
    }
}

/// `[frames, ..]` of each part as one tensor.
pub fn side_by_side(parts: Vec<Tensor>) -> Result<Tensor> {
    Ok(match &parts[..] {
        [part] => part.shallow_clone(),
        parts => Tensor::f_cat(parts, -1)?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand::SeedableRng;
    use tch::{Device, Kind};

    use super::*;
    use crate::Random;
    use crate::nets::parameters::{Layout, ParameterSet};

    #[test]
    fn encoder_preserves_the_scale_of_its_input() {
        let mut layout = Layout::default();
        let convolutions = [64, 64, 64].map(|channels| ConvConfig { channels, kernel: 3, stride: 1, padding: 0 });
        let hidden = [256, 256, 256];
        let shape = InputShape::Image(ImageShape { channels: 4, height: 9, width: 9 });
        let image = Encoder::new(&mut layout.scope("image"), &convolutions, &hidden, shape);
        let flat = Encoder::new(&mut layout.scope("flat"), &convolutions, &hidden, InputShape::Flat(256));
        let parameters =
            ParameterSet::initialised(&Arc::new(layout), &mut Random::seed_from_u64(1), Device::Cpu).unwrap();
        let weights = parameters.weights();
        tch::manual_seed(1);
        for (encoder, size) in [(image, &[8, 4, 9, 9][..]), (flat, &[32, 256][..])] {
            let x = Tensor::randn(size, (Kind::Float, Device::Cpu));
            let y = encoder.forward(&weights, &x).unwrap();
            let share = (y.square().mean(Kind::Double) / x.square().mean(Kind::Double)).double_value(&[]);
            // In expectation 1; three layers of weights in ±1/√inputs would leave 1/216.
            assert!((0.5..2.0).contains(&share), "{share}");
        }
    }
}
