//! Life-long novelty: how unusual an observation's RND error is over all of training.

use crate::moments::Moments;

/// α_t = 1 + s (err − μ_e)/σ_e, the life-long novelty. Appendix "Never Give Up", which leaves out NGU's 1 + and the
/// table's RND scale s.
///
/// 1 while σ_e is 0, before the first error or if all errors are equal.
pub fn lifelong_novelty(error: f64, mean: f64, std: f64, scale: f64) -> f64 {
    if std > 0.0 { 1.0 + scale * (error - mean) / std } else { 1.0 }
}

/// min{max{α_t, 1}, L}, the factor of the episodic reward. Appendix "Never Give Up".
pub fn multiplier(novelty: f64, limit: f64) -> f64 {
    // Unlike max and min, these comparisons keep a NaN, so that a broken predictor shows in the reward.
    let raised = if novelty < 1.0 { 1.0 } else { novelty };
    if raised > limit { limit } else { raised }
}

/// The multiplier of one observation: its `lifelong_novelty`, clamped.
///
/// μ_e and σ_e are the running statistics of the errors.
pub fn multiplier_of_error(error: f64, errors: &Moments, scale: f64, limit: f64) -> f64 {
    multiplier(lifelong_novelty(error, errors.mean(), errors.std(), scale), limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::BatchMoments;

    #[test]
    fn novelty_is_the_scaled_distance_from_the_mean() {
        assert_eq!(lifelong_novelty(3.0, 1.0, 0.5, 0.5), 3.0);
        assert_eq!(lifelong_novelty(0.5, 1.0, 0.5, 0.5), 0.5);
        assert_eq!(lifelong_novelty(1.0, 1.0, 0.5, 0.5), 1.0);
    }

    #[test]
    fn nothing_is_novel_without_deviation() {
        assert_eq!(lifelong_novelty(3.0, 1.0, 0.0, 0.5), 1.0);
        assert_eq!(multiplier_of_error(3.0, &Moments::new(0.999), 0.5, 5.0), 1.0);
    }

    #[test]
    fn the_multiplier_lies_between_1_and_the_limit() {
        assert_eq!(
            [-3.0, 0.5, 1.0, 3.0, 5.0, 80.0].map(|novelty| multiplier(novelty, 5.0)),
            [1.0, 1.0, 1.0, 3.0, 5.0, 5.0]
        );
        assert!(multiplier(f64::NAN, 5.0).is_nan());
    }

    #[test]
    fn the_multiplier_of_an_error_uses_the_running_statistics() {
        let mut errors = Moments::new(0.999);
        // Mean 1, standard deviation 0.5.
        errors.update(BatchMoments { mean: 1.0, mean_square: 1.25 });
        assert!((multiplier_of_error(3.0, &errors, 0.5, 5.0) - 3.0).abs() < 1e-9);
        assert_eq!(multiplier_of_error(0.2, &errors, 0.5, 5.0), 1.0);
        assert_eq!(multiplier_of_error(300.0, &errors, 0.5, 5.0), 5.0);
    }
}
