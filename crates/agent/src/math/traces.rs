//! Trace coefficients λ_i: how much of what happened after step i is believed.
//!
//! All four return estimators of section A2 are the recursion of [`super::returns`] with another coefficient.

/// λ_i = λ Σ_a π(a|x_i) 1[Q(x_i,a_i) ≥ Q(x_i,a) − κ|Q(x_i,a)|]: Soft Watkins. Section A2.
///
/// `q` is Q_j(x_i, ·) as the network gives it (rescaled), `policy` the target policy π at x_i, `action` a_i.
/// With κ = 0 and greedy π this is [`watkins`].
pub fn soft_watkins(lambda: f32, kappa: f32, q: &[f32], policy: &[f32], action: usize) -> f32 {
    let taken = q[action];
    let accepted: f32 = q
        .iter()
        .zip(policy)
        .filter(|&(&q, _)| taken >= q - kappa * q.abs())
        .map(|(_, &probability)| probability)
        .sum();
    lambda * accepted
}

/// λ_i = λ 1[a_i ∈ argmax_a Q(x_i,a)]: Watkins' Q(λ). Section A2. Every maximal action counts as greedy.
pub fn watkins(lambda: f32, q: &[f32], action: usize) -> f32 {
    let taken = q[action];
    if q.iter().all(|&q| taken >= q) {
        lambda
    } else {
        0.0
    }
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
    if behaviour > 0.0 {
        lambda * (target / behaviour).min(1.0)
    } else {
        0.0
    }
}
