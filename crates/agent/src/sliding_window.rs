//! Sliding-window UCB, the meta-controller of one actor of Agent57.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::bandit::{Arm, BanditError, BanditParameters};

/// Simplified sliding-window UCB over the policies. Agent57, appendix D.
///
/// Each arm once first. Then, with probability ε, any arm; else argmax_a μ(a) + bonus / √N(a), where N(a) counts the
/// arm's episodes among the last τ, and μ(a) is their mean return. An arm without any among them comes first again
/// (ours).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlidingWindow {
    parameters: BanditParameters,
    arms: usize,
    /// Arm and return of the last episodes, oldest first.
    episodes: VecDeque<(usize, f64)>,
    /// Arms that have been chosen once.
    begun: usize,
}

impl SlidingWindow {
    /// A bandit of `arms` unknown arms.
    pub fn new(arms: usize, parameters: BanditParameters) -> Self {
        Self { parameters, arms, episodes: VecDeque::new(), begun: 0 }
    }

    /// Statistics of each arm's episodes in the window.
    pub fn statistics(&self) -> Vec<Arm> {
        let mut arms = vec![Arm::default(); self.arms];
        for &(arm, value) in &self.episodes {
            arms[arm].add(value);
        }
        arms
    }

    /// Chooses the arm of the next episode; `uniforms` are two draws from [0, 1).
    pub fn choose(&mut self, [explore, which]: [f64; 2]) -> usize {
        if self.begun < self.arms {
            self.begun += 1;
            return self.begun - 1;
        }
        if explore < self.parameters.epsilon {
            return ((which * self.arms as f64) as usize).min(self.arms.saturating_sub(1));
        }
        let score =
            |arm: &Arm| arm.mean().map_or(f64::INFINITY, |mean| mean + self.parameters.bonus / arm.episodes.sqrt());
        let scores: Vec<f64> = self.statistics().iter().map(score).collect();
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores.iter().position(|&score| score == best).unwrap_or(0)
    }

    /// Adds the undiscounted extrinsic return of an episode played by `arm`.
    pub fn update(&mut self, arm: usize, episode_return: f64) -> Result<(), BanditError> {
        BanditError::check(arm, self.arms, episode_return)?;
        self.episodes.push_back((arm, episode_return));
        while self.episodes.len() > self.parameters.window {
            self.episodes.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniforms that never explore, for ε < 1.
    const EXPLOIT: [f64; 2] = [0.999, 0.0];

    fn bandit(arms: usize, window: usize) -> SlidingWindow {
        SlidingWindow::new(arms, BanditParameters { window, epsilon: 0.5, ..BanditParameters::default() })
    }

    #[test]
    fn chooses_every_arm_once_and_then_the_best_score() {
        let mut bandit = bandit(3, 90);
        let first: Vec<usize> = (0..3).map(|_| bandit.choose([0.0, 0.9])).collect();
        assert_eq!(first, [0, 1, 2]);
        for (arm, value) in [(0, 1.0), (1, 1.5), (2, 0.0), (1, 1.5), (1, 1.5), (1, 1.5)] {
            bandit.update(arm, value).unwrap();
        }
        // 1 + 1, 1.5 + 1/2 and 0 + 1: the first of the two that are equal.
        assert_eq!(bandit.choose(EXPLOIT), 0);
        bandit.update(0, 1.0).unwrap();
        // 1 + 1/√2 and 1.5 + 1/2.
        assert_eq!(bandit.choose(EXPLOIT), 1);
        assert_eq!([0.0, 0.34, 0.99].map(|which| bandit.choose([0.49, which])), [0, 1, 2]);
    }

    #[test]
    fn forgets_what_has_left_the_window() {
        let mut bandit = bandit(2, 3);
        bandit.choose(EXPLOIT);
        bandit.choose(EXPLOIT);
        bandit.update(0, 100.0).unwrap();
        bandit.update(1, 1.0).unwrap();
        assert_eq!(bandit.choose(EXPLOIT), 0);
        for _ in 0..2 {
            bandit.update(1, 1.0).unwrap();
        }
        // Arm 0 is unknown again and comes first; what it was worth is forgotten.
        assert_eq!((bandit.statistics()[0].mean(), bandit.choose(EXPLOIT)), (None, 0));
        bandit.update(0, 0.5).unwrap();
        assert_eq!(bandit.statistics().iter().map(|arm| arm.episodes).collect::<Vec<_>>(), [1.0, 2.0]);
        // 0.5 + 1 and 1 + 1/√2.
        assert_eq!(bandit.choose(EXPLOIT), 1);
    }

    #[test]
    fn refuses_unknown_arms_and_returns_that_are_not_finite() {
        let mut bandit = bandit(2, 3);
        assert!(matches!(bandit.update(2, 1.0), Err(BanditError::NoSuchArm { arm: 2, arms: 2 })));
        assert!(matches!(bandit.update(0, f64::NAN), Err(BanditError::Return { arm: 0, .. })));
    }
}
