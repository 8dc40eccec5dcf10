//! The two clocks: a monotonic one for every duration, the wall clock for what people read.
//!
//! The wall clock may jump, back or by years, so nothing waits or measures by it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970 by the wall clock, for display only; a clock set before 1970 reads 0.
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// How long a run has trained, over all its continuations: the time before this process, kept in the checkpoint, plus
/// the time since by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    before: Duration,
    since: Instant,
}

impl Stopwatch {
    /// Starts to count, from the time that earlier processes have spent.
    pub fn starting_at(before: Duration) -> Self {
        Self { before, since: Instant::now() }
    }

    /// The time of this process and of those before it.
    pub fn elapsed(&self) -> Duration {
        self.before + self.since.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_goes_on_from_where_it_was_saved() {
        let stopwatch = Stopwatch::starting_at(Duration::from_secs(3600));
        std::thread::sleep(Duration::from_millis(20));
        let saved = stopwatch.elapsed();
        assert!(saved >= Duration::from_millis(3_600_020), "{saved:?}");
        assert!(Stopwatch::starting_at(saved).elapsed() >= saved);
    }

    #[test]
    fn the_wall_clock_is_in_this_century() {
        assert!((1.7e9..4.1e9).contains(&unix_seconds()));
    }
}
