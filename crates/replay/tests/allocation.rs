//! Sampling allocates nothing once warm, and the accounting matches the allocated bytes.
//!
//! A single test, because the counts are those of the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "counting allocations requires an allocator, which forwards to the system's")]

use std::alloc::{GlobalAlloc, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use half::f16;
use replay::{Layout, RateLimiterConfig, Replay, ReplayConfig, Sampler, SequenceBatch, SequenceStart, Step, Writer};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as for the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as for the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn config() -> ReplayConfig {
    let mut config = ReplayConfig::paper_sized(1, 1);
    config.layout = Layout { observation_bytes: 2_000, embedding: 32, state: 256, trace: 40, period: 20 };
    config.shards = 4;
    config.capacity = 400;
    config.rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
    config
}

/// Writes an episode of 201 observations in which some bytes change.
fn play(writer: &mut Writer, layout: &Layout, seed: u32) {
    let mut frame = vec![0; layout.observation_bytes];
    let embedding = vec![f16::from_f32(0.25); layout.embedding];
    let state = vec![0.5; layout.state];
    let mut word = seed;
    writer.begin_episode(0).unwrap();
    for t in 0..200 {
        for _ in 0..20 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            frame[word as usize / 7 % layout.observation_bytes] = (word >> 24) as u8;
        }
        let step = Step {
            action: t,
            behaviour_probability: 0.5,
            reward_extrinsic: (word >> 16) as f32,
            reward_ngu: (word >> 8) as f32,
            reward_rnd: 0.0,
            reward_episodic: 0.0,
            discount: 1.0,
            embedding: &embedding,
        };
        let start = SequenceStart { state: &state, parameter_version: 0 };
        writer.append(&frame, &step, Some(start)).unwrap();
    }
    writer.end_episode(&frame, &Step::last([0.0; 3], &embedding)).unwrap();
    writer.flush(Duration::ZERO).unwrap();
}

#[test]
fn sampling_allocates_nothing_and_the_accounting_is_true() {
    let config = config();
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let replay = Replay::new(config).unwrap();
    for round in 0..30 {
        // Dropped at once, so that all remaining bytes belong to the replay.
        let mut writers: Vec<Writer> = (0..8).map(|actor| Writer::new(&replay, actor)).collect();
        for (actor, writer) in writers.iter_mut().enumerate() {
            play(writer, &config.layout, round * 8 + actor as u32);
        }
    }
    let held = replay.accounting();
    assert_eq!(held.sequences, 400, "full: {} inserted", held.inserted);
    let live = (LIVE_BYTES.load(Ordering::Relaxed) - before) as f64;
    let ratio = held.bytes() as f64 / live;
    // Only the accounting counts the allocator's overhead, only the live bytes include idle compressors' buffers.
    assert!((0.9..1.15).contains(&ratio), "the accounting says {} of {live} live bytes", held.bytes());

    let mut batch = SequenceBatch::new(&config.layout, 32);
    let mut alone = Sampler::new(&replay, 1);
    let mut keys = Vec::with_capacity(32);
    let mut allocations = |sampler: &mut Sampler, batches: u64| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..batches {
            sampler.sample(&mut batch, Duration::ZERO).unwrap();
            keys.clear();
            keys.extend(batch.keys());
            replay.update_priorities(&keys, &[1.0; 32]).unwrap();
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    allocations(&mut alone, 1);
    assert_eq!(allocations(&mut alone, 100), 0);

    // Further threads are started for each batch: a few small allocations, none of them for data.
    let mut three = Sampler::new(&replay, 3);
    allocations(&mut three, 3);
    let each = allocations(&mut three, 50) / (50 * 2);
    assert!(each <= 10, "{each} allocations per thread and batch");

    drop((alone, three, batch, keys));
    drop(replay);
    let left = LIVE_BYTES.load(Ordering::Relaxed) - before;
    assert!(left < 100_000, "{left} bytes are left after everything was dropped");
}
