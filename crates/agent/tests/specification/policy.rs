//! Distributions over actions: greedy, ε-greedy, softmax, and the target policy.

/// The first action with the largest value; 0 for an empty slice.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (action, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = action;
        }
    }
    best
}

/// G_ε(Q): 1 − ε + ε/A on the first greedy action of `values`, ε/A on the others. Section D.
pub fn epsilon_greedy(values: &[f32], epsilon: f32, out: &mut [f32]) {
    out.fill(epsilon / values.len() as f32);
    if let Some(probability) = out.get_mut(argmax(values)) {
        *probability += 1.0 - epsilon;
    }
}

/// log π(a) = z_a − ln Σ_b exp(z_b), without overflow.
pub fn log_softmax(logits: &[f32], out: &mut [f32]) {
    tempered_log_softmax(logits, 1.0, out);
}

/// π' = softmax(log π / τ), the target policy of the returns, from log-probabilities or logits. Section D.
///
/// τ = 1 gives π itself, τ → 0 the greedy policy.
pub fn target_policy(log_policy: &[f32], temperature: f32, out: &mut [f32]) {
    tempered_log_softmax(log_policy, temperature, out);
    for probability in out.iter_mut() {
        *probability = probability.exp();
    }
}

fn tempered_log_softmax(logits: &[f32], temperature: f32, out: &mut [f32]) {
    // The largest is subtracted first, so that exp never overflows at low temperatures.
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (out, &logit) in out.iter_mut().zip(logits) {
        *out = (logit - largest) / temperature;
    }
    let log_sum = out.iter().map(|&z| z.exp()).sum::<f32>().ln();
    for out in out.iter_mut() {
        *out -= log_sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn argmax_is_the_first_of_equal_maxima() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[0.0; 5]), 0);
        assert_eq!(argmax(&[-2.0]), 0);
        assert_eq!(argmax(&[f32::NEG_INFINITY, -1e30]), 1);
    }

    #[test]
    fn epsilon_greedy_gives_every_action_its_share() {
        let mut policy = [0.0; 3];
        epsilon_greedy(&[1.0, 2.0, 0.0], 1e-4, &mut policy);
        assert_close(&policy, &[3.333333e-5, 0.9999333, 3.333333e-5]);
        // A tie: only the first of the two.
        epsilon_greedy(&[1.0, 2.0, 2.0], 0.3, &mut policy);
        assert_close(&policy, &[0.1, 0.8, 0.1]);
        epsilon_greedy(&[1.0, 2.0, 0.0], 0.0, &mut policy);
        assert_eq!(policy, [0.0, 1.0, 0.0]);
    }

    #[test]
    fn one_action_has_all_the_probability() {
        let mut policy = [0.0];
        epsilon_greedy(&[-7.0], 0.4, &mut policy);
        assert_eq!(policy, [1.0]);
        target_policy(&[-7.0], 0.25, &mut policy);
        assert_eq!(policy, [1.0]);
    }

    #[test]
    fn softmax_matches_literals() {
        let (mut log, mut target) = ([0.0; 3], [0.0; 3]);
        log_softmax(&[1.0, 2.0, 0.0], &mut log);
        assert_close(&log, &[-1.407_606, -0.407_605_98, -2.407_606]);
        target_policy(&log, 0.25, &mut target);
        assert_close(&target, &[0.017_980_287, 0.981_690_4, 0.000_329_320_44]);
        // Logits and log-probabilities give the same policy.
        let mut from_logits = [0.0; 3];
        target_policy(&[1.0, 2.0, 0.0], 0.25, &mut from_logits);
        assert_close(&from_logits, &target);
    }

    #[test]
    fn huge_logits_do_not_overflow() {
        let mut policy = [0.0; 3];
        target_policy(&[1e6, -1e6, 1e6], 0.25, &mut policy);
        assert_eq!(policy, [0.5, 0.0, 0.5]);
    }
}
