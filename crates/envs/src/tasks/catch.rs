//! `catch`: move a paddle under a falling ball. The first thing an agent should learn.

use super::task::{Outcome, Task};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

const ROWS: usize = 10;
const COLUMNS: usize = 5;
/// A cell is drawn two pixels wide, so that the image is 10 x 10 like the smallest of the other tasks.
const CELL_WIDTH: usize = 2;
const PADDLE: u8 = 128;
const BALL: u8 = 255;

/// A board of 10 rows and 5 columns, one ball per episode.
///
/// **Rules.** The ball starts in a random column of the top row and falls one row per step; the paddle starts in the
/// middle of the bottom row. In the ninth step the ball reaches the bottom row and the episode terminates.
///
/// **Reward.** 1 if the paddle is then under the ball, otherwise -1; 0 before.
///
/// **Observation.** 10 x 10: a cell is one pixel high and two wide; paddle 128, ball 255 (drawn over the paddle).
///
/// **Actions.** `left`, `stay`, `right`: the paddle moves one column and stops at the edge.
///
/// **Scores.** Best 1. Random and naive (never moving) exactly -0.6: the ball falls in one of five columns,
/// independently of what such a policy does.
#[derive(Clone, Debug)]
pub struct Catch {
    ball_row: usize,
    ball_column: usize,
    paddle: usize,
}

impl Catch {
    /// Creates a board; the first episode begins at [`reset`](Task::reset).
    pub fn new() -> Self {
        Self { ball_row: 0, ball_column: 0, paddle: COLUMNS / 2 }
    }
}

impl Task for Catch {
    fn image_size(&self) -> (usize, usize) {
        (ROWS, COLUMNS * CELL_WIDTH)
    }

    fn action_names(&self) -> &'static [&'static str] {
        &["left", "stay", "right"]
    }

    fn reset(&mut self, seed: u64) {
        let ball_column = SplitMix64::seed_from_u64(seed).random_range(0..COLUMNS as u64) as usize;
        *self = Self { ball_row: 0, ball_column, paddle: COLUMNS / 2 };
    }

    fn step(&mut self, action: usize) -> Outcome {
        self.paddle = (self.paddle + action).saturating_sub(1).min(COLUMNS - 1);
        self.ball_row += 1;
        if self.ball_row < ROWS - 1 {
            return Outcome::running(0.0);
        }
        Outcome::terminated(if self.paddle == self.ball_column { 1.0 } else { -1.0 })
    }

    fn draw(&self, image: &mut [u8]) {
        image.fill(0);
        for (row, column, value) in [(ROWS - 1, self.paddle, PADDLE), (self.ball_row, self.ball_column, BALL)] {
            let left = (row * COLUMNS + column) * CELL_WIDTH;
            image[left..left + CELL_WIDTH].fill(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::tests::{Scored, Scores, assert_repeats, image, mean_score, play};

    impl Scored for Catch {
        fn scores(&self) -> Scores {
            let blind = 2.0 / COLUMNS as f64 - 1.0;
            Scores { best: 1.0, random: blind, naive: blind }
        }
    }

    /// Moves towards the ball in the image.
    fn follow(image: &[u8]) -> usize {
        let column = |value| image.iter().position(|&pixel| pixel == value).map(|at| at % 10 / 2);
        match (column(BALL), column(PADDLE)) {
            (Some(ball), Some(paddle)) if ball < paddle => 0,
            (Some(ball), Some(paddle)) if ball > paddle => 2,
            _ => 1,
        }
    }

    #[test]
    fn best_policy_catches_every_ball() {
        for seed in 0..200 {
            let episode = play(&mut Catch::new(), seed, |image, _| follow(image));
            assert_eq!((episode.score, episode.steps), (1.0, 9));
        }
    }

    /// Enumerates every ball column with every paddle path, so the mean is exact.
    #[test]
    fn random_and_naive_play_score_as_documented() {
        let scores = Catch::new().scores();
        let columns = 0..COLUMNS;
        let mut paths = vec![COLUMNS / 2];
        for _ in 0..ROWS - 1 {
            paths = paths.iter().flat_map(|&at| [at.saturating_sub(1), at, (at + 1).min(COLUMNS - 1)]).collect();
        }
        let reward = |ball: usize, paddle: usize| if ball == paddle { 1.0 } else { -1.0 };
        let total: f64 = columns.clone().flat_map(|ball| paths.iter().map(move |&at| reward(ball, at))).sum();
        assert!((total / (paths.len() * COLUMNS) as f64 - scores.random).abs() < 1e-9);

        let staying: f64 = columns.map(|ball| reward(ball, COLUMNS / 2)).sum();
        assert!((staying / COLUMNS as f64 - scores.naive).abs() < 1e-12);
    }

    /// Allows four standard errors of 0.8 / sqrt(20 000) = 0.0057.
    #[test]
    fn sampled_random_play_scores_the_same() {
        let mut random = SplitMix64::seed_from_u64(1);
        let mean = mean_score(&mut Catch::new(), 20_000, |_, _| random.random_range(0..3u64) as usize);
        assert!((mean + 0.6).abs() < 0.023, "random play scored {mean}");
        let mean = mean_score(&mut Catch::new(), 20_000, |_, _| 1);
        assert!((mean + 0.6).abs() < 0.023, "staying scored {mean}");
    }

    #[test]
    fn image_shows_ball_and_paddle() {
        let task = Catch { ball_row: 3, ball_column: 4, paddle: 1 };
        let image = image(&task);
        let lit: Vec<_> = (0..100).filter(|&at| image[at] != 0).map(|at| (at / 10, at % 10, image[at])).collect();
        assert_eq!(lit, [(3, 8, 255), (3, 9, 255), (9, 2, 128), (9, 3, 128)]);
    }

    #[test]
    fn paddle_stops_at_the_edges() {
        let mut task = Catch::new();
        task.reset(0);
        for (action, column) in [(0, 0), (2, 4)] {
            for _ in 0..4 {
                task.step(action);
            }
            assert_eq!(task.paddle, column);
        }
    }

    #[test]
    fn seed_and_actions_repeat_an_episode() {
        assert_repeats(Catch::new);
    }
}
