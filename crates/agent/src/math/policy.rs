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
    // The largest goes first, so that exp sees nothing above 0 however small the temperature is.
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (out, &logit) in out.iter_mut().zip(logits) {
        *out = (logit - largest) / temperature;
    }
    let log_sum = out.iter().map(|&z| z.exp()).sum::<f32>().ln();
    for out in out.iter_mut() {
        *out -= log_sum;
    }
}
