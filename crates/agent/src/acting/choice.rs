//! Action selection.

/// An action and its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenAction {
    /// The action.
    pub action: usize,
    /// μ(a|x), the behaviour probability.
    pub probability: f32,
}

/// Chooses ε-greedily from one row of [`preferences`](super::ActingOutput::preferences).
///
/// With probability ε a uniform action, else the first best. `uniforms` are two draws from [0, 1): whether to explore,
/// and which action.
pub fn choose_action(preferences: &[f32], epsilon: f64, uniforms: [f64; 2]) -> ChosenAction {
    let actions = preferences.len();
    let greedy = argmax(preferences);
    let explored = ((uniforms[1] * actions as f64) as usize).min(actions.saturating_sub(1));
    let action = if uniforms[0] < epsilon { explored } else { greedy };
    let spread = epsilon / actions as f64;
    let probability = if action == greedy { 1.0 - epsilon + spread } else { spread };
    ChosenAction { action, probability: probability as f32 }
}

/// Samples from (1 − ε) π' + ε / A with π' = softmax(z / τ).
///
/// z is one row of logits; τ = 0 makes π' greedy.
///
/// `uniform` is a draw from [0, 1).
pub fn sample_action(logits: &[f32], temperature: f64, epsilon: f64, uniform: f64) -> ChosenAction {
    let actions = logits.len();
    let policy = if temperature > 0.0 {
        softmax(&logits.iter().map(|&logit| (f64::from(logit) / temperature) as f32).collect::<Vec<_>>())
    } else {
        let greedy = argmax(logits);
        (0..actions).map(|action| f32::from(action == greedy)).collect()
    };
    let mut below = 0.0;
    let mut chosen = ChosenAction { action: 0, probability: 0.0 };
    for (action, &probability) in policy.iter().enumerate() {
        let probability = (1.0 - epsilon) * f64::from(probability) + epsilon / actions as f64;
        // Rounding may leave the sum below the draw; then the last possible action is it.
        if probability > 0.0 {
            chosen = ChosenAction { action, probability: probability as f32 };
        }
        below += probability;
        if uniform < below {
            break;
        }
    }
    chosen
}

/// The first action with the largest value; 0 for an empty slice.
fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (action, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = action;
        }
    }
    best
}

/// π(a) = exp(z_a) / Σ_b exp(z_b) of one row of logits, without overflow.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f32> = logits.iter().map(|&logit| (logit - largest).exp()).collect();
    let sum: f32 = exponentials.iter().sum();
    exponentials.into_iter().map(|exponential| exponential / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argmax_is_the_first_of_equal_maxima() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[0.0; 5]), 0);
        assert_eq!(argmax(&[-2.0]), 0);
        assert_eq!(argmax(&[f32::NEG_INFINITY, -1e30]), 1);
    }

    #[test]
    fn samples_in_proportion_to_the_mixed_policy() {
        // π' at τ = 0.5 is softmax([2, 4, 0]) = [0.1173, 0.8668, 0.0159]; 0.2 of it is uniform.
        let expected = [0.8 * 0.117_310_43 + 0.2 / 3.0, 0.8 * 0.866_813_3 + 0.2 / 3.0, 0.8 * 0.015_876_24 + 0.2 / 3.0];
        let bounds = [0.0, expected[0], expected[0] + expected[1]];
        for (action, (below, probability)) in bounds.iter().zip(expected).enumerate() {
            for uniform in [below + 1e-6, below + probability - 1e-6] {
                let found = sample_action(&[1.0, 2.0, 0.0], 0.5, 0.2, uniform);
                assert_eq!(found.action, action, "{uniform}");
                assert!((f64::from(found.probability) - probability).abs() < 1e-6, "{found:?}");
            }
        }
        assert_eq!(sample_action(&[0.0, 2.0], 0.0, 0.0, 0.999_999), ChosenAction { action: 1, probability: 1.0 });
        assert_eq!(sample_action(&[2.0, 0.0], 0.0, 0.0, 0.999_999), ChosenAction { action: 0, probability: 1.0 });
    }

    #[test]
    fn softmax_of_literal_numbers() {
        let found = softmax(&[1.0, 2.0, 0.0]);
        for (found, expected) in found.iter().zip([-1.407_606_f32, -0.407_605_98, -2.407_606]) {
            assert!((found.ln() - expected).abs() < 1e-6, "{found}");
        }
        assert_eq!(softmax(&[1e6, -1e6, 1e6]), [0.5, 0.0, 0.5]);
    }
}
