//! Value rescaling: tensors and single values against literal numbers and against each other.

use agent::rescaling::{rescale, rescale_value, unscale, unscale_value};
use tch::Tensor;

/// h of an `f32`, computed in `f64`.
pub fn rescale_f32(x: f32) -> f32 {
    rescale_value(f64::from(x)) as f32
}

/// h⁻¹ of an `f32`, computed in `f64`.
pub fn unscale_f32(y: f32) -> f32 {
    unscale_value(f64::from(y)) as f32
}

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
}

#[test]
fn h_matches_literals() {
    let h = [(0.0, 0.0), (1.0, 0.4152135624), (3.0, 1.003), (-8.0, -2.008), (100.0, 9.149875621), (1e6, 1999.0005)];
    for (x, expected) in h {
        assert_close(rescale_value(x), expected);
    }
    // (√4 − 1) + 0.003, by hand.
    assert_eq!(rescale_f32(3.0), 1.003);
}

#[test]
fn inverse_matches_literals() {
    let inverse = [(0.0, 0.0), (0.5, 1.246262765), (-2.008, -8.0), (10.0, 117.4303228), (1999.0, 999999.6667)];
    for (y, expected) in inverse {
        assert_close(unscale_value(y), expected);
    }
    assert_eq!(unscale_f32(1.003), 3.0);
}

#[test]
fn tensors_agree_with_single_values_from_tiny_to_huge() {
    let mut values = vec![0.0f32];
    for exponent in -6..=6 {
        values.extend([1.0, 2.5, -1.0, -7.3].map(|m| m * 10f32.powi(exponent)));
    }
    let x = Tensor::from_slice(&values);
    let scaled: Vec<f32> = rescale(&x).unwrap().try_into().unwrap();
    let unscaled: Vec<f32> = unscale(&x).unwrap().try_into().unwrap();
    for (i, &value) in values.iter().enumerate() {
        for (found, expected) in [(scaled[i], rescale_f32(value)), (unscaled[i], unscale_f32(value))] {
            let error = (found - expected).abs();
            assert!(error <= 2e-6 * expected.abs(), "{value}: {found} instead of {expected}");
        }
    }
}
