//! `meme bench intrinsic`: the episodic memory's nearest neighbours, beside a plain scan and the memory's own speed.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use agent::Random;
use agent::intrinsic::{EpisodicMemory, nearest_by_scan};
use anyhow::{Result, ensure};
use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use serde::Serialize;

use super::measure::median;
use crate::output::{self, grouped};

const CAPACITY: usize = 30_000;
const DIMENSIONS: usize = 32;
const NEIGHBOURS: usize = 10;
/// An episode's first minutes, an ordinary one, and one at the cap of 108 000 frames.
const FILLS: [usize; 3] = [1_000, 9_000, 27_000];
/// How many environments of an actor take turns.
const ENVIRONMENTS: usize = 16;
const SAMPLES: usize = 300;
/// Larger than any cache, so that it is the memory's speed that is measured.
const BANDWIDTH_BYTES: usize = 512 << 20;

/// Options of `meme bench intrinsic`.
#[derive(Args)]
pub struct IntrinsicArgs {
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    capacity: usize,
    dimensions: usize,
    neighbours: usize,
    /// Environments that take turns in `query_in_turn_microseconds`.
    environments: usize,
    /// Best of five reads of 512 MiB by one core, in 1e9 bytes a second.
    read_gigabytes_a_second: f64,
    fills: Vec<Fill>,
}

/// What was measured at one number of entries; times are medians.
#[derive(Debug, Serialize)]
struct Fill {
    entries: usize,
    /// The same memory asked again and again.
    query_microseconds: f64,
    /// One memory after the other, as environments take turns.
    query_in_turn_microseconds: f64,
    scan_microseconds: f64,
    insert_nanoseconds: f64,
    /// Reading the entries' bytes once at the measured bandwidth.
    read_microseconds: f64,
    /// `read_microseconds / query_in_turn_microseconds`; above 1 where a cache helps.
    share_of_bandwidth: f64,
}

/// Measures and prints; fails if the memory and the scan ever disagree.
pub fn run(args: &IntrinsicArgs) -> Result<()> {
    let read_gigabytes_a_second = read_bandwidth(BANDWIDTH_BYTES);
    let fills = FILLS
        .into_iter()
        .map(|entries| measure(entries, SAMPLES, read_gigabytes_a_second))
        .collect::<Result<Vec<_>>>()?;
    let report = Report {
        capacity: CAPACITY,
        dimensions: DIMENSIONS,
        neighbours: NEIGHBOURS,
        environments: ENVIRONMENTS,
        read_gigabytes_a_second,
        fills,
    };
    if args.json { output::print_json(&report) } else { output::print(&table(&report)) }
}

fn measure(entries: usize, samples: usize, read_gigabytes_a_second: f64) -> Result<Fill> {
    let mut random = Random::seed_from_u64(entries as u64);
    let mut embedding =
        || -> [f32; DIMENSIONS] { std::array::from_fn(|_| random.sample::<f64, _>(StandardNormal) as f32) };
    let mut memories = Vec::with_capacity(ENVIRONMENTS);
    let mut insert_nanoseconds = Vec::with_capacity(ENVIRONMENTS);
    for _ in 0..ENVIRONMENTS {
        let mut memory = EpisodicMemory::new(CAPACITY, DIMENSIONS)?;
        let embeddings: Vec<_> = (0..entries).map(|_| embedding()).collect();
        // The second time round the pages are there already, as in every episode but the first.
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
    // All three in every round, so that a busy machine slows them alike.
    for sample in 0..samples {
        let query = embedding();
        let start = Instant::now();
        memories[sample % ENVIRONMENTS].nearest(&query, NEIGHBOURS, &mut nearest)?;
        in_turn_times.push(microseconds(start));

        let start = Instant::now();
        let scanned = black_box(nearest_by_scan(&rows, &query, NEIGHBOURS));
        scan_times.push(microseconds(start));

        // Once untimed: the query above has just read another memory.
        memories[0].nearest(&query, NEIGHBOURS, &mut nearest)?;
        let start = Instant::now();
        memories[0].nearest(black_box(&query), NEIGHBOURS, &mut nearest)?;
        query_times.push(microseconds(start));
        ensure!(nearest == scanned, "the episodic memory found {nearest:?} and a scan {scanned:?}");
    }
    let query_in_turn_microseconds = median(&mut in_turn_times);
    let bytes = entries * DIMENSIONS * size_of::<f32>();
    let read_microseconds = bytes as f64 / (read_gigabytes_a_second * 1e3);
    Ok(Fill {
        entries,
        query_microseconds: median(&mut query_times),
        query_in_turn_microseconds,
        scan_microseconds: median(&mut scan_times),
        insert_nanoseconds: median(&mut insert_nanoseconds),
        read_microseconds,
        share_of_bandwidth: read_microseconds / query_in_turn_microseconds,
    })
}

/// Best of five reads of `bytes` bytes, in 1e9 bytes a second.
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

fn microseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "episodic memory: the {} nearest of up to {} embeddings of {} f32, one core, medians\n\
         one core reads {:.1} GB/s from memory (512 MiB, best of 5); their bytes: the time to read the entries once at that\n\
         speed; share: that time by the query's when {} environments take turns\n\n\
         {:>8} {:>10} {:>19} {:>10} {:>12} {:>10} {:>11} {:>10}\n",
        report.neighbours,
        grouped(report.capacity as u64),
        report.dimensions,
        report.read_gigabytes_a_second,
        report.environments,
        "entries",
        "query",
        "query, taking turns",
        "scan",
        "scan / query",
        "insertion",
        "their bytes",
        "share",
    );
    for fill in &report.fills {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:>8} {:>7.1} µs {:>16.1} µs {:>7.1} µs {:>12.1} {:>7.0} ns {:>8.1} µs {:>8.0} %",
            grouped(fill.entries as u64),
            fill.query_microseconds,
            fill.query_in_turn_microseconds,
            fill.scan_microseconds,
            fill.scan_microseconds / fill.query_microseconds,
            fill.insert_nanoseconds,
            fill.read_microseconds,
            100.0 * fill.share_of_bandwidth,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_measurement_fills_every_column() {
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
        let report = Report {
            capacity: CAPACITY,
            dimensions: DIMENSIONS,
            neighbours: NEIGHBOURS,
            environments: ENVIRONMENTS,
            read_gigabytes_a_second: 10.0,
            fills: vec![fill],
        };
        let text = table(&report);
        assert_eq!(text.lines().count(), 6);
        assert!(text.contains("10 nearest of up to 30 000"), "{text}");
        let (header, row) = (text.lines().nth(4).unwrap(), text.lines().nth(5).unwrap());
        assert_eq!(header.chars().count(), row.chars().count(), "{text}");
    }
}
