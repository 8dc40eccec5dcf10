//! Value rescaling: networks predict h(return), which squeezes scores of very different size into one range.

/// ε of h: how much of a straight line is mixed in, which keeps the inverse from growing too fast.
pub const EPSILON: f64 = 0.001;

/// h(x) = sgn(x)(√(|x|+1) − 1) + εx. Appendix "Hyper-parameters", value function rescaling.
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
