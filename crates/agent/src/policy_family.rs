//! The family of N policies: β_j and γ_j of each policy, and ε of each actor.

/// β_i, the weight of the intrinsic reward for policy i of n. Appendix "Bandit Implementation".
///
/// β_0 = 0, β_{N−1} = β_IM, else β_i = β_IM · sigmoid(k (2i − (N−2)) / (N−2)). A single policy has β_0 = 0. The slope k
/// is 8 in MEME, 10 in NGU (appendix A) and Agent57 (appendix G.1).
pub fn beta(policy: usize, policies: usize, beta_im: f64, slope: f64) -> f64 {
    if policy == 0 {
        return 0.0;
    }
    if policy + 1 >= policies {
        return beta_im;
    }
    let middle = policies as f64 - 2.0;
    let x = slope * (2.0 * policy as f64 - middle) / middle;
    beta_im / (1.0 + (-x).exp())
}

/// β of all policies: see [`beta`].
pub fn beta_ladder(policies: usize, beta_im: f64, slope: f64) -> Vec<f64> {
    (0..policies).map(|policy| beta(policy, policies, beta_im, slope)).collect()
}

/// γ_i, the discount of policy i of n. Appendix "Bandit Implementation", where γ_max is printed twice.
///
/// γ_i = 1 − exp(((N−1−i) ln(1−γ_max) + i ln(1−γ_min)) / (N−1)): from γ_max at policy 0 down to γ_min. A single policy
/// has γ_max.
pub fn gamma(policy: usize, policies: usize, gamma_max: f64, gamma_min: f64) -> f64 {
    // The ends are exact: exp(ln(x)) may differ from x, and γ = 1 would give ln(0).
    if policy == 0 {
        return gamma_max;
    }
    if policy + 1 >= policies {
        return gamma_min;
    }
    let share = policy as f64 / (policies as f64 - 1.0);
    1.0 - ((1.0 - share) * (1.0 - gamma_max).ln() + share * (1.0 - gamma_min).ln()).exp()
}

/// γ of all policies: see [`gamma`].
pub fn gamma_ladder(policies: usize, gamma_max: f64, gamma_min: f64) -> Vec<f64> {
    (0..policies).map(|policy| gamma(policy, policies, gamma_max, gamma_min)).collect()
}

/// Number of policies above the middle discount in [`agent57_gammas`].
pub const FAR_SEEING: usize = 7;

/// γ of all policies as in Agent57, appendix G.1, with γ_0 = `max`, γ_1 = `middle` and γ_2 = `min`.
///
/// γ_0 for j = 0, γ_1 + (γ_0 − γ_1) sigmoid(10 (6 − 2j) / 6) for j = 1..6, γ_1 for j = 7, then from γ_1 to γ_2
/// log-spaced: 1 − exp(((N−1−j) ln(1−γ_1) + (j−8) ln(1−γ_2)) / (N−9)). As printed, the sigmoid grows with j and the
/// last line has N − 9 for N − 1 − j, with which the discounts would rise to 0.9999 twice; we take both for misprints.
pub fn agent57_gammas(policies: usize, max: f64, middle: f64, min: f64) -> Vec<f64> {
    let far = |j: usize| {
        let x = 10.0 * (6.0 - 2.0 * j as f64) / 6.0;
        middle + (max - middle) / (1.0 + (-x).exp())
    };
    let near = gamma_ladder(policies.saturating_sub(FAR_SEEING + 1), middle, min);
    let first = [max].into_iter().chain((1..FAR_SEEING).map(far)).chain([middle]);
    first.chain(near).take(policies).collect()
}

/// ε_i = base^(1 + exponent·i/(n−1)), the exploration of actor i of n. As in Agent57 (Ape-X), with 0.4 and 7; a single
/// actor has ε = base.
pub fn actor_epsilon(actor: usize, actors: usize, base: f64, exponent: f64) -> f64 {
    let share = if actors > 1 { actor as f64 / (actors as f64 - 1.0) } else { 0.0 };
    base.powf(1.0 + exponent * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_ladder(found: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() <= tolerance, "entry {i} is {found}, not {expected}");
        }
    }

    #[test]
    fn beta_of_sixteen_policies() {
        let rounded = [
            0.0, 0.0001, 0.0003, 0.0010, 0.0031, 0.0092, 0.0242, 0.05, 0.0758, 0.0908, 0.0969, 0.0990, 0.0997, 0.0999,
            0.1, 0.1,
        ];
        assert_ladder(&beta_ladder(16, 0.1, 8.0), &rounded, 5e-5);
        let exact = [(1, 0.0001050809752), (6, 0.02417961724), (7, 0.05), (8, 0.07582038276), (14, 0.09996646499)];
        for (policy, expected) in exact {
            assert!((beta(policy, 16, 0.1, 8.0) - expected).abs() < 1e-11);
        }
        assert_eq!((beta(0, 16, 0.1, 8.0), beta(15, 16, 0.1, 8.0)), (0.0, 0.1));
    }

    #[test]
    fn gamma_of_sixteen_policies() {
        let rounded = [
            0.9997, 0.99959, 0.99945, 0.99925, 0.99898, 0.99861, 0.99811, 0.99743, 0.9965, 0.99525, 0.99354, 0.99121,
            0.98806, 0.98376, 0.97793, 0.97,
        ];
        assert_ladder(&gamma_ladder(16, 0.9997, 0.97), &rounded, 5.1e-6);
        for (policy, expected) in [(1, 0.9995921931), (8, 0.9965022568), (14, 0.9779307324)] {
            assert!((gamma(policy, 16, 0.9997, 0.97) - expected).abs() < 1e-10);
        }
        assert_eq!((gamma(0, 16, 0.9997, 0.97), gamma(15, 16, 0.9997, 0.97)), (0.9997, 0.97));
    }

    #[test]
    fn ladders_of_agent57() {
        let beta = beta_ladder(32, 0.3, 10.0);
        // 0.3 / (1 + e^(28/3)), 0.3 / 2 and 0.3 / (1 + e^(-2/3)).
        for (policy, expected) in [(1, 0.000_026_525_75), (15, 0.15), (16, 0.198_226_91), (31, 0.3)] {
            assert!((beta[policy] - expected).abs() < 1e-7, "{}", beta[policy]);
        }
        let gamma = agent57_gammas(32, 0.9999, 0.997, 0.99);
        assert_eq!((gamma.len(), gamma[0], gamma[7], gamma[8], gamma[31]), (32, 0.9999, 0.997, 0.997, 0.99));
        // 0.997 + 0.0029 / (1 + e^(-20/3)), half of the way, 0.997 + 0.0029 / (1 + e^10), and 12/23 of the way in logs.
        for (policy, expected) in [(1, 0.999_896_31), (3, 0.998_45), (6, 0.997_000_13), (20, 0.994_377_52)] {
            assert!((gamma[policy] - expected).abs() < 1e-8, "{policy}: {}", gamma[policy]);
        }
        assert!(gamma.windows(2).all(|pair| pair[0] >= pair[1]), "{gamma:?}");
        assert_eq!(agent57_gammas(1, 0.9999, 0.997, 0.99), [0.9999]);
    }

    #[test]
    fn few_policies_do_not_divide_by_zero() {
        assert_eq!(beta_ladder(0, 0.1, 8.0), [0.0; 0]);
        assert_eq!(beta_ladder(1, 0.1, 8.0), [0.0]);
        assert_eq!(beta_ladder(2, 0.1, 8.0), [0.0, 0.1]);
        assert_ladder(&beta_ladder(3, 0.1, 8.0), &[0.0, 0.09996646499, 0.1], 1e-11);
        assert_eq!(gamma_ladder(0, 0.9997, 0.97), [0.0; 0]);
        assert_eq!(gamma_ladder(1, 0.9997, 0.97), [0.9997]);
        assert_eq!(gamma_ladder(2, 0.9997, 0.97), [0.9997, 0.97]);
        // The geometric mean of 0.0003 and 0.03 is 0.003.
        assert_ladder(&gamma_ladder(3, 0.9997, 0.97), &[0.9997, 0.997, 0.97], 1e-12);
    }

    #[test]
    fn ladder_with_an_undiscounted_policy_is_finite() {
        assert_eq!(gamma_ladder(3, 1.0, 0.5), [1.0, 1.0, 0.5]);
    }

    #[test]
    fn actor_epsilon_falls_from_0_4_to_0_4_to_the_eighth() {
        let eight: Vec<f64> = (0..8).map(|actor| actor_epsilon(actor, 8, 0.4, 7.0)).collect();
        assert_ladder(&eight, &[0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536], 1e-15);
        assert!((actor_epsilon(64, 128, 0.4, 7.0) - 0.01578712728).abs() < 1e-11);
        assert!((actor_epsilon(127, 128, 0.4, 7.0) - 0.00065536).abs() < 1e-15);
        assert_eq!(actor_epsilon(0, 1, 0.4, 7.0), 0.4);
    }
}
