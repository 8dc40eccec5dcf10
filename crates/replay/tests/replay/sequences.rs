//! Sampled sequences equal the written ones, for any sizes.

use crate::play::{Chance, Episode, Played, UNLIMITED, episode, keys, sample, small_config, test_all};
use replay::{Layout, Replay, ReplayConfig, Sampler, Writer};

fn random_config(chance: &mut Chance) -> ReplayConfig {
    let trace = 2 + chance.below(30);
    let mut config = ReplayConfig::paper_sized(1, 1);
    config.layout = Layout {
        observation_bytes: 1 + chance.below(200),
        embedding: chance.below(5),
        state: chance.below(5),
        trace,
        period: 1 + chance.below(trace - 1),
    };
    config.shards = 1 + chance.below(4);
    config.capacity = config.shards + chance.below(60);
    config.rate_limiter = UNLIMITED;
    config.seed = chance.next();
    if chance.below(2) == 0 {
        config.memory_limit = Some(config.shards as u64 * (40_000 + chance.below(200_000) as u64));
    }
    config
}

#[test]
fn samples_what_was_written_while_evicting() {
    let mut chance = Chance(1);
    let (mut evicted, mut tight, mut cases) = (0, 0, 0);
    while cases < if test_all() { 3_000 } else { 300 } {
        let config = random_config(&mut chance);
        let Ok(replay) = Replay::new(config) else { continue };
        cases += 1;
        let mut writers: Vec<Writer> = (0..config.shards as u32 + 2).map(|actor| Writer::new(&replay, actor)).collect();
        let mut sampler = Sampler::new(&replay, 1 + chance.below(2));
        let mut played = Played::default();
        for _ in 0..20 {
            let writer = chance.below(writers.len());
            let observations = 2 + chance.below(4 * config.layout.trace);
            let episode = episode(&mut chance, &config.layout, writer as u32, observations);
            played.write(&mut writers[writer], episode);
            let size = 1 + chance.below(8);
            let batch = sample(&replay, &mut sampler, size);
            played.check(&config.layout, &batch);
            let priorities: Vec<f32> = batch.keys().map(|_| chance.unit()).collect();
            replay.update_priorities(&keys(&batch), &priorities).unwrap();
            let held = replay.accounting();
            assert!(held.sequences <= config.capacity as u64);
            assert!(held.bytes() <= config.memory_limit.unwrap_or(u64::MAX), "{held} of {config:?}");
            assert!(held.sequences > 0 && held.sequences <= held.inserted);
        }
        let held = replay.accounting();
        let evicts = held.sequences < held.inserted;
        evicted += u64::from(evicts);
        tight += u64::from(evicts && held.sequences < config.capacity as u64);
    }
    assert!(evicted > cases / 4 && tight > cases / 20, "too few cases evict: {evicted} and {tight} of {cases}");
}

#[test]
fn holds_steps_once_however_many_sequences_share_them() {
    let mut chance = Chance(2);
    let mut config = small_config();
    config.layout.trace = 12;
    config.capacity = 10_000;
    let replay = Replay::new(config).unwrap();
    let mut writer = Writer::new(&replay, 0);
    let mut played = Played::default();
    let mut observations = 0;
    for _ in 0..100 {
        let length = 2 + chance.below(60);
        observations += length as u64;
        played.write(&mut writer, episode(&mut chance, &config.layout, 0, length));
    }
    let held = replay.accounting();
    assert_eq!(held.steps, observations);
    let windows = |episode: &Episode| episode.observations.len().saturating_sub(12).div_ceil(3) + 1;
    let windows: usize = played.episodes.values().map(windows).sum();
    assert_eq!(held.sequences, windows as u64);
}

#[test]
fn stores_observations_of_one_byte_and_of_a_megabyte() {
    for observation_bytes in [1, 1 << 20] {
        let mut config = small_config();
        config.layout.observation_bytes = observation_bytes;
        let replay = Replay::new(config).unwrap();
        let mut played = Played::default();
        let mut writer = Writer::new(&replay, 9);
        played.write(&mut writer, episode(&mut Chance(3), &config.layout, 9, 10));
        let batch = sample(&replay, &mut Sampler::new(&replay, 1), 4);
        played.check(&config.layout, &batch);
    }
}
