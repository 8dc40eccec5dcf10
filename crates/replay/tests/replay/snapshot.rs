//! Snapshots: whole or refused.

use std::sync::Arc;
use std::time::Duration;

use crate::play::{
    Chance, Episode, Played, StopAtEnd, append, episode, keys, sample, small_config, write_until_stopped,
};
use replay::{RateLimiterConfig, Replay, ReplayConfig, ReplayError, Sampler, SequenceBatch, Snapshot, Writer};

fn written(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_to(&mut bytes).unwrap();
    bytes
}

fn config() -> ReplayConfig {
    let mut config = small_config();
    config.shards = 3;
    config.capacity = 40;
    config.memory_limit = Some(100_000);
    config.rate_limiter = RateLimiterConfig { samples_per_insert: 4.0, min_fill: 10, slack: 30.0 };
    config
}

/// A small training run: writers, a sampler and priorities, in one thread and a fixed order.
struct Run {
    replay: Arc<Replay>,
    writers: Vec<Writer>,
    sampler: Sampler,
    chance: Chance,
    open: Vec<(Episode, u64, usize)>,
    batches: Vec<SequenceBatch>,
}

impl Run {
    fn new(config: ReplayConfig) -> Self {
        let replay = Replay::new(config).unwrap();
        let writers = (0..4).map(|actor| Writer::new(&replay, actor)).collect();
        let mut chance = Chance(11);
        let open = (0..4).map(|actor| (episode(&mut chance, &config.layout, actor, 20), u64::from(actor), 0)).collect();
        let sampler = Sampler::new(&replay, 1);
        Self { replay, writers, sampler, chance, open, batches: Vec::new() }
    }

    fn step(&mut self) {
        let layout = self.replay.config.layout;
        for (writer, (episode, number, t)) in self.writers.iter_mut().zip(&mut self.open) {
            if writer.ready() == 0 {
                if *t == 0 {
                    writer.begin_episode(episode.policy).unwrap();
                }
                append(writer, episode, *number, *t);
                *t += 1;
                if *t == episode.observations.len() {
                    let length = 2 + self.chance.below(40);
                    *episode = crate::play::episode(&mut self.chance, &layout, episode.actor, length);
                    *number += 4;
                    *t = 0;
                }
            }
            match writer.flush(Duration::ZERO) {
                Ok(()) | Err(ReplayError::Timeout { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if self.replay.limiter.wait_to_sample(8, Duration::ZERO).is_ok() {
            let batch = sample(&self.replay, &mut self.sampler, 8);
            let priorities: Vec<f32> = batch.keys().map(|_| self.chance.unit()).collect();
            self.replay.update_priorities(&keys(&batch), &priorities).unwrap();
            self.batches.push(batch);
        }
    }

    /// Continues the run from a snapshot.
    fn through_a_snapshot(self) -> Self {
        let states = self.writers.iter().map(Writer::state).collect();
        let bytes = written(&Snapshot::take(&self.replay, states));
        let restored = Snapshot::restore_from(&bytes[..], &self.replay.config).unwrap();
        assert_eq!(restored.replay.accounting(), self.replay.accounting());
        assert_eq!(restored.replay.limiter.counts(), self.replay.limiter.counts());
        let writers = restored.writers.into_iter().map(|s| Writer::resume(&restored.replay, s).unwrap()).collect();
        Self { sampler: Sampler::new(&restored.replay, 1), replay: restored.replay, writers, ..self }
    }
}

#[test]
fn run_resumed_from_a_snapshot_equals_an_uninterrupted_one() {
    let mut whole = Run::new(config());
    let mut stopped = Run::new(config());
    for i in 0..600 {
        whole.step();
        stopped.step();
        if i % 29 == 7 {
            stopped = stopped.through_a_snapshot();
        }
    }
    assert!(whole.batches.len() > 100);
    assert!(whole.batches == stopped.batches);
    assert_eq!(whole.replay.accounting(), stopped.replay.accounting());
    let held = whole.replay.accounting();
    assert!(held.inserted - held.sequences > 100);
}

#[test]
fn snapshot_is_consistent_while_writers_and_samplers_continue() {
    let mut config = config();
    config.capacity = 3_000;
    config.memory_limit = None;
    let replay = Replay::new(config).unwrap();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&replay);
        for actor in 0..3 {
            let replay = &replay;
            scope.spawn(move || write_until_stopped(replay, actor));
        }
        scope.spawn(|| {
            let mut sampler = Sampler::new(&replay, 1);
            let mut batch = SequenceBatch::new(&config.layout, 8);
            while sampler.sample(&mut batch, Duration::MAX).is_ok() {
                match replay.update_priorities(&keys(&batch), &[1.5; 8]) {
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            let bytes = written(&Snapshot::take(&replay, Vec::new()));
            let restored = Snapshot::restore_from(&bytes[..], &config).unwrap().replay;
            let held = restored.accounting();
            let (inserts, samples) = restored.limiter.counts();
            assert_eq!((held.inserted, held.sampled), (inserts, samples), "counts and content are of the same moment");
            // min_fill x samples_per_insert -+ slack = 10 x 4 -+ 30.
            let balance = inserts as f64 * 4.0 - samples as f64;
            assert!(balance <= 70.0 && (samples == 0 || balance >= 10.0), "{inserts} inserts and {samples} samples");
        }
    });
}

/// A small snapshot as bytes, and its configuration.
fn small_snapshot() -> (Vec<u8>, ReplayConfig) {
    let config = small_config();
    let replay = Replay::new(config).unwrap();
    let mut played = Played::default();
    let mut chance = Chance(21);
    let mut writer = Writer::new(&replay, 0);
    for _ in 0..6 {
        played.write(&mut writer, episode(&mut chance, &config.layout, 0, 9));
    }
    let open = episode(&mut chance, &config.layout, 0, 30);
    writer.begin_episode(0).unwrap();
    (0..8).for_each(|t| append(&mut writer, &open, 99, t));
    let bytes = written(&Snapshot::take(&replay, vec![writer.state()]));
    Snapshot::restore_from(&bytes[..], &config).unwrap();
    (bytes, config)
}

fn refusal(bytes: &[u8], config: &ReplayConfig) -> String {
    Snapshot::restore_from(bytes, config).expect_err("a damaged snapshot was loaded").to_string()
}

#[test]
fn refuses_ten_thousand_damaged_snapshots() {
    let (whole, config) = small_snapshot();
    let mut chance = Chance(31);
    for case in 0..10_000 {
        let mut bytes = whole.clone();
        match case % 4 {
            0 => bytes[chance.below(whole.len())] ^= 1 << chance.below(8),
            1 => bytes.truncate(chance.below(whole.len())),
            2 => {
                let from = chance.below(whole.len());
                let to = (from + 1 + chance.below(64)).min(whole.len());
                bytes[from..to].iter_mut().for_each(|byte| *byte = chance.next() as u8);
                if bytes == whole {
                    continue;
                }
            }
            _ => {
                // Half of these begin like a snapshot.
                let length = chance.below(600);
                bytes = (0..length).map(|_| chance.next() as u8).collect();
                if case % 8 == 3 {
                    bytes.splice(..length.min(12), whole[..12].iter().copied());
                }
            }
        }
        assert!(!refusal(&bytes, &config).is_empty());
    }
}

#[test]
fn refuses_any_flipped_bit() {
    let (whole, config) = small_snapshot();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        refusal(&bytes, &config);
    }
}

#[test]
fn names_the_reason_of_a_refusal() {
    let (whole, config) = small_snapshot();
    assert_eq!(refusal(b"", &config), "not a replay snapshot");
    assert_eq!(refusal(b"PK\x03\x04 something else", &config), "not a replay snapshot");
    let mut newer = whole.clone();
    newer[8] = 9;
    assert_eq!(refusal(&newer, &config), "the replay snapshot has version 9, expected 4");
    assert_eq!(refusal(&whole[..whole.len() - 1], &config), "the replay snapshot is cut off");
    let mut flipped = whole.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 4;
    assert_eq!(refusal(&flipped, &config), "the replay snapshot is damaged: its hash is wrong");
    let mut longer = whole.clone();
    longer.push(0);
    assert_eq!(refusal(&longer, &config), "the replay snapshot continues after its end");

    let mut other = config;
    other.layout.trace = 8;
    assert_eq!(refusal(&whole, &other), "layout.trace of the replay snapshot is 6, but 8 is configured");
    let mut other = config;
    other.capacity = 51;
    assert_eq!(refusal(&whole, &other), "capacity of the replay snapshot is 50, but 51 is configured");
    let mut other = config;
    other.priority_exponent = 0.7;
    assert_eq!(refusal(&whole, &other), "priority_exponent of the replay snapshot is 0.6, but 0.7 is configured");
}

#[test]
fn keeps_a_smaller_memory_limit_after_restoring() {
    let mut config = small_config();
    config.capacity = 1_000;
    let replay = Replay::new(config).unwrap();
    let mut writer = Writer::new(&replay, 0);
    let mut played = Played::default();
    for _ in 0..300 {
        played.write(&mut writer, episode(&mut Chance(5), &config.layout, 0, 20));
    }
    let bytes = written(&Snapshot::take(&replay, Vec::new()));
    config.memory_limit = Some(replay.accounting().bytes() / 2);
    let restored = Snapshot::restore_from(&bytes[..], &config).unwrap().replay;
    let held = restored.accounting();
    assert!(held.bytes() <= config.memory_limit.unwrap());
    assert_eq!(held.inserted, replay.accounting().inserted);
    played.check(&config.layout, &sample(&restored, &mut Sampler::new(&restored, 1), 32));
}
