//! The input gradient of a 3x3 convolution behind a bias and a relu, in one kernel of cuDNN.
//!
//! The kernel computes the gradient, masks it by the relu and sums it to the bias's gradient, instead of three passes
//! over memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tch::{Kind, Tensor};

use crate::cudnn::{Descriptor, FusedKernel, FusedOperations, descriptor};
use crate::error::{Error, Result};
use crate::operand::{address, expect_size};
use crate::stream::{Event, Stream};

/// Shape of channels-last bf16 tensors, `[frames, channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of images.
    pub frames: i64,
    /// Channels, in and out.
    pub channels: i64,
    /// Rows.
    pub height: i64,
    /// Columns.
    pub width: i64,
}

impl Shape {
    fn elements(&self) -> i64 {
        self.frames * self.channels * self.height * self.width
    }
}

/// Inputs of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Gradient of the convolution's output.
    pub gradient: &'a Tensor,
    /// The convolution's input, relu(x + bias).
    pub activated: &'a Tensor,
    /// `[channels, channels, 3, 3]`, channels-last.
    pub kernel: &'a Tensor,
}

/// cuDNN's kernel for one shape.
#[derive(Debug)]
pub struct ReluDgrad {
    shape: Shape,
    plan: FusedKernel,
}

/// Numbers of the tensors.
const GRADIENT: i64 = 1;
const KERNEL: i64 = 2;
const ACTIVATED: i64 = 3;
const UNMASKED: i64 = 4;
const MASKED: i64 = 5;
const SUM: i64 = 6;

/// cuDNN's element types.
const F32: i32 = 0;
const BF16: i32 = 9;
/// Type of the attributes that hold one.
const KIND_OF_ELEMENT: i32 = 1;

/// Number of kernels to try; cuDNN takes about a second to compile each.
const CANDIDATES: usize = 4;
/// Maximum workspace of a kernel, in bytes.
const MAX_WORKSPACE: i64 = 64 << 20;
/// Minimum number of elements: below it, choosing a kernel takes seconds to save microseconds.
const MIN_ELEMENTS: i64 = 1 << 26;

impl ReluDgrad {
    /// Returns cuDNN's kernels for a shape, best first by its own estimate.
    ///
    /// The iterator compiles them one by one.
    pub fn candidates(shape: Shape) -> Result<impl Iterator<Item = Result<Self>>> {
        Self::of_ranks(shape, 0..CANDIDATES)
    }

    fn of_ranks(shape: Shape, ranks: Range<usize>) -> Result<impl Iterator<Item = Result<Self>>> {
        let plans = Arc::new(graph(shape)?).plans(ranks)?;
        Ok(plans.map(move |plan| Ok(Self { shape, plan: plan? })))
    }

    /// Returns the masked gradient of the convolution's input, and adds its sum per channel to `sum`.
    ///
    /// `sum` is f32 `[channels]` and must hold zeros.
    pub fn run(&self, inputs: Inputs<'_>, sum: &Tensor) -> Result<Tensor> {
        let Shape { frames, channels, height, width } = self.shape;
        let Inputs { gradient, activated, kernel } = inputs;
        let size = [frames, channels, height, width];
        let device = gradient.device();
        // Also refuses a gradient that is not on a GPU.
        expect_size("the sum of a gradient", sum, Kind::Float, &[channels], device)?;
        let fits = |tensor: &Tensor, size: [i64; 4]| {
            tensor.size() == size
                && tensor.stride() == channels_last(size)
                && tensor.kind() == Kind::BFloat16
                && tensor.device() == device
        };
        if !(fits(gradient, size) && fits(activated, size) && fits(kernel, [channels, channels, 3, 3])) {
            let describe =
                |x: &Tensor| format!("{:?} {:?} by {:?} on {:?}", x.kind(), x.size(), x.stride(), x.device());
            let found = format!("{}, {} and {}", describe(gradient), describe(activated), describe(kernel));
            let expected = format!("channels-last bf16 of {size:?} on {device:?}");
            return Err(Error::Shape { what: "the input of a gradient", found, expected });
        }
        let masked = Tensor::f_empty([frames, height, width, channels], (Kind::BFloat16, device))?;
        let workspace = Tensor::f_empty([self.plan.workspace.max(16)], (Kind::Uint8, device))?;
        let tensors = [(GRADIENT, gradient), (KERNEL, kernel), (ACTIVATED, activated), (MASKED, &masked), (SUM, sum)];
        let tensors = tensors.map(|(number, tensor)| (number, address(tensor)));
        // SAFETY: kinds, sizes and devices were checked above, and the workspace has the size of the plan.
        unsafe { self.plan.run(&tensors, address(&workspace))? };
        Ok(masked.f_permute([0, 3, 1, 2])?)
    }
}

/// Returns the channels-last strides of a tensor of this size.
fn channels_last([_, c, h, w]: [i64; 4]) -> [i64; 4] {
    [c * h * w, 1, c * w, c]
}

/// Builds the graph: input gradient of the convolution, mask of the relu, sum per channel.
fn graph(shape: Shape) -> Result<FusedOperations> {
    let Shape { frames, channels, height, width } = shape;
    let size = [frames, channels, height, width];
    let tensor = |number: i64, size: [i64; 4], element: i32| -> Result<Descriptor> {
        const ALIGNMENT: i32 = 900;
        const ELEMENT: i32 = 901;
        const SIZE: i32 = 902;
        const STRIDES: i32 = 903;
        const NUMBER: i32 = 906;
        const VIRTUAL: i32 = 907;
        Descriptor::new(descriptor::TENSOR)?
            .choice(ELEMENT, KIND_OF_ELEMENT, element)?
            .integers(SIZE, &size)?
            .integers(STRIDES, &channels_last(size))?
            .integers(NUMBER, &[number])?
            .integers(ALIGNMENT, &[16])?
            .flag(VIRTUAL, number == UNMASKED)?
            .finalized()
    };
    let gradient = tensor(GRADIENT, size, BF16)?;
    let kernel = tensor(KERNEL, [channels, channels, 3, 3], BF16)?;
    let activated = tensor(ACTIVATED, size, BF16)?;
    let unmasked = tensor(UNMASKED, size, F32)?;
    let masked = tensor(MASKED, size, BF16)?;
    let sum = tensor(SUM, [1, channels, 1, 1], F32)?;
    let (dgrad, convolution) = input_gradient(&gradient, &kernel, &unmasked)?;
    let (mask, relu) = relu_mask(&unmasked, &activated, &masked)?;
    let (sums, reduction) = channel_sums(&masked, &sum)?;
    let parts = vec![convolution, relu, reduction, gradient, kernel, activated, unmasked, masked, sum];
    FusedOperations::new(vec![dgrad, mask, sums], parts)
}

/// Returns the operation and its description without the tensors; likewise below.
fn input_gradient(gradient: &Descriptor, kernel: &Descriptor, output: &Descriptor) -> Result<(Descriptor, Descriptor)> {
    const COMPUTE: i32 = 100;
    const MODE: i32 = 101;
    const KIND_OF_MODE: i32 = 7;
    const CROSS_CORRELATION: i32 = 1;
    const SPATIAL_DIMENSIONS: i32 = 106;
    // Dilations, strides and paddings at both ends.
    const EACH_ONE: [i32; 4] = [102, 103, 104, 105];
    let mut convolution = Descriptor::new(descriptor::CONVOLUTION)?
        .choice(COMPUTE, KIND_OF_ELEMENT, F32)?
        .choice(MODE, KIND_OF_MODE, CROSS_CORRELATION)?
        .integers(SPATIAL_DIMENSIONS, &[2])?;
    for attribute in EACH_ONE {
        convolution = convolution.integers(attribute, &[1, 1])?;
    }
    let convolution = convolution.finalized()?;
    const ALPHA: i32 = 706;
    const BETA: i32 = 707;
    const CONVOLUTION: i32 = 708;
    const KERNEL: i32 = 709;
    const INPUT_GRADIENT: i32 = 710;
    const OUTPUT_GRADIENT: i32 = 711;
    let operation = Descriptor::new(descriptor::INPUT_GRADIENT)?
        .descriptors(CONVOLUTION, &[&convolution])?
        .descriptors(KERNEL, &[kernel])?
        .descriptors(OUTPUT_GRADIENT, &[gradient])?
        .descriptors(INPUT_GRADIENT, &[output])?
        .factor(ALPHA, 1.0)?
        .factor(BETA, 0.0)?
        .finalized()?;
    Ok((operation, convolution))
}

fn relu_mask(gradient: &Descriptor, activated: &Descriptor, output: &Descriptor) -> Result<(Descriptor, Descriptor)> {
    const MODE: i32 = 0;
    const KIND_OF_MODE: i32 = 14;
    const RELU_BACKWARD: i32 = 200;
    const COMPUTE: i32 = 1;
    let relu = Descriptor::new(descriptor::POINTWISE)?
        .choice(MODE, KIND_OF_MODE, RELU_BACKWARD)?
        .choice(COMPUTE, KIND_OF_ELEMENT, F32)?
        .finalized()?;
    const POINTWISE: i32 = 750;
    const INPUT: i32 = 751;
    const INPUT_GRADIENT: i32 = 756;
    const OUTPUT_GRADIENT: i32 = 757;
    let operation = Descriptor::new(descriptor::POINTWISE_OPERATION)?
        .descriptors(POINTWISE, &[&relu])?
        .descriptors(OUTPUT_GRADIENT, &[gradient])?
        .descriptors(INPUT, &[activated])?
        .descriptors(INPUT_GRADIENT, &[output])?
        .finalized()?;
    Ok((operation, relu))
}

fn channel_sums(input: &Descriptor, output: &Descriptor) -> Result<(Descriptor, Descriptor)> {
    const OPERATOR: i32 = 1600;
    const KIND_OF_OPERATOR: i32 = 18;
    const ADD: i32 = 0;
    const COMPUTE: i32 = 1601;
    let reduction = Descriptor::new(descriptor::REDUCTION)?
        .choice(OPERATOR, KIND_OF_OPERATOR, ADD)?
        .choice(COMPUTE, KIND_OF_ELEMENT, F32)?
        .finalized()?;
    const INPUT: i32 = 1610;
    const OUTPUT: i32 = 1611;
    const REDUCTION: i32 = 1612;
    let operation = Descriptor::new(descriptor::REDUCTION_OPERATION)?
        .descriptors(REDUCTION, &[&reduction])?
        .descriptors(INPUT, &[input])?
        .descriptors(OUTPUT, &[output])?
        .finalized()?;
    Ok((operation, reduction))
}

/// Choices made in this process.
#[derive(Default)]
struct Known {
    /// The fastest candidate by channels, rows and columns; `None` if the plain version is faster.
    fastest: HashMap<[i64; 3], Option<usize>>,
    kernels: HashMap<Shape, Option<Arc<ReluDgrad>>>,
}

/// Returns the kernel for a shape, or `None` if `plain`, which computes the same, is faster or cuDNN fails.
///
/// The choice is made once per size of image.
pub(crate) fn fastest(
    shape: Shape,
    inputs: Inputs<'_>,
    plain: &dyn Fn(&Tensor) -> Result<Tensor>,
) -> Option<Arc<ReluDgrad>> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    if shape.elements() < MIN_ELEMENTS {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Known { fastest, kernels } = known.get_or_insert_default();
    if let Some(kernel) = kernels.get(&shape) {
        return kernel.clone();
    }
    let image = [shape.channels, shape.height, shape.width];
    let chosen = *fastest.entry(image).or_insert_with(|| try_all(shape, inputs, plain).unwrap_or(None));
    let kernel = chosen.and_then(|rank| ReluDgrad::of_ranks(shape, rank..rank + 1).ok()?.next()?.ok());
    let kernel = kernel.filter(|kernel| kernel.plan.workspace <= MAX_WORKSPACE).map(Arc::new);
    kernels.insert(shape, kernel.clone());
    kernel
}

/// Returns the rank of the fastest candidate, if it is faster than `plain`.
fn try_all(shape: Shape, inputs: Inputs<'_>, plain: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Option<usize>> {
    let sum = Tensor::f_zeros([shape.channels], (Kind::Float, inputs.gradient.device()))?;
    let mut best = (milliseconds(&|| plain(&sum))?, None);
    for (rank, kernel) in ReluDgrad::candidates(shape)?.enumerate() {
        let Ok(kernel) = kernel else { continue };
        if kernel.plan.workspace > MAX_WORKSPACE {
            continue;
        }
        if let Ok(time) = milliseconds(&|| kernel.run(inputs, &sum))
            && time < best.0
        {
            best = (time, Some(rank));
        }
    }
    Ok(best.1)
}

/// Returns the shortest of three times, after a warm-up.
fn milliseconds(work: &dyn Fn() -> Result<Tensor>) -> Result<f64> {
    let stream = Stream::current()?;
    let (mut start, mut end) = (Event::timing()?, Event::timing()?);
    drop(work()?);
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        start.record(&stream)?;
        drop(work()?);
        end.record(&stream)?;
        end.synchronize()?;
        best = best.min(start.milliseconds_until(&end)?);
    }
    Ok(best)
}
