//! `memory`: a cue at the start decides the right answer after a delay. Tests memory.

use std::ops::RangeInclusive;

use super::task::{Outcome, Task};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

const SIDE: usize = 10;
const LIT: u8 = 255;
/// Rows of the bar at the top of the question.
const QUESTION_ROWS: usize = 3;
const WAIT: usize = 0;
const LEFT: usize = 1;

/// A cue, `delay` blank images, a question.
///
/// **Rules.** The first image is the cue: its left or right half is lit, at random. Then come `delay` blank images,
/// then the question, a bar at the top. The agent must wait for the question and then answer with the cue's side. Any
/// answer terminates the episode, even one before the question.
///
/// **Reward.** 1 for the right answer; -1 for a wrong, missing or early one; 0 for waiting.
///
/// **Observation.** 10 x 10 pixels of 0 or 255; blank after the end.
///
/// **Actions.** `wait`, `left`, `right`. Having to wait keeps an agent that is fed its last action from passing the cue
/// on from action to action.
///
/// **Scores.** Best 1. Naive (waiting, then always `left`) 0, which is also the best without memory. Random
/// -1 + 2/3^(delay+2), since it rarely reaches the question.
#[derive(Clone, Debug)]
pub struct Memory {
    delay: usize,
    cue_is_left: bool,
    /// Steps taken: 0 shows the cue, `delay + 1` the question; `delay + 2` is the end.
    time: usize,
}

impl Memory {
    /// Delay of plain `memory`.
    pub const DEFAULT_DELAY: usize = 8;
    /// Valid delays: at least 2, since an agent is also fed its embedding of the previous image.
    pub const DELAYS: RangeInclusive<usize> = 2..=1000;

    /// Creates a task with `delay` blank images, one of [`DELAYS`](Self::DELAYS).
    pub fn new(delay: usize) -> Self {
        Self { delay, cue_is_left: true, time: 0 }
    }
}

impl Task for Memory {
    fn image_size(&self) -> (usize, usize) {
        (SIDE, SIDE)
    }

    fn action_names(&self) -> &'static [&'static str] {
        &["wait", "left", "right"]
    }

    fn reset(&mut self, seed: u64) {
        self.cue_is_left = SplitMix64::seed_from_u64(seed).random_range(0..2u64) == 0;
        self.time = 0;
    }

    fn step(&mut self, action: usize) -> Outcome {
        let is_question = self.time > self.delay;
        let is_right = is_question && action != WAIT && (action == LEFT) == self.cue_is_left;
        if action == WAIT && !is_question {
            self.time += 1;
            return Outcome::running(0.0);
        }
        self.time = self.delay + 2;
        Outcome::terminated(if is_right { 1.0 } else { -1.0 })
    }

    fn draw(&self, image: &mut [u8]) {
        image.fill(0);
        if self.time == 0 {
            let left = if self.cue_is_left { 0 } else { SIDE / 2 };
            for row in image.chunks_exact_mut(SIDE) {
                row[left..left + SIDE / 2].fill(LIT);
            }
        } else if self.time == self.delay + 1 {
            image[..QUESTION_ROWS * SIDE].fill(LIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::tests::{Scored, Scores, assert_repeats, image, mean_score, play};

    impl Scored for Memory {
        fn scores(&self) -> Scores {
            let sees_question_and_is_right = 3.0f64.powi(-(self.delay as i32 + 2));
            Scores { best: 1.0, random: 2.0 * sees_question_and_is_right - 1.0, naive: 0.0 }
        }
    }

    /// What a policy sees in an image.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Seen {
        LeftCue,
        RightCue,
        Blank,
        Question,
    }

    fn look(image: &[u8]) -> Seen {
        match (image[99 - 9], image[99], image[0]) {
            (0, 0, 0) => Seen::Blank,
            (0, 0, _) => Seen::Question,
            (_, 0, _) => Seen::LeftCue,
            _ => Seen::RightCue,
        }
    }

    #[test]
    fn remembering_the_cue_scores_1() {
        for delay in [2, Memory::DEFAULT_DELAY, 50] {
            for seed in 0..50 {
                let mut remembered = 0;
                let episode = play(&mut Memory::new(delay), seed, |image, _| match look(image) {
                    Seen::Question => remembered,
                    seen => {
                        remembered = match seen {
                            Seen::LeftCue => 1,
                            Seen::RightCue => 2,
                            _ => remembered,
                        };
                        WAIT
                    }
                });
                assert_eq!((episode.score, episode.steps), (1.0, delay as u64 + 2));
            }
        }
    }

    /// Enumerates all policies that depend on the image and the last action; the mean over both cues is exact.
    #[test]
    fn no_policy_without_memory_beats_chance() {
        let mut best = f64::NEG_INFINITY;
        for policy in 0..3usize.pow(8) {
            let choice = |at: u32| policy / 3usize.pow(at) % 3;
            let mut total = 0.0;
            for cue_is_left in [true, false] {
                let mut task = Memory { delay: 3, cue_is_left, time: 0 };
                let mut last = 0;
                loop {
                    let action = match look(&image(&task)) {
                        Seen::LeftCue => choice(0),
                        Seen::RightCue => choice(1),
                        Seen::Blank => choice(2 + last as u32),
                        Seen::Question => choice(5 + last as u32),
                    };
                    let outcome = task.step(action);
                    total += outcome.reward;
                    last = action;
                    if outcome.ending.is_some() {
                        break;
                    }
                }
            }
            best = best.max(total / 2.0);
        }
        assert_eq!(best, 0.0);
    }

    #[test]
    fn images_after_the_cue_do_not_reveal_it() {
        let mut tasks = [true, false].map(|cue_is_left| Memory { delay: 8, cue_is_left, time: 0 });
        assert_ne!(image(&tasks[0]), image(&tasks[1]));
        for _ in 0..9 {
            let outcomes = tasks.each_mut().map(|task| task.step(WAIT));
            assert_eq!(outcomes[0], outcomes[1]);
            assert_eq!(image(&tasks[0]), image(&tasks[1]));
        }
        assert_eq!(look(&image(&tasks[0])), Seen::Question);
    }

    #[test]
    fn early_and_missing_answers_lose() {
        for (time, action) in [(0, 1), (0, 2), (1, 1), (8, 2), (9, 0), (9, 2)] {
            let mut task = Memory { delay: 8, cue_is_left: true, time };
            assert_eq!(task.step(action), Outcome::terminated(-1.0), "action {action} at {time}");
            assert_eq!(look(&image(&task)), Seen::Blank);
        }
    }

    /// Enumerates both cues and all sequences of actions, weighted by their probability.
    #[test]
    fn random_play_scores_as_documented() {
        for delay in [2, 8] {
            let mut expected = 0.0;
            for cue_is_left in [true, false] {
                let mut alive = vec![(Memory { delay, cue_is_left, time: 0 }, 0.5)];
                while let Some((task, probability)) = alive.pop() {
                    for action in 0..3 {
                        let mut next = task.clone();
                        let outcome = next.step(action);
                        expected += outcome.reward * probability / 3.0;
                        if outcome.ending.is_none() {
                            alive.push((next, probability / 3.0));
                        }
                    }
                }
            }
            assert!((expected - Memory::new(delay).scores().random).abs() < 1e-12, "{expected}");
        }
    }

    /// Allows four standard errors of 1 / sqrt(20 000) = 0.0071.
    #[test]
    fn always_answering_left_is_at_chance() {
        let always_left = |image: &[u8], _| {
            if look(image) == Seen::Question { LEFT } else { WAIT }
        };
        let mean = mean_score(&mut Memory::new(2), 20_000, always_left);
        assert!(mean.abs() < 0.0284, "always left scored {mean}");
    }

    #[test]
    fn seed_and_actions_repeat_an_episode() {
        assert_repeats(|| Memory::new(8));
    }
}
