//! How remote environments explore.

use agent::policy_family::actor_epsilon;
use envs::seeds::mix;

use crate::config::ActorsConfig;

/// Exploration rate of a remote environment. However few of them play, their rates cover the whole range: each new one
/// halves a gap.
pub fn remote_epsilon(config: &ActorsConfig, environment: usize, capacity: usize) -> f64 {
    let halved = (environment as u32).reverse_bits() as f64 / f64::from(u32::MAX);
    let rank = (halved * capacity.saturating_sub(1) as f64).round() as usize;
    actor_epsilon(rank, capacity, config.epsilon_base, config.epsilon_exponent)
}

/// Seed of a remote environment's exploration.
pub fn remote_seed(run: u64, index: u64) -> u64 {
    mix(mix(run ^ 0x7265_6d6f_7465) ^ index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exploration_rates_cover_the_range_for_any_number_of_actors() {
        let config = ActorsConfig::default();
        let rates: Vec<f64> = (0..64).map(|environment| remote_epsilon(&config, environment, 64)).collect();
        assert!((rates[0] - 0.4).abs() < 1e-9, "{}", rates[0]);
        for few in [4, 8, 16] {
            let (high, low) =
                (rates[..few].iter().cloned().fold(0.0, f64::max), rates[..few].iter().cloned().fold(1.0, f64::min));
            assert!(high > 0.3 && low < 0.4_f64.powf(5.5), "{few}: {high} to {low}");
        }
    }
}
