//! `meme bench intrinsic`: nearest neighbours in episodic memory, compared with a linear scan and memory bandwidth.

use std::hint::black_box;
use std::time::Instant;

use agent::Random;
use agent::intrinsic::{EpisodicMemory, nearest_by_scan};
use anyhow::{Result, ensure};
use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use serde::Serialize;

use super::measure::{median, milliseconds};
use super::text;

const CAPACITY: usize = 30_000;
const DIMENSIONS: usize = 32;
const NEIGHBOURS: usize = 10;
/// Entries after the first minutes of an episode, in an ordinary one, and at the cap of 108 000 frames.
const FILLS: [usize; 3] = [1_000, 9_000, 27_000];
/// Environments of an actor that take turns.
const ENVIRONMENTS: usize = 16;
const SAMPLES: usize = 300;
/// Larger than any cache, to measure main memory.
const BANDWIDTH_BYTES: usize = 512 << 20;

/// Arguments of `meme bench intrinsic`.
#[derive(Args)]
pub struct IntrinsicArgs {
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct IntrinsicReport {
    capacity: usize,
    dimensions: usize,
    neighbours: usize,
    /// Environments that take turns in `query_in_turn_microseconds`.
    environments: usize,
    /// Best of five reads of 512 MiB by one core, in 1e9 bytes per second.
    read_gigabytes_per_second: f64,
    fills: Vec<FillTimes>,
}

/// Median times at one number of entries.
#[derive(Debug, Serialize)]
struct FillTimes {
    entries: usize,
    /// Queries of the same memory.
    query_microseconds: f64,
    /// Queries of one memory after the other, as environments take turns.
    query_in_turn_microseconds: f64,
    scan_microseconds: f64,
    insert_nanoseconds: f64,
    /// Time to read all entries once at the measured bandwidth.
    read_microseconds: f64,
    /// `read_microseconds / query_in_turn_microseconds`; above 1 if a cache helps.
    share_of_bandwidth: f64,
}

/// Measures and prints; fails if a query and the scan disagree.
pub fn run(args: &IntrinsicArgs) -> Result<()> {
    let bandwidth = read_bandwidth(BANDWIDTH_BYTES);
    let fills = FILLS.into_iter().map(|entries| measure(entries, SAMPLES, bandwidth)).collect::<Result<_>>()?;
    let title = "episodic memory: the nearest neighbours of an embedding, one core, medians\n\
                 in turn: environments query their memories one after the other\n\
                 read: all entries once at the memory bandwidth of one core (512 MiB, best of 5)";
    text::print(args.json, title, &report(bandwidth, fills))
}

fn report(read_gigabytes_per_second: f64, fills: Vec<FillTimes>) -> IntrinsicReport {
    IntrinsicReport {
        capacity: CAPACITY,
        dimensions: DIMENSIONS,
        neighbours: NEIGHBOURS,
        environments: ENVIRONMENTS,
        read_gigabytes_per_second,
        fills,
    }
}

fn measure(entries: usize, samples: usize, gigabytes_per_second: f64) -> Result<FillTimes> {
    let mut random = Random::seed_from_u64(entries as u64);
    let mut embedding =
        || -> [f32; DIMENSIONS] { std::array::from_fn(|_| random.sample::<f64, _>(StandardNormal) as f32) };
    let mut memories = Vec::with_capacity(ENVIRONMENTS);
    let mut insert_nanoseconds = Vec::with_capacity(ENVIRONMENTS);
    for _ in 0..ENVIRONMENTS {
        let mut memory = EpisodicMemory::new(CAPACITY, DIMENSIONS)?;
        let embeddings: Vec<_> = (0..entries).map(|_| embedding()).collect();
        // The second round finds the pages mapped, as every episode but the first does.
        for _ in 0..2 {
            memory.clear();
            let start = Instant::now();
            for embedding in &embeddings {
                memory.insert(embedding)?;
            }
            insert_nanoseconds.push(start.elapsed().as_secs_f64() * 1e9 / entries as f64);
        }
        memories.push(memory);
    }
    let rows = memories[0].entries();
    let (mut query_times, mut in_turn_times, mut scan_times) = (Vec::new(), Vec::new(), Vec::new());
    let mut nearest = Vec::new();
    // All three in every round, so that a busy machine slows them down alike.
    for sample in 0..samples {
        let query = embedding();
        let start = Instant::now();
        memories[sample % ENVIRONMENTS].nearest(&query, NEIGHBOURS, &mut nearest)?;
        in_turn_times.push(1e3 * milliseconds(start));

        let start = Instant::now();
        let scanned = black_box(nearest_by_scan(&rows, &query, NEIGHBOURS));
        scan_times.push(1e3 * milliseconds(start));

        // Untimed once, as the query above has read another memory.
        memories[0].nearest(&query, NEIGHBOURS, &mut nearest)?;
        let start = Instant::now();
        memories[0].nearest(black_box(&query), NEIGHBOURS, &mut nearest)?;
        query_times.push(1e3 * milliseconds(start));
        ensure!(nearest == scanned, "the episodic memory found {nearest:?} and a scan {scanned:?}");
    }
    let query_in_turn_microseconds = median(&mut in_turn_times);
    let bytes = entries * DIMENSIONS * size_of::<f32>();
    let read_microseconds = bytes as f64 / (gigabytes_per_second * 1e3);
    Ok(FillTimes {
        entries,
        query_microseconds: median(&mut query_times),
        query_in_turn_microseconds,
        scan_microseconds: median(&mut scan_times),
        insert_nanoseconds: median(&mut insert_nanoseconds),
        read_microseconds,
        share_of_bandwidth: read_microseconds / query_in_turn_microseconds,
    })
}

/// Returns the best of five reads of `bytes` bytes, in 1e9 bytes per second.
fn read_bandwidth(bytes: usize) -> f64 {
    let words = vec![1_u64; bytes / size_of::<u64>()];
    let fastest = (0..5)
        .map(|_| {
            let start = Instant::now();
            let mut sums = [0_u64; 32];
            for chunk in words.chunks_exact(sums.len()) {
                for (sum, word) in sums.iter_mut().zip(chunk) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            black_box(sums);
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    bytes as f64 / fastest / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_measurement_fills_every_column() {
        let fill = measure(100, 3, read_bandwidth(1 << 20)).unwrap();
        let times = [
            fill.query_microseconds,
            fill.query_in_turn_microseconds,
            fill.scan_microseconds,
            fill.insert_nanoseconds,
            fill.read_microseconds,
            fill.share_of_bandwidth,
        ];
        assert!(times.iter().all(|time| time.is_finite() && *time > 0.0), "{fill:?}");
        let json = serde_json::to_value(report(10.0, vec![fill])).unwrap();
        assert_eq!((&json["neighbours"], &json["fills"][0]["entries"]), (&10.into(), &100.into()), "{json}");
    }
}
