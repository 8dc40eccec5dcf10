//! The trust region of value updates, which lets the online network bootstrap from itself.

/// Whether a step keeps its loss: false where |Q − Q_T| > ασ_j and sgn(Q − Q_T) ≠ sgn(Q − h(G)). Section A1.
///
/// `q` and `q_target` are Q_j(x_t,a_t) of the online and the target network, `target` is h(G_t): all in rescaled space.
/// A step is dropped only where the online value has left the region and its TD error would push it further out.
/// sgn(0) = 0, so a TD error of exactly 0 outside the region is dropped too (it has no gradient anyway).
pub fn keeps_loss(q: f32, q_target: f32, target: f32, alpha: f32, sigma: f32) -> bool {
    let drift = q - q_target;
    drift.abs() <= alpha * sigma || sign(drift) == sign(q - target)
}

/// sgn with sgn(0) = 0, unlike `f32::signum`.
fn sign(x: f32) -> i8 {
    i8::from(x > 0.0) - i8::from(x < 0.0)
}
