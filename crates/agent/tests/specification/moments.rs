//! Moments of a batch of TD errors and the scale they give.

use agent::moments::BatchMoments;

/// E(x) = Σwx/Σw and E(x²) = Σwx²/Σw of pairs (x, w); `None` where no sample carries weight. Section B1.
pub fn weighted(samples: impl IntoIterator<Item = (f32, f32)>) -> Option<BatchMoments> {
    let (mut total, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (value, weight) in samples {
        let (value, weight) = (f64::from(value), f64::from(weight));
        total += weight;
        sum += weight * value;
        squares += weight * value * value;
    }
    (total > 0.0).then(|| BatchMoments { mean: sum / total, mean_square: squares / total })
}

/// The same with every weight 1.
pub fn unweighted(values: impl IntoIterator<Item = f32>) -> Option<BatchMoments> {
    weighted(values.into_iter().map(|value| (value, 1.0)))
}

/// σ_j = max(σ_running, σ_batch, ε). Section B1. NaN if either deviation is NaN.
pub fn sigma(running: f64, batch: f64, floor: f64) -> f64 {
    if running.is_nan() || batch.is_nan() { f64::NAN } else { running.max(batch).max(floor) }
}

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-8, "{found} is not {expected}");
}

#[test]
fn batches_are_weighted_by_importance() {
    let batch = weighted([(1.0, 1.0), (2.0, 0.5), (6.0, 0.25)]).unwrap();
    assert_close(batch.mean, 2.0);
    assert_close(batch.mean_square, 6.857142857);
    assert_close(batch.std(), 1.690308509);
    // Without weights: mean 3, variance (4 + 1 + 9)/3.
    let plain = unweighted([1.0, 2.0, 6.0]).unwrap();
    assert_close(plain.mean, 3.0);
    assert_close(plain.std(), 2.160246899);
}

#[test]
fn a_batch_without_weight_has_no_moments() {
    assert_eq!(unweighted([]), None);
    assert_eq!(weighted([(3.0, 0.0)]), None);
}

#[test]
fn sigma_is_the_largest_of_three() {
    assert_eq!(sigma(0.3, 0.2, 0.01), 0.3);
    assert_eq!(sigma(0.2, 0.4, 0.01), 0.4);
    assert_eq!(sigma(0.002, 0.005, 0.01), 0.01);
    assert_eq!(sigma(0.0, 0.0, 0.01), 0.01);
}

#[test]
fn sigma_does_not_hide_a_nan() {
    assert!(sigma(f64::NAN, 0.2, 0.01).is_nan() && sigma(0.2, f64::NAN, 0.01).is_nan());
}
