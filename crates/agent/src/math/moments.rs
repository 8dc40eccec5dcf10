//! Running mean and standard deviation, used for TD errors and for RND errors alike.

use serde::{Deserialize, Serialize};

/// Exponentially moving first and second moments, corrected for their start at 0.
///
/// m1 ← d m1 + (1−d) E(x), m2 ← d m2 + (1−d) E(x²); both are read divided by w ← d w + (1−d), which is 1 − dⁿ after n
/// updates with the same d. Section B1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    decay: f64,
    /// Updates by which d is held back: after n of them it is at most n/(n + lead).
    lead: u64,
    first: f64,
    second: f64,
    weight: f64,
    updates: u64,
}

/// E(x) and E(x²) of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMoments {
    /// E(x).
    pub mean: f64,
    /// E(x²).
    pub mean_square: f64,
}

impl BatchMoments {
    /// E(x) = Σwx/Σw and E(x²) = Σwx²/Σw, which undoes prioritised sampling when w are importance weights. Section B1.
    ///
    /// `None` where no sample carries weight.
    pub fn weighted(samples: impl IntoIterator<Item = (f32, f32)>) -> Option<Self> {
        let (mut total, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for (value, weight) in samples {
            let (value, weight) = (f64::from(value), f64::from(weight));
            total += weight;
            sum += weight * value;
            squares += weight * value * value;
        }
        (total > 0.0).then(|| Self { mean: sum / total, mean_square: squares / total })
    }

    /// The same with every weight 1.
    pub fn unweighted(values: impl IntoIterator<Item = f32>) -> Option<Self> {
        Self::weighted(values.into_iter().map(|value| (value, 1.0)))
    }

    /// √(E(x²) − E(x)²), the population standard deviation.
    pub fn std(&self) -> f64 {
        let variance = self.mean_square - self.mean * self.mean;
        // Rounding may leave a little less than 0; a NaN must stay one.
        if variance < 0.0 { 0.0 } else { variance.sqrt() }
    }
}

impl Moments {
    /// Moments of nothing yet, that forget by `decay` (0 ≤ d < 1) an update.
    pub fn new(decay: f64) -> Self {
        Self { decay, lead: 0, first: 0.0, second: 0.0, weight: 0.0, updates: 0 }
    }

    /// The same for what begins orders of magnitude away from where it will be: until `decay` forgets faster, they are
    /// of about the last fifth of all batches.
    pub fn of_the_latest(decay: f64) -> Self {
        Self { lead: 4, ..Self::new(decay) }
    }

    /// Takes one batch in.
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

    /// How many batches were taken in.
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

    #[test]
    fn batches_are_weighted_by_importance() {
        let batch = BatchMoments::weighted([(1.0, 1.0), (2.0, 0.5), (6.0, 0.25)]).unwrap();
        assert_close(batch.mean, 2.0);
        assert_close(batch.mean_square, 6.857142857);
        assert_close(batch.std(), 1.690308509);
        // Without weights: mean 3, variance (4 + 1 + 9)/3.
        let plain = BatchMoments::unweighted([1.0, 2.0, 6.0]).unwrap();
        assert_close(plain.mean, 3.0);
        assert_close(plain.std(), 2.160246899);
    }

    #[test]
    fn a_batch_without_weight_says_nothing() {
        assert_eq!(BatchMoments::unweighted([]), None);
        assert_eq!(BatchMoments::weighted([(3.0, 0.0)]), None);
    }

    #[test]
    fn running_moments_are_unbiased_from_the_first_update_on() {
        let mut moments = Moments::new(0.99);
        assert_eq!((moments.mean(), moments.std(), moments.updates()), (0.0, 0.0, 0));
        moments.update(BatchMoments::weighted([(1.0, 1.0), (2.0, 0.5), (6.0, 0.25)]).unwrap());
        assert_close(moments.mean(), 2.0);
        assert_close(moments.std(), 1.690308509);
        moments.update(BatchMoments::weighted([(-1.0, 0.2), (3.0, 1.0)]).unwrap());
        assert_close(moments.mean(), 2.167504188);
        assert_close(moments.std(), 1.601831557);
        assert_eq!(moments.updates(), 2);
    }

    #[test]
    fn the_latest_are_not_drowned_by_the_first() {
        let batches = |moments: &mut Moments| {
            (0..40).for_each(|n| moments.update(BatchMoments::unweighted([1000.0 * 0.7_f32.powi(n)]).unwrap()));
            (0..300).for_each(|_| moments.update(BatchMoments::unweighted([0.5, 1.5]).unwrap()));
        };
        let (mut latest, mut all) = (Moments::of_the_latest(0.99), Moments::new(0.99));
        batches(&mut latest);
        batches(&mut all);
        assert!((latest.mean() - 1.0).abs() < 0.01, "{}", latest.mean());
        assert!((latest.std() - 0.5).abs() < 0.1, "{}", latest.std());
        assert!(all.std() > 20.0, "{}", all.std());
        // With n batches the last has a weight of 4/(n + 3) at least, and 1 - d once that is more.
        latest.update(BatchMoments::unweighted([2.0]).unwrap());
        assert!((latest.mean() - 1.012).abs() < 0.002, "{}", latest.mean());
        (0..1000).for_each(|_| latest.update(BatchMoments::unweighted([1.0]).unwrap()));
        latest.update(BatchMoments::unweighted([2.0]).unwrap());
        assert!((latest.mean() - 1.01).abs() < 1e-4, "{}", latest.mean());
    }

    #[test]
    fn equal_values_have_no_deviation_whatever_their_size() {
        let mut moments = Moments::new(0.999);
        for _ in 0..1000 {
            moments.update(BatchMoments::unweighted([0.1, 0.1, 0.1]).unwrap());
        }
        assert!(moments.std() < 1e-7, "{}", moments.std());
    }

    #[test]
    fn a_nan_stays_visible() {
        assert!(BatchMoments::unweighted([1.0, f32::NAN]).unwrap().std().is_nan());
    }

    #[test]
    fn saved_moments_continue_exactly() {
        let mut moments = Moments::new(0.99);
        moments.update(BatchMoments::unweighted([0.1, 0.7]).unwrap());
        let saved = serde_json::to_string(&moments).unwrap();
        assert_eq!(serde_json::from_str::<Moments>(&saved).unwrap(), moments);
    }
}
