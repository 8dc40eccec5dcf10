//! Cross-mixture training: every policy learns from every sequence, the one that acted most.

/// The weight of L_j in L = η L_{jμ} + (1−η)/N Σ_j L_j for a sequence that policy jμ acted in. Section B2.
///
/// The weights of all policies sum to 1. η = 1 trains the behaviour policy only, η = 0 all alike.
pub fn mixture_weight(policy: usize, behaviour_policy: usize, policies: usize, eta: f64) -> f64 {
    let shared = (1.0 - eta) / policies as f64;
    if policy == behaviour_policy {
        eta + shared
    } else {
        shared
    }
}
