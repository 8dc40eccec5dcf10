//! Running mean and standard deviation, used for TD errors and for RND errors alike.

use serde::{Deserialize, Serialize};

/// Exponentially moving first and second moments, corrected for their start at 0.
///
/// m1 ← d m1 + (1−d) E[x], m2 ← d m2 + (1−d) E[x²]; both are read divided by 1 − dⁿ after n updates. Section B1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    decay: f64,
    first: f64,
    second: f64,
    updates: u64,
}

/// E[x] and E[x²] of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMoments {
    /// E[x].
    pub mean: f64,
    /// E[x²].
    pub mean_square: f64,
}

impl BatchMoments {
    /// E[x] = Σwx/Σw and E[x²] = Σwx²/Σw, which undoes prioritised sampling when w are importance weights. Section B1.
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
        (total > 0.0).then(|| Self {
            mean: sum / total,
            mean_square: squares / total,
        })
    }

    /// The same with every weight 1.
    pub fn unweighted(values: impl IntoIterator<Item = f32>) -> Option<Self> {
        Self::weighted(values.into_iter().map(|value| (value, 1.0)))
    }

    /// √(E[x²] − E[x]²), the population standard deviation.
    pub fn std(&self) -> f64 {
        let variance = self.mean_square - self.mean * self.mean;
        // Rounding may leave a little less than 0; a NaN must stay one.
        if variance < 0.0 { 0.0 } else { variance.sqrt() }
    }
}

impl Moments {
    /// Moments of nothing yet, that forget by `decay` (0 ≤ d < 1) an update.
    pub fn new(decay: f64) -> Self {
        Self {
            decay,
            first: 0.0,
            second: 0.0,
            updates: 0,
        }
    }

    /// Takes one batch in.
    pub fn update(&mut self, batch: BatchMoments) {
        self.first = self.decay * self.first + (1.0 - self.decay) * batch.mean;
        self.second = self.decay * self.second + (1.0 - self.decay) * batch.mean_square;
        self.updates += 1;
    }

    /// How many batches were taken in.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Mean and mean square so far; zeros before the first update.
    pub fn moments(&self) -> BatchMoments {
        if self.updates == 0 {
            return BatchMoments {
                mean: 0.0,
                mean_square: 0.0,
            };
        }
        let seen = 1.0 - self.decay.powf(self.updates as f64);
        BatchMoments {
            mean: self.first / seen,
            mean_square: self.second / seen,
        }
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
