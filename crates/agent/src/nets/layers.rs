//! Linear layers and plain convolutions, the pieces most networks are made of.

use tch::{Kind, Tensor};

use super::parameters::{Init, ParameterId, Scope, Weights};
use crate::error::Result;

/// y = W x + b.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    weight: ParameterId,
    bias: ParameterId,
}

impl Linear {
    /// Declares `weight` and `bias`, uniform in ±1/√inputs.
    pub fn new(mut scope: Scope<'_>, inputs: i64, outputs: i64) -> Self {
        let init = fan_in_uniform(inputs);
        let weight = scope.declare("weight", &[outputs, inputs], init);
        let bias = scope.declare("bias", &[outputs], init);
        Self { weight, bias }
    }

    /// The same in front of a relu, with weights that keep the size of what they are fed, and biases of 0.
    pub fn before_relu(mut scope: Scope<'_>, inputs: i64, outputs: i64) -> Self {
        let weight = scope.declare("weight", &[outputs, inputs], kept_by_relu(inputs));
        let bias = scope.declare("bias", &[outputs], Init::Constant(0.0));
        Self { weight, bias }
    }

    /// Computes with weights of this kind from now on; gradients go on to the parameters as they are.
    pub fn convert(&self, weights: &mut Weights, kind: Kind) -> Result<()> {
        for id in [self.weight, self.bias] {
            let converted = weights.get(id).f_to_kind(kind)?;
            weights.replace(id, converted);
        }
        Ok(())
    }

    /// `[.., inputs]` to `[.., outputs]`, in the kind of the weights.
    pub fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let weight = weights.get(self.weight);
        Ok(x.f_to_kind(weight.kind())?.f_linear(weight, Some(weights.get(self.bias)))?)
    }

    /// Places of weight and bias.
    pub fn parameters(&self) -> [ParameterId; 2] {
        [self.weight, self.bias]
    }
}

/// A convolution with a bias.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    weight: ParameterId,
    bias: ParameterId,
    window: Window,
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

    /// Pixels a side after the convolution; 0 where the kernel does not fit.
    pub fn output(&self, side: i64) -> i64 {
        let free = side + 2 * self.padding - self.kernel;
        if free < 0 { 0 } else { free / self.stride + 1 }
    }
}

impl Conv {
    /// Declares `weight` and `bias`, uniform in ±1/√(inputs · kernel²).
    pub fn new(mut scope: Scope<'_>, inputs: i64, outputs: i64, window: Window) -> Self {
        let kernel = window.kernel;
        let init = fan_in_uniform(inputs * kernel * kernel);
        let weight = scope.declare("weight", &[outputs, inputs, kernel, kernel], init);
        let bias = scope.declare("bias", &[outputs], init);
        Self { weight, bias, window }
    }

    /// The same in front of a relu, with weights that keep the size of what they are fed, and biases of 0.
    pub fn before_relu(mut scope: Scope<'_>, inputs: i64, outputs: i64, window: Window) -> Self {
        let (kernel, init) = (window.kernel, kept_by_relu(inputs * window.kernel * window.kernel));
        let weight = scope.declare("weight", &[outputs, inputs, kernel, kernel], init);
        let bias = scope.declare("bias", &[outputs], Init::Constant(0.0));
        Self { weight, bias, window }
    }

    /// `[frames, inputs, h, w]` to `[frames, outputs, h', w']`.
    pub fn forward(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let Window { stride, padding, .. } = self.window;
        convolve(x, weights.get(self.weight), weights.get(self.bias), stride, padding)
    }

    /// Places of weight and bias.
    pub fn parameters(&self) -> [ParameterId; 2] {
        [self.weight, self.bias]
    }

    /// Kernel side, stride and padding.
    pub fn window(&self) -> Window {
        self.window
    }
}

/// Convolution with a square stride and padding.
pub fn convolve(x: &Tensor, weight: &Tensor, bias: &Tensor, stride: i64, padding: i64) -> Result<Tensor> {
    let (_, _, height, width) = weight.size4()?;
    if stride > 1 && (height, width, padding) == (1, 1, 0) {
        // The pixels it sees, taken first. Left to stride, the gradient of oneDNN's kernel for AVX2 is written past the
        // end of its memory where there are 4 channels.
        let seen = x.f_slice(2, None, None, stride)?.f_slice(3, None, None, stride)?;
        return convolve(&seen, weight, bias, 1, 0);
    }
    Ok(x.f_conv2d(weight, Some(bias), [stride, stride], [padding, padding], [1, 1], 1)?)
}

/// relu(x Wᵀ + b), which on a GPU is one kernel.
pub fn linear_relu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    // The binding hands its one flag on as β, the factor of the bias: `true` is 1, and the activation stays relu.
    Ok(bias.f_internal_addmm_activation(x, &weight.f_transpose(0, 1)?, true)?)
}

/// Uniform in ±1/√fan_in.
pub fn fan_in_uniform(fan_in: i64) -> Init {
    Init::Uniform { bound: 1.0 / (fan_in as f64).sqrt() }
}

/// Normal with variance 2/fan_in: a relu leaves half of it.
fn kept_by_relu(fan_in: i64) -> Init {
    Init::Normal { std: (2.0 / fan_in as f64).sqrt() }
}
