//! The choice of an action.

use crate::math::policy::argmax;

/// An action and the probability that it had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenAction {
    /// The action.
    pub action: usize,
    /// μ(a|x), the behaviour probability.
    pub probability: f32,
}

/// ε-greedy on one row of [`preferences`](super::ActingOutput::preferences): with probability ε a uniform action, else
/// the first best.
///
/// `uniforms` are two draws from [0, 1): whether to explore, and where to.
pub fn choose_action(preferences: &[f32], epsilon: f64, uniforms: [f64; 2]) -> ChosenAction {
    let actions = preferences.len();
    let greedy = argmax(preferences);
    let explored = ((uniforms[1] * actions as f64) as usize).min(actions.saturating_sub(1));
    let action = if uniforms[0] < epsilon { explored } else { greedy };
    let spread = epsilon / actions as f64;
    let probability = if action == greedy { 1.0 - epsilon + spread } else { spread };
    ChosenAction { action, probability: probability as f32 }
}
