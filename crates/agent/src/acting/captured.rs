//! A step on a GPU: captured graphs for a few batch sizes, on a high-priority stream.
//!
//! Observations are uploaded to a table on the GPU by their own stream, as they arrive or at the latest when the step
//! begins, in as few copies as their addresses allow. The rest of the input is packed and uploaded when the step begins.
//! Then the graph gathers its rows from the table and runs, and the outputs are copied back. Rows are padded to the next
//! captured batch size. Newer parameters overwrite the old ones in place, so that the graphs stay valid.
//!
//! Two events order the streams: a graph waits for all uploads before it, and uploads after it wait for the graph.

use std::collections::BTreeMap;
use std::ops::Range;

use tch::{Device, Kind, Tensor};
use torch_ext::upload::{DownloadBuffer, UploadBuffer};
use torch_ext::{Event, Graph, Priority, Stream};

use super::observations::Observation;
use super::packing::{Packing, Unpacked};
use super::table::ObservationTable;
use super::{ActingOutput, ActingRow, RecurrentStates};
use crate::error::Result;
use crate::nets::agent_net::{StepInput, StepWeights};
use crate::nets::core::CellStates;
use crate::nets::folded_intrinsic::{FoldedIntrinsic, IntrinsicWeights};
use crate::nets::parameters::{ParameterSet, Weights};
use crate::networks::{NetworkParameters, Networks};
use crate::streams::fork;

/// Smallest captured batch size.
const MIN_ROWS: usize = 8;

/// Runs before recording, in which libtorch and cuDNN choose kernels and allocate memory.
const WARM_UP: usize = 3;

/// A network on a GPU.
#[derive(Debug)]
pub(super) struct Captured {
    /// Dropped first, because dropping it waits for the GPU.
    buffers: Option<Buffers>,
    streams: Streams,
    weights: DerivedWeights,
    begun: Event,
    ended: Event,
}

#[derive(Debug)]
struct Streams {
    main: Stream,
    /// For the intrinsic networks.
    side: Stream,
    /// For observations.
    upload: Stream,
}

impl Streams {
    /// Runs `work`, which uploads observations, after the last graph: they may overwrite what it reads. The wait is
    /// queued as late as this, since a waiting stream may hold up others.
    fn uploading<T>(&self, ended: &Event, work: impl FnOnce() -> Result<T>) -> Result<T> {
        ended.block(&self.upload)?;
        self.upload.scope(work)?
    }
}

/// All networks' weights: views of the parameters, and tensors derived from them.
#[derive(Debug)]
struct DerivedWeights {
    agent: StepWeights,
    /// Weights of f, RND's target and RND's predictor.
    intrinsic: [Weights; 3],
    /// The same in 16 bits, with mixed precision and observations that are exactly one byte image.
    folded_intrinsic: Option<(FoldedIntrinsic, IntrinsicWeights)>,
}

/// Buffers and graphs for one table of recurrent states.
#[derive(Debug)]
struct Buffers {
    observations: ObservationTable,
    /// Uploads the packed rest of the input.
    packed: UploadBuffer,
    downloads: DownloadBuffer,
    /// By batch size.
    steps: BTreeMap<usize, CapturedStep>,
    states: Tensor,
    max_rows: usize,
}

#[derive(Debug)]
struct CapturedStep {
    graph: Graph,
    packing: Packing,
    input: Tensor,
    outputs: Outputs,
}

/// Tensors that a graph writes.
#[derive(Debug)]
struct Outputs {
    /// `[rows, ..]` in f32: logits, action values, embedding and RND error.
    values: Tensor,
    /// The recurrent states before the step, `[rows, state]` in f32.
    before: Tensor,
}

/// A launched step whose outputs are still to be read.
#[derive(Debug)]
pub(super) struct PendingOutputs {
    wants_state: Vec<bool>,
    /// Values per row of each output, in order; there are no logits without distillation.
    logits: usize,
    actions: usize,
    embedding: usize,
    state: usize,
}

impl PendingOutputs {
    /// Values per row of all outputs but the state.
    fn width(&self) -> usize {
        self.logits + self.actions + self.embedding + 1
    }
}

impl DerivedWeights {
    fn new(networks: &Networks, parameters: &NetworkParameters, beta: &Tensor) -> Result<Self> {
        let sets = [&parameters.action_prediction, &parameters.rnd_target, &parameters.rnd_predictor];
        let intrinsic = sets.map(ParameterSet::weights);
        let form = networks.acting_intrinsic();
        tch::no_grad(|| {
            let fold = |form: FoldedIntrinsic| form.fold(intrinsic.each_ref()).map(|weights| (form, weights));
            Ok(Self {
                agent: networks.agent.fold(&parameters.agent, beta)?,
                folded_intrinsic: form.map(fold).transpose()?,
                intrinsic,
            })
        })
    }

    /// f(x) and RND error of uploaded observations, `[rows, ..]`.
    fn intrinsic(&self, networks: &Networks, observations: &Tensor) -> Result<(Tensor, Tensor)> {
        if let Some((form, weights)) = &self.folded_intrinsic {
            let frames = form.frames(observations)?;
            return Ok((weights.f.forward(&frames)?, weights.rnd.error(&frames)?));
        }
        let frames = networks.input().prepare(observations)?;
        let [f, target, predictor] = &self.intrinsic;
        Ok((networks.action_prediction.embed(f, &frames)?, networks.rnd.error(target, predictor, &frames)?))
    }

    /// Derives the weights again, in place.
    fn renew(&mut self, networks: &Networks, parameters: &NetworkParameters, beta: &Tensor) -> Result<()> {
        let newer = Self::new(networks, parameters, beta)?;
        tch::no_grad(|| {
            if let (Some((_, mine)), Some((_, newer))) = (&mut self.folded_intrinsic, &newer.folded_intrinsic) {
                mine.copy_from(newer)?;
            }
            self.agent.copy_from(&newer.agent)
        })
    }
}

impl Captured {
    /// Builds networks with all parameters zero; also returns the parameters and β on the device.
    pub fn new(networks: &Networks, beta: &Tensor, device: Device) -> Result<(Self, NetworkParameters, Tensor)> {
        let stream = || Stream::new(Priority::High);
        let streams = Streams { main: stream()?, side: stream()?, upload: stream()? };
        let (weights, parameters, beta) = streams.main.scope(|| -> Result<_> {
            let beta = beta.f_to_device(device)?;
            let parameters = NetworkParameters::zeros(networks, device)?;
            Ok((DerivedWeights::new(networks, &parameters, &beta)?, parameters, beta))
        })??;
        let captured = Self { buffers: None, streams, weights, begun: Event::timing()?, ended: Event::timing()? };
        Ok((captured, parameters, beta))
    }

    /// Copies newer parameters and derives the weights again. Afterwards the newer ones may be freed.
    pub fn refresh(
        &mut self,
        networks: &Networks,
        own: &mut NetworkParameters,
        beta: &Tensor,
        newer: &NetworkParameters,
    ) -> Result<()> {
        let Self { streams, weights, .. } = self;
        streams.main.scope(|| {
            own.copy_from(newer)?;
            weights.renew(networks, own, beta)
        })??;
        Ok(streams.main.synchronize()?)
    }

    /// Captures the graphs for steps of up to `rows` rows.
    pub fn capture(&mut self, networks: &Networks, rows: usize, states: &RecurrentStates) -> Result<()> {
        let mut size = 0;
        while size < rows {
            size = captured_rows(size + 1, states.environments());
            let Self { buffers, streams: Streams { main, side, .. }, weights, .. } = self;
            main.scope(|| buffers_for(buffers, networks, states)?.capture(networks, weights, states, size, side))??;
        }
        Ok(())
    }

    /// Uploads checked observations ahead of their step.
    pub fn send(
        &mut self,
        networks: &Networks,
        observations: &[(usize, Observation<'_>)],
        states: &RecurrentStates,
    ) -> Result<()> {
        let Self { buffers, streams, ended, .. } = self;
        let buffers = streams.main.scope(|| buffers_for(buffers, networks, states))??;
        streams.uploading(ended, || buffers.observations.send(observations))
    }

    /// Begins a step of checked rows, at least one.
    pub fn begin(
        &mut self,
        networks: &Networks,
        rows: &[ActingRow<'_>],
        states: &RecurrentStates,
    ) -> Result<PendingOutputs> {
        let begun = self.launch(networks, rows, states);
        if begun.is_err() {
            // Uploads may still be running. If waiting fails too, the GPU is lost.
            let _ = self.settle();
        }
        begun
    }

    fn launch(
        &mut self,
        networks: &Networks,
        rows: &[ActingRow<'_>],
        states: &RecurrentStates,
    ) -> Result<PendingOutputs> {
        let Self { buffers, streams, weights, begun, ended } = self;
        let Streams { main, side, .. } = &*streams;
        main.scope(|| {
            let size = captured_rows(rows.len(), states.environments());
            let buffers = buffers_for(buffers, networks, states)?;
            buffers.capture(networks, weights, states, size, side)?;
            let Buffers { observations, packed, downloads, steps, .. } = buffers;
            let Some(CapturedStep { graph, packing, input, outputs }) = steps.get_mut(&size) else {
                unreachable!("captured above")
            };
            // Uploading these takes longest, and the rest is packed meanwhile.
            let seen = streams.uploading(ended, || observations.complete(rows))?;
            packing.pack(rows, &seen, observations.blank(), states, packed.fill()?);
            packed.send(0..packing.bytes(), input)?;
            observations.block(main)?;
            begun.record(main)?;
            graph.replay()?;
            ended.record(main)?;
            let pending = PendingOutputs {
                wants_state: rows.iter().map(|row| row.wants_state).collect(),
                logits: outputs.values.size()[1] as usize - networks.actions - networks.embedding_length - 1,
                actions: networks.actions,
                embedding: networks.embedding_length,
                state: networks.state_length(),
            };
            let end = rows.len() * pending.width() * size_of::<f32>();
            downloads.receive(&outputs.values.f_narrow(0, 0, rows.len() as i64)?, 0..end)?;
            let length = pending.state * size_of::<f32>();
            for range in ranges(&pending.wants_state) {
                let wanted = outputs.before.f_narrow(0, range.start as i64, range.len() as i64)?;
                downloads.receive(&wanted, end + range.start * length..end + range.end * length)?;
            }
            Ok(pending)
        })?
    }

    /// Waits for the outputs of a step.
    pub fn finish(&mut self, pending: PendingOutputs) -> Result<ActingOutput> {
        let Some(buffers) = &mut self.buffers else { return Ok(ActingOutput::default()) };
        let output = unpack(&pending, buffers.downloads.read()?);
        // The outputs came after all uploads, so this does not wait.
        buffers.settle()?;
        Ok(output)
    }

    /// Waits until the GPU has read the observations of an abandoned step.
    pub fn settle(&mut self) -> Result<()> {
        self.buffers.as_mut().map_or(Ok(()), Buffers::settle)
    }

    /// GPU time of the last finished step.
    pub fn milliseconds(&self) -> Result<f64> {
        Ok(self.begun.milliseconds_until(&self.ended)?)
    }
}

/// Returns the buffers for these states, allocating them if needed. The current stream must be the main one.
fn buffers_for<'a>(
    buffers: &'a mut Option<Buffers>,
    networks: &Networks,
    states: &RecurrentStates,
) -> Result<&'a mut Buffers> {
    if buffers.as_ref().is_none_or(|buffers| buffers.states.data_ptr() != states.table.data_ptr()) {
        *buffers = None;
    }
    match buffers {
        Some(buffers) => Ok(buffers),
        none => Ok(none.insert(Buffers::new(networks, states)?)),
    }
}

/// The captured batch size for this many rows: a power of two, or all environments.
fn captured_rows(rows: usize, environments: usize) -> usize {
    rows.next_power_of_two().min(environments).max(MIN_ROWS)
}

/// Longest gap between wanted states to copy along: cheaper than another copy.
const STATES_BETWEEN: usize = 8;

/// Ranges that cover all `true` rows, merged across short gaps.
fn ranges(wanted: &[bool]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for row in (0..wanted.len()).filter(|&row| wanted[row]) {
        match ranges.last_mut() {
            Some(last) if row - last.end <= STATES_BETWEEN => last.end = row + 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

/// Reads the outputs of a step from the downloaded bytes.
fn unpack(pending: &PendingOutputs, bytes: &[u8]) -> ActingOutput {
    let rows = pending.wants_state.len();
    let (values, states) = bytes.split_at(rows * pending.width() * size_of::<f32>());
    let mut output = ActingOutput {
        logits: Vec::with_capacity(rows * pending.logits),
        q: Vec::with_capacity(rows * pending.actions),
        embedding: Vec::with_capacity(rows * pending.embedding),
        rnd_error: Vec::with_capacity(rows),
        state_before: Vec::new(),
    };
    for row in values.chunks_exact(pending.width() * size_of::<f32>()) {
        let (logits, row) = row.split_at(pending.logits * size_of::<f32>());
        let (q, row) = row.split_at(pending.actions * size_of::<f32>());
        let (embedding, error) = row.split_at(pending.embedding * size_of::<f32>());
        output.logits.extend(floats(logits));
        output.q.extend(floats(q));
        output.embedding.extend(floats(embedding));
        output.rnd_error.extend(floats(error));
    }
    let length = pending.state * size_of::<f32>();
    let state = |(i, wanted): (usize, &bool)| wanted.then(|| floats(&states[i * length..(i + 1) * length]).collect());
    output.state_before = pending.wants_state.iter().enumerate().map(state).collect();
    output
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<{ size_of::<f32>() }>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

impl Buffers {
    fn new(networks: &Networks, states: &RecurrentStates) -> Result<Self> {
        let max_rows = captured_rows(states.environments(), states.environments());
        let width = 2 * networks.actions + networks.embedding_length + 1;
        Ok(Self {
            observations: ObservationTable::new(networks, states)?,
            packed: UploadBuffer::new(Packing::new(networks, max_rows).bytes())?,
            downloads: DownloadBuffer::new(max_rows * (width + networks.state_length()) * size_of::<f32>())?,
            steps: BTreeMap::new(),
            states: states.table.shallow_clone(),
            max_rows,
        })
    }

    /// Captures a step of `rows` rows unless it exists; changes no environment's state. The current stream must be the
    /// main one.
    fn capture(
        &mut self,
        networks: &Networks,
        weights: &DerivedWeights,
        states: &RecurrentStates,
        rows: usize,
        side: &Stream,
    ) -> Result<()> {
        if self.steps.contains_key(&rows) {
            return Ok(());
        }
        debug_assert!(rows <= self.max_rows);
        let packing = Packing::new(networks, rows);
        let input = Tensor::f_zeros([packing.bytes() as i64], (Kind::Uint8, self.states.device()))?;
        packing.pack(&[], &[], self.observations.blank(), states, self.packed.fill()?);
        self.packed.send(0..packing.bytes(), &input)?;
        let (observations, table) = (&self.observations, &self.states);
        let work = || tch::no_grad(|| step(networks, weights, &packing.unpack(&input)?, observations, table, side));
        for _ in 0..WARM_UP {
            work()?;
        }
        Stream::current()?.synchronize()?;
        let (graph, outputs) = Graph::capture(work)?;
        self.steps.insert(rows, CapturedStep { graph, packing, input, outputs });
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.observations.settle()?;
        Ok(self.packed.settle()?)
    }
}

/// Runs a step on the current stream, with the intrinsic networks on `side`.
fn step(
    networks: &Networks,
    weights: &DerivedWeights,
    unpacked: &Unpacked,
    observations: &ObservationTable,
    table: &Tensor,
    side: &Stream,
) -> Result<Outputs> {
    // Lives until `side` has joined, so that its memory is not reused before.
    let observations = observations.gather(&unpacked.seen)?;
    let before = table.f_index_select(0, &unpacked.from)?;
    let ((embedding, error), forked) = fork(Some(side), || weights.intrinsic(networks, &observations))?;
    let states = CellStates {
        before: before.shallow_clone(),
        table: table.shallow_clone(),
        places: unpacked.to.shallow_clone(),
    };
    let input = StepInput {
        observations: observations.shallow_clone(),
        features: unpacked.features.shallow_clone(),
        states,
        policy: unpacked.policy.shallow_clone(),
    };
    let output = networks.agent.step(&weights.agent, &input);
    // A recording is valid only if `side` has joined again, even when the step failed.
    forked.join()?;
    let output = output?;
    let parts: Vec<_> = output.logits.into_iter().chain([output.q, embedding, error.f_unsqueeze(1)?]).collect();
    Ok(Outputs { values: Tensor::f_cat(&parts, 1)?, before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_all_wanted_states_in_few_ranges() {
        let wanted = |rows: &[usize], count: usize| (0..count).map(|row| rows.contains(&row)).collect::<Vec<_>>();
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[false; 5]), []);
        assert_eq!(ranges(&[true; 128]), std::slice::from_ref(&(0..128)));
        assert_eq!(ranges(&wanted(&[0, 127], 128)), [0..1, 127..128]);
        assert_eq!(ranges(&wanted(&[3, 12, 22], 30)), [3..13, 22..23]);
    }

    #[test]
    fn unpacks_outputs_row_by_row() {
        let pending = PendingOutputs { wants_state: vec![false, true], logits: 2, actions: 2, embedding: 3, state: 4 };
        let values: Vec<f32> = (0..2 * pending.width() + 2 * pending.state).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let output = unpack(&pending, &bytes);
        let expected = ActingOutput {
            logits: vec![0.0, 1.0, 8.0, 9.0],
            q: vec![2.0, 3.0, 10.0, 11.0],
            embedding: vec![4.0, 5.0, 6.0, 12.0, 13.0, 14.0],
            rnd_error: vec![7.0, 15.0],
            state_before: vec![None, Some(vec![20.0, 21.0, 22.0, 23.0])],
        };
        assert_eq!(output, expected);
    }
}
