//! The backward pass of the fused torso.

use std::ptr;

use tch::{Kind, Tensor};

use super::address;
use super::forward::{Pass, Saved, SavedBlock};
use super::plan::{BlockPlan, RELU_PARTS};
use crate::error::{Error, Result};
use crate::module::argument;
use crate::relu_dgrad::{self, Inputs, Shape};
use crate::shim;

/// Arguments of the tail's backward kernel, as it declares them.
#[repr(C)]
struct TailBackward {
    through: u64,
    activated: u64,
    next_place: u64,
    pooled: u64,
    signs: u64,
    total: u64,
    place: u64,
    branch: u64,
    record: u64,
    gate: u64,
    bias: u64,
    down: u64,
    up: u64,
    skip_gain: u64,
    branch_gradient: u64,
    rows: u64,
    sums: u64,
    height: i32,
    width: i32,
    cached: i32,
    activated_scale: f32,
    branch_scale: f32,
}

/// The gradient of a block's output x', by where it comes from.
struct Incoming {
    /// Gradient along the identity shortcut of the next block.
    through: Option<Tensor>,
    /// Gradient of relu(x'), for the frames that the next block keeps.
    activated: Tensor,
    /// Gradient of the pooled relu(x'), if the next block's shortcut is a convolution.
    pooled: Option<Tensor>,
    activated_scale: f64,
}

impl Pass {
    /// Computes the gradient of each parameter from that of the output.
    pub fn gradients(&self, gradient: &Tensor, saved: Option<Saved>) -> Result<Vec<Option<Tensor>>> {
        let Some(Saved { stem_signs, mut blocks }) = saved else {
            return Err(Error::Torch("nothing was saved for the backward pass".to_owned()));
        };
        let plan = &self.plan;
        let Some(last) = plan.blocks.last() else { return Ok(vec![]) };
        let frames = self.images.size()[0];
        let sums = Tensor::f_zeros([plan.sums_length], (Kind::Float, self.device))?;
        let gradient = gradient.f_to_kind(Kind::BFloat16)?.f_view([frames, last.channels, last.height, last.width])?;
        let mut incoming = Incoming {
            through: None,
            activated: gradient.f_permute([0, 2, 3, 1])?.f_contiguous()?,
            pooled: None,
            activated_scale: plan.spec.output_scale,
        };
        // Gradients of the kernels in the order of their rows: conv1, conv2, shortcut of each block.
        let mut kernels = vec![];
        for (i, block) in plan.blocks.iter().enumerate().rev() {
            let Some(saved) = blocks.pop() else { break };
            let (next, gradients) = self.block(i, block, saved, incoming, &sums)?;
            incoming = next;
            kernels.push(gradients);
        }
        self.stem_gradient(&stem_signs, &incoming, &sums)?;
        drop(incoming);
        let flat: Vec<Tensor> = kernels
            .iter()
            .rev()
            .flatten()
            .map(|kernel| kernel.f_permute([0, 2, 3, 1])?.f_reshape([-1]))
            .collect::<std::result::Result<_, _>>()?;
        let flat = Tensor::f_cat(&flat, 0)?;
        self.collect(&flat, &sums)
    }

    /// Goes back through one block; returns the gradient of its input and those of its kernels.
    fn block(
        &self,
        i: usize,
        block: &BlockPlan,
        saved: SavedBlock,
        incoming: Incoming,
        sums: &Tensor,
    ) -> Result<(Incoming, Vec<Tensor>)> {
        let (c, h, w) = (block.channels, block.height, block.width);
        let (frames, kept) = (self.images.size()[0], self.kept.frames[i]);
        let total = match &incoming.through {
            Some(through) => through.shallow_clone(),
            None => self.memory(frames, &[h, w, c], Kind::BFloat16)?,
        };
        let branch_gradient = self.memory(kept, &[h, w, c], Kind::BFloat16)?;
        let rows = self.memory(kept, &[block.row_length()], Kind::Float)?;
        let frame_sums = match block.shortcut {
            Some(_) => Some(self.memory(frames, &[c], Kind::Float)?),
            None => None,
        };
        self.tail_backward(i, block, &saved, &incoming, &total, [&branch_gradient, &rows], frame_sums.as_ref())?;
        drop(incoming);

        let product = sums.f_narrow(0, block.product, block.row_length() * block.record_length())?;
        let product = product.f_view([block.row_length(), block.record_length()])?;
        let _ = rows.f_transpose(0, 1)?.f_mm_out(&product, &saved.record)?;

        drop(saved.branch);
        let gradient = branch_gradient.f_permute([0, 3, 1, 2])?;
        let (hidden_gradient, conv2) = self.through_conv2(block, &gradient, &saved.hidden, sums)?;
        drop((gradient, branch_gradient, saved.hidden));
        let conv = Convolution { input: &saved.input, kernel: &self.kernel(&block.conv1)?, stride: block.spec.stride };
        let (activated, conv1) = conv.gradients(&hidden_gradient)?;
        drop(hidden_gradient);
        let mut kernels = vec![conv1, conv2];
        let mut next = Incoming {
            through: None,
            activated: activated.f_permute([0, 2, 3, 1])?,
            pooled: None,
            activated_scale: 1.0,
        };
        match (&block.shortcut, &saved.pooled, frame_sums) {
            (Some(conv), Some(pooled), Some(frame_sums)) => {
                let total = total.f_permute([0, 3, 1, 2])?;
                let conv = Convolution { input: pooled, kernel: &self.kernel(conv)?, stride: 1 };
                let (pooled, shortcut) = conv.gradients(&total)?;
                sum_into(&frame_sums, &sums.f_narrow(0, block.shortcut_bias_sum, c)?)?;
                next.pooled = Some(pooled.f_permute([0, 2, 3, 1])?);
                kernels.push(shortcut);
            }
            _ => next.through = Some(total),
        }
        Ok((next, kernels))
    }

    #[allow(clippy::too_many_arguments)]
    fn tail_backward(
        &self,
        i: usize,
        block: &BlockPlan,
        saved: &SavedBlock,
        incoming: &Incoming,
        total: &Tensor,
        [branch_gradient, rows]: [&Tensor; 2],
        frame_sums: Option<&Tensor>,
    ) -> Result<()> {
        let spec = &block.spec;
        let cached = block.cached_words(self.plan.large_shared_memory);
        let tail = TailBackward {
            through: incoming.through.as_ref().map_or(0, address),
            activated: address(&incoming.activated),
            next_place: address(self.places(i + 1).0),
            pooled: incoming.pooled.as_ref().map_or(0, address),
            signs: address(&saved.signs),
            total: address(total),
            place: address(self.places(i).0),
            branch: address(&saved.branch),
            record: address(&saved.record),
            gate: address(&saved.gate),
            bias: self.parameter(spec.conv2.bias),
            down: self.weight(block.down),
            up: self.weight(block.up),
            skip_gain: self.parameter(spec.skip_gain),
            branch_gradient: address(branch_gradient),
            rows: address(rows),
            sums: frame_sums.map_or(0, address),
            height: block.height as i32,
            width: block.width as i32,
            cached: cached as i32,
            activated_scale: incoming.activated_scale as f32,
            branch_scale: self.plan.spec.branch_scale as f32,
        };
        let name = match (&incoming.through, &incoming.pooled) {
            (Some(_), _) => block.kernels.backward,
            (None, Some(_)) => block.kernels.backward_pool,
            (None, None) => block.kernels.backward_last,
        };
        let (frames, shared) = (self.images.size()[0] as usize, 16 * cached as usize);
        let kernel = self.plan.module.kernel(name, shared)?;
        // SAFETY: all tensors have the block's sizes; one thread block per frame.
        unsafe { kernel.launch(frames, block.backward_threads(), shared, &[argument(&tail)]) }
    }

    /// Goes back through conv2 and relu; returns the gradients of conv1's output and of conv2's kernel.
    ///
    /// The gradient of conv1's bias goes to the sums.
    fn through_conv2(
        &self,
        block: &BlockPlan,
        gradient: &Tensor,
        hidden: &Tensor,
        sums: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let kernel = self.kernel(&block.conv2)?;
        let conv = Convolution { input: hidden, kernel: &kernel, stride: 1 };
        let sum = sums.f_narrow(0, block.conv1_bias_sum, block.channels)?;
        let plain = |sum: &Tensor| {
            let through = conv.input_gradient(gradient)?;
            self.relu_backward(block, &through, hidden, sum)?;
            Ok(through)
        };
        let (frames, channels, height, width) = gradient.size4()?;
        let shape = Shape { frames, channels, height, width };
        let inputs = Inputs { gradient, activated: hidden, kernel: &kernel };
        let through = match relu_dgrad::fastest(shape, inputs, &plain) {
            Some(fused) => fused.run(inputs, &sum)?,
            None => plain(&sum)?,
        };
        Ok((through, conv.kernel_gradient(gradient)?))
    }

    /// Masks the gradient of relu(conv1) in place and sums it to that of conv1's bias.
    fn relu_backward(&self, block: &BlockPlan, gradient: &Tensor, activated: &Tensor, sum: &Tensor) -> Result<()> {
        let parts = Tensor::f_empty([RELU_PARTS, block.channels], (Kind::Float, self.device))?;
        let pointers = [address(gradient), address(activated), address(&parts)];
        let words = (gradient.numel() / 8) as u64;
        let mut arguments: Vec<_> = pointers.iter().map(argument).collect();
        arguments.push(argument(&words));
        let kernel = self.plan.module.kernel(block.kernels.relu_backward, 0)?;
        // SAFETY: gradient and activation have the same number of words, parts one row per thread block.
        unsafe { kernel.launch(RELU_PARTS as usize, 512, 0, &arguments)? };
        sum_into(&parts, sum)
    }

    fn stem_gradient(&self, signs: &Tensor, incoming: &Incoming, sums: &Tensor) -> Result<()> {
        let (plan, shape) = (&self.plan, &self.plan.stem_shape);
        let frames = self.images.size()[0];
        let pointers = [
            address(&self.images),
            incoming.through.as_ref().map_or(0, address),
            address(&incoming.activated),
            address(self.places(0).0),
            address(signs),
            address(sums),
        ];
        let count = frames as i32;
        let mut arguments: Vec<_> = pointers.iter().map(argument).collect();
        arguments.push(argument(&count));
        let threads = 4 * plan.spec.stem.outputs as usize;
        let (shared, groups) = (shape.shared_gradient() as usize, shape.tap_groups() as usize);
        let grid = (plan.stem_grid / groups).min((frames * shape.bands()) as usize).max(1) * groups;
        let kernel = plan.module.kernel("stem_weight_gradient", shared)?;
        // SAFETY: the tensors have the sizes that the kernel was compiled for; the first block has an identity
        // shortcut.
        unsafe { kernel.launch(grid, threads, shared, &arguments) }
    }

    /// Goes back through the standardisation and returns the gradient of each parameter.
    fn collect(&self, kernels: &Tensor, sums: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let plan = &self.plan;
        let gradients = Tensor::f_zeros([plan.spec.length], (Kind::Float, self.device))?;
        let (rows, channels) = (plan.rows as i32, plan.spec.stem.outputs as i32);
        let [parameters, table, kernels, sums, target] =
            [&self.parameters, &self.tables.rows, kernels, sums, &gradients].map(address);
        let arguments = [
            argument(&parameters),
            argument(&table),
            argument(&rows),
            argument(&kernels),
            argument(&sums),
            argument(&channels),
            argument(&target),
        ];
        let kernel = plan.module.kernel("standardise_backward", 0)?;
        // SAFETY: the rows point into buffers of these layouts.
        unsafe { kernel.launch(plan.rows.div_ceil(8), 256, 0, &arguments)? };
        let [from, to] = [&self.tables.from, &self.tables.to].map(address);
        let count = plan.small_parameters as i32;
        let arguments = [argument(&sums), argument(&from), argument(&to), argument(&count), argument(&target)];
        let kernel = plan.module.kernel("scatter", 0)?;
        // SAFETY: as above.
        unsafe { kernel.launch(plan.small_parameters.div_ceil(256), 256, 0, &arguments)? };
        plan.spec
            .parameters
            .iter()
            .map(|(place, shape)| {
                let elements = shape.iter().product();
                Ok(Some(gradients.f_narrow(0, *place, elements)?.f_view(&shape[..])?))
            })
            .collect()
    }
}

/// Writes the sum over the rows of `[rows, channels]` to `sum`.
fn sum_into(rows: &Tensor, sum: &Tensor) -> Result<()> {
    let _ = rows.f_sum_intlist_out(sum, &[0i64][..], false, Kind::Float)?;
    Ok(())
}

/// A 3x3 convolution, padded by one.
struct Convolution<'a> {
    input: &'a Tensor,
    kernel: &'a Tensor,
    stride: i64,
}

impl Convolution<'_> {
    fn input_gradient(&self, gradient: &Tensor) -> Result<Tensor> {
        Ok(self.backward::<true, false>(gradient)?.0)
    }

    fn kernel_gradient(&self, gradient: &Tensor) -> Result<Tensor> {
        Ok(self.backward::<false, true>(gradient)?.1)
    }

    /// Returns the gradients of input and kernel.
    fn gradients(&self, gradient: &Tensor) -> Result<(Tensor, Tensor)> {
        self.backward::<true, true>(gradient)
    }

    /// Computes the requested gradients; the others are undefined.
    fn backward<const INPUT: bool, const KERNEL: bool>(&self, gradient: &Tensor) -> Result<(Tensor, Tensor)> {
        let (mut of_input, mut of_kernel) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: live tensors; the shim writes a pointer per requested gradient.
        let text = unsafe {
            shim::tx_convolution_backward(
                shim::raw(gradient),
                shim::raw(self.input),
                shim::raw(self.kernel),
                self.stride,
                1,
                INPUT.into(),
                KERNEL.into(),
                &mut of_input,
                &mut of_kernel,
            )
        };
        shim::check(text)?;
        // SAFETY: the shim made the requested ones for us.
        let take = |wanted: bool, made| if wanted { unsafe { shim::take(made) } } else { Tensor::new() };
        Ok((take(INPUT, of_input), take(KERNEL, of_kernel)))
    }
}
