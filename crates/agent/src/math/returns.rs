//! Returns: one recursion for Soft Watkins, Watkins, Peng and Retrace.

use super::rescaling::{rescale, rescale_inverse};

/// V(x) = Σ_a π(a|x) h⁻¹(Q(x,a)), the value of x under the target policy. Section A2.
pub fn expected_value(q: &[f32], policy: &[f32]) -> f32 {
    q.iter()
        .zip(policy)
        .map(|(&q, &probability)| f64::from(probability) * rescale_inverse(f64::from(q)))
        .sum::<f64>() as f32
}

/// V(x) = max_a h⁻¹(Q(x,a)), the value of x under the greedy policy (Watkins). Section A2.
pub fn greedy_value(q: &[f32]) -> f32 {
    let best = q.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    rescale_inverse(f64::from(best)) as f32
}

/// One policy's view of one sequence; all slices are as long as the trace, padding included.
#[derive(Debug, Clone, Copy)]
pub struct Trajectory<'a> {
    /// r_t that a_t led to. Not read at the last valid observation.
    pub rewards: &'a [f32],
    /// d_t: 0 where a_t ended the game, else 1. Not read at the last valid observation.
    pub discounts: &'a [f32],
    /// V_t in real (not rescaled) units: [`expected_value`] or [`greedy_value`].
    pub values: &'a [f32],
    /// λ_t: see [`super::traces`]. Not read at 0 and at the last valid observation.
    pub traces: &'a [f32],
    /// Valid observations; what lies behind them is padding and is never read.
    pub length: usize,
}

/// G_t = r_t + γ d_t [V_{t+1} + λ_{t+1} (G_{t+1} − V_{t+1})], and G = V at the last valid observation. Section A2.
///
/// Unrolled: G_t = r_t + γd_t V_{t+1} + Σ_{k≥1} (Π_{i=1..k} γ d_{t+i−1} λ_{t+i}) (r_{t+k} + γd_{t+k} V_{t+k+1} − V_{t+k}).
/// The paper's formula begins its product at λ_0 of the state whose action is being judged; that factor does not belong there.
///
/// λ = 0 gives the one-step target r_t + γ d_t V_{t+1}; λ = 1 at every step gives the discounted sum of the rewards with one
/// bootstrap at the sequence's end. `out[length..]` is set to 0.
///
/// # Panics
/// If the slices differ in length or `length` exceeds them.
pub fn returns(gamma: f32, trajectory: Trajectory<'_>, out: &mut [f32]) {
    let Trajectory {
        rewards,
        discounts,
        values,
        traces,
        length,
    } = trajectory;
    assert!(
        [rewards.len(), discounts.len(), values.len(), traces.len()]
            .iter()
            .all(|&steps| steps == out.len()),
        "returns: slices of different lengths"
    );
    out[length..].fill(0.0);
    let Some(last) = length.checked_sub(1) else {
        return;
    };
    out[last] = values[last];
    let mut following = f64::from(values[last]);
    for t in (0..last).rev() {
        let value = f64::from(values[t + 1]);
        let beyond = value + f64::from(traces[t + 1]) * (following - value);
        following = f64::from(rewards[t]) + f64::from(gamma) * f64::from(discounts[t]) * beyond;
        out[t] = following as f32;
    }
}

/// δ_t = Q_j(x_t,a_t) − h(G_t), the TD error in rescaled space. Section B1.
pub fn td_error(q: f32, target: f32) -> f32 {
    (f64::from(q) - rescale(f64::from(target))) as f32
}
