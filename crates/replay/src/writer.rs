//! Turns the steps of one environment into overlapping sequences.
//!
//! A sequence begins every `period` observations of an episode and spans `trace` of them, fewer at the episode's end.
//! None begins where the previous one already reaches the episode's last observation: it would hold nothing new.
//! So every step is learned from in at least one sequence, and those in the middle in `trace / period`.
//!
//! Steps are collected into chunks that end where the next sequence begins. A sequence is ready once its last chunk is
//! closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::columns::{ChunkColumns, OwnedStep, Step, expect_length};
use crate::config::Layout;
use crate::error::{ReplayError, Result};
use crate::replay::Replay;
use crate::sequence::Sequence;
use crate::tiles::Tiles;

/// What a [`Writer`] needs at the first step of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceStart<'a> {
    /// The recurrent state before the observation, h then c.
    pub state: &'a [f32],
    /// Version of the acting parameters.
    pub parameter_version: u64,
}

/// Writes the steps of one environment to one shard.
#[derive(Debug)]
pub struct Writer {
    replay: Arc<Replay>,
    state: WriterState,
}

/// Everything a [`Writer`] holds between two steps; part of a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriterState {
    pub(crate) actor: u32,
    pub(crate) shard: usize,
    #[serde(skip)]
    pub(crate) episode: Option<OpenEpisode>,
    /// Complete sequences that are not in the shard yet.
    #[serde(skip)]
    pub(crate) ready: VecDeque<Arc<Sequence>>,
}

/// An episode that has not ended, with its open sequences and its open chunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenEpisode {
    pub(crate) policy: u16,
    /// Observations so far.
    pub(crate) observations: u64,
    /// Sequences that have begun, oldest first.
    #[serde(skip)]
    pub(crate) open: VecDeque<OpenSequence>,
    /// The last step before the open chunk.
    pub(crate) before: OwnedStep,
    /// The last observation of the open chunk; zeros if the chunk is empty.
    #[serde(with = "serde_bytes")]
    pub(crate) frame: Box<[u8]>,
    pub(crate) tiles: Tiles,
    pub(crate) columns: ChunkColumns,
}

#[derive(Clone, Debug)]
pub(crate) struct OpenSequence {
    /// The observation of the episode at which the sequence begins.
    pub(crate) first: u64,
    pub(crate) sequence: Sequence,
}

impl Writer {
    /// Creates a writer for one environment; its shard is `actor` modulo the number of shards.
    pub fn new(replay: &Arc<Replay>, actor: u32) -> Self {
        let shard = actor as usize % replay.config.shards;
        let state = WriterState { actor, shard, episode: None, ready: VecDeque::new() };
        Self { replay: Arc::clone(replay), state }
    }

    /// Continues from a state that a snapshot restored.
    pub fn resume(replay: &Arc<Replay>, state: WriterState) -> Result<Self> {
        let shards = replay.config.shards;
        if state.shard >= shards {
            return Err(ReplayError::NoSuchShard { shard: state.shard, shards });
        }
        Ok(Self { replay: Arc::clone(replay), state })
    }

    /// Copies everything it holds, the open episode included; chunks are shared, not copied.
    pub fn state(&self) -> WriterState {
        self.state.clone()
    }

    /// Begins an episode in which `policy` acts.
    pub fn begin_episode(&mut self, policy: u16) -> Result<()> {
        if self.state.episode.is_some() {
            return Err(self.out_of_turn("an episode began before the previous one ended"));
        }
        self.state.episode = Some(OpenEpisode::new(&self.replay.config.layout, policy));
        Ok(())
    }

    /// Returns whether the next step begins a sequence and so needs a [`SequenceStart`].
    pub fn wants_start(&self) -> bool {
        let period = self.replay.config.layout.period as u64;
        self.state.episode.as_ref().is_some_and(|episode| episode.observations % period == 0)
    }

    /// Appends a step without waiting; a refused step changes nothing.
    ///
    /// `start` is required if [`wants_start`](Self::wants_start), and ignored otherwise.
    pub fn append(&mut self, observation: &[u8], step: &Step<'_>, start: Option<SequenceStart<'_>>) -> Result<()> {
        let layout = self.replay.config.layout;
        let Some(episode) = &mut self.state.episode else {
            return Err(self.out_of_turn("a step came outside an episode"));
        };
        expect_length("observation", observation.len(), layout.observation_bytes)?;
        step.check(&layout, self.state.actor, episode.observations)?;
        if episode.observations % layout.period as u64 == 0 {
            episode.begin_sequence(&layout, self.state.actor, start)?;
        }
        episode.push(observation, step);
        if episode.columns.action.len() == layout.period {
            episode.close_chunk(&self.replay, &mut self.state.ready)?;
        }
        Ok(())
    }

    /// Appends the observation that ended the episode and completes its sequences, without waiting.
    ///
    /// [`Step::last`] makes `last`. An episode without a step leaves nothing behind.
    pub fn end_episode(&mut self, observation: &[u8], last: &Step<'_>) -> Result<()> {
        let layout = self.replay.config.layout;
        let Some(episode) = &mut self.state.episode else {
            return Err(self.out_of_turn("an episode ended that had not begun"));
        };
        expect_length("observation", observation.len(), layout.observation_bytes)?;
        last.check(&layout, self.state.actor, episode.observations)?;
        if episode.observations > 0 {
            episode.push(observation, last);
            episode.close_chunk(&self.replay, &mut self.state.ready)?;
            episode.complete(&layout, &mut self.state.ready);
        }
        self.abandon_episode();
        Ok(())
    }

    /// Drops the open episode, except for its complete sequences.
    pub fn abandon_episode(&mut self) {
        self.state.episode = None;
    }

    /// Number of complete sequences that wait for [`flush`](Self::flush).
    pub fn ready(&self) -> usize {
        self.state.ready.len()
    }

    /// Inserts complete sequences into the shard, waiting at most `timeout` in all for the rate limiter.
    ///
    /// On an error the sequences not yet inserted stay ready. A timeout of zero inserts what the limiter admits now.
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        let begun = Instant::now();
        while let Some(sequence) = self.state.ready.front() {
            let left = timeout.saturating_sub(begun.elapsed());
            self.replay.insert(self.state.shard, sequence, left)?;
            self.state.ready.pop_front();
        }
        Ok(())
    }

    fn out_of_turn(&self, what: &'static str) -> ReplayError {
        ReplayError::OutOfTurn { actor: self.state.actor, what }
    }
}

impl WriterState {
    /// Index of its environment among those of the actors.
    pub fn actor(&self) -> u32 {
        self.actor
    }

    /// Drops the open episode, which will not continue.
    pub fn without_episode(self) -> Self {
        Self { episode: None, ..self }
    }
}

impl OpenEpisode {
    fn new(layout: &Layout, policy: u16) -> Self {
        Self {
            policy,
            observations: 0,
            open: VecDeque::new(),
            before: OwnedStep::zero(layout),
            frame: vec![0; layout.observation_bytes].into(),
            tiles: Tiles::default(),
            columns: ChunkColumns::default(),
        }
    }

    fn begin_sequence(&mut self, layout: &Layout, actor: u32, start: Option<SequenceStart<'_>>) -> Result<()> {
        let first = self.observations;
        let Some(SequenceStart { state, parameter_version }) = start else {
            return Err(ReplayError::MissingState { step: first, actor });
        };
        expect_length("state", state.len(), layout.state)?;
        if let Some(&value) = state.iter().find(|value| !value.is_finite()) {
            let (column, expected) = ("state", "a finite number");
            return Err(ReplayError::Value { column, value, step: first, actor, expected });
        }
        let sequence = Sequence {
            actor,
            policy: self.policy,
            parameter_version,
            before: self.before.clone(),
            state: state.into(),
            length: 0,
            chunks: Vec::with_capacity(layout.trace.div_ceil(layout.period)),
        };
        self.open.push_back(OpenSequence { first, sequence });
        Ok(())
    }

    fn push(&mut self, observation: &[u8], step: &Step<'_>) {
        self.tiles.push(&mut self.frame, observation);
        self.columns.push(step);
        self.observations += 1;
    }

    /// Compresses the open chunk for every open sequence; those that are full with it become ready.
    fn close_chunk(&mut self, replay: &Replay, ready: &mut VecDeque<Arc<Sequence>>) -> Result<()> {
        let layout = &replay.config.layout;
        let chunk = Arc::new(replay.compress(&self.tiles, &self.columns)?);
        if let Some(last) = self.columns.last(layout) {
            self.before = last;
        }
        self.tiles.clear();
        self.columns.clear();
        self.frame.fill(0);
        for open in &mut self.open {
            open.sequence.chunks.push(Arc::clone(&chunk));
        }
        while self.open.front().is_some_and(|open| self.observations - open.first >= layout.trace as u64) {
            ready.extend(self.open.pop_front().map(|full| full.close(layout.trace)));
        }
        Ok(())
    }

    /// Completes the sequences that are still open after the episode's last observation.
    fn complete(&mut self, layout: &Layout, ready: &mut VecDeque<Arc<Sequence>>) {
        for open in self.open.drain(..) {
            let nothing_new =
                open.first > 0 && open.first - layout.period as u64 + layout.trace as u64 >= self.observations;
            if !nothing_new {
                let length = (self.observations - open.first) as usize;
                ready.push_back(open.close(length));
            }
        }
    }
}

impl OpenSequence {
    fn close(self, length: usize) -> Arc<Sequence> {
        Arc::new(Sequence { length: length as u32, ..self.sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ReplayConfig;
    use half::f16;

    const STEP: Step<'static> = Step {
        action: 1,
        behaviour_probability: 0.5,
        reward_extrinsic: 1.0,
        reward_ngu: 0.1,
        reward_rnd: 0.2,
        reward_episodic: 0.3,
        discount: 1.0,
        embedding: &[f16::ONE],
    };
    const START: SequenceStart<'static> = SequenceStart { state: &[0.5, -0.5], parameter_version: 7 };

    fn writer(trace: usize, period: usize) -> Writer {
        let mut config = ReplayConfig::paper_sized(4, 2);
        config.layout = Layout { observation_bytes: 4, embedding: 1, state: 2, trace, period };
        Writer::new(&Replay::new(config).unwrap(), 3)
    }

    /// Plays an episode of `observations` observations, the last included.
    fn play(writer: &mut Writer, observations: usize) {
        writer.begin_episode(0).unwrap();
        for t in 0..observations - 1 {
            let start = writer.wants_start().then_some(START);
            writer.append(&(t as u32).to_le_bytes(), &STEP, start).unwrap();
        }
        writer.end_episode(&[0xff; 4], &Step::last([0.1, 0.2, 0.3], &[f16::ONE])).unwrap();
    }

    #[test]
    fn puts_every_step_into_the_expected_sequences() {
        for (trace, period) in [(160, 80), (100, 80), (5, 2), (5, 4), (2, 1), (7, 3), (10, 1)] {
            for observations in 2..3 * trace + 2 {
                let mut writer = writer(trace, period);
                play(&mut writer, observations);
                let lengths: Vec<usize> = writer.state.ready.iter().map(|ready| ready.length as usize).collect();
                let mut expected = Vec::new();
                let mut learned = vec![0; observations - 1];
                let mut first = 0;
                loop {
                    let end = observations.min(first + trace);
                    expected.push(end - first);
                    learned[first..end - 1].iter_mut().for_each(|times| *times += 1);
                    if end == observations {
                        break;
                    }
                    first += period;
                }
                assert_eq!(lengths, expected, "{observations} observations, {trace} every {period}");
                assert!(lengths.iter().all(|length| (2..=trace).contains(length)));
                assert!(learned.iter().all(|&times| times >= 1), "some step is never learned from: {learned:?}");
            }
        }
    }

    #[test]
    fn overlapping_sequences_share_their_chunks() {
        let mut writer = writer(160, 80);
        play(&mut writer, 400);
        let ready = &writer.state.ready;
        assert_eq!(ready.len(), 4);
        for (one, next) in ready.iter().zip(ready.iter().skip(1)) {
            assert_eq!(one.chunks.len(), 2);
            assert!(Arc::ptr_eq(&one.chunks[1], &next.chunks[0]));
        }
        let chunk = Arc::downgrade(&ready[1].chunks[0]);
        writer.state.ready.pop_front();
        assert!(chunk.upgrade().is_some(), "the second sequence still holds it");
        writer.state.ready.pop_front();
        assert!(chunk.upgrade().is_none(), "it is dropped with the last sequence that held it");
    }

    #[test]
    fn refuses_calls_out_of_turn() {
        let mut writer = writer(4, 2);
        let refused = writer.append(&[0; 4], &STEP, Some(START)).unwrap_err().to_string();
        assert_eq!(refused, "actor 3: a step came outside an episode");
        assert!(writer.end_episode(&[0; 4], &Step::last([0.1, 0.2, 0.3], &[f16::ONE])).is_err());
        writer.begin_episode(0).unwrap();
        assert!(writer.begin_episode(0).is_err());
    }

    #[test]
    fn refused_steps_change_nothing() {
        let mut writer = writer(4, 2);
        writer.begin_episode(0).unwrap();
        let refused = |writer: &mut Writer, observation: &[u8], step: &Step<'_>, start| {
            writer.append(observation, step, start).unwrap_err().to_string()
        };
        let cases = [
            (refused(&mut writer, &[0; 3], &STEP, Some(START)), "observation has 3 elements, expected 4"),
            (refused(&mut writer, &[0; 4], &STEP, None), "step 0 of an episode of actor 3 begins a sequence"),
            (
                refused(&mut writer, &[0; 4], &Step { reward_ngu: f32::NAN, ..STEP }, Some(START)),
                "reward_ngu is NaN at step 0 of an episode of actor 3, expected a finite number",
            ),
            (
                refused(&mut writer, &[0; 4], &Step { behaviour_probability: 1.5, ..STEP }, Some(START)),
                "behaviour_probability is 1.5 at step 0 of an episode of actor 3, expected a number from 0 to 1",
            ),
            (
                refused(&mut writer, &[0; 4], &Step { embedding: &[f16::INFINITY], ..STEP }, Some(START)),
                "embedding is inf",
            ),
            (refused(&mut writer, &[0; 4], &Step { embedding: &[], ..STEP }, Some(START)), "embedding has 0"),
            (
                refused(&mut writer, &[0; 4], &STEP, Some(SequenceStart { state: &[0.0], ..START })),
                "state has 1 elements, expected 2",
            ),
            (
                refused(&mut writer, &[0; 4], &STEP, Some(SequenceStart { state: &[0.0, f32::NAN], ..START })),
                "state is NaN",
            ),
        ];
        for (message, expected) in cases {
            assert!(message.starts_with(expected), "{message}");
        }
        let episode = writer.state.episode.as_ref().unwrap();
        assert!(episode.observations == 0 && episode.open.is_empty() && episode.tiles.streams().concat().is_empty());
    }

    #[test]
    fn empty_and_abandoned_episodes_leave_nothing_behind() {
        let mut writer = writer(4, 2);
        writer.begin_episode(0).unwrap();
        writer.end_episode(&[0; 4], &Step::last([0.1, 0.2, 0.3], &[f16::ONE])).unwrap();
        assert_eq!(writer.ready(), 0);
        writer.begin_episode(0).unwrap();
        writer.append(&[0; 4], &STEP, Some(START)).unwrap();
        writer.abandon_episode();
        assert!(writer.state.episode.is_none() && writer.ready() == 0);
    }
}
