//! The wall clock, for display only: it may jump, so nothing waits or measures by it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970, or 0 if the clock is set to an earlier time.
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_in_this_century() {
        assert!((1.7e9..4.1e9).contains(&unix_seconds()));
    }
}
