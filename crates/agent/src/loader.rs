//! The way of a batch to the device, ahead of the learner and beside its work.

use tch::{Device, Kind, Tensor};
use torch_ext::upload::Outbox;
use torch_ext::{Event, Priority, Stream};

use crate::batch::{Batch, BatchShape, BatchTensors};
use crate::error::{AgentError, Result};
use crate::observation::{ObservationInput, ObservationKind};

/// Brings batches to a learner's device; made by [`Learner::loader`](crate::Learner::loader), for any thread.
#[derive(Debug)]
pub struct Loader {
    input: ObservationInput,
    shape: BatchShape,
    device: Device,
    /// Of its own on a GPU, so that copies run beside the learner's work.
    stream: Option<Stream>,
}

/// Memory that a batch's observations are decoded into. A GPU reads from it while the processor does other things.
#[derive(Debug)]
pub struct ObservationMemory(Memory);

#[derive(Debug)]
enum Memory {
    Host(Vec<u8>),
    Pinned { outbox: Outbox, bytes: usize },
}

impl ObservationMemory {
    /// The bytes, to be written; waits until what was loaded from here before has arrived.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        match &mut self.0 {
            Memory::Host(bytes) => Ok(bytes),
            Memory::Pinned { outbox, .. } => Ok(outbox.fill()?),
        }
    }
}

/// A checked batch on the device, or on its way there.
#[derive(Debug)]
pub struct LoadedBatch {
    tensors: BatchTensors,
    sequences: usize,
    arrived: Option<Event>,
}

impl LoadedBatch {
    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// The tensors, for work that is given to the current stream from now on.
    pub fn tensors(&self) -> Result<&BatchTensors> {
        if let Some(arrived) = &self.arrived {
            let stream = Stream::current()?;
            arrived.block(&stream)?;
            for tensor in self.tensors.all() {
                stream.uses(tensor)?;
            }
        }
        Ok(&self.tensors)
    }
}

impl Loader {
    /// For batches of this shape.
    pub fn new(input: ObservationInput, shape: BatchShape, device: Device) -> Result<Self> {
        let fast = device.is_cuda() && torch_ext::available();
        let stream = if fast { Some(Stream::new(Priority::Normal)?) } else { None };
        Ok(Self { input, shape, device, stream })
    }

    /// Memory for this many sequences of this many observations.
    pub fn memory(&self, sequences: usize, trace: usize) -> Result<ObservationMemory> {
        let bytes = sequences * trace * self.input.spec().bytes();
        Ok(ObservationMemory(match self.stream {
            Some(_) => Memory::Pinned { outbox: Outbox::new(bytes)?, bytes },
            None => Memory::Host(vec![0; bytes]),
        }))
    }

    /// Checks a batch whose observations are in `memory` (those in `batch` are not read), and sends it on its way.
    pub fn load(&self, batch: &Batch<'_>, memory: &mut ObservationMemory) -> Result<LoadedBatch> {
        let checked = Batch { observations: memory.bytes()?, ..*batch };
        checked.check(&self.input, &self.shape)?;
        let Some(stream) = &self.stream else {
            let tensors = checked.upload(&self.input, &self.shape, self.device)?;
            return Ok(LoadedBatch { tensors, sequences: batch.sequences, arrived: None });
        };
        stream.scope(|| {
            let observations = self.send(batch, memory)?;
            let tensors = batch.with_observations(observations, &self.shape, self.device)?;
            let mut arrived = Event::new()?;
            arrived.record(stream)?;
            Ok(LoadedBatch { tensors, sequences: batch.sequences, arrived: Some(arrived) })
        })?
    }

    fn send(&self, batch: &Batch<'_>, memory: &mut ObservationMemory) -> Result<Tensor> {
        let Memory::Pinned { outbox, bytes } = &mut memory.0 else {
            let [place, value, expected] = ["a batch on its way to a GPU", "ordinary", "pinned"].map(str::to_owned);
            return Err(AgentError::Value { field: "memory", place, value, expected });
        };
        let spec = self.input.spec();
        let kind = match spec.kind {
            ObservationKind::U8 => Kind::Uint8,
            ObservationKind::F32 => {
                batch.clear_padding(outbox.fill()?, spec.bytes());
                Kind::Float
            }
        };
        let frames = (batch.sequences * batch.trace) as i64;
        let observations = Tensor::f_empty([frames, spec.values() as i64], (kind, self.device))?;
        outbox.send(0..*bytes, &observations)?;
        Ok(observations)
    }
}
