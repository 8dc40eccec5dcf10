//! Running mean and standard deviation of TD errors and of RND errors.

use serde::{Deserialize, Serialize};

/// Exponentially moving first and second moments, corrected for their start at 0.
///
/// m1 ← d m1 + (1−d) E(x), m2 ← d m2 + (1−d) E(x²); both are read divided by w ← d w + (1−d), which is 1 − dⁿ after n
/// updates with the same d. Section B1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    decay: f64,
    /// Limits d to n/(n + lead) after n updates.
    lead: u64,
    first: f64,
    second: f64,
    weight: f64,
    updates: u64,
}

/// E(x) and E(x²) of one batch.
///
/// Of TD errors, E(x) = Σwx/Σw and E(x²) = Σwx²/Σw with importance weights w, which undoes prioritised sampling.
/// Section B1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMoments {
    /// E(x).
    pub mean: f64,
    /// E(x²).
    pub mean_square: f64,
}

impl BatchMoments {
    /// √(E(x²) − E(x)²), the population standard deviation.
    pub fn std(&self) -> f64 {
        let variance = self.mean_square - self.mean * self.mean;
        // Rounding may leave slightly less than 0; a NaN must stay NaN.
        if variance < 0.0 { 0.0 } else { variance.sqrt() }
    }
}

impl Moments {
    /// Empty moments with `decay` (0 ≤ d < 1) per update.
    pub fn new(decay: f64) -> Self {
        Self { decay, lead: 0, first: 0.0, second: 0.0, weight: 0.0, updates: 0 }
    }

    /// Empty moments for values that start orders of magnitude too large.
    ///
    /// While `decay` would forget more slowly, they cover about the last fifth of all batches.
    pub fn of_the_latest(decay: f64) -> Self {
        Self { lead: 4, ..Self::new(decay) }
    }

    /// Adds one batch.
    pub fn update(&mut self, batch: BatchMoments) {
        let decay = match self.lead {
            0 => self.decay,
            lead => self.decay.min(self.updates as f64 / (self.updates + lead) as f64),
        };
        self.first = decay * self.first + (1.0 - decay) * batch.mean;
        self.second = decay * self.second + (1.0 - decay) * batch.mean_square;
        self.weight = decay * self.weight + (1.0 - decay);
        self.updates += 1;
    }

    /// Number of batches so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Mean and mean square so far; zeros before the first update.
    pub fn moments(&self) -> BatchMoments {
        if self.updates == 0 {
            return BatchMoments { mean: 0.0, mean_square: 0.0 };
        }
        BatchMoments { mean: self.first / self.weight, mean_square: self.second / self.weight }
    }

    /// Running mean; 0 before the first update.
    pub fn mean(&self) -> f64 {
        self.moments().mean
    }

    /// Running standard deviation; 0 before the first update.
    pub fn std(&self) -> f64 {
        self.moments().std()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-8, "{found} is not {expected}");
    }

    fn batch<const N: usize>(values: [f64; N]) -> BatchMoments {
        let mean = |value: fn(f64) -> f64| values.into_iter().map(value).sum::<f64>() / N as f64;
        BatchMoments { mean: mean(|x| x), mean_square: mean(|x| x * x) }
    }

    #[test]
    fn running_moments_are_unbiased_from_the_first_update() {
        let mut moments = Moments::new(0.99);
        assert_eq!((moments.mean(), moments.std(), moments.updates()), (0.0, 0.0, 0));
        moments.update(BatchMoments { mean: 2.0, mean_square: 48.0 / 7.0 });
        assert_close(moments.mean(), 2.0);
        assert_close(moments.std(), 1.690308509);
        moments.update(BatchMoments { mean: 7.0 / 3.0, mean_square: 23.0 / 3.0 });
        assert_close(moments.mean(), 2.167504188);
        assert_close(moments.std(), 1.601831557);
        assert_eq!(moments.updates(), 2);
    }

    #[test]
    fn latest_values_outweigh_the_first() {
        let batches = |moments: &mut Moments| {
            (0..40).for_each(|n| moments.update(batch([1000.0 * 0.7_f64.powi(n)])));
            (0..300).for_each(|_| moments.update(batch([0.5, 1.5])));
        };
        let (mut latest, mut all) = (Moments::of_the_latest(0.99), Moments::new(0.99));
        batches(&mut latest);
        batches(&mut all);
        assert!((latest.mean() - 1.0).abs() < 0.01, "{}", latest.mean());
        assert!((latest.std() - 0.5).abs() < 0.1, "{}", latest.std());
        assert!(all.std() > 20.0, "{}", all.std());
        // With n batches the last has a weight of 4/(n + 3) at least, and 1 - d once that is more.
        latest.update(batch([2.0]));
        assert!((latest.mean() - 1.012).abs() < 0.002, "{}", latest.mean());
        (0..1000).for_each(|_| latest.update(batch([1.0])));
        latest.update(batch([2.0]));
        assert!((latest.mean() - 1.01).abs() < 1e-4, "{}", latest.mean());
    }

    #[test]
    fn equal_values_have_no_deviation() {
        let mut moments = Moments::new(0.999);
        for _ in 0..1000 {
            moments.update(batch([0.1, 0.1, 0.1]));
        }
        assert!(moments.std() < 1e-7, "{}", moments.std());
    }

    #[test]
    fn a_nan_stays_visible() {
        assert!(batch([1.0, f64::NAN]).std().is_nan());
    }

    #[test]
    fn saved_moments_continue_exactly() {
        let mut moments = Moments::new(0.99);
        moments.update(batch([0.1, 0.7]));
        let saved = serde_json::to_string(&moments).unwrap();
        assert_eq!(serde_json::from_str::<Moments>(&saved).unwrap(), moments);
    }
}
