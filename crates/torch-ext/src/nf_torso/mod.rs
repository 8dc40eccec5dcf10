//! The normalizer-free residual torso in bf16, with everything between the convolutions fused.
//!
//! cuDNN computes the convolutions on channels-last activations, conv1 together with bias and relu. Between conv2 of
//! one block and conv1 of the next there is one kernel: spatial mean, squeeze-excite, gate, residual sum, activation
//! and pooling, in as few passes over memory as possible. Constant factors are part of the weights. The backward pass
//! keeps sign bits instead of rereading activations. Branches dropped by stochastic depth are not computed: a block's
//! tensors hold only the frames it keeps.

mod backward;
mod forward;
mod plan;
mod stem;

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::autograd::attach;
use crate::error::{Error, Result};
use crate::module::{Module, argument};
use crate::operand::{address, expect, expect_at_least};
use crate::upload::upload;
use plan::{Tables, TorsoPlan};
use stem::StemShape;

/// Offsets of a standardised convolution's parameters, in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvSpec {
    /// `[outputs, inputs, kernel, kernel]`.
    pub weight: i64,
    /// `[outputs]`.
    pub gain: i64,
    /// `[outputs]`.
    pub bias: i64,
    /// Channels in.
    pub inputs: i64,
    /// Channels out.
    pub outputs: i64,
    /// Constant factor of the input, applied to the standardised weight.
    pub scale: f64,
}

/// Offsets of a linear layer's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearSpec {
    /// `[outputs, inputs]`.
    pub weight: i64,
    /// `[outputs]`.
    pub bias: i64,
}

/// One residual block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSpec {
    /// The first 3x3 convolution, with the block's stride.
    pub conv1: ConvSpec,
    /// The second.
    pub conv2: ConvSpec,
    /// 3x3 convolution of the pooled input, if stride or channels change.
    pub shortcut: Option<ConvSpec>,
    /// Squeeze-excite, to the squeezed width.
    pub down: LinearSpec,
    /// Squeeze-excite, back.
    pub up: LinearSpec,
    /// Width between the two.
    pub squeezed: i64,
    /// A scalar.
    pub skip_gain: i64,
    /// 1 or 2.
    pub stride: i64,
}

/// A torso: a 7x7 stem with stride 4 on images of bytes, then residual blocks with relu.
#[derive(Clone, Debug, PartialEq)]
pub struct TorsoSpec {
    /// Rows of an image.
    pub height: i64,
    /// Columns of an image.
    pub width: i64,
    /// The stem.
    pub stem: ConvSpec,
    /// The blocks.
    pub blocks: Vec<BlockSpec>,
    /// Factor of a block's main path, including squeeze-excite's 2.
    pub branch_scale: f64,
    /// Factor of the final activation.
    pub output_scale: f64,
    /// Number of elements of the parameters.
    pub length: i64,
    /// Offset and shape of each parameter, in the order of the returned gradients.
    pub parameters: Vec<(i64, Vec<i64>)>,
}

impl TorsoSpec {
    /// Returns why the kernels do not support this torso; the plain version supports any.
    pub fn unsupported(&self) -> Option<String> {
        if let Err(reason) = StemShape::new(self) {
            return Some(reason);
        }
        for (i, block) in self.blocks.iter().enumerate() {
            let (c, s) = (block.conv2.outputs, block.squeezed);
            if !matches!(c, 16 | 32 | 64 | 128 | 256) || s != c / 2 {
                return Some(format!("block {i} has {c} channels squeezed to {s}"));
            }
            let pools = block.stride == 2 && block.shortcut.is_some() && i > 0;
            if !(pools || block.stride == 1 && block.shortcut.is_none()) {
                return Some(format!("block {i} changes channels or stride in an unsupported way"));
            }
        }
        if self.blocks.is_empty() {
            return Some("there are no blocks".to_owned());
        }
        (!self.fits_together())
            .then(|| "channels of consecutive blocks differ, or parameters are out of bounds".to_owned())
    }

    /// Returns whether consecutive blocks fit and all parameters are in bounds, which the kernels do not check.
    fn fits_together(&self) -> bool {
        let within = |place: i64, elements: i64| place >= 0 && place + elements <= self.length;
        let reads = |conv: &ConvSpec, inputs: i64, outputs: i64, taps: i64| {
            (conv.inputs, conv.outputs) == (inputs, outputs)
                && within(conv.weight, inputs * outputs * taps)
                && within(conv.gain, outputs)
                && within(conv.bias, outputs)
        };
        let mut channels = self.stem.outputs;
        let fits = self.blocks.iter().all(|block| {
            let (before, c, s) = (channels, block.conv2.outputs, block.squeezed);
            channels = c;
            reads(&block.conv1, before, c, 9)
                && reads(&block.conv2, c, c, 9)
                && block.shortcut.as_ref().map_or(before == c, |shortcut| reads(shortcut, before, c, 9))
                && within(block.down.weight, c * s)
                && within(block.down.bias, s)
                && within(block.up.weight, c * s)
                && within(block.up.bias, c)
                && within(block.skip_gain, 1)
        });
        fits && reads(&self.stem, self.stem.inputs, self.stem.outputs, 49) && self.length <= i64::from(i32::MAX)
    }
}

/// The frames for which each block computes its main path.
#[derive(Debug)]
pub struct Kept {
    /// Index of each frame among the kept ones of each block, or -1; i32 `[blocks, frames]`.
    places: Tensor,
    /// The rows of `places`.
    place: Vec<Tensor>,
    /// Number of kept frames of each block.
    frames: Vec<i64>,
}

impl Kept {
    /// Converts `keep[block][sequence]`, for sequences of `steps` frames each.
    pub fn new(keep: &[Vec<bool>], steps: usize, device: Device) -> Result<Self> {
        let frames = keep.iter().map(|block| (block.iter().filter(|&&kept| kept).count() * steps) as i64).collect();
        let mut places = vec![];
        for block in keep {
            let mut next = 0i32;
            for &kept in block {
                places.extend((0..steps as i32).map(|step| if kept { next + step } else { -1 }));
                next += if kept { steps as i32 } else { 0 };
            }
        }
        // One copy for all blocks.
        let places = Tensor::f_from_slice(&places)?.f_view([keep.len() as i64, -1])?;
        Self::of(upload(&places, device)?, frames)
    }

    /// Keeps all frames in every block.
    fn everything(blocks: usize, frames: i64, device: Device) -> Result<Self> {
        let place = Tensor::f_arange(frames, (Kind::Int, device))?;
        Self::of(place.f_expand([blocks as i64, frames], false)?, vec![frames; blocks])
    }

    fn of(places: Tensor, frames: Vec<i64>) -> Result<Self> {
        Ok(Self { place: places.f_unbind(0)?, places, frames })
    }

    /// Allocates memory for choices that keep as many frames of each block.
    pub fn empty_like(&self) -> Result<Self> {
        Self::of(self.places.f_empty_like()?, self.frames.clone())
    }

    /// Copies another choice into this memory.
    pub fn copy_from(&mut self, other: &Self) -> Result<()> {
        if self.frames != other.frames {
            let (found, expected) = (format!("{:?} of the blocks", other.frames), format!("{:?}", self.frames));
            return Err(Error::Shape { what: "the number of frames that are kept", found, expected });
        }
        Ok(self.places.f_copy_(&other.places)?)
    }

    /// Refuses a choice for another number of blocks or frames.
    fn check(&self, blocks: usize, frames: i64, device: Device) -> Result<()> {
        if self.place.len() != blocks {
            let (found, expected) = (format!("for {} blocks", self.place.len()), format!("for {blocks}"));
            return Err(Error::Shape { what: "the frames that are kept", found, expected });
        }
        self.place.iter().try_for_each(|place| expect("the frames that are kept", place, Kind::Int, frames, device))
    }

    fn shallow_clone(&self) -> Self {
        let place = self.place.iter().map(Tensor::shallow_clone).collect();
        Self { places: self.places.shallow_clone(), place, frames: self.frames.clone() }
    }
}

/// A torso on the GPU, without its parameters.
#[derive(Debug)]
pub struct NfTorso {
    plan: Arc<TorsoPlan>,
    tables: Tables,
    device: Device,
}

impl Clone for NfTorso {
    fn clone(&self) -> Self {
        Self { plan: self.plan.clone(), tables: self.tables.shallow_clone(), device: self.device }
    }
}

impl NfTorso {
    /// Compiles the kernels of a torso.
    pub fn new(spec: &TorsoSpec, device: Device) -> Result<Self> {
        let refuse = |reason| Error::Shape { what: "the torso", found: reason, expected: "a supported torso".into() };
        if let Some(reason) = spec.unsupported() {
            return Err(refuse(reason));
        }
        let (plan, tables) = TorsoPlan::new(spec, StemShape::new(spec).map_err(refuse)?, device)?;
        Ok(Self { plan: Arc::new(plan), tables, device })
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.plan.spec.parameters.len()
    }

    /// Converts all weights for the kernels: standardised, scaled, in 16 bits, channels-last.
    ///
    /// `parameters` is the flat f32 buffer that begins with the torso's parameters.
    pub fn prepare(&self, parameters: &Tensor) -> Result<Tensor> {
        let plan = &self.plan;
        expect_at_least("the torso's parameters", parameters, Kind::Float, plan.spec.length, self.device)?;
        let weights = Tensor::f_empty([plan.weights_length], (Kind::BFloat16, self.device))?;
        let (count, source, rows, target) =
            (plan.rows as i32, address(parameters), address(&self.tables.rows), address(&weights));
        let kernel = plan.module.kernel("standardise", 0)?;
        let arguments = [argument(&source), argument(&rows), argument(&count), argument(&target)];
        // SAFETY: the rows point into buffers of these layouts.
        unsafe { kernel.launch(plan.rows.div_ceil(8), 256, 0, &arguments)? };
        Ok(weights)
    }

    /// Maps frames of bytes to outputs in bf16, ordered by channel, row and column.
    ///
    /// `[frames, height · width · channels]` becomes `[frames, outputs]`.
    ///
    /// `leaves` are the torso's parameters as separate tensors, in the order of the spec; gradients flow to those that
    /// require any. `parameters` is the flat buffer that holds them, and `prepared` was made from it.
    pub fn forward(
        &self,
        parameters: &Tensor,
        prepared: &Tensor,
        leaves: &[&Tensor],
        images: &Tensor,
        kept: Option<&Kept>,
    ) -> Result<Tensor> {
        let frames = images.size()[0];
        let everything = Kept::everything(self.plan.blocks.len(), frames, self.device)?;
        let kept = kept.unwrap_or(&everything).shallow_clone();
        let images = images.f_view([frames, -1])?.f_contiguous()?;
        let (spec, device) = (&self.plan.spec, self.device);
        let values = spec.height * spec.width * spec.stem.inputs;
        expect("images", &images, Kind::Uint8, frames * values, device)?;
        expect_at_least("the torso's parameters", parameters, Kind::Float, spec.length, device)?;
        expect("the torso's prepared weights", prepared, Kind::BFloat16, self.plan.weights_length, device)?;
        kept.check(self.plan.blocks.len(), frames, device)?;
        let wants_gradient = leaves.iter().any(|leaf| leaf.requires_grad());
        let pass = forward::Pass {
            plan: self.plan.clone(),
            tables: self.tables.shallow_clone(),
            parameters: parameters.f_detach()?,
            prepared: prepared.f_detach()?,
            images,
            kept,
            identity: everything.place[0].shallow_clone(),
            device: self.device,
        };
        let (output, saved) = tch::no_grad(|| pass.run(wants_gradient))?;
        if !wants_gradient {
            return Ok(output);
        }
        attach(&output, leaves, move |gradient| pass.gradients(gradient, saved))
    }
}

/// Returns the source of the kernels of a torso.
fn source(spec: &TorsoSpec, stem: &StemShape) -> String {
    let mut widths: Vec<_> = spec.blocks.iter().map(|block| (block.conv2.outputs, block.squeezed)).collect();
    widths.sort_unstable();
    widths.dedup();
    let instances: String = widths.iter().map(|(c, s)| format!("RESIDUAL_KERNELS({c}, {s})\n")).collect();
    [
        include_str!("../kernels/residual.cu"),
        &instances,
        &stem.definitions(),
        include_str!("../kernels/stem.cu"),
        include_str!("../kernels/standardise.cu"),
    ]
    .concat()
}

fn module(spec: &TorsoSpec, stem: &StemShape) -> Result<Arc<Module>> {
    Module::get(&source(spec, stem))
}
