//! Cross-mixture training: every policy learns from every sequence, the one that acted most.

/// The weight of L_j in L = η L_{jμ} + (1−η)/N Σ_j L_j for a sequence that policy jμ acted in. Section B2.
///
/// The weights of all policies sum to 1. η = 1 trains the behaviour policy only, η = 0 all alike.
pub fn mixture_weight(policy: usize, behaviour_policy: usize, policies: usize, eta: f64) -> f64 {
    let shared = (1.0 - eta) / policies as f64;
    if policy == behaviour_policy { eta + shared } else { shared }
}

#[cfg(test)]
mod tests {
    use super::mixture_weight;

    #[test]
    fn sixteen_policies_share_half_and_the_one_that_acted_has_the_other_half() {
        let weights: Vec<f64> = (0..16).map(|policy| mixture_weight(policy, 5, 16, 0.5)).collect();
        for (policy, &weight) in weights.iter().enumerate() {
            assert_eq!(weight, if policy == 5 { 0.53125 } else { 0.03125 });
        }
        assert_eq!(weights.iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn one_policy_has_all_the_weight() {
        for eta in [0.0, 0.5, 1.0] {
            assert_eq!(mixture_weight(0, 0, 1, eta), 1.0);
        }
    }

    #[test]
    fn eta_1_trains_the_behaviour_policy_only_and_eta_0_all_alike() {
        assert_eq!((mixture_weight(2, 2, 4, 1.0), mixture_weight(1, 2, 4, 1.0)), (1.0, 0.0));
        assert_eq!((mixture_weight(2, 2, 4, 0.0), mixture_weight(1, 2, 4, 0.0)), (0.25, 0.25));
    }
}
