//! Replay priority of a sequence.

/// p = η max_t |δ_t/σ| + (1−η) mean_t |δ_t/σ| over the valid steps, η = 0.9 ("Max Priority Weight"). R2D2's rule, with
/// TD errors normalised as section B1 says.
///
/// `errors` are the normalised TD errors δ_t/σ of the valid steps alone. Without any the priority is 0. A NaN among
/// them makes the priority NaN, so that replay can refuse it.
pub fn sequence_priority(errors: &[f32], max_weight: f32) -> f32 {
    if errors.is_empty() {
        return 0.0;
    }
    let largest = errors.iter().fold(0.0_f32, |largest, error| largest.max(error.abs()));
    let mean = errors.iter().map(|&error| f64::from(error.abs())).sum::<f64>() / errors.len() as f64;
    max_weight * largest + (1.0 - max_weight) * mean as f32
}

#[cfg(test)]
mod tests {
    use super::sequence_priority;

    #[test]
    fn priority_mixes_largest_and_mean_error() {
        // 0.9 · 3 + 0.1 · (1 + 3 + 2)/3.
        assert!((sequence_priority(&[1.0, -3.0, 2.0], 0.9) - 2.9).abs() < 1e-6);
        assert_eq!(sequence_priority(&[1.0, -3.0, 2.0], 1.0), 3.0);
        assert_eq!(sequence_priority(&[1.0, -3.0, 2.0], 0.0), 2.0);
    }

    #[test]
    fn one_step_is_its_own_mean() {
        assert!((sequence_priority(&[-0.5], 0.9) - 0.5).abs() < 1e-7);
    }

    #[test]
    fn priority_is_0_without_valid_steps() {
        assert_eq!(sequence_priority(&[], 0.9), 0.0);
        assert_eq!(sequence_priority(&[0.0, 0.0], 0.9), 0.0);
    }

    #[test]
    fn a_nan_stays_visible() {
        assert!(sequence_priority(&[1.0, f32::NAN, 2.0], 0.9).is_nan());
    }
}
