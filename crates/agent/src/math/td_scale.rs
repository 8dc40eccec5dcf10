//! σ_j, the scale that TD errors are divided by, so that policies with small values learn as fast as those with large
//! ones.

use serde::{Deserialize, Serialize};

use super::moments::{BatchMoments, Moments};

/// σ_j = max(σ_running, σ_batch, ε). Section B1. NaN if either deviation is NaN, so that it is not taken for a small
/// one.
pub fn sigma(running: f64, batch: f64, floor: f64) -> f64 {
    if running.is_nan() || batch.is_nan() { f64::NAN } else { running.max(batch).max(floor) }
}

/// The running part of σ_j for every policy, kept by the learner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TdScale {
    floor: f64,
    running: Vec<Moments>,
}

impl TdScale {
    /// Statistics of `policies` policies that forget by `decay` an update; σ never falls below `floor`.
    pub fn new(policies: usize, decay: f64, floor: f64) -> Self {
        Self { floor, running: vec![Moments::new(decay); policies] }
    }

    /// How many policies it keeps.
    pub fn policies(&self) -> usize {
        self.running.len()
    }

    /// σ_j of a batch whose TD errors of policy j have the standard deviation `batch_std`; the batch itself is not yet
    /// in the running part. See [`sigma`].
    pub fn sigma(&self, policy: usize, batch_std: f64) -> f64 {
        sigma(self.running[policy].std(), batch_std, self.floor)
    }

    /// Takes a batch's importance-weighted moments of policy j's TD errors into the running part.
    pub fn update(&mut self, policy: usize, batch: BatchMoments) {
        self.running[policy].update(batch);
    }

    /// The running statistics of every policy.
    pub fn running(&self) -> &[Moments] {
        &self.running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_three_floors_counts() {
        assert_eq!(sigma(0.3, 0.2, 0.01), 0.3);
        assert_eq!(sigma(0.2, 0.4, 0.01), 0.4);
        assert_eq!(sigma(0.002, 0.005, 0.01), 0.01);
        assert_eq!(sigma(0.0, 0.0, 0.01), 0.01);
    }

    #[test]
    fn a_nan_is_not_taken_for_a_small_deviation() {
        assert!(sigma(f64::NAN, 0.2, 0.01).is_nan() && sigma(0.2, f64::NAN, 0.01).is_nan());
    }

    #[test]
    fn policies_are_scaled_apart() {
        let mut scale = TdScale::new(16, 0.99, 0.01);
        assert_eq!(scale.policies(), 16);
        // Mean 0, mean square 4: a standard deviation of 2.
        scale.update(3, BatchMoments { mean: 0.0, mean_square: 4.0 });
        assert!((scale.sigma(3, 0.5) - 2.0).abs() < 1e-12);
        assert_eq!(scale.sigma(3, 2.5), 2.5);
        assert_eq!((scale.sigma(2, 0.5), scale.sigma(2, 0.0)), (0.5, 0.01));
        assert_eq!(scale.running().iter().map(Moments::updates).sum::<u64>(), 1);
    }

    #[test]
    fn one_policy_is_enough() {
        let mut scale = TdScale::new(1, 0.99, 0.01);
        scale.update(0, BatchMoments { mean: 3.0, mean_square: 10.0 });
        assert!((scale.sigma(0, 0.0) - 1.0).abs() < 1e-12);
    }
}
