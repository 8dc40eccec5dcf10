//! Aggregates of human-normalised scores, as in the paper's table 1, and the interquartile mean.

/// An aggregate of the scores of several games, in percent of human level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    GamesAboveHuman,
    CappedMean,
    Mean,
    Median,
    Percentile25,
    Percentile5,
    InterquartileMean,
}

impl Statistic {
    /// The statistics of the paper's table 1, in its order.
    pub const OF_THE_PAPER: [Self; 6] =
        [Self::GamesAboveHuman, Self::CappedMean, Self::Mean, Self::Median, Self::Percentile25, Self::Percentile5];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::GamesAboveHuman => "games above human",
            Self::CappedMean => "capped mean",
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Percentile25 => "25th percentile",
            Self::Percentile5 => "5th percentile",
            Self::InterquartileMean => "interquartile mean",
        }
    }

    /// Computes it for scores in percent, which are sorted in the process.
    pub fn of(self, scores: &mut [f64]) -> f64 {
        let count = scores.len() as f64;
        match self {
            Self::GamesAboveHuman => scores.iter().filter(|score| **score > 100.0).count() as f64,
            Self::CappedMean => scores.iter().map(|score| score.clamp(0.0, 100.0)).sum::<f64>() / count,
            Self::Mean => scores.iter().sum::<f64>() / count,
            Self::Median => percentile(scores, 50.0),
            Self::Percentile25 => percentile(scores, 25.0),
            Self::Percentile5 => percentile(scores, 5.0),
            Self::InterquartileMean => interquartile_mean(scores),
        }
    }
}

/// Sorts the values and returns a percentile, as NumPy does by default.
///
/// It is linearly interpolated between the two nearest values: with n sorted values x_0 to x_{n-1}, it is the one at p
/// (n - 1) / 100.
pub fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = percent / 100.0 * (values.len().max(1) - 1) as f64;
    match (values.get(place.floor() as usize), values.get(place.ceil() as usize)) {
        (Some(low), Some(high)) => low + (high - low) * place.fract(),
        _ => f64::NAN,
    }
}

/// Sorts the values and returns the mean of the middle half, as rliable defines it.
///
/// It leaves out the lowest and the highest ⌊n/4⌋ of n, like SciPy's `trim_mean` with a cut of 0.25.
pub fn interquartile_mean(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 4;
    let middle = &values[cut..values.len() - cut];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// Returns the mean and the standard deviation, with n - 1 in the denominator.
///
/// A single value has no deviation.
pub fn mean_and_deviation(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated() {
        let mut values = [4.0, 1.0, 3.0, 2.0, 10.0];
        // Places 2, 1, 0.2 and 4 of 1, 2, 3, 4, 10.
        assert_eq!([50.0, 25.0, 5.0, 100.0].map(|percent| percentile(&mut values, percent)), [3.0, 2.0, 1.2, 10.0]);
        assert_eq!(percentile(&mut [7.0], 5.0), 7.0);
        assert!(percentile(&mut [], 50.0).is_nan());
    }

    #[test]
    fn interquartile_mean_drops_a_quarter_at_each_end() {
        // Of 8 values two are cut at each end, which leaves (3 + 4 + 5 + 6) / 4. Of 5, 6 and 7 only one.
        assert_eq!(interquartile_mean(&mut [8.0, 1.0, 6.0, 3.0, 5.0, 4.0, 1000.0, -1000.0]), 4.5);
        assert_eq!(interquartile_mean(&mut [9.0, 2.0, 3.0, 4.0, -9.0]), 3.0);
        assert_eq!(interquartile_mean(&mut [9.0, 2.0, 3.0, 4.0, 5.0, 6.0, -9.0]), 4.0);
        assert_eq!(interquartile_mean(&mut [2.0, 4.0]), 3.0);
    }

    #[test]
    fn statistics_of_four_games_by_hand() {
        let mut scores = [-50.0, 100.0, 101.0, 449.0];
        let all = Statistic::OF_THE_PAPER.map(|statistic| statistic.of(&mut scores));
        // A score of exactly 100 is not above human; capped, the scores are 0, 100, 100 and 100.
        assert_eq!(all[..5], [2.0, 75.0, 150.0, 100.5, 62.5]);
        assert!((all[5] - -27.5).abs() < 1e-12);
    }

    #[test]
    fn deviation_has_one_degree_of_freedom_less() {
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, None));
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, Some(2f64.sqrt())));
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 4.0, 6.0]), (4.0, Some((8.0f64 / 3.0).sqrt())));
    }
}
