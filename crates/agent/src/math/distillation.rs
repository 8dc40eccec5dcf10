//! Policy distillation: the policy head follows the ε-greedy policy of Q, but not too fast.

/// −Σ_a p(a) log π(a), the loss of π_dist against p = G_ε(Q). Section D.
pub fn cross_entropy(target: &[f32], log_policy: &[f32]) -> f32 {
    -target
        .iter()
        .zip(log_policy)
        .map(|(&target, &log)| weighted(target, log))
        .sum::<f32>()
}

/// KL(p ‖ q) = Σ_a p(a) (log p(a) − log q(a)), from log-probabilities. Section D.
pub fn kl_divergence(log_p: &[f32], log_q: &[f32]) -> f32 {
    log_p
        .iter()
        .zip(log_q)
        .map(|(&p, &q)| weighted(p.exp(), p - q))
        .sum()
}

/// Whether a step keeps its distillation loss: KL(π_dist,T ‖ π_dist) ≤ C_KL. Section D.
pub fn keeps_distillation(target_log_policy: &[f32], log_policy: &[f32], max_kl: f32) -> bool {
    kl_divergence(target_log_policy, log_policy) <= max_kl
}

/// p·x with 0·(±∞) = 0: an action without probability adds nothing, whatever its logarithm is.
fn weighted(probability: f32, x: f32) -> f32 {
    if probability == 0.0 {
        0.0
    } else {
        probability * x
    }
}
