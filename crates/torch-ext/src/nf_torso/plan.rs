//! What is computed once for a torso: shapes, launch sizes and offsets in buffers.

use std::sync::Arc;

use tch::{Device, Tensor};

use super::stem::StemShape;
use super::{BlockSpec, ConvSpec, LinearSpec, TorsoSpec, module};
use crate::driver::driver;
use crate::error::Result;
use crate::module::Module;

/// The most elements of a row that is only copied to bf16.
const COPY_PIECE: i64 = 1024;

/// Thread blocks of the relu's backward pass, each with its part of the bias gradient.
pub(super) const RELU_PARTS: i64 = 528;

/// A row of the standardisation's table, as the kernels read it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Row {
    kind: i32,
    source: i32,
    length: i32,
    target: i32,
    gain: i32,
    gradient: i32,
    inputs: i32,
    channel: i32,
    scale: f32,
}

const KERNEL: i32 = 0;
const STEM: i32 = 1;
const COPY: i32 = 2;

/// A convolution and the offset of its weight among the 16-bit weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvPlan {
    pub spec: ConvSpec,
    pub weight: i64,
}

/// A block with its sizes and offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPlan {
    pub spec: BlockSpec,
    pub channels: i64,
    pub squeezed: i64,
    pub height: i64,
    pub width: i64,
    pub conv1: ConvPlan,
    pub conv2: ConvPlan,
    pub shortcut: Option<ConvPlan>,
    /// Offset among the 16-bit weights, like the next two.
    pub conv1_bias: i64,
    pub down: i64,
    pub up: i64,
    /// Offset in the sums of small gradients: the product of left and right factors, then biases.
    pub product: i64,
    pub conv1_bias_sum: i64,
    pub shortcut_bias_sum: i64,
    /// Names of the block's kernels.
    pub kernels: BlockKernels,
}

/// Names of the kernels of one width.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockKernels {
    pub forward: &'static str,
    pub forward_pool: &'static str,
    pub backward: &'static str,
    pub backward_pool: &'static str,
    pub backward_last: &'static str,
    pub relu_backward: &'static str,
}

macro_rules! kernels_of_width {
    ($channels:expr, $($width:literal)*) => {
        match $channels {
            $($width => BlockKernels {
                forward: concat!("tail_forward_", $width),
                forward_pool: concat!("tail_forward_pool_", $width),
                backward: concat!("tail_backward_", $width),
                backward_pool: concat!("tail_backward_pool_", $width),
                backward_last: concat!("tail_backward_last_", $width),
                relu_backward: concat!("relu_backward_", $width),
            },)*
            other => unreachable!("a torso with blocks of {other} channels is not supported"),
        }
    };
}

impl BlockPlan {
    /// Returns the length of a row of right factors: means, hidden values, one.
    pub fn record_length(&self) -> i64 {
        self.channels + self.squeezed + 8
    }

    /// Returns the length of a row of left factors.
    pub fn row_length(&self) -> i64 {
        2 * self.channels + self.squeezed + 8
    }

    /// Returns the 16-byte words per frame.
    fn words(&self) -> i64 {
        self.height * self.width * self.channels / 8
    }

    /// Returns the threads of the forward kernel, a power of two.
    pub fn forward_threads(&self) -> usize {
        let wanted = (self.words() / 8).clamp(self.channels.max(128), 1024) as u64;
        1 << wanted.ilog2()
    }

    /// Returns the threads of the backward kernel, a power of two.
    pub fn backward_threads(&self) -> usize {
        if self.words() >= 16_384 { 1024 } else { self.forward_threads().min(512) }
    }

    /// Returns the words per frame that the backward kernel keeps in shared memory.
    pub fn cached_words(&self, large_shared_memory: bool) -> i64 {
        if large_shared_memory && self.words() >= 16_384 { 6144 } else { 0 }
    }
}

/// A torso with all sizes and offsets.
#[derive(Debug)]
pub(super) struct TorsoPlan {
    pub spec: TorsoSpec,
    pub module: Arc<Module>,
    pub stem: ConvPlan,
    pub stem_shape: StemShape,
    pub blocks: Vec<BlockPlan>,
    pub rows: usize,
    /// Elements of the 16-bit weights.
    pub weights_length: i64,
    /// Elements of the sums of small gradients, the stem's first.
    pub sums_length: i64,
    pub small_parameters: usize,
    pub stem_grid: usize,
    pub large_shared_memory: bool,
}

/// Tables for the kernels, on the GPU.
#[derive(Debug)]
pub(super) struct Tables {
    /// Rows of the standardisation.
    pub rows: Tensor,
    /// Offsets of the gradients of small parameters among the sums, and in the result.
    pub from: Tensor,
    pub to: Tensor,
}

impl Tables {
    pub fn shallow_clone(&self) -> Self {
        Self { rows: self.rows.shallow_clone(), from: self.from.shallow_clone(), to: self.to.shallow_clone() }
    }
}

/// Collects rows and offsets, block by block.
#[derive(Default)]
struct Builder {
    rows: Vec<Row>,
    weights: i64,
    gradients: i64,
    sums: i64,
    from: Vec<i32>,
    to: Vec<i32>,
}

impl Builder {
    fn advance(&mut self, elements: i64) -> i64 {
        let start = self.weights;
        self.weights += (elements + 127) / 128 * 128;
        start
    }

    fn convolution(&mut self, spec: ConvSpec) -> ConvPlan {
        let fan_in = spec.inputs * 9;
        let weight = self.advance(spec.outputs * fan_in);
        for channel in 0..spec.outputs {
            self.rows.push(Row {
                kind: KERNEL,
                source: (spec.weight + channel * fan_in) as i32,
                length: fan_in as i32,
                target: (weight + channel * fan_in) as i32,
                gain: (spec.gain + channel) as i32,
                gradient: (self.gradients + channel * fan_in) as i32,
                inputs: spec.inputs as i32,
                channel: channel as i32,
                scale: spec.scale as f32,
            });
        }
        self.gradients += spec.outputs * fan_in;
        ConvPlan { spec, weight }
    }

    fn stem(&mut self, spec: ConvSpec, taps: i64) -> ConvPlan {
        let fan_in = spec.inputs * 49;
        let weight = self.advance(spec.outputs * taps);
        for channel in 0..spec.outputs {
            self.rows.push(Row {
                kind: STEM,
                source: (spec.weight + channel * fan_in) as i32,
                length: fan_in as i32,
                target: (weight + channel * taps) as i32,
                gain: (spec.gain + channel) as i32,
                gradient: 0,
                inputs: spec.inputs as i32,
                channel: channel as i32,
                scale: spec.scale as f32,
            });
        }
        ConvPlan { spec, weight }
    }

    fn copy(&mut self, source: i64, elements: i64) -> i64 {
        let target = self.advance(elements);
        for start in (0..elements).step_by(COPY_PIECE as usize) {
            self.rows.push(Row {
                kind: COPY,
                source: (source + start) as i32,
                length: COPY_PIECE.min(elements - start) as i32,
                target: (target + start) as i32,
                gain: 0,
                gradient: 0,
                inputs: 1,
                channel: 0,
                scale: 1.0,
            });
        }
        target
    }

    fn sum(&mut self, elements: i64) -> i64 {
        let start = self.sums;
        self.sums += (elements + 63) / 64 * 64;
        start
    }

    /// Records that the gradient of element i after `to` is at `from(i)` among the sums.
    fn small(&mut self, to: i64, elements: i64, from: impl Fn(i64) -> i64) {
        self.to.extend((0..elements).map(|i| (to + i) as i32));
        self.from.extend((0..elements).map(|i| from(i) as i32));
    }

    fn block(&mut self, spec: &BlockSpec, (height, width): (i64, i64)) -> BlockPlan {
        let (c, s) = (spec.conv2.outputs, spec.squeezed);
        let (height, width) = ((height + spec.stride - 1) / spec.stride, (width + spec.stride - 1) / spec.stride);
        let conv1 = self.convolution(spec.conv1);
        let conv2 = self.convolution(spec.conv2);
        let shortcut = spec.shortcut.map(|shortcut| self.convolution(shortcut));
        let mut block = BlockPlan {
            spec: *spec,
            channels: c,
            squeezed: s,
            height,
            width,
            conv1,
            conv2,
            shortcut,
            conv1_bias: self.copy(spec.conv1.bias, c),
            down: self.copy(spec.down.weight, s * c),
            up: self.copy(spec.up.weight, c * s),
            product: 0,
            conv1_bias_sum: 0,
            shortcut_bias_sum: 0,
            kernels: kernels_of_width!(c, 16 32 64 128 256),
        };
        let length = block.record_length();
        let product = self.sum(block.row_length() * length);
        // Left factors: excite, squeeze, conv2's bias, skip gain; right factors: means, hidden values, one.
        let (one, row) = (c + s, |row: i64| product + row * length);
        let LinearSpec { weight, bias } = spec.up;
        self.small(weight, c * s, |i| row(i / s) + c + i % s);
        self.small(bias, c, |i| row(i) + one);
        let LinearSpec { weight, bias } = spec.down;
        self.small(weight, s * c, |i| row(c + i / c) + i % c);
        self.small(bias, s, |i| row(c + i) + one);
        self.small(spec.conv2.bias, c, |i| row(c + s + i) + one);
        self.small(spec.skip_gain, 1, |_| row(2 * c + s) + one);
        block.product = product;
        block.conv1_bias_sum = self.sum(c);
        let start = block.conv1_bias_sum;
        self.small(spec.conv1.bias, c, |i| start + i);
        if let Some(shortcut) = &spec.shortcut {
            block.shortcut_bias_sum = self.sum(c);
            let start = block.shortcut_bias_sum;
            self.small(shortcut.bias, c, |i| start + i);
        }
        block
    }
}

impl TorsoPlan {
    /// Plans a supported torso and uploads its tables.
    pub fn new(spec: &TorsoSpec, stem_shape: StemShape, device: Device) -> Result<(Self, Tables)> {
        let mut builder = Builder::default();
        let stem = builder.stem(spec.stem, stem_shape.taps());
        builder.sum(stem_shape.taps() * spec.stem.outputs);
        // Tap 0 of the stem's gradient is its bias.
        builder.small(spec.stem.bias, spec.stem.outputs, |i| i);
        let mut size = (stem_shape.height(), stem_shape.width());
        let mut blocks = vec![];
        for block in &spec.blocks {
            let plan = builder.block(block, size);
            size = (plan.height, plan.width);
            blocks.push(plan);
        }
        let upload = |values: &[i32]| -> Result<Tensor> { Ok(Tensor::f_from_slice(values)?.f_to_device(device)?) };
        let rows: Vec<i32> = builder
            .rows
            .iter()
            .flat_map(|row| {
                let Row { kind, source, length, target, gain, gradient, inputs, channel, scale } = *row;
                [kind, source, length, target, gain, gradient, inputs, channel, scale.to_bits() as i32]
            })
            .collect();
        let tables = Tables { rows: upload(&rows)?, from: upload(&builder.from)?, to: upload(&builder.to)? };
        let driver = driver()?;
        let plan = Self {
            spec: spec.clone(),
            module: module(spec, &stem_shape)?,
            stem,
            stem_shape,
            blocks,
            rows: builder.rows.len(),
            weights_length: builder.weights,
            sums_length: builder.sums,
            small_parameters: builder.from.len(),
            stem_grid: 2 * driver.multiprocessors()? as usize,
            large_shared_memory: driver.shared_bytes()? >= 128 * 1024,
        };
        Ok((plan, tables))
    }
}
