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
    fn softmax_of_literal_numbers() {
        let found = softmax(&[1.0, 2.0, 0.0]);
        for (found, expected) in found.iter().zip([-1.407_606_f32, -0.407_605_98, -2.407_606]) {
            assert!((found.ln() - expected).abs() < 1e-6, "{found}");
        }
        assert_eq!(softmax(&[1e6, -1e6, 1e6]), [0.5, 0.0, 0.5]);
    }
}
