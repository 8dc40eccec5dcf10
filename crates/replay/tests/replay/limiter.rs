//! The rate limiter under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::play::{Chance, StopAtEnd, append, episode, small_config, test_all, write_until_stopped};
use replay::{RateLimiterConfig, Replay, ReplayConfig, ReplayError, Sampler, SequenceBatch, Writer};

fn limited_config() -> ReplayConfig {
    let mut config = small_config();
    config.shards = 8;
    config.capacity = 400;
    config.rate_limiter = RateLimiterConfig { samples_per_insert: 6.0, min_fill: 20, slack: 40.0 };
    config
}

/// Runs 8 writers and 4 samplers until `until` returns, then stops them; returns inserts and samples.
fn run(config: ReplayConfig, until: impl FnOnce(&Replay)) -> (u64, u64) {
    let replay = Replay::new(config).unwrap();
    let (written, sampled) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&replay);
        let (replay, written, sampled) = (&replay, &written, &sampled);
        for actor in 0..8 {
            scope.spawn(move || written.fetch_add(write_until_stopped(replay, actor), Ordering::Relaxed));
        }
        for _ in 0..4 {
            scope.spawn(move || {
                let mut sampler = Sampler::new(replay, 1);
                let mut batch = SequenceBatch::new(&config.layout, 16);
                loop {
                    match sampler.sample(&mut batch, Duration::MAX) {
                        Ok(()) => sampled.fetch_add(16, Ordering::Relaxed),
                        Err(ReplayError::Stopped) => return,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
        until(replay);
    });
    assert_eq!(replay.limiter.counts(), (written.load(Ordering::Relaxed), sampled.load(Ordering::Relaxed)));
    replay.limiter.counts()
}

#[test]
fn contract_holds_under_8_writers_and_4_samplers() {
    let time = Duration::from_secs(if test_all() { 60 } else { 2 });
    let (inserts, samples) = run(limited_config(), |replay| {
        let mut looks = 0;
        // min_fill x samples_per_insert -+ slack = 20 x 6 -+ 40.
        let (low, high) = (80.0, 160.0);
        let begun = Instant::now();
        // Takes longer on a busy machine.
        while looks <= 1_000 || begun.elapsed() < time {
            let (inserts, samples) = replay.limiter.counts();
            let balance = inserts as f64 * 6.0 - samples as f64;
            assert!(balance <= high, "{inserts} inserts, {samples} samples");
            assert!(samples == 0 || balance >= low, "{inserts} inserts, {samples} samples");
            looks += 1;
            std::thread::yield_now();
        }
    });
    assert!(inserts > 1_000 && samples > 1_000, "{inserts} inserts, {samples} samples");
}

#[test]
fn stopping_at_any_moment_never_deadlocks() {
    let mut chance = Chance(4);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A thread left waiting would hang the scope: abort with a message instead.
        scope.spawn(|| {
            let begun = Instant::now();
            while !done.load(Ordering::Relaxed) {
                if begun.elapsed() > Duration::from_secs(120) {
                    eprintln!("a thread still waits after the stop");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for _ in 0..if test_all() { 500 } else { 50 } {
            let wait = Duration::from_micros(chance.next() % 5_000);
            run(limited_config(), |_| std::thread::sleep(wait));
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn single_thread_polls_instead_of_waiting() {
    let config = limited_config();
    let replay = Replay::new(config).unwrap();
    let mut writer = Writer::new(&replay, 0);
    let mut chance = Chance(5);
    let mut sampler = Sampler::new(&replay, 1);
    let mut batch = SequenceBatch::new(&config.layout, 16);
    let (mut inserted, mut sampled) = (0, 0);
    for _ in 0..500 {
        let episode = episode(&mut chance, &config.layout, 0, 10);
        writer.begin_episode(episode.policy).unwrap();
        (0..10).for_each(|t| append(&mut writer, &episode, 0, t));
        while writer.ready() > 0 {
            let before = writer.ready();
            let flushed = writer.flush(Duration::ZERO);
            inserted += before - writer.ready();
            match flushed {
                Ok(()) => {}
                Err(ReplayError::Timeout { .. }) => {
                    assert!(writer.flush(Duration::ZERO).is_err());
                    replay.limiter.wait_to_sample(16, Duration::ZERO).unwrap();
                    sampler.sample(&mut batch, Duration::ZERO).unwrap();
                    sampled += 16;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(replay.limiter.counts(), (inserted as u64, sampled));
    assert!((sampled as f64 / inserted as f64 - 6.0).abs() < 0.2);
}
