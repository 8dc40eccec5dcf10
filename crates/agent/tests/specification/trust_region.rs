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

#[cfg(test)]
mod tests {
    use super::keeps_loss;

    // α σ = 2 · 0.5 = 1, Q_T = 10 throughout: the region is [9, 11].
    fn keeps(q: f32, target: f32) -> bool {
        keeps_loss(q, 10.0, target, 2.0, 0.5)
    }

    #[test]
    fn drops_only_steps_that_move_further_outside() {
        // Above the region: a target below draws Q back in, one above pushes it further out.
        assert!(keeps(12.0, 11.5));
        assert!(!keeps(12.0, 13.0));
        // Below it, the other way round.
        assert!(keeps(8.0, 8.5));
        assert!(!keeps(8.0, 7.0));
    }

    #[test]
    fn inside_the_region_every_direction_is_kept() {
        for target in [-100.0, 10.5, 100.0] {
            assert!(keeps(10.5, target) && keeps(9.5, target) && keeps(10.0, target));
        }
    }

    #[test]
    fn border_belongs_to_the_region() {
        assert!(keeps(11.0, 13.0) && keeps(9.0, 7.0));
        assert!(!keeps(11.000001, 13.0) && !keeps(8.999999, 7.0));
    }

    #[test]
    fn sign_of_zero_is_zero() {
        assert!(!keeps(12.0, 12.0) && !keeps(8.0, 8.0));
        assert!(keeps_loss(3.0, 3.0, 5.0, 2.0, 0.0));
    }
}
