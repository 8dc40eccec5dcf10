//! Episodic novelty: how unusual an observation is within its episode.

use config_schema::{above, integer, number};
use serde::{Deserialize, Serialize};

use super::episodic_memory::{EpisodicMemory, EpisodicMemoryError};

config_schema::section! {
    /// Similarity of an observation to its nearest neighbours in the episode; the defaults are NGU's.
    pub struct Kernel {
        /// Number of nearest neighbours (k).
        neighbours: usize = 10, integer(1, 1000).unit("observations").silent();
        /// Constant ε of the kernel ε / (d + ε). A normalised distance of this size counts half.
        epsilon: f64 = 1e-4, above(0.0, 1.0).silent();
        /// Normalised squared distance (ξ) below which observations count as the same.
        cluster_distance: f64 = 0.008, number(0.0, 1000.0).silent();
        /// Constant (c) added to the similarity, which bounds the reward.
        pseudo_count: f64 = 0.001, above(0.0, 1000.0).silent();
        /// Similarity (s_m) above which there is no reward. With k neighbours the similarity is at most √k + c, so 8
        /// takes effect from k = 64.
        max_similarity: f64 = 8.0, above(0.0, 1e6).silent();
        /// Number of distances after which the oldest leave the mean that normalises distances. From then on the mean
        /// is over the last quarter, but at least over this many.
        mean_span: u64 = 10_000, integer(1, 100_000_000).unit("distances").silent();
    }
}

/// d²_m, the running mean of squared neighbour distances.
///
/// Over all of them at first, later over about the last quarter: the scale of the distances changes while f trains,
/// most at the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DistanceMean {
    /// The mean; 0 before the first distance.
    pub mean: f64,
    count: u64,
}

impl DistanceMean {
    /// Maximum number of distances that the mean covers, unless the span is longer.
    const MAX_LENGTH: u64 = 100_000;

    /// Adds the distances of a step, each by d²_m ← d²_m + (d² − d²_m)/n.
    ///
    /// n is the count up to `span`, and then a quarter of it, clamped between `span` and `MAX_LENGTH`.
    pub fn update(&mut self, distances: &[f32], span: u64) {
        for &distance in distances {
            self.count += 1;
            let n = self.count.min((self.count / 4).clamp(span, Self::MAX_LENGTH.max(span)));
            self.mean += (f64::from(distance) - self.mean) / n as f64;
        }
    }
}

/// s = √(Σ_i K_i) + c, K_i = ε / (max(d²_i/d²_m − ξ, 0) + ε), how familiar an embedding is. Appendix "Never Give Up".
///
/// With fewer than k neighbours, Σ_i K_i is k times their mean, so that the scale of the reward is the same from the
/// second observation on. `distances` must not be empty. If d²_m is 0, all observations were equal and each K_i is 1.
pub fn similarity(distances: &[f32], distance_mean: f64, kernel: &Kernel) -> f64 {
    let sum: f64 = distances
        .iter()
        .map(|&distance| {
            let normalised = if distance_mean > 0.0 { f64::from(distance) / distance_mean } else { 0.0 };
            kernel.epsilon / ((normalised - kernel.cluster_distance).max(0.0) + kernel.epsilon)
        })
        .sum();
    let kernels = sum * kernel.neighbours as f64 / distances.len() as f64;
    kernels.sqrt() + kernel.pseudo_count
}

/// r_episodic = 0 if s > s_m, else 1/s. Appendix "Never Give Up".
pub fn episodic_reward(similarity: f64, kernel: &Kernel) -> f64 {
    if similarity > kernel.max_similarity { 0.0 } else { 1.0 / similarity }
}

/// r_NGU = r_episodic · min{max{α_t, 1}, L}. Appendix "Never Give Up"; the second factor is `multiplier_of_error`.
pub fn ngu_reward(episodic: f64, multiplier: f64) -> f64 {
    episodic * multiplier
}

/// The episodic side of one environment: its memory and d²_m.
///
/// The memory is cleared for every episode, d²_m is not: with a mean per episode, an agent that only sees
/// near-duplicates would rate them as novel as another agent rates new places.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EpisodicNovelty {
    kernel: Kernel,
    memory: EpisodicMemory,
    /// d²_m so far.
    pub distance_mean: DistanceMean,
    #[serde(skip)]
    distances: Vec<f32>,
}

impl EpisodicNovelty {
    /// A new environment, with room for `capacity` embeddings of `dimensions` components.
    pub fn new(kernel: Kernel, capacity: usize, dimensions: usize) -> Result<Self, EpisodicMemoryError> {
        let memory = EpisodicMemory::new(capacity, dimensions)?;
        Ok(Self { kernel, memory, distance_mean: DistanceMean::default(), distances: Vec::new() })
    }

    /// Clears the memory for a new episode.
    pub fn start_episode(&mut self) {
        self.memory.clear();
    }

    /// Returns r_episodic of f(x_t) and adds it to the memory. The first observation of an episode has reward 0: there
    /// is nothing to compare it with, and no action led to it.
    pub fn observe(&mut self, embedding: &[f32]) -> Result<f64, EpisodicMemoryError> {
        let reward = if self.memory.is_empty() {
            0.0
        } else {
            self.memory.nearest(embedding, self.kernel.neighbours, &mut self.distances)?;
            self.distance_mean.update(&self.distances, self.kernel.mean_span);
            episodic_reward(similarity(&self.distances, self.distance_mean.mean, &self.kernel), &self.kernel)
        };
        self.memory.insert(embedding)?;
        Ok(reward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-7 * expected, "{found} is not {expected}");
    }

    fn kernel(neighbours: usize) -> Kernel {
        Kernel { neighbours, ..Kernel::default() }
    }

    #[test]
    fn near_neighbours_are_familiar_and_far_ones_are_not() {
        // Normalised distances 0 and 1/128, both in the cluster, 1 and 3.
        let s = similarity(&[0.0, 0.00390625, 0.5, 1.5], 0.5, &kernel(4));
        assert_close(s, 1.415261015);
        assert_close(episodic_reward(s, &kernel(4)), 0.7065834427);
    }

    #[test]
    fn few_neighbours_are_scaled_up_to_k() {
        assert_close(similarity(&[0.0, 0.00390625, 0.5, 1.5], 0.5, &kernel(10)), 2.237143006);
        assert_eq!(similarity(&[0.5], 0.5, &kernel(10)), similarity(&[0.5; 10], 0.5, &kernel(10)));
    }

    #[test]
    fn every_kernel_is_1_if_all_observations_are_equal() {
        let s = similarity(&[0.0; 10], 0.0, &Kernel::default());
        assert_close(s, 3.16327766);
        assert_close(episodic_reward(s, &Kernel::default()), 0.3161277976);
        assert_eq!(similarity(&[1.0; 4], 0.0, &kernel(4)), 2.001);
    }

    #[test]
    fn no_reward_above_the_largest_similarity() {
        assert_eq!(episodic_reward(8.0, &kernel(64)), 0.125);
        assert_eq!(episodic_reward(8.001, &kernel(64)), 0.0);
        // 64 equal neighbours: √64 + 0.001.
        assert_eq!(episodic_reward(similarity(&[0.0; 64], 0.0, &kernel(64)), &kernel(64)), 0.0);
    }

    #[test]
    fn mean_covers_every_distance() {
        let mut mean = DistanceMean::default();
        assert_eq!(mean.mean, 0.0);
        mean.update(&[4.0, 9.0], 10);
        assert_eq!(mean.mean, 6.5);
        mean.update(&[0.25, 2.25], 10);
        assert_close(mean.mean, 3.875);
    }

    #[test]
    fn ngu_reward_is_the_product() {
        assert_eq!(ngu_reward(0.25, 3.0), 0.75);
    }

    fn novelty() -> EpisodicNovelty {
        EpisodicNovelty::new(kernel(2), 100, 1).unwrap()
    }

    #[test]
    fn an_episode_matches_hand_computed_rewards() {
        let mut novelty = novelty();
        // Nothing to compare with, then one neighbour, scaled up to k = 2.
        assert_eq!(novelty.observe(&[0.0]).unwrap(), 0.0);
        assert_close(novelty.observe(&[1.0]).unwrap(), 65.79670166);
        // Squared distances 4 and 9, then 0.25 and 2.25 to the memory before the embedding joins it.
        assert_close(novelty.observe(&[3.0]).unwrap(), 71.26878682);
        assert_close(novelty.observe(&[1.5]).unwrap(), 24.22784898);
        assert_close(novelty.distance_mean.mean, 3.3);
        assert_eq!(novelty.memory.len(), 4);

        // The memory is cleared, d²_m is not: 25 joins 1, 4, 9, 0.25 and 2.25.
        novelty.start_episode();
        assert_eq!(novelty.memory.len(), 0);
        assert_close(novelty.distance_mean.mean, 3.3);
        assert_eq!(novelty.observe(&[0.0]).unwrap(), 0.0);
        assert_close(novelty.observe(&[5.0]).unwrap(), 118.3883032);
        assert_close(novelty.distance_mean.mean, 41.5 / 6.0);
    }

    #[test]
    fn environments_with_equal_distance_means_rate_novelty_alike() {
        let (mut one, mut other) = (novelty(), novelty());
        for x in [0.0, 1.0, 3.0, 1.5] {
            one.observe(&[x]).unwrap();
        }
        one.start_episode();
        other.distance_mean = one.distance_mean;
        for x in [0.2, 7.0, 7.1] {
            assert_eq!(one.observe(&[x]).unwrap(), other.observe(&[x]).unwrap());
        }
    }

    #[test]
    fn old_distances_fade_from_the_mean() {
        let mut mean = DistanceMean::default();
        let span = Kernel::default().mean_span;
        let mut update = |times, distance| {
            (0..times).for_each(|_| mean.update(&[distance], span));
            mean.mean
        };
        assert_close(update(span, 1.0), 1.0);
        // After as many zeros as the mean is over, (1 - 1/n)^n = 1/e is left.
        let left = update(span, 0.0);
        assert!((left - (-1.0_f64).exp()).abs() < 1e-4, "{left}");
        // From 4 spans on it is over a quarter: of m at a count of a, m·(a/b)⁴ is left at b.
        let fresh = update(2 * span, 1.0);
        let left = update(4 * span, 0.0);
        assert!((left / fresh - 1.0 / 16.0).abs() < 1e-4, "{left} of {fresh}");
        // And no longer than the longest.
        let fresh = update(40 * span, 1.0);
        let left = update(DistanceMean::MAX_LENGTH, 0.0);
        assert!((left / fresh - (-1.0_f64).exp()).abs() < 1e-4, "{left} of {fresh}");
    }

    #[test]
    fn a_constant_environment_is_familiar_not_nan() {
        let mut novelty = novelty();
        let rewards: Vec<f64> = (0..4).map(|_| novelty.observe(&[7.0]).unwrap()).collect();
        assert_eq!(rewards[0], 0.0);
        // 1 / (√2 + 0.001).
        assert_close(rewards[1], 0.7066071345);
        assert_eq!(rewards[1..3], rewards[2..]);
    }

    #[test]
    fn a_saved_episode_continues_exactly() {
        let mut novelty = novelty();
        for x in [0.3, 1.7, 2.9, 0.31] {
            novelty.observe(&[x]).unwrap();
        }
        let mut copy: EpisodicNovelty = serde_json::from_str(&serde_json::to_string(&novelty).unwrap()).unwrap();
        for x in [0.5, 0.1, 2.0] {
            assert_eq!(copy.observe(&[x]).unwrap(), novelty.observe(&[x]).unwrap());
        }
    }

    #[test]
    fn refuses_a_nan_embedding() {
        let error = novelty().observe(&[f32::NAN]).unwrap_err();
        assert!(error.to_string().starts_with("component 0 of an embedding is NaN"), "{error}");
    }
}
