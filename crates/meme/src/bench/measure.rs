//! Clocks and statistics that the benchmarks share.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

/// Returns the CPU time of this thread, to the nanosecond.
pub fn thread_cpu() -> Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").context("this kernel does not count CPU time")?;
    let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse().ok());
    Ok(Duration::from_nanos(nanoseconds.context("/proc/thread-self/schedstat contains no time")?))
}

/// Returns the milliseconds since `start`.
pub fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Sorts the values and returns the middle one, the upper of two.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median and quartiles of several rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quartiles {
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
}

impl Quartiles {
    /// Computes them from at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        let median = median(&mut values);
        let last = values.len() - 1;
        Self { lower: values[last / 4], median, upper: values[last - last / 4] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_enclose_the_middle_half() {
        let Quartiles { lower, median, upper } = Quartiles::of(vec![9.0, 1.0, 5.0, 3.0, 100.0]);
        assert_eq!([lower, median, upper], [3.0, 5.0, 9.0]);
        let single = Quartiles::of(vec![2.0]);
        assert_eq!([single.lower, single.median, single.upper], [2.0; 3]);
    }
}
