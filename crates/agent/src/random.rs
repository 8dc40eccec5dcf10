//! A small random generator whose state is four numbers that can be saved.

use serde::{Deserialize, Serialize};

/// xoshiro256++, seeded by splitmix64: repeatable on every machine, independent of libtorch's global generator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose draws are a function of the seed alone.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n, for n > 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// `count` different numbers of 0..n, in random order.
    pub fn choose(&mut self, count: usize, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in 0..count {
            let other = i + self.below(n - i);
            all.swap(i, other);
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_draws_have_mean_zero_and_deviation_one() {
        let mut random = Random::new(7);
        let draws: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }

    #[test]
    fn chosen_numbers_differ_and_every_number_is_chosen_equally_often() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 8];
        for _ in 0..8000 {
            let chosen = random.choose(3, 8);
            assert!(chosen[0] != chosen[1] && chosen[1] != chosen[2] && chosen[0] != chosen[2]);
            chosen.iter().for_each(|&i| counts[i] += 1);
        }
        assert!(counts.iter().all(|&c| (2800..3200).contains(&c)), "{counts:?}");
    }

    #[test]
    fn the_saved_state_continues_the_draws() {
        let mut random = Random::new(3);
        random.bits();
        let mut copy: Random = serde_json::from_str(&serde_json::to_string(&random).unwrap()).unwrap();
        assert!((0..10).all(|_| copy.bits() == random.bits()));
    }
}
