//! Which random numbers an episode gets: one seed an episode, and the small generator it starts.
//!
//! The seed of an episode depends on the run's seed, the environment's index in the whole run and the number of the
//! episode, and on nothing else. So a run plays the same episodes however its environments are spread over workers.

/// The odd constant by which the state of SplitMix64 advances: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// One round of SplitMix64: a bijection of 64 bits in which every input bit reaches every output bit.
pub fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The seed of an episode: `mix(mix(mix(run_seed) ^ environment) ^ episode)`.
///
/// `environment` is the index in the whole run, not in one worker; `episode` counts from 0. The three rounds keep
/// neighbouring seeds, environments and episodes unrelated.
pub fn episode_seed(run_seed: u64, environment: u64, episode: u64) -> u64 {
    mix(mix(mix(run_seed) ^ environment) ^ episode)
}

/// The SplitMix64 generator: eight bytes of state, good enough to draw the start of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let value = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        value
    }

    /// A number in `0..n`; `n` must not be 0. The upper half of a product with 64 random bits, so no value is favoured
    /// by more than `n` in 2^64.
    pub fn below(&mut self, n: usize) -> usize {
        debug_assert!(n > 0, "an empty range has no member");
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_sequence() {
        let mut random = SplitMix64::new(1_234_567);
        let first = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// Computed by an independent Python version of the formula.
    #[test]
    fn episode_seeds_have_their_literal_values() {
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
    fn neighbouring_episodes_never_share_a_seed() {
        let mut seeds = std::collections::HashSet::new();
        for run in 0..4 {
            for environment in 0..64 {
                for episode in 0..256 {
                    assert!(seeds.insert(episode_seed(run, environment, episode)));
                }
            }
        }
    }

    /// 60 000 throws of a die: chi-square with 5 degrees of freedom stays under its 99.9 % bound, 20.5.
    #[test]
    fn numbers_below_n_are_even() {
        let mut random = SplitMix64::new(5);
        let mut counts = [0.0f64; 6];
        for _ in 0..60_000 {
            counts[random.below(6)] += 1.0;
        }
        let chi_square: f64 = counts.iter().map(|count| (count - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi_square < 20.5, "chi-square {chi_square}, counts {counts:?}");
    }
}
