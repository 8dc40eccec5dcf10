//! Seeds of episodes.
//!
//! The seed of an episode depends only on the run's seed, the environment's index in the run and the number of the
//! episode. A run therefore plays the same episodes no matter how its environments are spread over workers.

use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// Hashes 64 bits with one round of SplitMix64.
///
/// This is a bijection in which every input bit affects every output bit.
pub fn mix(x: u64) -> u64 {
    SplitMix64::seed_from_u64(x).next_u64()
}

/// Returns the seed of an episode: `mix(mix(mix(run_seed) ^ environment) ^ episode)`.
///
/// `environment` is the index in the whole run, not in one worker; `episode` counts from 0. The three rounds make the
/// seeds of neighboring runs, environments and episodes unrelated. `meme_worker/seeding.py` is the same function.
pub fn episode_seed(run_seed: u64, environment: u64, episode: u64) -> u64 {
    mix(mix(mix(run_seed) ^ environment) ^ episode)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values come from an independent Python version of the formula.
    #[test]
    fn matches_independent_python_version() {
        let cases = [
            ((0, 0, 0), 0x2382_75bc_38fc_be91),
            ((1, 0, 0), 0xb18a_02f4_6d8d_86c3),
            ((0, 1, 0), 0x44e5_b981_00c6_7fb0),
            ((0, 0, 1), 0x2f32_a784_96c6_7c60),
            ((7, 127, 1000), 0x240c_2aa7_567e_d1c5),
            ((u64::MAX, u64::MAX, u64::MAX), 0x595b_17f4_87c0_e71b),
        ];
        for ((run, environment, episode), seed) in cases {
            assert_eq!(episode_seed(run, environment, episode), seed, "({run}, {environment}, {episode})");
        }
    }

    #[test]
    fn neighboring_episodes_have_different_seeds() {
        let mut seeds = std::collections::HashSet::new();
        for run in 0..4 {
            for environment in 0..64 {
                for episode in 0..256 {
                    assert!(seeds.insert(episode_seed(run, environment, episode)));
                }
            }
        }
    }
}
