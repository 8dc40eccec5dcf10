//! Enforces the ratio of sampling to inserting by blocking one side until the other catches up.
//!
//! With `balance = inserts x samples_per_insert - samples`, both counted in sequences, the contract is
//!
//! ```text
//! low <= balance <= high   where   low, high = min_fill x samples_per_insert -+ slack
//! ```
//!
//! An insert waits while it would raise the balance above `high`; a sample waits while it would lower it below `low`,
//! or while fewer than `min_fill` sequences have been inserted. The balance starts at 0, below `low`, so the lower
//! bound holds from the first sample on.
//!
//! An operation in progress counts against its own side, and for the other side only once it is done. So the contract
//! holds for the sequences that are in the shards and drawn at any moment, including the moment of a snapshot.
//!
//! Nothing polls: a waiting side is woken by the other one, by its timeout or by [`RateLimiter::stop`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::RateLimiterConfig;
use crate::error::{ReplayError, Result};

/// Tolerance of the bounds. With the least valid slack both sides can be exactly at their bounds, and rounding could
/// otherwise block both forever.
const ROUNDING: f64 = 1e-6;

/// Blocks inserts and samples to keep their ratio.
///
/// `min_fill x samples_per_insert - slack <= inserts x samples_per_insert - samples <= min_fill x samples_per_insert +
/// slack` from the first sample on.
#[derive(Debug)]
pub struct RateLimiter {
    config: RateLimiterConfig,
    /// Added to the balance: what the counts before a change of `samples_per_insert` are off by.
    offset: f64,
    counts: Mutex<Counts>,
    inserted: Condvar,
    sampled: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    inserts: Count,
    samples: Count,
    stopped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    /// Admitted.
    begun: u64,
    /// Admitted and done.
    done: u64,
}

impl RateLimiter {
    /// Creates a limiter that continues from these counts.
    ///
    /// If they were made with another configuration and violate the contract, it begins at the nearest bound: neither
    /// side makes up for what was right before.
    pub(crate) fn new(config: RateLimiterConfig, inserts: u64, samples: u64) -> Self {
        let count = |n| Count { begun: n, done: n };
        let counts = Mutex::new(Counts { inserts: count(inserts), samples: count(samples), stopped: false });
        let mut limiter = Self { config, offset: 0.0, counts, inserted: Condvar::new(), sampled: Condvar::new() };
        if inserts >= config.min_fill && samples > 0 {
            let (balance, (low, high)) = (limiter.balance(inserts, samples), limiter.bounds());
            limiter.offset = balance.clamp(low, high) - balance;
        }
        limiter
    }

    /// The lowest and the highest balance.
    fn bounds(&self) -> (f64, f64) {
        let middle = self.config.min_fill as f64 * self.config.samples_per_insert;
        (middle - self.config.slack, middle + self.config.slack)
    }

    /// Returns the sequences inserted and sampled so far.
    pub fn counts(&self) -> (u64, u64) {
        let counts = self.lock();
        (counts.inserts.done, counts.samples.done)
    }

    /// Waits at most `timeout` until `n` sequences can be sampled; another sampler may still be quicker.
    pub fn wait_to_sample(&self, n: u64, timeout: Duration) -> Result<()> {
        self.check_batch(n as usize)?;
        self.wait("a sample", &self.inserted, timeout, |counts| self.sample_fits(counts, n)).map(drop)
    }

    /// Inserts one sequence by `insert`, waiting at most `timeout` for admission.
    pub(crate) fn insert(&self, timeout: Duration, insert: impl FnOnce()) -> Result<()> {
        let fits = |counts: &Counts| self.insert_fits(counts, 1);
        self.wait("an insert", &self.sampled, timeout, fits)?.inserts.begun += 1;
        insert();
        self.lock().inserts.done += 1;
        self.inserted.notify_all();
        Ok(())
    }

    /// Samples `n` sequences by `sample`, waiting at most `timeout` for admission; a failure does not count.
    pub(crate) fn sample(&self, n: usize, timeout: Duration, sample: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check_batch(n)?;
        let fits = |counts: &Counts| self.sample_fits(counts, n as u64);
        self.wait("a sample", &self.inserted, timeout, fits)?.samples.begun += n as u64;
        let sampled = sample();
        let mut counts = self.lock();
        match sampled {
            Ok(()) => counts.samples.done += n as u64,
            Err(_) => counts.samples.begun -= n as u64,
        }
        drop(counts);
        self.sampled.notify_all();
        sampled
    }

    /// Wakes all waiting threads; from now on every insert and sample fails with [`ReplayError::Stopped`].
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.inserted.notify_all();
        self.sampled.notify_all();
    }

    /// Refuses a batch that could never be admitted.
    fn check_batch(&self, n: usize) -> Result<()> {
        let RateLimiterConfig { samples_per_insert, slack, .. } = self.config;
        let most = 2.0 * slack - samples_per_insert;
        if n as f64 > most + ROUNDING {
            return Err(ReplayError::BatchTooLarge { batch: n, samples_per_insert, slack, most });
        }
        Ok(())
    }

    fn insert_fits(&self, counts: &Counts, n: u64) -> bool {
        self.balance(counts.inserts.begun + n, counts.samples.done) <= self.bounds().1 + ROUNDING
    }

    fn sample_fits(&self, counts: &Counts, n: u64) -> bool {
        counts.inserts.done >= self.config.min_fill
            && self.balance(counts.inserts.done, counts.samples.begun + n) >= self.bounds().0 - ROUNDING
    }

    fn balance(&self, inserts: u64, samples: u64) -> f64 {
        inserts as f64 * self.config.samples_per_insert - samples as f64 + self.offset
    }

    fn wait(
        &self,
        what: &'static str,
        moved: &Condvar,
        timeout: Duration,
        fits: impl Fn(&Counts) -> bool,
    ) -> Result<MutexGuard<'_, Counts>> {
        let begun = Instant::now();
        let mut counts = self.lock();
        loop {
            if counts.stopped {
                return Err(ReplayError::Stopped);
            }
            if fits(&counts) {
                return Ok(counts);
            }
            let waited = begun.elapsed();
            let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
                let (inserts, samples) = (counts.inserts.done, counts.samples.done);
                return Err(ReplayError::Timeout { what, waited, inserts, samples });
            };
            counts = moved.wait_timeout(counts, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Counts are consistent after every statement, so those of a panicked thread are usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_ratio_applies_from_now_on() {
        // 1000 inserts were sampled six times each after the first ten.
        let config = RateLimiterConfig { samples_per_insert: 12.0, min_fill: 10, slack: 20.0 };
        let limiter = RateLimiter::new(config, 1000, 5940);
        let sample = |n| limiter.sample(n, Duration::ZERO, || Ok(()));
        // At the upper bound: learning comes first, but not thousands of samples.
        assert!(limiter.insert(Duration::ZERO, || {}).is_err());
        sample(20).unwrap();
        limiter.insert(Duration::ZERO, || {}).unwrap();
        let samples = (0..100).take_while(|_| sample(4).is_ok()).count();
        assert!(samples <= 10, "{samples}");
    }

    fn limiter(samples_per_insert: f64, min_fill: u64, slack: f64) -> RateLimiter {
        RateLimiter::new(RateLimiterConfig { samples_per_insert, min_fill, slack }, 0, 0)
    }

    fn insert(limiter: &RateLimiter, timeout: Duration) -> Result<()> {
        limiter.insert(timeout, || ())
    }

    fn sample(limiter: &RateLimiter, n: usize, timeout: Duration) -> Result<()> {
        limiter.sample(n, timeout, || Ok(()))
    }

    fn can_insert(limiter: &RateLimiter, n: u64) -> bool {
        limiter.insert_fits(&limiter.lock(), n)
    }

    fn can_sample(limiter: &RateLimiter, n: u64) -> bool {
        limiter.sample_fits(&limiter.lock(), n)
    }

    #[test]
    fn keeps_the_bounds_to_the_last_sequence() {
        let limiter = limiter(6.0, 10, 20.0);
        assert_eq!(limiter.bounds(), (40.0, 80.0));
        for _ in 0..9 {
            insert(&limiter, Duration::ZERO).unwrap();
        }
        assert!(!can_sample(&limiter, 1), "nine of ten are filled");
        insert(&limiter, Duration::ZERO).unwrap();
        assert!(can_sample(&limiter, 20));
        assert!(!can_sample(&limiter, 21));
        limiter.wait_to_sample(20, Duration::ZERO).unwrap();
        let refused = limiter.wait_to_sample(21, Duration::from_millis(1));
        assert!(matches!(refused, Err(ReplayError::Timeout { what: "a sample", .. })));
        assert!(can_insert(&limiter, 3));
        assert!(!can_insert(&limiter, 4));
        for _ in 0..3 {
            insert(&limiter, Duration::ZERO).unwrap();
        }
        let refused = insert(&limiter, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(refused.starts_with("an insert waited") && refused.ends_with("(13 inserts, 0 samples so far)"));
        sample(&limiter, 34, Duration::ZERO).unwrap();
        assert!(matches!(sample(&limiter, 5, Duration::ZERO), Err(ReplayError::Timeout { what: "a sample", .. })));
        assert_eq!(limiter.counts(), (13, 34));
    }

    #[test]
    fn refuses_batches_that_could_never_pass() {
        let limiter = limiter(6.0, 10, 20.0);
        assert!(matches!(sample(&limiter, 35, Duration::MAX), Err(ReplayError::BatchTooLarge { batch: 35, .. })));
        let refused = limiter.wait_to_sample(35, Duration::MAX);
        assert!(matches!(refused, Err(ReplayError::BatchTooLarge { batch: 35, .. })));
    }

    #[test]
    fn least_slack_never_blocks_both_sides() {
        for ratio in [1.0 / 3.0, 0.1, 0.7, 6.1, 2.0 / 7.0] {
            for fill in 1..20 {
                let limiter = limiter(ratio, fill, (ratio + 1.0) / 2.0);
                for _ in 0..2_000 {
                    if can_sample(&limiter, 1) {
                        sample(&limiter, 1, Duration::ZERO).unwrap();
                    } else {
                        insert(&limiter, Duration::ZERO).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn operations_in_progress_do_not_count_for_the_other_side() {
        let limiter = limiter(1.0, 1, 2.0);
        limiter
            .insert(Duration::ZERO, || assert!(!can_sample(&limiter, 1), "the sequence is not in its shard yet"))
            .unwrap();
        assert!(can_sample(&limiter, 2));
        let failed = limiter.sample(2, Duration::ZERO, || {
            assert!(!can_sample(&limiter, 1) && can_insert(&limiter, 2) && !can_insert(&limiter, 3));
            Err(ReplayError::Empty)
        });
        assert!(matches!(failed, Err(ReplayError::Empty)));
        assert_eq!(limiter.counts(), (1, 0));
        assert!(can_sample(&limiter, 2), "a failed sample does not count");
    }

    #[test]
    fn infinite_slack_waits_only_for_the_fill() {
        let limiter = limiter(6.0, 2, f64::INFINITY);
        insert(&limiter, Duration::ZERO).unwrap();
        assert!(!can_sample(&limiter, 1));
        insert(&limiter, Duration::ZERO).unwrap();
        assert!(can_insert(&limiter, 1 << 40) && can_sample(&limiter, 1 << 40));
    }

    #[test]
    fn sides_wake_each_other_and_stop_wakes_both() {
        let limiter = limiter(1.0, 4, 4.0);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| sample(&limiter, 4, Duration::MAX));
            for _ in 0..4 {
                insert(&limiter, Duration::MAX).unwrap();
            }
            sampler.join().unwrap().unwrap();
            let starved = scope.spawn(|| sample(&limiter, 7, Duration::MAX));
            let full = scope.spawn(|| (0..100).try_for_each(|_| insert(&limiter, Duration::MAX)));
            starved.join().unwrap().unwrap();
            limiter.stop();
            assert!(matches!(full.join().unwrap(), Err(ReplayError::Stopped)));
        });
        assert!(matches!(insert(&limiter, Duration::MAX), Err(ReplayError::Stopped)));
        assert!(matches!(sample(&limiter, 1, Duration::MAX), Err(ReplayError::Stopped)));
    }
}
