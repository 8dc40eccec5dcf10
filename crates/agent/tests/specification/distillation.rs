//! Policy distillation: the policy head follows the ε-greedy policy of Q, but not too fast.

/// −Σ_a p(a) log π(a), the loss of π_dist against p = G_ε(Q). Section D.
pub fn cross_entropy(target: &[f32], log_policy: &[f32]) -> f32 {
    -target.iter().zip(log_policy).map(|(&target, &log)| weighted(target, log)).sum::<f32>()
}

/// KL(p ‖ q) = Σ_a p(a) (log p(a) − log q(a)), from log-probabilities. Section D.
pub fn kl_divergence(log_p: &[f32], log_q: &[f32]) -> f32 {
    log_p.iter().zip(log_q).map(|(&p, &q)| weighted(p.exp(), p - q)).sum()
}

/// Whether a step keeps its distillation loss: KL(π_dist,T ‖ π_dist) ≤ C_KL. Section D.
pub fn keeps_distillation(target_log_policy: &[f32], log_policy: &[f32], max_kl: f32) -> bool {
    kl_divergence(target_log_policy, log_policy) <= max_kl
}

/// p·x with 0·(±∞) = 0: an impossible action adds nothing.
fn weighted(probability: f32, x: f32) -> f32 {
    if probability == 0.0 { 0.0 } else { probability * x }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_TARGET: [f32; 3] = [-1.407_606, -0.407_605_98, -2.407_606];
    const LOG_ONLINE: [f32; 3] = [-0.869_338_1, -1.369_338, -1.119_338];

    #[test]
    fn cross_entropy_matches_literals() {
        let greedy = [3.333333e-5, 0.9999333, 3.333333e-5];
        assert!((cross_entropy(&greedy, &LOG_TARGET) - 0.407_705_96).abs() < 1e-6);
        // One certain action: −log π of it.
        assert_eq!(cross_entropy(&[0.0, 1.0, 0.0], &[f32::NEG_INFINITY, -0.5, -1.0]), 0.5);
    }

    #[test]
    fn divergence_matches_literals() {
        assert!((kl_divergence(&LOG_TARGET, &LOG_ONLINE) - 0.392_070_62).abs() < 1e-6);
        assert_eq!(kl_divergence(&LOG_TARGET, &LOG_TARGET), 0.0);
    }

    #[test]
    fn the_loss_is_kept_up_to_the_bound() {
        assert!(keeps_distillation(&LOG_TARGET, &LOG_ONLINE, 0.393));
        assert!(!keeps_distillation(&LOG_TARGET, &LOG_ONLINE, 0.391));
        assert!(keeps_distillation(&LOG_TARGET, &LOG_TARGET, 0.0));
    }

    #[test]
    fn only_newly_impossible_actions_exceed_the_bound() {
        let (certain, even) = ([0.0, f32::NEG_INFINITY], [-std::f32::consts::LN_2; 2]);
        assert_eq!(kl_divergence(&even, &certain), f32::INFINITY);
        assert!((kl_divergence(&certain, &even) - std::f32::consts::LN_2).abs() < 1e-7);
        assert_eq!(kl_divergence(&certain, &certain), 0.0);
    }
}
