//! The generator behind the draws: small, seeded, and its whole state fits in a snapshot.

/// xoshiro256++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rng([u64; 4]);

impl Rng {
    /// A generator whose draws depend on the seed alone.
    pub(crate) fn new(seed: u64) -> Self {
        // splitmix64 spreads any seed, zero too, over the four words, which must not all be zero.
        let mut word = seed;
        Self(std::array::from_fn(|_| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    pub(crate) fn state(&self) -> [u64; 4] {
        self.0
    }

    /// Goes on from a [`state`](Self::state); none from the all-zero one, in which the generator would stand still.
    pub(crate) fn from_state(state: [u64; 4]) -> Option<Self> {
        (state != [0; 4]).then_some(Self(state))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let drawn = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// Uniform in [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n; n is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // The product of a 64-bit draw and n keeps the bias under n / 2^64.
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_the_published_numbers() {
        // The reference implementation's first outputs for the state 1, 2, 3, 4.
        let mut rng = Rng([1, 2, 3, 4]);
        let drawn: [u64; 4] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn goes_on_from_its_state() {
        let mut rng = Rng::new(7);
        rng.next_u64();
        let mut same = Rng::from_state(rng.state()).unwrap();
        assert_eq!(rng.next_u64(), same.next_u64());
        assert!(Rng::from_state([0; 4]).is_none());
    }

    #[test]
    fn stays_in_range() {
        let mut rng = Rng::new(0);
        let mut seen = [0; 3];
        for _ in 0..3_000 {
            assert!((0.0..1.0).contains(&rng.uniform()));
            seen[rng.below(3)] += 1;
        }
        assert!(seen.iter().all(|&n| n > 850));
        assert_eq!(rng.below(1), 0);
    }
}
