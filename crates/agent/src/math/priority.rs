//! How often replay should show a sequence again.

/// p = η max_t |δ_t/σ| + (1−η) mean_t |δ_t/σ| over the valid steps, η = 0.9. R2D2's rule; normalised as section B1 says.
///
/// `errors` are the normalised TD errors δ_t/σ of the valid steps alone. Without any the priority is 0. A NaN among
/// them makes the priority NaN, so that replay can refuse it.
pub fn sequence_priority(errors: &[f32], max_weight: f32) -> f32 {
    if errors.is_empty() {
        return 0.0;
    }
    let largest = errors
        .iter()
        .fold(0.0_f32, |largest, error| largest.max(error.abs()));
    let mean = errors
        .iter()
        .map(|&error| f64::from(error.abs()))
        .sum::<f64>()
        / errors.len() as f64;
    max_weight * largest + (1.0 - max_weight) * mean as f32
}
