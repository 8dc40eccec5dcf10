//! The meta-controller, which chooses the policy of each episode.

use config_schema::{above, choice, integer, number};
use serde::{Deserialize, Serialize};

/// Maximum magnitude of a return; its square is finite.
const MAX_RETURN: f64 = 1e100;

/// Discounted count below which an arm counts as never played.
const FORGOTTEN: f64 = 1e-12;

/// Invalid arguments of the bandit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BanditError {
    /// An arm that does not exist.
    #[error("no arm {arm}: the bandit has {arms} arms")]
    NoSuchArm {
        /// The requested arm.
        arm: usize,
        /// Number of arms.
        arms: usize,
    },
    /// A return that is not a number, or absurdly large.
    #[error(
        "the episode return of arm {arm} is {value}; expected a finite number of at most {MAX_RETURN:e} in magnitude"
    )]
    Return {
        /// The arm that was played.
        arm: usize,
        /// The reported return.
        value: f64,
    },
}

impl BanditError {
    /// Refuses an arm that does not exist and a return that is no reasonable number.
    pub(crate) fn check(arm: usize, arms: usize, episode_return: f64) -> Result<(), Self> {
        if arm >= arms {
            return Err(Self::NoSuchArm { arm, arms });
        }
        if !(-MAX_RETURN..=MAX_RETURN).contains(&episode_return) {
            return Err(Self::Return { arm, value: episode_return });
        }
        Ok(())
    }
}

config_schema::choice! {
    /// How the policy of the next episode is chosen.
    pub enum BanditKind {
        /// Discounted UCB-Tuned over the returns of all actors.
        DiscountedUcb = "discounted_ucb",
        /// Sliding-window UCB over the returns of the same actor, as in Agent57.
        SlidingWindow = "sliding_window",
        /// Actor i always plays policy i mod (N - 1), as in NGU; evaluators play the first.
        Fixed = "fixed",
    }
}

config_schema::section! {
    /// Bandit that picks the policy of the next episode.
    pub struct BanditParameters {
        /// How it picks.
        kind: BanditKind = BanditKind::DiscountedUcb, choice::<BanditKind>().paper();
        /// sliding_window: number of an actor's last episodes that count.
        window: usize = 90, integer(1, 1_000_000).unit("episodes");
        /// discounted_ucb: discount of past episodes per episode.
        discount: f64 = 0.999, above(0.0, 1.0).paper();
        /// Weight of the exploration bonus for rarely played policies ("Bandit β").
        bonus: f64 = 1.0, number(0.0, 1e6).paper();
        /// Probability of a uniformly random policy.
        epsilon: f64 = 0.5, number(0.0, 1.0).paper();
    }
}

/// Statistics of an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// N_a, the discounted number of episodes.
    pub episodes: f64,
    /// X_a, the discounted sum of returns.
    pub returns: f64,
    /// Z_a, the discounted sum of squared returns.
    pub squares: f64,
    /// Whether an episode of it has begun.
    pub begun: bool,
}

impl Arm {
    /// Whether any of its episodes is remembered.
    fn known(&self) -> bool {
        self.episodes > 0.0
    }

    /// Adds an episode of this return.
    pub(crate) fn add(&mut self, value: f64) {
        self.episodes += 1.0;
        self.returns += value;
        self.squares += value * value;
        self.begun = true;
    }

    /// Adds the episodes of another arm.
    pub fn merge(&mut self, other: &Self) {
        self.episodes += other.episodes;
        self.returns += other.returns;
        self.squares += other.squares;
        self.begun |= other.begun;
    }

    /// X_a / N_a, the discounted mean return; `None` for an unknown arm.
    pub fn mean(&self) -> Option<f64> {
        self.known().then(|| self.returns / self.episodes)
    }
}

/// Discounted UCB-Tuned over the policies. Appendix "Bandit Implementation".
///
/// After an episode of arm a with return r: N ← γN + 1\[a\], X ← γX + r·1\[a\], Z ← γZ + r²·1\[a\].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiscountedUcb {
    parameters: BanditParameters,
    /// Statistics of each arm.
    pub arms: Vec<Arm>,
}

impl DiscountedUcb {
    /// A bandit of `arms` unknown arms.
    pub fn new(arms: usize, parameters: BanditParameters) -> Self {
        Self { parameters, arms: vec![Arm::default(); arms] }
    }

    /// Chooses the arm of the next episode; `uniforms` are two draws from [0, 1).
    ///
    /// First each arm once, in order. Then, with probability ε (first draw), any arm (second draw), else the arm with
    /// the best [`Self::score`]. Ties are broken by the second draw: before a game's first score all arms are equal,
    /// and the first does not explore. Many episodes run at once: an arm whose first episode is still running has no
    /// score, and while no episode has ended, every choice is uniform.
    pub fn choose(&mut self, uniforms: [f64; 2]) -> usize {
        let [explore, which] = uniforms;
        if let Some(arm) = self.arms.iter().position(|arm| !arm.begun) {
            self.arms[arm].begun = true;
            return arm;
        }
        let best = if explore < self.parameters.epsilon { Vec::new() } else { self.best(|arm| self.score(arm)) };
        let arms = if best.is_empty() { (0..self.arms.len()).collect() } else { best };
        arms.get((which * arms.len() as f64) as usize).or(arms.last()).copied().unwrap_or(0)
    }

    /// The arm with the largest mean return, for evaluation.
    ///
    /// The first of equals, and arm 0 if none is known.
    pub fn greedy(&self) -> usize {
        best_mean(&self.arms)
    }

    /// X/N + bonus·√((ln n/N)·(Z/N − (X/N)² + √(2 ln n/N)·scale²)), n = ΣN; `None` for an unknown arm.
    ///
    /// scale² is the variance of the returns of all arms together. It adapts the bonus to the game's scores, where
    /// UCB-Tuned caps the variance at 1/4 for returns in [0, 1].
    pub fn score(&self, arm: usize) -> Option<f64> {
        let (n, scale2) = self.pooled();
        let arm = self.arms.get(arm)?;
        let mean = arm.mean()?;
        let rate = n.ln().max(0.0) / arm.episodes;
        let variance = (arm.squares / arm.episodes - mean * mean).max(0.0);
        Some(mean + self.parameters.bonus * (rate * (variance + (2.0 * rate).sqrt() * scale2)).sqrt())
    }

    /// Adds the undiscounted extrinsic return of an episode played by `arm`.
    pub fn update(&mut self, arm: usize, episode_return: f64) -> Result<(), BanditError> {
        BanditError::check(arm, self.arms.len(), episode_return)?;
        for other in &mut self.arms {
            other.episodes *= self.parameters.discount;
            other.returns *= self.parameters.discount;
            other.squares *= self.parameters.discount;
            if other.known() && other.episodes < FORGOTTEN {
                *other = Arm::default();
            }
        }
        self.arms[arm].add(episode_return);
        Ok(())
    }

    /// Drops an unfinished episode of `arm`. If it was the arm's first, the arm is tried again.
    pub fn abandon(&mut self, arm: usize) -> Result<(), BanditError> {
        BanditError::check(arm, self.arms.len(), 0.0)?;
        let arm = &mut self.arms[arm];
        arm.begun = arm.known();
        Ok(())
    }

    /// n = ΣN and the variance of all returns, ΣZ/n − (ΣX/n)².
    fn pooled(&self) -> (f64, f64) {
        let [n, returns, squares] = self.arms.iter().fold([0.0; 3], |[n, returns, squares], arm| {
            [n + arm.episodes, returns + arm.returns, squares + arm.squares]
        });
        if n <= 0.0 {
            return (0.0, 0.0);
        }
        let mean = returns / n;
        (n, (squares / n - mean * mean).max(0.0))
    }

    /// The arms with the largest value.
    fn best(&self, value: impl Fn(usize) -> Option<f64>) -> Vec<usize> {
        let values: Vec<_> = (0..self.arms.len()).filter_map(|arm| Some((arm, value(arm)?))).collect();
        let largest = values.iter().map(|&(_, value)| value).fold(f64::NEG_INFINITY, f64::max);
        values.into_iter().filter(|&(_, value)| value == largest).map(|(arm, _)| arm).collect()
    }
}

/// The arm with the largest mean return: the first of equals, and arm 0 if none is known.
pub fn best_mean(arms: &[Arm]) -> usize {
    let means = arms.iter().enumerate().filter_map(|(arm, statistics)| Some((arm, statistics.mean()?)));
    let better = |best: (usize, f64), next: (usize, f64)| if next.1 > best.1 { next } else { best };
    means.reduce(better).map_or(0, |(arm, _)| arm)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;

    use super::*;
    use crate::Random;

    /// Uniforms that never explore, for ε < 1.
    const EXPLOIT: [f64; 2] = [0.999, 0.0];

    fn bandit(arms: usize, discount: f64, epsilon: f64) -> DiscountedUcb {
        DiscountedUcb::new(arms, BanditParameters { discount, bonus: 1.0, epsilon, ..BanditParameters::default() })
    }

    #[test]
    fn tries_every_arm_once_first() {
        let mut bandit = DiscountedUcb::new(16, BanditParameters::default());
        let first: Vec<usize> = (0..16)
            .map(|episode| {
                let arm = bandit.choose([0.0, 0.99]);
                bandit.update(arm, episode as f64).unwrap();
                arm
            })
            .collect();
        assert_eq!(first, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn concurrent_first_episodes_try_different_arms() {
        let mut bandit = bandit(4, 0.999, 0.0);
        assert_eq!([0, 1, 2, 3].map(|_| bandit.choose(EXPLOIT)), [0, 1, 2, 3]);
        // Nothing is known yet: uniform.
        assert_eq!([0.1, 0.3, 0.6, 0.99].map(|which| bandit.choose([0.9, which])), [0, 1, 2, 3]);
        // Only arm 2 is known.
        bandit.update(2, -5.0).unwrap();
        assert_eq!(bandit.choose(EXPLOIT), 2);
    }

    #[test]
    fn statistics_and_scores_match_literals() {
        let mut bandit = bandit(3, 0.9, 0.0);
        for (arm, value) in [(0, 1.0), (1, 4.0), (2, 2.0), (1, 6.0)] {
            bandit.update(arm, value).unwrap();
        }
        let expected =
            [(0.729, 0.729, 0.729, 4.435432381), (1.81, 9.24, 48.96, 7.026333654), (0.9, 1.8, 3.6, 4.93322359)];
        for (arm, (episodes, returns, squares, score)) in expected.into_iter().enumerate() {
            let found = bandit.arms[arm];
            assert!((found.episodes - episodes).abs() < 1e-12);
            assert!((found.returns - returns).abs() < 1e-12);
            assert!((found.squares - squares).abs() < 1e-12);
            let found = bandit.score(arm).unwrap();
            assert!((found - score).abs() < 1e-8, "arm {arm}: {found} is not {score}");
        }
        assert_eq!((bandit.choose(EXPLOIT), bandit.greedy()), (1, 1));
    }

    #[test]
    fn the_bonus_brings_a_neglected_arm_back() {
        let mut bandit = bandit(2, 0.99, 0.0);
        let mut pulls = [0; 2];
        let mut random = Random::seed_from_u64(5);
        for _ in 0..400 {
            let arm = bandit.choose(EXPLOIT);
            pulls[arm] += 1;
            bandit.update(arm, [0.0, 1.0][arm] + random.sample::<f64, _>(StandardNormal)).unwrap();
        }
        assert!(pulls[1] > 250 && pulls[0] > 10, "{pulls:?}");
    }

    #[test]
    fn epsilon_chooses_evenly() {
        let mut bandit = bandit(4, 0.999, 0.5);
        for arm in 0..4 {
            bandit.update(arm, [0.0, 0.0, 9.0, 0.0][arm]).unwrap();
        }
        assert_eq!([0.0, 0.26, 0.5, 0.75, 0.999_999].map(|which| bandit.choose([0.49, which])), [0, 1, 2, 3, 3]);
        assert_eq!(bandit.choose([0.5, 0.0]), 2);
    }

    #[test]
    fn recovers_after_the_best_arm_changes() {
        let mut bandit = DiscountedUcb::new(16, BanditParameters::default());
        let mut random = Random::seed_from_u64(11);
        let mut play = |bandit: &mut DiscountedUcb, best: usize, episodes: usize| {
            let mut chosen = 0;
            for _ in 0..episodes {
                let arm = bandit.choose([random.random::<f64>(), random.random::<f64>()]);
                chosen += usize::from(arm == best);
                bandit
                    .update(arm, if arm == best { 100.0 } else { 10.0 } + random.sample::<f64, _>(StandardNormal))
                    .unwrap();
            }
            chosen as f64 / episodes as f64
        };
        play(&mut bandit, 3, 3000);
        assert_eq!(bandit.greedy(), 3);
        assert!(play(&mut bandit, 3, 1000) > 0.45);
        // The old favourite is now as poor as the others.
        play(&mut bandit, 12, 3000);
        assert_eq!(bandit.greedy(), 12);
        assert!(play(&mut bandit, 12, 1000) > 0.45);
    }

    /// Play as in a run: 16 policies and 128 concurrent episodes, so that every return arrives late.
    struct Play {
        bandit: DiscountedUcb,
        random: Random,
        running: std::collections::VecDeque<usize>,
    }

    impl Play {
        fn new(seed: u64) -> Self {
            let bandit = DiscountedUcb::new(16, BanditParameters::default());
            Self { bandit, random: Random::seed_from_u64(seed), running: std::collections::VecDeque::new() }
        }

        /// Plays further episodes scored by `score`; returns how many each arm began.
        fn on(&mut self, episodes: usize, score: impl Fn(usize, &mut Random) -> f64) -> [usize; 16] {
            let mut pulls = [0; 16];
            for _ in 0..episodes {
                let arm = self.bandit.choose([self.random.random::<f64>(), self.random.random::<f64>()]);
                pulls[arm] += 1;
                self.running.push_back(arm);
                if self.running.len() > 128
                    && let Some(arm) = self.running.pop_front()
                {
                    let score = score(arm, &mut self.random);
                    self.bandit.update(arm, score).unwrap();
                }
            }
            pulls
        }

        /// Episodes until an arm becomes the favourite for at least 200; `None` if that takes over 5 000.
        fn episodes_until_favourite(&mut self, arm: usize, score: impl Fn(usize, &mut Random) -> f64) -> Option<usize> {
            let mut held = 0;
            for episodes in 1..=5_000 {
                self.on(1, &score);
                held = if self.bandit.greedy() == arm { held + 1 } else { 0 };
                if held == 200 {
                    return Some(episodes - held);
                }
            }
            None
        }
    }

    /// Pong: every policy loses 21 to 0, with a point now and then, until one learns to return the ball.
    fn pong(best: Option<usize>, by: f64) -> impl Fn(usize, &mut Random) -> f64 {
        move |arm, random| {
            let lost = -21.0 + f64::from(u8::from(random.random::<f64>() < 0.2));
            if Some(arm) == best {
                (lost + by + 2.0 * random.sample::<f64, _>(StandardNormal)).clamp(-21.0, 21.0)
            } else {
                lost
            }
        }
    }

    #[test]
    fn no_arm_starves() {
        let (nothing, no_points) = (|_: usize, _: &mut Random| 0.0, |_: usize, _: &mut Random| -21.0);
        let far_ahead = |arm: usize, random: &mut Random| if arm == 7 { 20.0 } else { -21.0 } + random.sample::<f64, _>(StandardNormal);
        for seed in 0..5 {
            // Half of the choices are uniform: 2000 / 2 / 16 = 62 for every arm, with a deviation of 8.
            for pulls in [
                Play::new(seed).on(2000, nothing),
                Play::new(seed).on(2000, no_points),
                Play::new(seed).on(2000, pong(None, 0.0)),
                Play::new(seed).on(2000, pong(Some(3), 4.0)),
                Play::new(seed).on(2000, far_ahead),
            ] {
                assert!(pulls.iter().all(|&pulls| pulls >= 32), "seed {seed}: {pulls:?}");
            }
        }
    }

    #[test]
    fn favourite_follows_the_best_arm_despite_running_episodes() {
        for seed in 0..5 {
            let mut play = Play::new(seed);
            play.on(2000, pong(None, 0.0));
            let learned = play.episodes_until_favourite(9, pong(Some(9), 4.0));
            let pulls = play.on(1000, pong(Some(9), 4.0));
            // Another policy becomes better, and the first forgets.
            let followed = play.episodes_until_favourite(4, pong(Some(4), 8.0));
            let after = play.on(1000, pong(Some(4), 8.0));
            assert!(learned.is_some_and(|episodes| episodes <= 200), "seed {seed}: {learned:?}");
            assert!(pulls[9] > 400 && after[4] > 400, "seed {seed}: {pulls:?}, {after:?}");
            assert!(followed.is_some_and(|episodes| episodes <= 800), "seed {seed}: {followed:?}");
        }
    }

    #[test]
    fn greedy_is_arm_0_if_none_is_known_and_the_first_of_equals() {
        let mut bandit = bandit(3, 0.999, 0.5);
        assert_eq!(bandit.greedy(), 0);
        bandit.update(2, -4.0).unwrap();
        assert_eq!(bandit.greedy(), 2);
        bandit.update(1, -4.0).unwrap();
        assert_eq!(bandit.greedy(), 1);
    }

    #[test]
    fn one_arm_is_always_chosen() {
        let mut bandit = bandit(1, 0.999, 0.5);
        for episode in 0..5 {
            assert_eq!(bandit.choose([episode as f64 / 5.0, 0.999]), 0);
            bandit.update(0, 1e6).unwrap();
            assert!(bandit.score(0).unwrap().is_finite());
        }
        assert_eq!(bandit.greedy(), 0);
    }

    #[test]
    fn equal_returns_give_no_bonus_and_a_uniform_choice() {
        let mut bandit = bandit(3, 0.999, 0.0);
        for arm in [0, 1, 2, 0, 1] {
            bandit.update(arm, 0.0).unwrap();
        }
        assert_eq!([0, 1, 2].map(|arm| bandit.score(arm)), [Some(0.0); 3]);
        assert_eq!([0.0, 0.4, 0.99].map(|which| bandit.choose([0.9, which])), [0, 1, 2]);
    }

    #[test]
    fn a_forgotten_arm_is_tried_again() {
        let mut bandit = bandit(2, 0.5, 0.0);
        assert_eq!([0, 1].map(|_| bandit.choose(EXPLOIT)), [0, 1]);
        bandit.update(1, 0.0).unwrap();
        // 2⁻⁴⁰ is below 1e-12.
        for _ in 0..40 {
            bandit.update(0, 0.0).unwrap();
        }
        assert_eq!(bandit.score(1), None);
        assert_eq!(bandit.choose(EXPLOIT), 1);
        assert_eq!(bandit.choose(EXPLOIT), 0);
    }

    #[test]
    fn an_abandoned_first_episode_is_played_again() {
        let mut bandit = bandit(2, 0.999, 0.0);
        assert_eq!([0, 1].map(|_| bandit.choose(EXPLOIT)), [0, 1]);
        bandit.update(0, 1.0).unwrap();
        bandit.abandon(1).unwrap();
        assert_eq!(bandit.choose(EXPLOIT), 1);
        // Abandoning an episode of a known arm changes nothing.
        let before = bandit.clone();
        bandit.abandon(0).unwrap();
        assert_eq!(bandit, before);
    }

    #[test]
    fn refuses_an_invalid_return_and_changes_nothing() {
        let mut bandit = bandit(2, 0.999, 0.5);
        bandit.update(1, 3.0).unwrap();
        let before = bandit.clone();
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e101] {
            assert!(matches!(bandit.update(1, value), Err(BanditError::Return { arm: 1, .. })));
        }
        assert_eq!(bandit.update(2, 1.0), Err(BanditError::NoSuchArm { arm: 2, arms: 2 }));
        assert_eq!(bandit.abandon(7), Err(BanditError::NoSuchArm { arm: 7, arms: 2 }));
        assert_eq!(bandit, before);
    }

    #[test]
    fn a_saved_bandit_continues_exactly() {
        let mut bandit = DiscountedUcb::new(16, BanditParameters::default());
        let mut random = Random::seed_from_u64(2);
        for _ in 0..100 {
            let arm = bandit.choose([random.random::<f64>(), random.random::<f64>()]);
            bandit.update(arm, random.sample::<f64, _>(StandardNormal)).unwrap();
        }
        let copy: DiscountedUcb = serde_json::from_str(&serde_json::to_string(&bandit).unwrap()).unwrap();
        assert_eq!(copy, bandit);
    }
}
