//! Sampling frequencies, importance weights and priorities.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::play::{Chance, Played, episode, sample, small_config};
use replay::{Key, Replay, ReplayConfig, ReplayError, SampledSequence, Sampler, SequenceBatch, Writer};

/// Fills shard `i` with `sequences[i]` sequences of these priorities.
fn with_priorities(config: ReplayConfig, sequences: &[usize], priority: impl Fn(Key) -> f32) -> Arc<Replay> {
    let replay = Replay::new(config).unwrap();
    let mut played = Played::default();
    for (shard, &count) in sequences.iter().enumerate() {
        let mut writer = Writer::new(&replay, shard as u32);
        for generation in 0..count {
            played.write(&mut writer, episode(&mut Chance(7), &config.layout, shard as u32, 3));
            let key = Key { shard: shard as u32, slot: generation as u32, generation: generation as u64 };
            replay.update_priorities(&[key], &[priority(key)]).unwrap();
        }
    }
    replay
}

#[test]
fn frequencies_match_priorities() {
    let mut config = small_config();
    config.shards = 4;
    config.capacity = 4 * 40;
    // An empty shard, one with a single sequence, and two unequal ones.
    let counts = [40, 0, 1, 13];
    let priority = |key: Key| 0.05 + ((key.generation * 37 + 11 * u64::from(key.shard)) % 17) as f32;
    let replay = with_priorities(config, &counts, priority);
    let mut sampler = Sampler::new(&replay, 1);
    let mut drawn: HashMap<Key, f64> = HashMap::new();
    // A batch size that three shards do not divide.
    const BATCHES: usize = 8_000;
    const SIZE: usize = 31;
    let mut batch = SequenceBatch::new(&config.layout, SIZE);
    for _ in 0..BATCHES {
        sampler.sample(&mut batch, Duration::ZERO).unwrap();
        for key in batch.keys() {
            *drawn.entry(key).or_default() += 1.0;
        }
    }
    let mut chi_square = 0.0;
    let mut items = 0;
    for (shard, &count) in counts.iter().enumerate() {
        let keys: Vec<Key> =
            (0..count as u64).map(|g| Key { shard: shard as u32, slot: g as u32, generation: g }).collect();
        let weight = |key: &Key| f64::from(priority(*key)).powf(config.priority_exponent);
        let total: f64 = keys.iter().map(weight).sum();
        for key in &keys {
            let expected = (BATCHES * SIZE) as f64 / 3.0 * weight(key) / total;
            chi_square += (drawn.get(key).copied().unwrap_or(0.0) - expected).powi(2) / expected;
            items += 1;
        }
    }
    // Degrees of freedom: items less one; five standard deviations of the chi-square distribution.
    let degrees = f64::from(items - 1);
    assert!(chi_square < degrees + 5.0 * (2.0 * degrees).sqrt(), "{chi_square} at {degrees} degrees of freedom");
    assert_eq!(drawn.len(), items as usize);
}

#[test]
fn spreads_batches_evenly_over_the_shards_with_data() {
    let mut config = small_config();
    config.shards = 8;
    config.capacity = 80;
    let replay = with_priorities(config, &[1, 9, 0, 3, 4, 0, 2, 5], |_| 1.0);
    let mut sampler = Sampler::new(&replay, 1);
    for size in [6, 12, 64, 4] {
        for _ in 0..50 {
            let batch = sample(&replay, &mut sampler, size);
            let mut shares = [0; 8];
            batch.keys().for_each(|key| shares[key.shard as usize] += 1);
            assert_eq!((shares[2], shares[5]), (0, 0));
            let least = size / 6;
            assert!([0, 1, 3, 4, 6, 7].iter().all(|&s| (least..=size.div_ceil(6)).contains(&shares[s])), "{shares:?}");
        }
    }
}

#[test]
fn importance_weights_follow_the_sampling_probability() {
    let mut config = small_config();
    config.shards = 2;
    config.priority_exponent = 0.5;
    config.importance_exponent = 0.4;
    // Shard 0: priorities 1, 4, 9, to the power 1/2 they are 1, 2, 3 of 6. Shard 1: a single sequence, 1 of 1.
    let replay = with_priorities(config, &[3, 1], |key| ((key.generation + 1) * (key.generation + 1)) as f32);
    let batch = sample(&replay, &mut Sampler::new(&replay, 1), 64);
    let probability = |key: &Key| if key.shard == 1 { 0.5 } else { 0.5 * (key.generation + 1) as f64 / 6.0 };
    assert!(batch.keys().any(|key| key.shard == 0 && key.generation == 0), "the rarest is among them");
    for SampledSequence { key, importance_weight: weight, .. } in &batch.sequences {
        let expected = (probability(key) / (0.5 / 6.0)).powf(-0.4);
        assert!((f64::from(*weight) - expected).abs() < 1e-6, "{key}: {weight} instead of {expected}");
    }
    // By hand: (1/6)^0.4 for the single sequence of shard 1.
    let alone = batch.keys().position(|key| key.shard == 1).unwrap();
    assert!((batch.sequences[alone].importance_weight - 0.488_359).abs() < 1e-5);
}

#[test]
fn invalid_priorities_are_named_and_change_nothing() {
    let replay = with_priorities(small_config(), &[4], |_| 1.0);
    let keys: Vec<Key> = (0..3).map(|i| Key { shard: 0, slot: i, generation: u64::from(i) }).collect();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e-9] {
        let error = replay.update_priorities(&keys, &[5.0, bad, 5.0]).unwrap_err();
        assert!(matches!(error, ReplayError::Priority { key, .. } if key == keys[1]));
        let message = format!("the new priority of sequence 1 of shard 0 (slot 1) is {bad}");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
    let batch = sample(&replay, &mut Sampler::new(&replay, 1), 50);
    assert!(batch.sequences.iter().all(|sequence| sequence.importance_weight == 1.0), "all priorities are still equal");
    let foreign = [
        Key { shard: 1, slot: 0, generation: 0 },
        Key { shard: 0, slot: 4, generation: 4 },
        Key { shard: 0, slot: 1, generation: 0 },
        Key { shard: 0, slot: 77, generation: 77 },
    ];
    for key in foreign {
        assert!(matches!(replay.update_priorities(&[key], &[1.0]), Err(ReplayError::ForeignKey { .. })), "{key}");
    }
    assert!(matches!(replay.update_priorities(&keys, &[1.0]), Err(ReplayError::Length { .. })));
}

#[test]
fn late_priorities_are_ignored_and_counted() {
    let mut config = small_config();
    config.capacity = 2;
    let replay = with_priorities(config, &[2], |_| 1.0);
    let mut writer = Writer::new(&replay, 0);
    let old = Key { shard: 0, slot: 0, generation: 0 };
    Played::default().write(&mut writer, episode(&mut Chance(1), &config.layout, 0, 3));
    let late = replay.update_priorities(&[old, Key { generation: 2, ..old }], &[100.0, 1.0]).unwrap();
    assert_eq!(late, 1);
}

#[test]
fn refuses_an_empty_replay_and_a_wrong_buffer() {
    let config = small_config();
    let replay = Replay::new(config).unwrap();
    let mut batch = SequenceBatch::new(&config.layout, 2);
    let mut sampler = Sampler::new(&replay, 1);
    let refused = sampler.sample(&mut batch, Duration::ZERO).unwrap_err().to_string();
    assert!(refused.starts_with("a sample waited"), "{refused}");
    batch.steps.reward_rnd.pop();
    let refused = sampler.sample(&mut batch, Duration::ZERO).unwrap_err().to_string();
    assert_eq!(refused, "reward_rnd has 13 elements, expected 14");
}

#[test]
fn number_of_threads_changes_nothing() {
    let batches: Vec<Vec<SequenceBatch>> = [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let replay = with_priorities(small_config(), &[40], |key| 1.0 + key.generation as f32);
            let mut sampler = Sampler::new(&replay, threads);
            (0..10).map(|_| sample(&replay, &mut sampler, 17)).collect()
        })
        .collect();
    assert!(batches[0] == batches[1] && batches[0] == batches[2]);
}

#[test]
fn the_online_share_of_a_batch_is_the_newest_sequences() {
    for (share, newest) in [(0.0, 0), (0.25, 2), (1.0, 8)] {
        let config = ReplayConfig { shards: 2, capacity: 80, online_share: share, ..small_config() };
        // The oldest ones have all the priority.
        let replay = with_priorities(config, &[20, 20], |key| if key.generation < 3 { 1.0 } else { 0.0 });
        let mut batch = SequenceBatch::new(&config.layout, 16);
        Sampler::new(&replay, 1).sample(&mut batch, Duration::ZERO).unwrap();
        for shard in 0..2 {
            let mut ages: Vec<u64> = batch
                .sequences
                .iter()
                .filter(|s| s.key.shard == shard)
                .map(|s| s.age)
                .filter(|&age| age < 17)
                .collect();
            ages.sort_unstable();
            assert_eq!(ages, (0..newest).collect::<Vec<_>>(), "{share}");
        }
        assert!(batch.sequences.iter().all(|s| s.importance_weight > 0.0 && s.importance_weight <= 1.0));
    }
}
