//! The wall clock, for what people read. It may jump, back or by years, so nothing waits or measures by it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970 by the wall clock, for display only; a clock set before 1970 reads 0.
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_in_this_century() {
        assert!((1.7e9..4.1e9).contains(&unix_seconds()));
    }
}
