//! Value rescaling: networks predict h(return), which compresses scores of different magnitudes into one range.
//!
//! h(x) = sgn(x) (√(|x|+1) − 1) + εx, ε = 0.001. Appendix "Hyper-parameters", where x² is misprinted for |x|.
//!
//! h⁻¹(y) = sgn(y) [((√(1 + 4ε(|y| + 1 + ε)) − 1) / 2ε)² − 1].
//!
//! Both avoid cancellation, which costs the printed form four digits near 0 in `f32`:
//! √(|x|+1) − 1 = |x| / (√(|x|+1) + 1); and with u = √(|x|+1) − 1, |y| = εu² + (1+2ε)u has the positive root
//! u = 2|y| / (1+2ε + √((1+2ε)² + 4ε|y|)), from which |x| = u(u+2).

use tch::Tensor;

use crate::error::Result;

/// Weight of the linear part of h, which bounds the slope of h⁻¹.
const EPSILON: f64 = 0.001;

/// Slope of h at 0, doubled: 1 + 2ε.
const SLOPE: f64 = 1.0 + 2.0 * EPSILON;

/// h(x), elementwise.
pub fn rescale(x: &Tensor) -> Result<Tensor> {
    let root = x.f_abs()?.f_add_scalar(1.0)?.f_sqrt()?.f_add_scalar(1.0)?;
    Ok(x.f_div(&root)?.f_add(&x.f_mul_scalar(EPSILON)?)?)
}

/// h⁻¹(y), elementwise.
///
/// y takes part as itself and not as its sign, so that the gradient at 0 is the slope there.
pub fn unscale(y: &Tensor) -> Result<Tensor> {
    let size = y.f_abs()?;
    let root = size.f_mul_scalar(4.0 * EPSILON)?.f_add_scalar(SLOPE.powi(2))?.f_sqrt()?;
    let ratio = root.f_add_scalar(SLOPE)?.f_reciprocal()?.f_mul_scalar(2.0)?;
    Ok(size.f_mul(&ratio)?.f_add_scalar(2.0)?.f_mul(&ratio)?.f_mul(y)?)
}

/// h(x) of one value.
pub fn rescale_value(x: f64) -> f64 {
    x / ((x.abs() + 1.0).sqrt() + 1.0) + EPSILON * x
}

/// h⁻¹(y) of one value.
pub fn unscale_value(y: f64) -> f64 {
    let u = 2.0 * y.abs() / (SLOPE + (SLOPE * SLOPE + 4.0 * EPSILON * y.abs()).sqrt());
    (u * (u + 2.0)).copysign(y)
}
