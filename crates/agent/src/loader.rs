//! Loads batches onto the device ahead of the learner, while it works.

use replay::SequenceBatch;
use tch::{Device, Tensor};
use torch_ext::upload::UploadBuffer;
use torch_ext::{Event, Priority, Stream};

use crate::batch::{self, BatchShape, BatchTensors};
use crate::error::{AgentError, Result};
use crate::observation::{ObservationInput, tensor_kind};

/// Loads batches onto a learner's device, on any thread.
///
/// Made by [`Learner::loader`](crate::Learner::loader).
#[derive(Debug)]
pub struct Loader {
    input: ObservationInput,
    shape: BatchShape,
    device: Device,
    /// A stream of its own on a GPU, so that copies run while the learner works.
    stream: Option<Stream>,
}

/// Memory into which a batch's observations are decoded; a GPU copies from it without the processor.
#[derive(Debug)]
pub struct ObservationMemory(BatchStorage);

#[derive(Debug)]
enum BatchStorage {
    Host(Vec<u8>),
    Pinned { buffer: UploadBuffer, bytes: usize },
}

impl ObservationMemory {
    /// Returns the bytes to be written, once the previous batch in them has arrived on the device.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        match &mut self.0 {
            BatchStorage::Host(bytes) => Ok(bytes),
            BatchStorage::Pinned { buffer, .. } => Ok(buffer.fill()?),
        }
    }
}

/// A checked batch on the device, or on its way there.
#[derive(Debug)]
pub struct LoadedBatch {
    tensors: BatchTensors,
    /// Number of sequences.
    pub sequences: usize,
    arrived: Option<Event>,
}

impl LoadedBatch {
    /// Returns the tensors for later work of the current stream.
    pub fn tensors(&self) -> Result<&BatchTensors> {
        if let Some(arrived) = &self.arrived {
            let stream = Stream::current()?;
            arrived.block(&stream)?;
            for tensor in self.tensors.all()? {
                stream.uses(&tensor)?;
            }
        }
        Ok(&self.tensors)
    }
}

impl Loader {
    /// Creates a loader for batches of this shape.
    pub fn new(input: ObservationInput, shape: BatchShape, device: Device) -> Result<Self> {
        let fast = torch_ext::serves(device);
        let stream = if fast { Some(Stream::new(Priority::Normal)?) } else { None };
        Ok(Self { input, shape, device, stream })
    }

    /// Allocates memory for this many sequences of this many observations.
    pub fn memory(&self, sequences: usize, trace: usize) -> Result<ObservationMemory> {
        let bytes = sequences * trace * self.input.spec().bytes();
        Ok(ObservationMemory(match self.stream {
            Some(_) => BatchStorage::Pinned { buffer: UploadBuffer::new(bytes)?, bytes },
            None => BatchStorage::Host(vec![0; bytes]),
        }))
    }

    /// Checks a batch and begins to copy it.
    ///
    /// Its observations are in `memory`; those in `batch` are not read.
    pub fn load(&self, batch: &SequenceBatch, memory: &mut ObservationMemory) -> Result<LoadedBatch> {
        let (observations, sequences) = (memory.bytes()?, batch.sequences.len());
        batch::check(batch, observations, &self.input, &self.shape)?;
        let Some(stream) = &self.stream else {
            let tensors = BatchTensors::upload(batch, observations, &self.input, &self.shape, self.device)?;
            return Ok(LoadedBatch { tensors, sequences, arrived: None });
        };
        stream.scope(|| {
            let observations = self.send(batch, memory)?;
            let tensors = BatchTensors::with_observations(batch, observations, &self.shape, self.device)?;
            let mut arrived = Event::new()?;
            arrived.record(stream)?;
            Ok(LoadedBatch { tensors, sequences, arrived: Some(arrived) })
        })?
    }

    fn send(&self, batch: &SequenceBatch, memory: &mut ObservationMemory) -> Result<Tensor> {
        let BatchStorage::Pinned { buffer, bytes } = &mut memory.0 else {
            let [place, value, expected] = ["a batch on its way to a GPU", "ordinary", "pinned"].map(str::to_owned);
            return Err(AgentError::Value { field: "memory", place, value, expected });
        };
        let spec = self.input.spec();
        if !spec.floats().is_empty() {
            batch::clear_padding(batch, buffer.fill()?, spec.bytes());
        }
        let frames = (batch.sequences.len() * batch.trace) as i64;
        let observations = Tensor::f_empty([frames, spec.values() as i64], (tensor_kind(spec.kind()), self.device))?;
        buffer.send(0..*bytes, &observations)?;
        Ok(observations)
    }
}
