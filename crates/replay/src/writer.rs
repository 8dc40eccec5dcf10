//! Turns the steps of one environment into overlapping sequences.
//!
//! A sequence begins every `period` observations of an episode and holds `trace` of them, fewer at the episode's end.
//! None begins where the one before it already reaches the episode's last observation: it would hold nothing new.
//! So every step is in at least one sequence in which it is learned from, and those in the middle are in
//! `trace / period`.
//!
//! Steps are gathered into chunks that end where the next sequence begins. A sequence is handed over once its last
//! chunk is closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::chunk::Chunk;
use crate::config::Layout;
use crate::error::{ReplayError, Result};
use crate::replay::Replay;
use crate::sequence::{Before, Sequence, Start};
use crate::step::{Columns, LastStep, Step, expect_length};
use crate::tiles::Tiles;

/// What must be known where a sequence begins.
#[derive(Clone, Copy, Debug)]
pub struct SequenceStart<'a> {
    /// The recurrent state with which the observation is seen, h then c.
    pub state: &'a [f32],
    /// Version of the parameters that act.
    pub parameter_version: u64,
}

/// Writes the steps of one environment to one shard.
#[derive(Debug)]
pub struct Writer {
    replay: Arc<Replay>,
    state: WriterState,
    /// The episode before, for its memory.
    spare: Option<Episode>,
}

/// Everything a [`Writer`] holds between two steps; part of a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Debug)]
pub struct WriterState {
    pub(crate) actor: u32,
    pub(crate) shard: usize,
    pub(crate) episode: Option<Episode>,
    /// Sequences that are complete and not in the shard yet.
    pub(crate) ready: VecDeque<Arc<Sequence>>,
}

/// An episode that goes on.
#[derive(Clone, Debug)]
pub(crate) struct Episode {
    pub(crate) policy: u16,
    /// Observations so far.
    pub(crate) observations: u64,
    /// Sequences that have begun, oldest first.
    pub(crate) open: VecDeque<OpenSequence>,
    /// The last step, which a sequence that begins at the next one needs.
    pub(crate) before: Before,
    /// The last observation of the open chunk; zeros where it has none.
    pub(crate) frame: Box<[u8]>,
    /// The open chunk.
    pub(crate) tiles: Tiles,
    pub(crate) columns: Columns,
}

#[derive(Clone, Debug)]
pub(crate) struct OpenSequence {
    pub(crate) start: Start,
    /// The observation of the episode at which it begins.
    pub(crate) first: u64,
    pub(crate) chunks: Vec<Arc<Chunk>>,
}

impl Writer {
    /// A writer for the environment of this actor; it writes to one shard only, the actor's number modulo the shards.
    pub fn new(replay: &Arc<Replay>, actor: u32) -> Self {
        let shard = actor as usize % replay.config().shards;
        let state = WriterState { actor, shard, episode: None, ready: VecDeque::new() };
        Self { replay: Arc::clone(replay), state, spare: None }
    }

    /// Goes on from a state that [`state`](Self::state) gave and a snapshot restored.
    pub fn resume(replay: &Arc<Replay>, state: WriterState) -> Result<Self> {
        let shards = replay.config().shards;
        if state.shard >= shards {
            return Err(ReplayError::NoSuchShard { shard: state.shard, shards });
        }
        Ok(Self { replay: Arc::clone(replay), state, spare: None })
    }

    /// A copy of everything it holds, the open episode included; compressed steps are shared, not copied.
    pub fn state(&self) -> WriterState {
        self.state.clone()
    }

    /// Begins an episode in which this policy acts.
    pub fn begin_episode(&mut self, policy: u16) -> Result<()> {
        if self.state.episode.is_some() {
            return Err(self.out_of_turn("an episode began before the one before it ended"));
        }
        let spare = self.spare.take();
        let episode = spare.unwrap_or_else(|| Episode::new(&self.replay.config().layout));
        self.state.episode = Some(episode.begin(policy));
        Ok(())
    }

    /// Whether the next step begins a sequence and so needs a [`SequenceStart`].
    pub fn wants_start(&self) -> bool {
        let period = self.replay.config().layout.period as u64;
        self.state.episode.as_ref().is_some_and(|episode| episode.observations % period == 0)
    }

    /// Appends a step; never waits. `start` is needed where [`wants_start`](Self::wants_start), and unused elsewhere.
    /// A step that is refused leaves everything as it was.
    pub fn append(&mut self, observation: &[u8], step: &Step<'_>, start: Option<SequenceStart<'_>>) -> Result<()> {
        let layout = self.replay.config().layout;
        let Some(episode) = &mut self.state.episode else {
            return Err(self.out_of_turn("a step came while no episode was open"));
        };
        expect_length("the observation", observation, layout.observation_bytes)?;
        step.check(&layout, self.state.actor, episode.observations)?;
        if episode.observations % layout.period as u64 == 0 {
            episode.begin_sequence(&layout, self.state.actor, start)?;
        }
        episode.push(observation, step);
        if episode.columns.action.len() == layout.period {
            let chunk = episode.close_chunk(&self.replay)?;
            episode.hand_out(&chunk, &layout, &mut self.state.ready);
        }
        Ok(())
    }

    /// Appends the observation that ended the episode and completes its sequences; never waits.
    ///
    /// An episode without a step leaves nothing behind.
    pub fn end_episode(&mut self, observation: &[u8], last: &LastStep<'_>) -> Result<()> {
        let layout = self.replay.config().layout;
        let Some(episode) = &mut self.state.episode else {
            return Err(self.out_of_turn("an episode ended while none was open"));
        };
        expect_length("the observation", observation, layout.observation_bytes)?;
        let step = last.as_step();
        step.check(&layout, self.state.actor, episode.observations)?;
        if episode.observations > 0 {
            episode.push(observation, &step);
            let chunk = episode.close_chunk(&self.replay)?;
            episode.hand_out(&chunk, &layout, &mut self.state.ready);
            episode.complete(&layout, &mut self.state.ready);
        }
        self.abandon_episode();
        Ok(())
    }

    /// Forgets the open episode and what of it is not in a complete sequence yet.
    pub fn abandon_episode(&mut self) {
        self.spare = self.state.episode.take().or(self.spare.take());
    }

    /// Sequences that are complete and wait for [`flush`](Self::flush).
    pub fn ready(&self) -> usize {
        self.state.ready.len()
    }

    /// Puts complete sequences into the shard, waiting for the rate limiter at most `timeout` in all; those that are
    /// left when it fails stay ready. With a timeout of zero it does what can be done at once.
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
        ReplayError::Episode { actor: self.state.actor, what }
    }
}

impl Episode {
    fn new(layout: &Layout) -> Self {
        Self {
            policy: 0,
            observations: 0,
            open: VecDeque::new(),
            before: Before::nothing(layout),
            frame: vec![0; layout.observation_bytes].into(),
            tiles: Tiles::default(),
            columns: Columns::default(),
        }
    }

    /// An episode with the memory of the one before, and nothing else of it.
    fn begin(mut self, policy: u16) -> Self {
        self.policy = policy;
        self.observations = 0;
        self.open.clear();
        self.before.clear();
        self.frame.fill(0);
        self.tiles.clear();
        self.columns.clear();
        self
    }

    fn begin_sequence(&mut self, layout: &Layout, actor: u32, start: Option<SequenceStart<'_>>) -> Result<()> {
        let first = self.observations;
        let Some(SequenceStart { state, parameter_version }) = start else {
            return Err(ReplayError::MissingState { step: first, actor });
        };
        expect_length("the recurrent state", state, layout.state)?;
        if let Some(&value) = state.iter().find(|value| !value.is_finite()) {
            let (what, rule) = ("a value of the recurrent state", "it must be finite");
            return Err(ReplayError::Value { what, value, step: first, actor, rule });
        }
        let start =
            Start { state: state.into(), before: self.before.clone(), parameter_version, policy: self.policy, actor };
        self.open.push_back(OpenSequence { start, first, chunks: Vec::new() });
        Ok(())
    }

    fn push(&mut self, observation: &[u8], step: &Step<'_>) {
        self.tiles.push(&mut self.frame, observation);
        self.columns.push(step);
        self.before.set(step);
        self.observations += 1;
    }

    fn close_chunk(&mut self, replay: &Replay) -> Result<Arc<Chunk>> {
        let chunk = replay.compress(&self.tiles, &self.columns)?;
        self.tiles.clear();
        self.columns.clear();
        self.frame.fill(0);
        Ok(Arc::new(chunk))
    }

    /// Gives a chunk to every open sequence; those that are full with it are ready.
    fn hand_out(&mut self, chunk: &Arc<Chunk>, layout: &Layout, ready: &mut VecDeque<Arc<Sequence>>) {
        for open in &mut self.open {
            open.chunks.push(Arc::clone(chunk));
        }
        let trace = layout.trace as u64;
        while self.open.front().is_some_and(|open| self.observations - open.first >= trace) {
            ready.extend(self.open.pop_front().map(|full| full.close(layout.trace)));
        }
    }

    /// Completes what the episode's end leaves open, after its last observation.
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
        Arc::new(Sequence { start: self.start, length: length as u32, chunks: self.chunks.into() })
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
    const LAST: LastStep<'static> =
        LastStep { reward_ngu: 0.1, reward_rnd: 0.2, reward_episodic: 0.3, embedding: &[f16::ONE] };
    const START: SequenceStart<'static> = SequenceStart { state: &[0.5, -0.5], parameter_version: 7 };

    fn writer(trace: usize, period: usize) -> Writer {
        let mut config = ReplayConfig::paper(4, 2);
        config.layout = Layout { observation_bytes: 4, embedding: 1, state: 2, trace, period };
        Writer::new(&Replay::new(config).unwrap(), 3)
    }

    /// An episode of so many observations, the last included.
    fn play(writer: &mut Writer, observations: usize) {
        writer.begin_episode(0).unwrap();
        for t in 0..observations - 1 {
            let start = writer.wants_start().then_some(START);
            writer.append(&(t as u32).to_le_bytes(), &STEP, start).unwrap();
        }
        writer.end_episode(&[0xff; 4], &LAST).unwrap();
    }

    #[test]
    fn every_step_is_in_the_expected_sequences() {
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
                assert!(learned.iter().all(|&times| times >= 1), "a step is learned from nowhere: {learned:?}");
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
        assert!(chunk.upgrade().is_none(), "it went with the last sequence that held it");
    }

    #[test]
    fn calls_out_of_turn_are_refused() {
        let mut writer = writer(4, 2);
        let refused = writer.append(&[0; 4], &STEP, Some(START)).unwrap_err().to_string();
        assert_eq!(refused, "actor 3: a step came while no episode was open");
        assert!(writer.end_episode(&[0; 4], &LAST).is_err());
        writer.begin_episode(0).unwrap();
        assert!(writer.begin_episode(0).is_err());
    }

    #[test]
    fn a_refused_step_changes_nothing() {
        let mut writer = writer(4, 2);
        writer.begin_episode(0).unwrap();
        let refused = |writer: &mut Writer, observation: &[u8], step: &Step<'_>, start| {
            writer.append(observation, step, start).unwrap_err().to_string()
        };
        let cases = [
            (refused(&mut writer, &[0; 3], &STEP, Some(START)), "the observation has 3 elements, expected 4"),
            (refused(&mut writer, &[0; 4], &STEP, None), "step 0 of an episode of actor 3 begins a sequence"),
            (
                refused(&mut writer, &[0; 4], &Step { reward_ngu: f32::NAN, ..STEP }, Some(START)),
                "the NGU reward is NaN at step 0 of an episode of actor 3: it must be finite",
            ),
            (
                refused(&mut writer, &[0; 4], &Step { behaviour_probability: 1.5, ..STEP }, Some(START)),
                "the behaviour probability is 1.5",
            ),
            (
                refused(&mut writer, &[0; 4], &Step { embedding: &[f16::INFINITY], ..STEP }, Some(START)),
                "a value of the embedding is inf",
            ),
            (refused(&mut writer, &[0; 4], &Step { embedding: &[], ..STEP }, Some(START)), "the embedding has 0"),
            (
                refused(&mut writer, &[0; 4], &STEP, Some(SequenceStart { state: &[0.0], ..START })),
                "the recurrent state has 1 elements, expected 2",
            ),
            (
                refused(&mut writer, &[0; 4], &STEP, Some(SequenceStart { state: &[0.0, f32::NAN], ..START })),
                "a value of the recurrent state is NaN",
            ),
        ];
        for (sentence, expected) in cases {
            assert!(sentence.starts_with(expected), "{sentence}");
        }
        let episode = writer.state.episode.as_ref().unwrap();
        assert!(episode.observations == 0 && episode.open.is_empty() && episode.tiles.streams().concat().is_empty());
    }

    #[test]
    fn an_episode_without_a_step_or_abandoned_leaves_nothing() {
        let mut writer = writer(4, 2);
        writer.begin_episode(0).unwrap();
        writer.end_episode(&[0; 4], &LAST).unwrap();
        assert_eq!(writer.ready(), 0);
        writer.begin_episode(0).unwrap();
        writer.append(&[0; 4], &STEP, Some(START)).unwrap();
        writer.abandon_episode();
        assert!(writer.state.episode.is_none() && writer.ready() == 0);
    }
}
