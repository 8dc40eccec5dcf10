//! The forward pass of the fused torso.

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use super::plan::{BlockPlan, ConvPlan, Tables, TorsoPlan};
use super::{Kept, address};
use crate::error::Result;
use crate::module::argument;

/// Operands of one pass.
pub(super) struct Pass {
    pub plan: Arc<TorsoPlan>,
    pub tables: Tables,
    pub parameters: Tensor,
    pub prepared: Tensor,
    pub images: Tensor,
    pub kept: Kept,
    /// Indices of all frames, for blocks that keep all.
    pub identity: Tensor,
    pub device: Device,
}

/// What the backward pass needs of a block.
pub(super) struct SavedBlock {
    /// relu(x) of the kept frames, `[kept, c, h, w]`.
    pub input: Tensor,
    /// relu(conv1).
    pub hidden: Tensor,
    /// conv2 without its bias.
    pub branch: Tensor,
    /// The pooled input of the shortcut.
    pub pooled: Option<Tensor>,
    /// Whether x' > 0, one bit each.
    pub signs: Tensor,
    /// Right factors of the small gradients.
    pub record: Tensor,
    pub gate: Tensor,
}

/// What the backward pass needs.
pub(super) struct Saved {
    pub stem_signs: Tensor,
    pub blocks: Vec<SavedBlock>,
}

/// Arguments of the tail's forward kernel, as it declares them.
#[repr(C)]
struct TailForward {
    shortcut: u64,
    branch: u64,
    place: u64,
    next_place: u64,
    bias: u64,
    shortcut_bias: u64,
    down: u64,
    down_bias: u64,
    up: u64,
    up_bias: u64,
    skip_gain: u64,
    sum: u64,
    activated: u64,
    signs: u64,
    pooled: u64,
    record: u64,
    gate: u64,
    height: i32,
    width: i32,
    activated_scale: f32,
    branch_scale: f32,
}

impl Pass {
    /// Returns the address of a parameter in the flat buffer.
    pub fn parameter(&self, place: i64) -> u64 {
        address(&self.parameters) + 4 * place as u64
    }

    /// Returns an address among the 16-bit weights.
    pub fn weight(&self, place: i64) -> u64 {
        address(&self.prepared) + 2 * place as u64
    }

    /// Returns a convolution's kernel as a channels-last tensor.
    pub fn kernel(&self, conv: &ConvPlan) -> Result<Tensor> {
        let (o, i) = (conv.spec.outputs, conv.spec.inputs);
        Ok(self.prepared.f_as_strided([o, i, 3, 3], [9 * i, 1, 3 * i, i], conv.weight)?)
    }

    /// Allocates a tensor. If a block keeps no frame, one frame of zeros stands in, since kernels need at least one.
    pub fn memory(&self, frames: i64, rest: &[i64], kind: Kind) -> Result<Tensor> {
        let size: Vec<i64> = [frames.max(1)].iter().chain(rest).copied().collect();
        let options = (kind, self.device);
        Ok(if frames == 0 { Tensor::f_zeros(&size[..], options)? } else { Tensor::f_empty(&size[..], options)? })
    }

    /// Returns index and number of the frames of a block, or of the output after the last.
    pub fn places(&self, block: usize) -> (&Tensor, i64) {
        match self.kept.place.get(block) {
            Some(place) => (place, self.kept.frames[block]),
            None => (&self.identity, self.images.size()[0]),
        }
    }

    /// Returns the torso's output and, if `save` is set, what the backward pass needs.
    pub fn run(&self, save: bool) -> Result<(Tensor, Option<Saved>)> {
        let plan = &self.plan;
        let frames = self.images.size()[0];
        let (mut x, mut activated, stem_signs) = self.stem(save)?;
        let mut pooled: Option<Tensor> = None;
        let mut saved = vec![];
        for (i, block) in plan.blocks.iter().enumerate() {
            let (c, h, w) = (block.channels, block.height, block.width);
            let stride = block.spec.stride;
            let input = activated.f_permute([0, 3, 1, 2])?;
            let bias = self.prepared.f_narrow(0, block.conv1_bias, c)?;
            let (one, strides) = ([1i64, 1], [stride, stride]);
            let hidden =
                input.f_cudnn_convolution_relu(&self.kernel(&block.conv1)?, Some(&bias), strides, one, one, 1)?;
            let branch = self.convolve(&hidden, &block.conv2)?;
            let (shortcut, shortcut_input) = match (&block.shortcut, pooled.take()) {
                (Some(conv), Some(pooled)) => {
                    let pooled = pooled.f_permute([0, 3, 1, 2])?;
                    (self.convolve(&pooled, conv)?, Some(pooled))
                }
                _ => (x.shallow_clone(), None),
            };
            let last = i + 1 == plan.blocks.len();
            let pools = plan.blocks.get(i + 1).is_some_and(|next| next.shortcut.is_some());
            let (_, next_frames) = self.places(i + 1);
            let next = self.memory(next_frames, &[h, w, c], Kind::BFloat16)?;
            let sum = if pools || last { None } else { Some(self.memory(frames, &[h, w, c], Kind::BFloat16)?) };
            if pools {
                pooled = Some(self.memory(frames, &[(h + 1) / 2, (w + 1) / 2, c], Kind::BFloat16)?);
            }
            let kept = self.kept.frames[i];
            let kept_record = if save {
                let signs = self.memory(frames, &[h * w * c / 8], Kind::Uint8)?;
                let record = self.memory(kept, &[block.record_length()], Kind::Float)?;
                Some((signs, record, self.memory(kept, &[c], Kind::Float)?))
            } else {
                None
            };
            let outputs = TailOutputs {
                sum: sum.as_ref(),
                activated: &next,
                pooled: pooled.as_ref(),
                record: kept_record.as_ref(),
            };
            self.tail(i, block, &shortcut, &branch, &outputs, if last { plan.spec.output_scale } else { 1.0 })?;
            if let Some((signs, record, gate)) = kept_record {
                saved.push(SavedBlock { input, hidden, branch, pooled: shortcut_input, signs, record, gate });
            }
            x = sum.unwrap_or_default();
            activated = next;
        }
        let output = activated.f_permute([0, 3, 1, 2])?.f_contiguous()?.f_view([frames, -1])?;
        Ok((output, stem_signs.map(|stem_signs| Saved { stem_signs, blocks: saved })))
    }

    fn convolve(&self, input: &Tensor, conv: &ConvPlan) -> Result<Tensor> {
        let one = [1i64, 1];
        Ok(input.f_cudnn_convolution(&self.kernel(conv)?, one, one, one, 1, true, false, true)?)
    }

    /// Returns the stem's sum, its activation for the first block, and its signs.
    fn stem(&self, save: bool) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let plan = &self.plan;
        let frames = self.images.size()[0];
        let (shape, c) = (&plan.stem_shape, plan.spec.stem.outputs);
        let (h, w) = (shape.height(), shape.width());
        let (place, kept) = self.places(0);
        let x = self.memory(frames, &[h, w, c], Kind::BFloat16)?;
        let activated = self.memory(kept, &[h, w, c], Kind::BFloat16)?;
        let signs = if save { Some(self.memory(frames, &[h * w * c / 8], Kind::Uint8)?) } else { None };
        let pointers = [
            address(&self.images),
            address(place),
            self.weight(plan.stem.weight),
            self.parameter(plan.spec.stem.bias),
            address(&x),
            address(&activated),
            signs.as_ref().map_or(0, address),
        ];
        let count = frames as i32;
        let mut arguments: Vec<_> = pointers.iter().map(argument).collect();
        arguments.push(argument(&count));
        let grid = plan.stem_grid.min((frames * shape.bands()) as usize);
        let shared = shape.shared_weights() as usize;
        let kernel = plan.module.kernel("stem_forward", shared)?;
        // SAFETY: the tensors have the sizes that the kernel was compiled for, one image and output per frame.
        unsafe { kernel.launch(grid, 256, shared, &arguments)? };
        Ok((x, activated, signs))
    }

    fn tail(
        &self,
        i: usize,
        block: &BlockPlan,
        shortcut: &Tensor,
        branch: &Tensor,
        outputs: &TailOutputs<'_>,
        activated_scale: f64,
    ) -> Result<()> {
        let spec = &block.spec;
        let (signs, record, gate) = match outputs.record {
            Some((signs, record, gate)) => (address(signs), address(record), address(gate)),
            None => (0, 0, 0),
        };
        let tail = TailForward {
            shortcut: address(shortcut),
            branch: address(branch),
            place: address(self.places(i).0),
            next_place: address(self.places(i + 1).0),
            bias: self.parameter(spec.conv2.bias),
            shortcut_bias: spec.shortcut.map_or(0, |conv| self.parameter(conv.bias)),
            down: self.weight(block.down),
            down_bias: self.parameter(spec.down.bias),
            up: self.weight(block.up),
            up_bias: self.parameter(spec.up.bias),
            skip_gain: self.parameter(spec.skip_gain),
            sum: outputs.sum.map_or(0, address),
            activated: address(outputs.activated),
            signs,
            pooled: outputs.pooled.map_or(0, address),
            record,
            gate,
            height: block.height as i32,
            width: block.width as i32,
            activated_scale: activated_scale as f32,
            branch_scale: self.plan.spec.branch_scale as f32,
        };
        let name = if outputs.pooled.is_some() { block.kernels.forward_pool } else { block.kernels.forward };
        let frames = self.images.size()[0] as usize;
        let kernel = self.plan.module.kernel(name, 0)?;
        // SAFETY: all tensors have the block's sizes; one thread block per frame.
        unsafe { kernel.launch(frames, block.forward_threads(), 0, &[argument(&tail)]) }
    }
}

struct TailOutputs<'a> {
    sum: Option<&'a Tensor>,
    activated: &'a Tensor,
    pooled: Option<&'a Tensor>,
    record: Option<&'a (Tensor, Tensor, Tensor)>,
}
