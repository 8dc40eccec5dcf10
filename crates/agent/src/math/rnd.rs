//! Random network distillation: how novel an observation is over the whole of training.

use super::moments::Moments;

/// err = ‖ĝ(x) − g(x)‖², the predictor's error. Appendix "Random Network Distillation".
pub fn prediction_error(predicted: &[f32], target: &[f32]) -> f32 {
    predicted
        .iter()
        .zip(target)
        .map(|(&predicted, &target)| (predicted - target) * (predicted - target))
        .sum()
}

/// α_t = 1 + s (err − μ_e)/σ_e, the life-long novelty. Appendix "Never Give Up", with NGU's 1 + and the table's RND scale s.
///
/// 1 while σ_e is 0: nothing is known yet, or every error was the same.
pub fn lifelong_novelty(error: f64, mean: f64, std: f64, scale: f64) -> f64 {
    if std > 0.0 {
        1.0 + scale * (error - mean) / std
    } else {
        1.0
    }
}

/// min{max{α_t, 1}, L}, what the episodic reward is multiplied with. Appendix "Never Give Up".
pub fn multiplier(novelty: f64, limit: f64) -> f64 {
    // Comparisons that a NaN fails, so that a broken predictor is seen in the reward instead of turning into 1.
    let raised = if novelty < 1.0 { 1.0 } else { novelty };
    if raised > limit { limit } else { raised }
}

/// The multiplier of one observation from the running statistics μ_e, σ_e of the errors: [`lifelong_novelty`] clamped.
pub fn multiplier_of_error(error: f64, errors: &Moments, scale: f64, limit: f64) -> f64 {
    multiplier(
        lifelong_novelty(error, errors.mean(), errors.std(), scale),
        limit,
    )
}
