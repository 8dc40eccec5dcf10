//! Trace coefficients λ_i of the four return estimators, one step at a time. Section A2.

/// λ_i = λ Σ_a π(a|x_i) 1[Q(x_i,a_i) ≥ Q(x_i,a) − κ|Q(x_i,a)|]: Soft Watkins. Section A2.
///
/// `q` is Q_j(x_i, ·) as the network gives it (rescaled), `policy` the target policy π at x_i, `action` a_i.
/// With κ = 0 and greedy π this is [`watkins`].
pub fn soft_watkins(lambda: f32, kappa: f32, q: &[f32], policy: &[f32], action: usize) -> f32 {
    let taken = q[action];
    let accepted: f32 =
        q.iter().zip(policy).filter(|&(&q, _)| taken >= q - kappa * q.abs()).map(|(_, &probability)| probability).sum();
    lambda * accepted
}

/// λ_i = λ 1[a_i ∈ argmax_a Q(x_i,a)]: Watkins' Q(λ). Section A2. Every maximal action counts as greedy.
pub fn watkins(lambda: f32, q: &[f32], action: usize) -> f32 {
    let taken = q[action];
    if q.iter().all(|&q| taken >= q) { lambda } else { 0.0 }
}

/// λ_i = λ: Peng's Q(λ), which never cuts. Section A2.
pub fn peng(lambda: f32) -> f32 {
    lambda
}

/// λ_i = λ min(1, π(a_i|x_i) / μ(a_i|x_i)): Retrace. Section A2.
///
/// `target` is π(a_i|x_i), `behaviour` μ(a_i|x_i). An action that was taken had a probability above 0; where none is
/// known (padding) the trace is cut.
pub fn retrace(lambda: f32, target: f32, behaviour: f32) -> f32 {
    if behaviour > 0.0 { lambda * (target / behaviour).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::epsilon_greedy;

    const Q: [f32; 4] = [1.0, 0.995, -0.5, 1.004];
    const POLICY: [f32; 4] = [0.4, 0.3, 0.1, 0.2];

    fn assert_coefficients(kappa: f32, expected: [f32; 4]) {
        for (action, expected) in expected.into_iter().enumerate() {
            let found = soft_watkins(0.95, kappa, &Q, &POLICY, action);
            assert!((found - expected).abs() < 1e-6, "action {action}, κ {kappa}: {found} is not {expected}");
        }
    }

    #[test]
    fn soft_watkins_keeps_actions_within_the_tolerance() {
        assert_coefficients(0.0, [0.76, 0.38, 0.095, 0.95]);
        assert_coefficients(0.006, [0.95, 0.76, 0.095, 0.95]);
        assert_coefficients(0.01, [0.95, 0.95, 0.095, 0.95]);
    }

    #[test]
    fn tolerance_widens_for_negative_values_too() {
        // −1.005 ≥ −1 − 0.01·1: κ|Q| widens, where κQ would narrow.
        assert_eq!(soft_watkins(0.95, 0.01, &[-1.0, -1.005], &[0.5, 0.5], 1), 0.95);
    }

    #[test]
    fn soft_watkins_with_zero_kappa_and_greedy_policy_is_watkins() {
        // Ties: all maximal actions are greedy, though the greedy policy is on the first.
        for q in [Q, [2.0, 2.0, -1.0, 2.0], [0.0; 4], [-3.0, -1.0, -1.0, -2.0]] {
            let mut greedy = [0.0; 4];
            epsilon_greedy(&q, 0.0, &mut greedy);
            for action in 0..4 {
                let soft = soft_watkins(0.95, 0.0, &q, &greedy, action);
                assert_eq!(soft, watkins(0.95, &q, action), "action {action} of {q:?}");
            }
        }
    }

    #[test]
    fn watkins_cuts_at_every_non_greedy_action() {
        let coefficients = |q: [f32; 4]| [0, 1, 2, 3].map(|action| watkins(0.9, &q, action));
        assert_eq!(coefficients(Q), [0.0, 0.0, 0.0, 0.9]);
        assert_eq!(coefficients([2.0, 2.0, -1.0, 2.0]), [0.9, 0.9, 0.0, 0.9]);
    }

    #[test]
    fn lambda_0_cuts_always_and_lambda_1_never_shortens_a_greedy_trace() {
        assert_eq!(soft_watkins(0.0, 0.01, &Q, &POLICY, 3), 0.0);
        assert_eq!((watkins(0.0, &Q, 3), peng(0.0), retrace(0.0, 0.5, 0.5)), (0.0, 0.0, 0.0));
        assert!((soft_watkins(1.0, 0.01, &Q, &POLICY, 3) - 1.0).abs() < 1e-6);
        assert_eq!((watkins(1.0, &Q, 3), peng(1.0), retrace(1.0, 0.5, 0.5)), (1.0, 1.0, 1.0));
    }

    #[test]
    fn retrace_takes_the_ratio_up_to_1() {
        assert_eq!(retrace(0.5, 0.25, 0.5), 0.25);
        assert_eq!(retrace(0.5, 0.9, 0.3), 0.5);
        assert_eq!(retrace(0.5, 0.0, 0.3), 0.0);
        assert_eq!(retrace(0.5, 0.0, 0.0), 0.0);
        assert_eq!(retrace(0.5, 0.3, 0.0), 0.0);
    }
}
