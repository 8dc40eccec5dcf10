//! Returns: one recursion for Soft Watkins, Watkins, Peng and Retrace.

use agent::rescaling::{rescale_value, unscale_value};

/// V(x) = Σ_a π(a|x) h⁻¹(Q(x,a)), the value of x under the target policy. Section A2.
pub fn expected_value(q: &[f32], policy: &[f32]) -> f32 {
    q.iter().zip(policy).map(|(&q, &probability)| f64::from(probability) * unscale_value(f64::from(q))).sum::<f64>()
        as f32
}

/// V(x) = max_a h⁻¹(Q(x,a)), the value of x under the greedy policy (Watkins). Section A2.
pub fn greedy_value(q: &[f32]) -> f32 {
    let best = q.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    unscale_value(f64::from(best)) as f32
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
    /// Baseline of G_t along the trace: V_t, or for Retrace h⁻¹(Q(x_t,a_t)). Read where λ_t is.
    pub baselines: &'a [f32],
    /// λ_t: see [`super::traces`]. Not read at 0 and at the last valid observation.
    pub traces: &'a [f32],
    /// Number of valid observations; the rest is padding and never read.
    pub length: usize,
}

/// G_t = r_t + γ d_t [V_{t+1} + λ_{t+1} (G_{t+1} − B_{t+1})], and G = V at the last valid observation. Section A2.
///
/// The baseline B is V. Unrolled, G_t = r_t + γd_t V_{t+1} + Σ_{k≥1} c_k (r_{t+k} + γd_{t+k} V_{t+k+1} − V_{t+k}),
/// where c_k is the product of γd_{t+i−1} λ_{t+i} over i = 1..k. The paper's product runs from i = 0, the step whose
/// action is being judged; it has to begin one step later.
///
/// Retrace's B is the value of the action that was taken, Q(x_{t+1},a_{t+1}): what a_{t+1} is worth is in G_{t+1} and
/// in B and cancels out, so that no behaviour policy biases G_t where the values are right.
///
/// λ = 0 gives the one-step target r_t + γ d_t V_{t+1}; λ = 1 at every step gives the discounted sum of the rewards
/// with one bootstrap at the sequence's end. `out[length..]` is set to 0.
///
/// # Panics
/// If the slices differ in length or `length` exceeds them.
pub fn returns(gamma: f32, trajectory: Trajectory<'_>, out: &mut [f32]) {
    let Trajectory { rewards, discounts, values, baselines, traces, length } = trajectory;
    assert!(
        [rewards, discounts, values, baselines, traces].iter().all(|x| x.len() == out.len()),
        "returns: slices of different lengths"
    );
    out[length..].fill(0.0);
    let Some(last) = length.checked_sub(1) else {
        return;
    };
    out[last] = values[last];
    // V_{t+1} + λ_{t+1} (G_{t+1} − B_{t+1}), which is V at the end.
    let mut beyond = f64::from(values[last]);
    for t in (0..last).rev() {
        let target = f64::from(rewards[t]) + f64::from(gamma) * f64::from(discounts[t]) * beyond;
        out[t] = target as f32;
        beyond = f64::from(values[t]) + f64::from(traces[t]) * (target - f64::from(baselines[t]));
    }
}

/// δ_t = Q_j(x_t,a_t) − h(G_t), the TD error in rescaled space. Section B1.
pub fn td_error(q: f32, target: f32) -> f32 {
    (f64::from(q) - rescale_value(f64::from(target))) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const REWARDS: [f32; 5] = [1.0, -2.0, 3.0, 0.5, 9.0];
    const VALUES: [f32; 5] = [4.0, 1.0, -1.0, 2.0, 5.0];
    const MIXED: [f32; 5] = [0.3, 0.9, 0.5, 0.25, 0.7];

    fn assert_returns(discounts: [f32; 5], traces: [f32; 5], length: usize, expected: [f32; 5]) {
        let mut found = [f32::NAN; 5];
        let (rewards, values) = (&REWARDS, &VALUES);
        let trajectory =
            Trajectory { rewards, discounts: &discounts, values, baselines: values, traces: &traces, length };
        returns(0.9, trajectory, &mut found);
        for (t, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-6, "G_{t} is {found}, not {expected}");
        }
    }

    #[test]
    fn lambda_0_is_the_one_step_target() {
        assert_returns([1.0; 5], [0.0; 5], 5, [1.9, -2.9, 4.8, 5.0, 5.0]);
    }

    #[test]
    fn lambda_1_is_the_discounted_sum_with_one_bootstrap() {
        // G_0 = 1 − 0.9·2 + 0.81·3 + 0.729·0.5 + 0.6561·5.
        assert_returns([1.0; 5], [1.0; 5], 5, [5.275, 4.75, 7.5, 5.0, 5.0]);
    }

    #[test]
    fn intermediate_coefficients_mix_returns() {
        assert_returns([1.0; 5], MIXED, 5, [1.1011375, 0.01375, 5.475, 5.0, 5.0]);
    }

    #[test]
    fn nothing_flows_back_through_a_termination() {
        assert_returns([1.0, 0.0, 1.0, 1.0, 1.0], MIXED, 5, [-0.53, -2.0, 5.475, 5.0, 5.0]);
    }

    #[test]
    fn retrace_is_unbiased_with_exact_values() {
        // Two actions, which end the game with 1 and -1; the target policy takes the first of them with 0.75.
        for (reward, value_of_action) in [(1.0, 1.0), (-1.0, -1.0)] {
            let mut found = [f32::NAN; 3];
            let trajectory = Trajectory {
                rewards: &[0.25, reward, f32::NAN],
                discounts: &[1.0, 0.0, f32::NAN],
                values: &[f32::NAN, 0.5, 9.0],
                baselines: &[f32::NAN, value_of_action, f32::NAN],
                traces: &[f32::NAN, 0.95, f32::NAN],
                length: 3,
            };
            returns(0.5, trajectory, &mut found);
            assert_eq!(found, [0.5, reward, 9.0]);
        }
    }

    #[test]
    fn padding_is_neither_read_nor_filled() {
        assert_returns([1.0; 5], MIXED, 3, [-1.259, -2.9, -1.0, 0.0, 0.0]);
        assert_returns([1.0; 5], MIXED, 1, [4.0, 0.0, 0.0, 0.0, 0.0]);
        assert_returns([1.0; 5], MIXED, 0, [0.0; 5]);
    }

    #[test]
    fn averages_values_outside_rescaled_space() {
        let q = [0.5, -2.008, 10.0];
        assert!((expected_value(&q, &[0.2, 0.5, 0.3]) - 31.478_35).abs() < 1e-5);
        assert!((greedy_value(&q) - 117.430_32).abs() < 1e-5);
        assert!((greedy_value(&[-2.008, -2.008]) + 8.0).abs() < 1e-6);
    }

    #[test]
    fn td_errors_are_in_rescaled_space() {
        assert!((td_error(0.25, 3.0) + 0.753).abs() < 1e-7);
    }
}
