//! A stack of plain convolutions or, for flat observations, of linear layers, with a relu after each.
//!
//! It is the body of the action prediction and RND networks and of the plainer torsos.

use tch::Tensor;

use super::layers::{Conv, Linear, Window};
use super::parameters::{Scope, Weights};
use crate::config::ConvConfig;
use crate::error::Result;
use crate::observation::InputShape;

/// What is put on top of an image, and on top of a flat observation.
#[derive(Clone, Copy, Debug)]
pub struct EncoderShape<'a> {
    /// Convolutions for images.
    pub convolutions: &'a [ConvConfig],
    /// Widths of the linear layers for flat observations.
    pub hidden: &'a [usize],
}

/// Layers `conv1`, `conv2`, ... or `linear1`, `linear2`, ...
#[derive(Clone, Debug)]
pub struct Encoder {
    convolutions: Vec<Conv>,
    linears: Vec<Linear>,
    outputs: i64,
    flops: f64,
}

impl Encoder {
    /// Declares the layers for observations of this shape; the convolutions fit, as validation has made sure.
    pub fn new(scope: &mut Scope<'_>, shape: EncoderShape<'_>, input: InputShape) -> Self {
        let (mut convolutions, mut linears, mut flops) = (vec![], vec![], 0.0);
        let outputs = match input {
            InputShape::Image { mut channels, mut height, mut width } => {
                for (i, conv) in shape.convolutions.iter().enumerate() {
                    let (outputs, window) = (conv.channels as i64, conv.window());
                    let scope = scope.scope(&format!("conv{}", i + 1));
                    convolutions.push(Conv::before_relu(scope, channels, outputs, window));
                    (height, width) = (window.output(height), window.output(width));
                    flops += 2.0 * (height * width * window.kernel * window.kernel * channels * outputs) as f64;
                    channels = outputs;
                }
                channels * height * width
            }
            InputShape::Flat(mut inputs) => {
                for (i, &outputs) in shape.hidden.iter().enumerate() {
                    let scope = scope.scope(&format!("linear{}", i + 1));
                    linears.push(Linear::before_relu(scope, inputs, outputs as i64));
                    flops += 2.0 * (inputs * outputs as i64) as f64;
                    inputs = outputs as i64;
                }
                inputs
            }
        };
        Self { convolutions, linears, outputs, flops }
    }

    /// The convolutions, each followed by a relu; none for flat observations.
    pub fn convolutions(&self) -> &[Conv] {
        &self.convolutions
    }

    /// Number of values that come out.
    pub fn outputs(&self) -> i64 {
        self.outputs
    }

    /// Operations of one forward pass of one frame.
    pub fn flops(&self) -> f64 {
        self.flops
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

impl ConvConfig {
    /// Kernel, stride and padding.
    pub fn window(&self) -> Window {
        Window { kernel: self.kernel as i64, stride: self.stride as i64, padding: self.padding as i64 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tch::{Device, Kind};

    use super::*;
    use crate::nets::parameters::{Layout, ParameterSet};
    use crate::random::Random;

    #[test]
    fn what_goes_in_comes_out_about_as_large() {
        let mut layout = Layout::default();
        let convolutions = [64, 64, 64].map(|channels| ConvConfig { channels, kernel: 3, stride: 1, padding: 0 });
        let shape = EncoderShape { convolutions: &convolutions, hidden: &[256, 256, 256] };
        let image =
            Encoder::new(&mut layout.scope("image"), shape, InputShape::Image { channels: 4, height: 9, width: 9 });
        let flat = Encoder::new(&mut layout.scope("flat"), shape, InputShape::Flat(256));
        let parameters = ParameterSet::initialised(&Arc::new(layout), &mut Random::new(1), Device::Cpu).unwrap();
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
