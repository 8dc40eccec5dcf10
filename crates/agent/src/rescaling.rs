//! Value rescaling over tensors: the same equations as in `math`, in forms that keep their precision in f32.

use tch::Tensor;

use crate::error::Result;
use crate::math::rescaling::EPSILON;

/// h(x) = sgn(x) (sqrt(|x| + 1) - 1) + ε x.
///
/// Written as x / (sqrt(|x| + 1) + 1) + ε x: no difference of nearly equal numbers.
pub fn rescale(x: &Tensor) -> Result<Tensor> {
    let root = x.f_abs()?.f_add_scalar(1.0)?.f_sqrt()?.f_add_scalar(1.0)?;
    Ok(x.f_div(&root)?.f_add(&x.f_mul_scalar(EPSILON)?)?)
}

/// h⁻¹(x) = sgn(x) (((sqrt(1 + 4ε(|x| + 1 + ε)) - 1) / 2ε)² - 1).
///
/// With u = sqrt((1 + 2ε)² + 4ε|x|) the inner quotient is s = (u - 1) / 2ε, and s - 1 = 2|x| / (u + 1 + 2ε): again no
/// difference of nearly equal numbers, which costs the printed form four digits near zero in f32.
pub fn unscale(x: &Tensor) -> Result<Tensor> {
    let size = x.f_abs()?;
    let u = size.f_mul_scalar(4.0 * EPSILON)?.f_add_scalar((1.0 + 2.0 * EPSILON).powi(2))?.f_sqrt()?;
    let s_minus_one = size.f_mul_scalar(2.0)?.f_div(&u.f_add_scalar(1.0 + 2.0 * EPSILON)?)?;
    let square_minus_one = s_minus_one.f_mul(&s_minus_one.f_add_scalar(2.0)?)?;
    Ok(square_minus_one.f_mul(&x.f_sign()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::rescaling;

    #[test]
    fn tensors_agree_with_the_equations_from_tiny_to_huge() {
        let mut values = vec![0.0f32];
        for exponent in -6..=6 {
            values.extend([1.0, 2.5, -1.0, -7.3].map(|m| m * 10f32.powi(exponent)));
        }
        let x = Tensor::from_slice(&values);
        let scaled: Vec<f32> = rescale(&x).unwrap().try_into().unwrap();
        let unscaled: Vec<f32> = unscale(&x).unwrap().try_into().unwrap();
        for (i, &value) in values.iter().enumerate() {
            for (found, expected) in
                [(scaled[i], rescaling::rescale_f32(value)), (unscaled[i], rescaling::rescale_inverse_f32(value))]
            {
                let error = (found - expected).abs();
                assert!(error <= 2e-6 * expected.abs(), "{value}: {found} instead of {expected}");
            }
        }
    }
}
