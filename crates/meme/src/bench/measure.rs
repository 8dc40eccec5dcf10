//! What measurements have in common.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

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
