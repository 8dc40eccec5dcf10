//! What tells the N policies, and the actors, apart: β, γ and ε.

/// β_i, the weight of the intrinsic reward for policy i of n. Appendix "Bandit Implementation".
///
/// β_0 = 0, β_{N−1} = β_IM, else β_i = β_IM · sigmoid(8 (2i − (N−2)) / (N−2)). A single policy is policy 0 and does not
/// explore.
pub fn beta(policy: usize, policies: usize, beta_im: f64) -> f64 {
    if policy == 0 {
        return 0.0;
    }
    if policy + 1 >= policies {
        return beta_im;
    }
    let middle = policies as f64 - 2.0;
    let x = 8.0 * (2.0 * policy as f64 - middle) / middle;
    beta_im / (1.0 + (-x).exp())
}

/// β of all policies: see [`beta`].
pub fn beta_ladder(policies: usize, beta_im: f64) -> Vec<f64> {
    (0..policies)
        .map(|policy| beta(policy, policies, beta_im))
        .collect()
}

/// γ_i, the discount of policy i of n. Appendix "Bandit Implementation", where γ_max is printed twice.
///
/// γ_i = 1 − exp(((N−1−i) ln(1−γ_max) + i ln(1−γ_min)) / (N−1)): from γ_max at policy 0 down to γ_min. A single policy has
/// γ_max.
pub fn gamma(policy: usize, policies: usize, gamma_max: f64, gamma_min: f64) -> f64 {
    // The ends are given, not computed: exp(ln(x)) may miss x by a bit, and ln(0) of γ = 1 would poison the sum.
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
    (0..policies)
        .map(|policy| gamma(policy, policies, gamma_max, gamma_min))
        .collect()
}

/// ε_i = 0.4^(1 + 7i/(n−1)), the exploration of actor i of n. As in Agent57 (Ape-X); a single actor has ε = 0.4.
pub fn actor_epsilon(actor: usize, actors: usize) -> f64 {
    let share = if actors > 1 {
        actor as f64 / (actors as f64 - 1.0)
    } else {
        0.0
    };
    0.4_f64.powf(1.0 + 7.0 * share)
}
