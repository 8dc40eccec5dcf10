//! What measurements have in common.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// CPU time of this thread, to the nanosecond.
pub fn thread_cpu() -> Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").context("this kernel keeps no CPU times")?;
    let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse().ok());
    Ok(Duration::from_nanos(nanoseconds.context("/proc/thread-self/schedstat has no time in it")?))
}

/// The middle value, the upper one of two.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The middle value of several rounds, and where the middle half of them lies.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
}

impl Spread {
    /// Of at least one value.
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
    fn a_spread_is_the_middle_and_its_half() {
        let Spread { lower, median, upper } = Spread::of(vec![9.0, 1.0, 5.0, 3.0, 100.0]);
        assert_eq!([lower, median, upper], [3.0, 5.0, 9.0]);
        let alone = Spread::of(vec![2.0]);
        assert_eq!([alone.lower, alone.median, alone.upper], [2.0; 3]);
    }
}
