//! Generated episodes, to compare sampled batches with what was written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use half::f16;
use replay::{
    Key, Layout, RateLimiterConfig, Replay, ReplayConfig, ReplayError, Sampler, SequenceBatch, SequenceStart, Step,
    StepColumns, Writer,
};

/// SplitMix64, for the tests' own choices.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// A limiter that admits everything.
pub const UNLIMITED: RateLimiterConfig =
    RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };

/// Small sizes, one shard, no limiter.
pub fn small_config() -> ReplayConfig {
    let mut config = ReplayConfig::paper_sized(12, 4);
    config.layout = Layout { observation_bytes: 12, embedding: 3, state: 4, trace: 6, period: 3 };
    config.shards = 1;
    config.capacity = 50;
    config.rate_limiter = UNLIMITED;
    config
}

/// One generated episode.
pub struct Episode {
    pub actor: u32,
    pub policy: u16,
    pub observations: Vec<Vec<u8>>,
    /// One per observation; the last has no action.
    pub steps: Vec<PlayedStep>,
    /// Recurrent states by observation.
    pub states: Vec<Vec<f32>>,
}

pub type PlayedStep = StepColumns<u16, f32, Vec<f16>>;

/// Generates an episode of `observations` observations; most bytes of a frame stand still, as in a game.
pub fn episode(chance: &mut Chance, layout: &Layout, actor: u32, observations: usize) -> Episode {
    let mut frame: Vec<u8> = (0..layout.observation_bytes).map(|_| chance.next() as u8).collect();
    let mut episode = Episode {
        actor,
        policy: chance.below(16) as u16,
        observations: Vec::new(),
        steps: Vec::new(),
        states: Vec::new(),
    };
    for t in 0..observations {
        for _ in 0..chance.below(4) {
            let at = chance.below(frame.len());
            frame[at] = chance.next() as u8;
        }
        let last = t + 1 == observations;
        let decided = |value: f32| if last { 0.0 } else { value };
        episode.observations.push(frame.clone());
        episode.steps.push(PlayedStep {
            action: if last { 0 } else { chance.below(18) as u16 },
            behaviour_probability: decided(chance.unit()),
            reward_extrinsic: decided(chance.unit() * 200.0 - 100.0),
            reward_ngu: chance.unit(),
            reward_rnd: chance.unit(),
            reward_episodic: chance.unit(),
            discount: decided(f32::from(u8::from(t + 2 < observations))),
            embedding: (0..layout.embedding).map(|_| f16::from_f32(chance.unit())).collect(),
        });
        episode.states.push((0..layout.state).map(|_| chance.unit() - 0.5).collect());
    }
    episode
}

/// All episodes; the parameter version of a sequence encodes its episode and its first observation.
#[derive(Default)]
pub struct Played {
    pub episodes: HashMap<u64, Episode>,
}

impl Played {
    /// Writes a whole episode and flushes.
    pub fn write(&mut self, writer: &mut Writer, episode: Episode) {
        let number = self.episodes.len() as u64;
        writer.begin_episode(episode.policy).unwrap();
        for t in 0..episode.observations.len() {
            append(writer, &episode, number, t);
        }
        self.episodes.insert(number, episode);
        writer.flush(Duration::ZERO).unwrap();
    }

    /// Compares every value of a batch with its episode.
    pub fn check(&self, layout: &Layout, batch: &SequenceBatch) {
        for (i, sequence) in batch.sequences.iter().enumerate() {
            let first = (sequence.parameter_version & 0xffff_ffff) as usize;
            let episode = &self.episodes[&(sequence.parameter_version >> 32)];
            let total = episode.observations.len();
            assert!(first.is_multiple_of(layout.period));
            assert!(first == 0 || first - layout.period + layout.trace < total, "a sequence with nothing new");
            let length = layout.trace.min(total - first);
            assert_eq!(sequence.length, length);
            assert_eq!(sequence.policy, usize::from(episode.policy));
            assert_eq!(sequence.actor, episode.actor);
            assert_eq!(part(&batch.state, i, layout.state), episode.states[first]);
            for t in 0..layout.trace {
                let observation = part(&batch.observations, i * layout.trace + t, layout.observation_bytes);
                if t < length {
                    assert_eq!(observation, episode.observations[first + t]);
                } else {
                    assert!(observation.iter().all(|&byte| byte == 0));
                }
            }
            for entry in 0..=layout.trace {
                let at = i * (layout.trace + 1) + entry;
                let nothing = PlayedStep { embedding: vec![f16::ZERO; layout.embedding], ..PlayedStep::default() };
                let step = match (first + entry).checked_sub(1) {
                    Some(t) if entry <= length => &episode.steps[t],
                    _ => &nothing,
                };
                assert_eq!(batch.steps.action[at], i64::from(step.action));
                assert_eq!(batch.steps.scalars().map(|column| column[at]), step.scalars().map(|value| *value));
                assert_eq!(part(&batch.steps.embedding, at, layout.embedding), step.embedding);
            }
        }
    }
}

fn part<T>(array: &[T], i: usize, size: usize) -> &[T] {
    &array[i * size..(i + 1) * size]
}

/// Writes observation `t` of an episode and its step.
pub fn append(writer: &mut Writer, episode: &Episode, number: u64, t: usize) {
    let played = &episode.steps[t];
    let scalars = played.scalars().map(|value| *value);
    let step = Step::from_parts(played.action, scalars, &played.embedding);
    if t + 1 == episode.observations.len() {
        return writer.end_episode(&episode.observations[t], &step).unwrap();
    }
    let start = SequenceStart { state: &episode.states[t], parameter_version: number << 32 | t as u64 };
    writer.append(&episode.observations[t], &step, writer.wants_start().then_some(start)).unwrap();
}

/// Writes as one actor until the replay is stopped; returns the number of sequences inserted.
pub fn write_until_stopped(replay: &Arc<Replay>, actor: u32) -> u64 {
    let mut chance = Chance(u64::from(actor));
    let mut writer = Writer::new(replay, actor);
    let mut written = 0;
    loop {
        let length = 2 + chance.below(30);
        let episode = episode(&mut chance, &replay.config.layout, actor, length);
        writer.begin_episode(episode.policy).unwrap();
        for t in 0..length {
            append(&mut writer, &episode, 0, t);
            let ready = writer.ready();
            let flushed = writer.flush(Duration::MAX);
            written += (ready - writer.ready()) as u64;
            match flushed {
                Ok(()) => {}
                Err(ReplayError::Stopped) => return written,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Samples a batch of this size.
pub fn sample(replay: &Arc<Replay>, sampler: &mut Sampler, size: usize) -> SequenceBatch {
    let mut batch = SequenceBatch::new(&replay.config.layout, size);
    sampler.sample(&mut batch, Duration::ZERO).unwrap();
    batch
}

/// The keys of a batch, for new priorities.
pub fn keys(batch: &SequenceBatch) -> Vec<Key> {
    batch.keys().collect()
}

/// Whether to run the long versions of the tests.
pub fn test_all() -> bool {
    std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1")
}

/// Stops the replay when dropped, so that a failed assertion does not hang the test.
pub struct StopAtEnd<'a>(pub &'a Replay);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.limiter.stop();
    }
}
