//! Value rescaling: networks predict h(return), which squeezes scores of very different size into one range.

/// ε of h: how much of a straight line is mixed in, which keeps the inverse from growing too fast.
pub const EPSILON: f64 = 0.001;

/// h(x) = sgn(x)(√(|x|+1) − 1) + εx. Appendix "Hyper-parameters", value function rescaling, where x² stands for |x|.
///
/// √(|x|+1) − 1 is computed as |x| / (√(|x|+1) + 1): no digits cancel near 0.
pub fn rescale(x: f64) -> f64 {
    x / ((x.abs() + 1.0).sqrt() + 1.0) + EPSILON * x
}

/// h⁻¹(y) = sgn(y)[((√(1 + 4ε(|y| + 1 + ε)) − 1) / 2ε)² − 1]. Appendix "Hyper-parameters", value function rescaling.
///
/// With u = √(|x|+1) − 1, |y| = εu² + (1+2ε)u, whose positive root is u = 2|y| / (1+2ε + √((1+2ε)² + 4ε|y|)), and
/// |x| = u(u+2). That is the same function without the two subtractions that would cost most of an `f32`'s digits.
pub fn rescale_inverse(y: f64) -> f64 {
    let slope = 1.0 + 2.0 * EPSILON;
    let root = 2.0 * y.abs() / (slope + (slope * slope + 4.0 * EPSILON * y.abs()).sqrt());
    (root * (root + 2.0)).copysign(y)
}

/// [`rescale`] of an `f32`, computed in `f64`.
pub fn rescale_f32(x: f32) -> f32 {
    rescale(f64::from(x)) as f32
}

/// [`rescale_inverse`] of an `f32`, computed in `f64`.
pub fn rescale_inverse_f32(y: f32) -> f32 {
    rescale_inverse(f64::from(y)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn h_of_literal_numbers() {
        let h = [(0.0, 0.0), (1.0, 0.4152135624), (3.0, 1.003), (-8.0, -2.008), (100.0, 9.149875621), (1e6, 1999.0005)];
        for (x, expected) in h {
            assert_close(rescale(x), expected);
        }
        // (√4 − 1) + 0.003, by hand.
        assert_eq!(rescale_f32(3.0), 1.003);
    }

    #[test]
    fn inverse_of_literal_numbers() {
        let inverse = [(0.0, 0.0), (0.5, 1.246262765), (-2.008, -8.0), (10.0, 117.4303228), (1999.0, 999999.6667)];
        for (y, expected) in inverse {
            assert_close(rescale_inverse(y), expected);
        }
        assert_eq!(rescale_inverse_f32(1.003), 3.0);
    }
}
