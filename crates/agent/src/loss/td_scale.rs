//! σ_j, the scale that TD errors are divided by.
//!
//! With it, policies with small values learn as fast as those with large ones.

use serde::{Deserialize, Serialize};

use crate::moments::{BatchMoments, Moments};

/// The running part of σ_j = max(σ_running, σ_batch, ε) for every policy. Section B1.
///
/// σ_batch enters where the TD errors are, in `td_loss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TdScale {
    floor: f64,
    running: Vec<Moments>,
}

impl TdScale {
    /// Statistics of `policies` policies that decay by `decay` per update; σ never falls below `floor`.
    pub fn new(policies: usize, decay: f64, floor: f64) -> Self {
        Self { floor, running: vec![Moments::new(decay); policies] }
    }

    /// max(σ_running, ε) of every policy. A NaN stays NaN, so that it is not taken for a small deviation.
    pub fn running_sigmas(&self) -> Vec<f64> {
        let sigma = |running: &Moments| match running.std() {
            std if std < self.floor => self.floor,
            std => std,
        };
        self.running.iter().map(sigma).collect()
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
    fn the_floor_is_used_below_it() {
        let mut scale = TdScale::new(3, 0.99, 0.01);
        scale.update(0, BatchMoments { mean: 0.0, mean_square: 0.3 * 0.3 });
        scale.update(1, BatchMoments { mean: 0.0, mean_square: 0.002 * 0.002 });
        let sigmas = scale.running_sigmas();
        assert!((sigmas[0] - 0.3).abs() < 1e-12);
        assert_eq!(sigmas[1..], [0.01, 0.01]);
    }

    #[test]
    fn a_nan_is_not_taken_for_a_small_deviation() {
        let mut scale = TdScale::new(1, 0.99, 0.01);
        scale.update(0, BatchMoments { mean: f64::NAN, mean_square: f64::NAN });
        assert!(scale.running_sigmas()[0].is_nan());
    }

    #[test]
    fn policies_are_scaled_independently() {
        let mut scale = TdScale::new(16, 0.99, 0.01);
        // Mean 0, mean square 4: a standard deviation of 2.
        scale.update(3, BatchMoments { mean: 0.0, mean_square: 4.0 });
        let sigmas = scale.running_sigmas();
        assert!((sigmas[3] - 2.0).abs() < 1e-12);
        assert_eq!((sigmas.len(), sigmas[2]), (16, 0.01));
        assert_eq!(scale.running().iter().map(Moments::updates).sum::<u64>(), 1);
    }

    #[test]
    fn one_policy_is_enough() {
        let mut scale = TdScale::new(1, 0.99, 0.01);
        scale.update(0, BatchMoments { mean: 3.0, mean_square: 10.0 });
        assert!((scale.running_sigmas()[0] - 1.0).abs() < 1e-12);
    }
}
