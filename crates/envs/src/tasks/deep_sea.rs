//! `deep_sea`: one path leads to a treasure, and every step towards it costs a little. Tests directed exploration.

use std::ops::RangeInclusive;

use super::task::{Outcome, Task};
use super::{cell_size, fill_cell};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

/// Seed of the table of actions that lead right. It is constant, so that all runs share one table that can be learned.
const ACTION_TABLE_SEED: u64 = 3;
/// Total cost of a dive along the path to the treasure.
const WHOLE_COST: f64 = 0.01;
const TREASURE: f64 = 1.0;
const DIVER: u8 = 255;

/// A dive of `n` steps from the top left of `n` x `n` cells.
///
/// **Rules.** Each step takes the diver one row down and one column to the left or right; an edge keeps it in its
/// column. Which of the two actions leads right differs from cell to cell, by a table that is the same in all episodes
/// and runs. The step out of the last row terminates the episode. There is no randomness.
///
/// **Reward.** -0.01/n for a step to the right, plus 1 if it leaves the bottom right cell, which takes `n` steps to
/// the right in a row.
///
/// **Observation.** The diver's cell is 255, everything else 0; after the end everything is 0. A cell is one pixel, or
/// as many as make the image at least 10 x 10.
///
/// **Actions.** `a`, `b`.
///
/// **Scores.** Best 0.99. Random 2^-n - 0.005. Naive (never paying for a step to the right) 0. Only one of the 2^n
/// action sequences finds the treasure, so undirected exploration takes about 2^n episodes.
#[derive(Clone, Debug)]
pub struct DeepSea {
    n: usize,
    /// The action that leads right, per cell.
    right: Vec<usize>,
    row: usize,
    column: usize,
}

impl DeepSea {
    /// Size of plain `deep_sea`.
    pub const DEFAULT_SIZE: usize = 10;
    /// Valid sizes.
    pub const SIZES: RangeInclusive<usize> = 2..=50;

    /// Creates a sea of size `n`, one of [`SIZES`](Self::SIZES).
    pub fn new(n: usize) -> Self {
        let mut random = SplitMix64::seed_from_u64(ACTION_TABLE_SEED);
        // Drawn as u64 because the table must never change, and usize differs between platforms.
        let right = (0..n * n).map(|_| random.random_range(0..2u64) as usize).collect();
        Self { n, right, row: 0, column: 0 }
    }
}

impl Task for DeepSea {
    fn image_size(&self) -> (usize, usize) {
        let side = self.n * cell_size(self.n);
        (side, side)
    }

    fn action_names(&self) -> &'static [&'static str] {
        &["a", "b"]
    }

    fn reset(&mut self, _seed: u64) {
        (self.row, self.column) = (0, 0);
    }

    fn step(&mut self, action: usize) -> Outcome {
        let last = self.n - 1;
        let mut reward = 0.0;
        if action == self.right[self.row * self.n + self.column] {
            reward -= WHOLE_COST / self.n as f64;
            if self.column == last {
                reward += TREASURE;
            }
            self.column = (self.column + 1).min(last);
        } else {
            self.column = self.column.saturating_sub(1);
        }
        self.row += 1;
        if self.row == self.n { Outcome::terminated(reward) } else { Outcome::running(reward) }
    }

    fn draw(&self, image: &mut [u8]) {
        image.fill(0);
        if self.row < self.n {
            fill_cell(image, self.n, self.row, self.column, DIVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::tests::{Scored, Scores, assert_repeats, image, mean_score, play};

    impl Scored for DeepSea {
        fn scores(&self) -> Scores {
            let finds_treasure = 0.5f64.powi(self.n as i32);
            Scores { best: TREASURE - WHOLE_COST, random: TREASURE * finds_treasure - WHOLE_COST / 2.0, naive: 0.0 }
        }
    }

    /// Plays an action sequence given as the bits of a number, first action lowest.
    fn dive(task: &mut DeepSea, actions: u64) -> f64 {
        play(task, 0, |_, step| (actions >> step & 1) as usize).score
    }

    /// Steers by the task's own table: always right, or always left.
    fn steer(task: &DeepSea, go_right: bool) -> f64 {
        let mut task = task.clone();
        task.reset(0);
        let mut score = 0.0;
        loop {
            let right = task.right[task.row * task.n + task.column];
            let outcome = task.step(if go_right { right } else { 1 - right });
            score += outcome.reward;
            if outcome.ending.is_some() {
                return score;
            }
        }
    }

    #[test]
    fn best_and_naive_scores_hold_for_every_size() {
        for n in DeepSea::SIZES {
            let task = DeepSea::new(n);
            assert!((steer(&task, true) - task.scores().best).abs() < 1e-12, "size {n}");
            assert_eq!(steer(&task, false), task.scores().naive, "size {n}");
        }
    }

    /// Enumerates all 2^n action sequences.
    #[test]
    fn exactly_one_path_is_rewarded() {
        for n in [2, 5, 10, 14] {
            let mut task = DeepSea::new(n);
            let scores: Vec<f64> = (0..1 << n).map(|actions| dive(&mut task, actions)).collect();
            assert_eq!(scores.iter().filter(|&&score| score > 0.0).count(), 1, "size {n}");
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            assert!((mean - task.scores().random).abs() < 1e-12, "size {n}: random play scores {mean}");
        }
    }

    /// The table must never change: trained agents depend on it.
    #[test]
    fn path_to_the_treasure_uses_both_actions_evenly() {
        let task = DeepSea::new(14);
        let path: Vec<usize> = (0..14).map(|i| task.right[i * 14 + i]).collect();
        assert_eq!(path, [0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1]);
    }

    /// Allows four standard errors of 0.032 / sqrt(20 000) = 0.00023.
    #[test]
    fn sampled_random_play_scores_the_same() {
        let mut random = SplitMix64::seed_from_u64(2);
        let mut task = DeepSea::new(10);
        let mean = mean_score(&mut task, 20_000, |_, _| random.random_range(0..2u64) as usize);
        assert!((mean - task.scores().random).abs() < 0.0009, "random play scored {mean}");
    }

    #[test]
    fn distinct_cells_give_distinct_images() {
        for n in [2, 3, 9, 10, 14] {
            let mut task = DeepSea::new(n);
            let mut images = std::collections::HashSet::new();
            for row in 0..n {
                for column in 0..=row {
                    (task.row, task.column) = (row, column);
                    let drawn = image(&task);
                    assert!(drawn.len() >= 100);
                    assert!(images.insert(drawn), "size {n}, cell {row}, {column}");
                }
            }
        }
    }

    #[test]
    fn seed_and_actions_repeat_an_episode() {
        assert_repeats(|| DeepSea::new(10));
    }
}
