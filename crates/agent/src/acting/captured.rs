//! A step on a GPU: one recorded graph for each of a few numbers of rows, on a stream of high priority.
//!
//! Observations go to a table on the GPU by a stream of their own, as they come or at the latest when the step begins,
//! from where they lie and in as few copies as their places allow. Everything else is packed and sent when the step
//! begins. Then the graph is launched, which gathers its rows from the table, and what the networks say is copied back.
//! Rows are filled up to the next number that there is a graph for. Newer parameters go to the memory of the old ones,
//! so that the graphs stay valid.
//!
//! Two marks order the streams: a graph waits for all that was sent before it, and what is sent after it waits for the
//! graph, whether the host has waited for its outcome or not.

use std::collections::BTreeMap;
use std::ops::Range;

use tch::{Device, Kind, Tensor};
use torch_ext::upload::{Inbox, Outbox};
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

/// The smallest number of rows that a graph is recorded for.
const LEAST_ROWS: usize = 8;

/// Runs before recording: libtorch and cuDNN choose kernels and set up their memory.
const WARM_UP: usize = 3;

/// A network on a GPU.
#[derive(Debug)]
pub(super) struct Captured {
    /// Dropped first: it waits for what the GPU still does.
    seat: Option<Seat>,
    streams: Streams,
    weights: DerivedWeights,
    begun: Event,
    ended: Event,
}

#[derive(Debug)]
struct Streams {
    main: Stream,
    /// For what does not depend on the rest.
    side: Stream,
    /// For observations.
    upload: Stream,
}

impl Streams {
    /// Runs `work`, which sends observations. They may be written over what the last graph reads, so they wait for the
    /// mark at its end: only now, since work that waits may hold up that of other streams.
    fn uploading<T>(&self, ended: &Event, work: impl FnOnce() -> Result<T>) -> Result<T> {
        ended.block(&self.upload)?;
        self.upload.scope(work)?
    }
}

/// All networks' weights; what is no view of the parameters was derived from them.
#[derive(Debug)]
struct DerivedWeights {
    agent: StepWeights,
    /// Of f, RND's target and its predictor.
    intrinsic: [Weights; 3],
    /// The same in 16 bits, where the network computes in them and sees images.
    folded_intrinsic: Option<(FoldedIntrinsic, IntrinsicWeights)>,
}

/// What belongs to one table of recurrent states.
#[derive(Debug)]
struct Seat {
    observations: ObservationTable,
    /// The way of everything else.
    facts: Outbox,
    inbox: Inbox,
    /// By their number of rows.
    recorded: BTreeMap<usize, Recorded>,
    states: Tensor,
    most_rows: usize,
}

#[derive(Debug)]
struct Recorded {
    graph: Graph,
    packing: Packing,
    input: Tensor,
    outputs: Outputs,
}

/// What a graph writes to.
#[derive(Debug)]
struct Outputs {
    /// `[rows, ..]` in f32: logits, action values, embedding and RND error.
    said: Tensor,
    /// The recurrent states before the step, `[rows, state]` in f32.
    before: Tensor,
}

/// What is still to come of a step.
#[derive(Debug)]
pub(super) struct Going {
    wants_state: Vec<bool>,
    /// Values of a row of each output, in their order; without distillation there are no logits.
    logits: usize,
    actions: usize,
    embedding: usize,
    state: usize,
}

impl Going {
    fn said(&self) -> usize {
        self.logits + self.actions + self.embedding + 1
    }

    fn rows(&self) -> usize {
        self.wants_state.len()
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

    /// f(x) and RND's error of observations as uploaded, `[rows, ..]`.
    fn intrinsic(&self, networks: &Networks, observations: &Tensor) -> Result<(Tensor, Tensor)> {
        if let Some((form, weights)) = &self.folded_intrinsic {
            let frames = form.frames(observations)?;
            return Ok((weights.f.forward(&frames)?, weights.rnd.error(&frames)?));
        }
        let frames = networks.input().prepare(observations)?;
        let [f, target, predictor] = &self.intrinsic;
        Ok((networks.action_prediction.embed(f, &frames)?, networks.rnd.error(target, predictor, &frames)?))
    }

    /// Of newer parameters in the same place.
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
    /// Networks with parameters of zero, and β on the same device.
    pub fn new(networks: &Networks, beta: &Tensor, device: Device) -> Result<(Self, NetworkParameters, Tensor)> {
        let stream = || Stream::new(Priority::High);
        let streams = Streams { main: stream()?, side: stream()?, upload: stream()? };
        let (weights, parameters, beta) = streams.main.scope(|| -> Result<_> {
            let beta = beta.f_to_device(device)?;
            let parameters = NetworkParameters::zeros(networks, device)?;
            Ok((DerivedWeights::new(networks, &parameters, &beta)?, parameters, beta))
        })??;
        let captured = Self { seat: None, streams, weights, begun: Event::timing()?, ended: Event::timing()? };
        Ok((captured, parameters, beta))
    }

    /// Takes newer parameters over into its own, and renews all that is derived from them. Afterwards the newer may be
    /// freed.
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

    /// Records all graphs that steps of up to `rows` rows need.
    pub fn record(&mut self, networks: &Networks, rows: usize, states: &RecurrentStates) -> Result<()> {
        let mut size = 0;
        while size < rows {
            size = captured_rows(size + 1, states.environments());
            let Self { seat, streams: Streams { main, side, .. }, weights, .. } = self;
            main.scope(|| seated(seat, networks, states)?.record(networks, weights, states, size, side))??;
        }
        Ok(())
    }

    /// Sends checked environments' observations ahead of their step.
    pub fn send(
        &mut self,
        networks: &Networks,
        observations: &[(usize, Observation<'_>)],
        states: &RecurrentStates,
    ) -> Result<()> {
        let Self { seat, streams, ended, .. } = self;
        let seat = streams.main.scope(|| seated(seat, networks, states))??;
        streams.uploading(ended, || seat.observations.send(observations))
    }

    /// Begins a step of checked rows, of which there are some.
    pub fn begin(&mut self, networks: &Networks, rows: &[ActingRow<'_>], states: &RecurrentStates) -> Result<Going> {
        let begun = self.launch(networks, rows, states);
        if begun.is_err() {
            // Observations may be on their way all the same. If waiting fails too, the GPU is gone.
            let _ = self.settle();
        }
        begun
    }

    fn launch(&mut self, networks: &Networks, rows: &[ActingRow<'_>], states: &RecurrentStates) -> Result<Going> {
        let Self { seat, streams, weights, begun, ended } = self;
        let Streams { main, side, .. } = &*streams;
        main.scope(|| {
            let size = captured_rows(rows.len(), states.environments());
            let seat = seated(seat, networks, states)?;
            seat.record(networks, weights, states, size, side)?;
            let Seat { observations, facts, inbox, recorded, .. } = seat;
            let Some(Recorded { graph, packing, input, outputs }) = recorded.get_mut(&size) else {
                unreachable!("it was recorded above")
            };
            // The GPU takes longest for these, and the rest is packed meanwhile.
            let seen = streams.uploading(ended, || observations.complete(rows))?;
            packing.pack(rows, &seen, observations.blank(), states, facts.fill()?);
            facts.send(0..packing.bytes(), input)?;
            observations.block(main)?;
            begun.record(main)?;
            graph.replay()?;
            ended.record(main)?;
            let going = Going {
                wants_state: rows.iter().map(|row| row.wants_state).collect(),
                logits: outputs.said.size()[1] as usize - networks.actions() - networks.embedding_length() - 1,
                actions: networks.actions(),
                embedding: networks.embedding_length(),
                state: networks.state_length(),
            };
            let said = rows.len() * going.said() * size_of::<f32>();
            inbox.receive(&outputs.said.f_narrow(0, 0, rows.len() as i64)?, 0..said)?;
            let length = going.state * size_of::<f32>();
            for stretch in stretches(&going.wants_state) {
                let wanted = outputs.before.f_narrow(0, stretch.start as i64, stretch.len() as i64)?;
                inbox.receive(&wanted, said + stretch.start * length..said + stretch.end * length)?;
            }
            Ok(going)
        })?
    }

    /// Waits for a step's outcome.
    pub fn finish(&mut self, going: Going) -> Result<ActingOutput> {
        let Some(seat) = &mut self.seat else { return Ok(ActingOutput::default()) };
        let output = unpack(&going, seat.inbox.read()?);
        // What was said came after all that was sent, so nothing is waited for here.
        seat.settle()?;
        Ok(output)
    }

    /// Waits until the GPU has taken the observations of a step whose outcome nobody waits for.
    pub fn settle(&mut self) -> Result<()> {
        self.seat.as_mut().map_or(Ok(()), Seat::settle)
    }

    /// How long the GPU took for the last step, which is finished.
    pub fn milliseconds(&self) -> Result<f64> {
        Ok(self.begun.milliseconds_until(&self.ended)?)
    }
}

/// What belongs to these states, made now if it was not before. The current stream is the networks' own.
fn seated<'a>(seat: &'a mut Option<Seat>, networks: &Networks, states: &RecurrentStates) -> Result<&'a mut Seat> {
    if seat.as_ref().is_none_or(|seat| seat.states.data_ptr() != states.table().data_ptr()) {
        *seat = None;
    }
    match seat {
        Some(seat) => Ok(seat),
        none => Ok(none.insert(Seat::new(networks, states)?)),
    }
}

/// The number of rows of the graph that does so many: a power of two, or all environments.
fn captured_rows(rows: usize, environments: usize) -> usize {
    rows.next_power_of_two().min(environments).max(LEAST_ROWS)
}

/// Unwanted rows of states between two wanted ones that are copied with them: less than another copy costs.
const STATES_BETWEEN: usize = 8;

/// The rows from the first to the last `true`, without longer stretches that have none.
fn stretches(wanted: &[bool]) -> Vec<Range<usize>> {
    let mut stretches: Vec<Range<usize>> = Vec::new();
    for row in (0..wanted.len()).filter(|&row| wanted[row]) {
        match stretches.last_mut() {
            Some(last) if row - last.end <= STATES_BETWEEN => last.end = row + 1,
            _ => stretches.push(row..row + 1),
        }
    }
    stretches
}

/// What a step said, from the bytes that came back.
fn unpack(going: &Going, bytes: &[u8]) -> ActingOutput {
    let values = |bytes: &[u8]| -> Vec<f32> { floats(bytes).collect() };
    let (said, states) = bytes.split_at(going.rows() * going.said() * size_of::<f32>());
    let room = |values: usize| Vec::with_capacity(going.rows() * values);
    let mut output = ActingOutput {
        logits: room(going.logits),
        q: room(going.actions),
        embedding: room(going.embedding),
        rnd_error: room(1),
        state_before: Vec::new(),
    };
    for row in said.chunks_exact(going.said() * size_of::<f32>()) {
        let (logits, row) = row.split_at(going.logits * size_of::<f32>());
        let (q, row) = row.split_at(going.actions * size_of::<f32>());
        let (embedding, error) = row.split_at(going.embedding * size_of::<f32>());
        output.logits.extend(floats(logits));
        output.q.extend(floats(q));
        output.embedding.extend(floats(embedding));
        output.rnd_error.extend(floats(error));
    }
    let length = going.state * size_of::<f32>();
    let state = |(i, wanted): (usize, &bool)| wanted.then(|| values(&states[i * length..(i + 1) * length]));
    output.state_before = going.wants_state.iter().enumerate().map(state).collect();
    output
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<{ size_of::<f32>() }>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

impl Seat {
    fn new(networks: &Networks, states: &RecurrentStates) -> Result<Self> {
        let most_rows = captured_rows(states.environments(), states.environments());
        let said = 2 * networks.actions() + networks.embedding_length() + 1;
        Ok(Self {
            observations: ObservationTable::new(networks, states)?,
            facts: Outbox::new(Packing::new(networks, most_rows).bytes())?,
            inbox: Inbox::new(most_rows * (said + networks.state_length()) * size_of::<f32>())?,
            recorded: BTreeMap::new(),
            states: states.table().shallow_clone(),
            most_rows,
        })
    }

    /// Records a step of so many rows, if it was not before; no environment's state is touched. The current stream is
    /// the networks' own.
    fn record(
        &mut self,
        networks: &Networks,
        weights: &DerivedWeights,
        states: &RecurrentStates,
        rows: usize,
        side: &Stream,
    ) -> Result<()> {
        if self.recorded.contains_key(&rows) {
            return Ok(());
        }
        debug_assert!(rows <= self.most_rows);
        let packing = Packing::new(networks, rows);
        let input = Tensor::f_zeros([packing.bytes() as i64], (Kind::Uint8, self.states.device()))?;
        packing.pack(&[], &[], self.observations.blank(), states, self.facts.fill()?);
        self.facts.send(0..packing.bytes(), &input)?;
        let tables = Tables { observations: &self.observations, states: &self.states };
        let work = || tch::no_grad(|| step(networks, weights, &packing.unpack(&input)?, tables, side));
        for _ in 0..WARM_UP {
            work()?;
        }
        Stream::current()?.synchronize()?;
        let (graph, outputs) = Graph::record(work)?;
        self.recorded.insert(rows, Recorded { graph, packing, input, outputs });
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.observations.settle()?;
        Ok(self.facts.settle()?)
    }
}

/// What a step reads by the rows of its environments.
#[derive(Clone, Copy)]
struct Tables<'a> {
    observations: &'a ObservationTable,
    states: &'a Tensor,
}

/// All that a step computes, given to the current stream and to `side` beside it.
fn step(
    networks: &Networks,
    weights: &DerivedWeights,
    unpacked: &Unpacked,
    tables: Tables<'_>,
    side: &Stream,
) -> Result<Outputs> {
    let main = Stream::current()?;
    // Lives until `side` has joined: its memory is given to nobody before.
    let observations = tables.observations.gather(&unpacked.seen)?;
    let before = tables.states.f_index_select(0, &unpacked.from)?;
    let mut fork = Event::new()?;
    fork.record(&main)?;
    fork.block(side)?;
    let frames_only = side.scope(|| -> Result<_> {
        let (embedding, error) = weights.intrinsic(networks, &observations)?;
        let mut join = Event::new()?;
        join.record(side)?;
        Ok((embedding, error.f_unsqueeze(1)?, join))
    });
    // `side` belongs to a recording only until it has joined again, whatever happens in between.
    let states = CellStates {
        before: before.shallow_clone(),
        table: tables.states.shallow_clone(),
        places: unpacked.to.shallow_clone(),
    };
    let said = networks.agent.step(
        &weights.agent,
        &StepInput {
            observations: observations.shallow_clone(),
            features: unpacked.features.shallow_clone(),
            states,
            policy: unpacked.policy.shallow_clone(),
        },
    );
    let (embedding, error, join) = frames_only??;
    join.block(&main)?;
    let said = said?;
    let parts: Vec<_> = said.logits.into_iter().chain([said.q, embedding, error]).collect();
    Ok(Outputs { said: Tensor::f_cat(&parts, 1)?, before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_fetched_in_few_copies_that_hold_all_wanted_ones() {
        let wanted = |rows: &[usize], count: usize| (0..count).map(|row| rows.contains(&row)).collect::<Vec<_>>();
        assert_eq!(stretches(&[]), []);
        assert_eq!(stretches(&[false; 5]), []);
        assert_eq!(stretches(&[true; 128]), std::slice::from_ref(&(0..128)));
        assert_eq!(stretches(&wanted(&[0, 127], 128)), [0..1, 127..128]);
        assert_eq!(stretches(&wanted(&[3, 12, 22], 30)), [3..13, 22..23]);
    }

    #[test]
    fn what_comes_back_is_told_row_by_row() {
        let going = Going { wants_state: vec![false, true], logits: 2, actions: 2, embedding: 3, state: 4 };
        let values: Vec<f32> = (0..2 * going.said() + 2 * going.state).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let output = unpack(&going, &bytes);
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
