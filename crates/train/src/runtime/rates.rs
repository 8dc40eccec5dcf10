//! How fast a run plays and learns.

use std::time::{Duration, Instant};

/// Speeds over the last seconds.
#[derive(Debug)]
pub struct Rates {
    /// Emulator frames of the actors per second.
    pub frames_per_second: f64,
    /// Updates per second.
    pub updates_per_second: f64,
    since: Instant,
    frames: u64,
    updates: u64,
    steady: SteadySpeed,
}

/// Exponentially weighted mean speed of the last minutes, in frames per second.
#[derive(Debug, Default)]
struct SteadySpeed {
    /// Frames and seconds, both with the same weights.
    frames: f64,
    seconds: f64,
}

impl SteadySpeed {
    /// Seconds after which a measurement counts 1/e.
    const MEMORY: f64 = 120.0;
    /// Weighted seconds before a speed is reported: about ten.
    const ENOUGH: f64 = 9.0;

    fn add(&mut self, frames: u64, seconds: f64) {
        let fade = (-seconds / Self::MEMORY).exp();
        self.frames = self.frames * fade + frames as f64;
        self.seconds = self.seconds * fade + seconds;
    }

    fn frames_per_second(&self) -> Option<f64> {
        (self.seconds >= Self::ENOUGH && self.frames > 0.0).then(|| self.frames / self.seconds)
    }
}

impl Rates {
    /// Minimum time over which speeds are measured.
    const WINDOW: Duration = Duration::from_secs(2);

    /// Creates rates without measurements.
    pub fn new(frames: u64, updates: u64) -> Self {
        let (since, steady) = (Instant::now(), SteadySpeed::default());
        Self { frames_per_second: 0.0, updates_per_second: 0.0, since, frames, updates, steady }
    }

    /// Measures again once the window has passed.
    pub fn measure(&mut self, frames: u64, updates: u64) {
        let elapsed = self.since.elapsed();
        if elapsed < Self::WINDOW {
            return;
        }
        let played = frames.saturating_sub(self.frames);
        // Before the first update, actors do not wait for the learner and are faster than later.
        if self.updates > 0 {
            self.steady.add(played, elapsed.as_secs_f64());
        }
        self.frames_per_second = played as f64 / elapsed.as_secs_f64();
        self.updates_per_second = updates.saturating_sub(self.updates) as f64 / elapsed.as_secs_f64();
        (self.since, self.frames, self.updates) = (Instant::now(), frames, updates);
    }

    /// Returns the seconds that `frames` frames will take, once the speed is known.
    pub(super) fn seconds_for(&self, frames: u64) -> Option<f64> {
        Some(frames as f64 / self.steady.frames_per_second()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_appears_late_and_changes_slowly() {
        let mut steady = SteadySpeed::default();
        for _ in 0..4 {
            steady.add(200, 2.0);
            assert_eq!(steady.frames_per_second(), None);
        }
        steady.add(200, 2.0);
        let rate = steady.frames_per_second().unwrap();
        assert!((rate - 100.0).abs() < 1e-9, "{rate}");
        // Two seconds at ten times the speed must not divide the time by ten.
        steady.add(2000, 2.0);
        let rate = steady.frames_per_second().unwrap();
        assert!((240.0..260.0).contains(&rate), "{rate}");
        // After half an hour, only the new speed counts.
        (0..900).for_each(|_| steady.add(20, 2.0));
        let rate = steady.frames_per_second().unwrap();
        assert!((rate - 10.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn frames_before_the_first_update_do_not_count_for_the_time_left() {
        let mut rates = Rates::new(0, 0);
        let pass = |rates: &mut Rates, frames, updates| {
            rates.since -= Duration::from_secs(20);
            rates.measure(frames, updates);
        };
        pass(&mut rates, 1_000_000, 0);
        pass(&mut rates, 2_000_000, 1);
        assert_eq!(rates.seconds_for(1000), None);
        pass(&mut rates, 2_002_000, 50);
        let seconds = rates.seconds_for(1000).unwrap();
        assert!((10.0..10.1).contains(&seconds), "{seconds}");
    }
}
