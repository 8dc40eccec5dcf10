//! How far scores of a few seeds can be trusted: the paper's intervals, and rliable's stratified bootstrap.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::statistics::{Statistic, percentile};

/// Repetitions of every procedure.
pub const REPETITIONS: usize = 10_000;
/// Seeds that the paper averages over per repetition.
pub const SEEDS_DRAWN: usize = 3;

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub interval: (f64, f64),
}

/// Always the same, so that a report is the same every time.
fn random() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(57)
}

fn interval(draws: &mut [f64]) -> (f64, f64) {
    (percentile(draws, 2.5), percentile(draws, 97.5))
}

/// The paper's procedure: repeatedly draws three seeds per game without replacement.
///
/// Each time it averages each game's scores and aggregates over games. Returns the mean over the repetitions and the
/// interval that holds 95 % of them.
///
/// `games` has the scores of every seed of each game, at least three.
pub fn three_seeds(games: &[Vec<f64>], statistics: &[Statistic]) -> Vec<Estimate> {
    let mut random = random();
    let mut draws = vec![Vec::with_capacity(REPETITIONS); statistics.len()];
    let mut seeds: Vec<Vec<f64>> = games.to_vec();
    let mut means = vec![0.0; games.len()];
    for _ in 0..REPETITIONS {
        for (mean, seeds) in means.iter_mut().zip(&mut seeds) {
            // The first steps of a Fisher-Yates shuffle.
            for place in 0..SEEDS_DRAWN {
                let drawn = random.random_range(place..seeds.len());
                seeds.swap(place, drawn);
            }
            *mean = seeds[..SEEDS_DRAWN].iter().sum::<f64>() / SEEDS_DRAWN as f64;
        }
        for (draws, statistic) in draws.iter_mut().zip(statistics) {
            draws.push(statistic.of(&mut means));
        }
    }
    let estimate = |mut draws: Vec<f64>| Estimate {
        value: draws.iter().sum::<f64>() / draws.len() as f64,
        interval: interval(&mut draws),
    };
    draws.into_iter().map(estimate).collect()
}

/// rliable's stratified bootstrap: resamples the runs of each game with replacement.
///
/// Applies `aggregate` to all resampled scores. Returns its value for the original scores, and the interval of the
/// percentiles 2.5 and 97.5.
///
/// `games` has the scores of every run of each game.
pub fn stratified_bootstrap(games: &[Vec<f64>], repetitions: usize, aggregate: impl Fn(&mut [f64]) -> f64) -> Estimate {
    let mut random = random();
    let mut sample = games.concat();
    let value = aggregate(&mut sample);
    let mut draws: Vec<f64> = (0..repetitions)
        .map(|_| {
            let mut place = sample.iter_mut();
            for runs in games {
                // In this order, so that no place is passed over at the end of a game.
                for (_, place) in runs.iter().zip(place.by_ref()) {
                    *place = runs[random.random_range(0..runs.len())];
                }
            }
            aggregate(&mut sample)
        })
        .collect();
    Estimate { value, interval: interval(&mut draws) }
}

/// Share of the runs with a score above `threshold`.
///
/// This is a point of rliable's performance profile (score distribution).
pub fn share_above(scores: &[f64], threshold: f64) -> f64 {
    scores.iter().filter(|score| **score > threshold).count() as f64 / scores.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::statistics::interquartile_mean;
    use super::*;

    /// The worked example. Two games with two runs each: A has 0 and 4, B has 10 and 18.
    ///
    /// IQM: of 0, 4, 10, 18 one is cut at each end, which leaves (4 + 10) / 2 = 7.
    ///
    /// Bootstrap: each game has 4 equally likely resamples: A gives (0, 0), (0, 4), (4, 0), (4, 4), B likewise. The IQM
    /// of a pair from A and a pair from B is the mean of A's larger and B's smaller value. A's larger value is 0 in one
    /// of four cases and 4 in three; B's smaller one is 18 in one of four and 10 in three. So the IQM is
    ///   (0 + 10) / 2 = 5  with probability 1/4 * 3/4 = 3/16,
    ///   (4 + 10) / 2 = 7  with probability 3/4 * 3/4 = 9/16,
    ///   (0 + 18) / 2 = 9  with probability 1/4 * 1/4 = 1/16,
    ///   (4 + 18) / 2 = 11 with probability 3/4 * 1/4 = 3/16.
    /// Both tails of 3/16 are above 2.5 %, so the 95 % interval is from 5 to 11. Its mean is 7.5.
    #[test]
    fn bootstrap_of_the_worked_example_has_the_derived_distribution() {
        let games = [vec![0.0, 4.0], vec![10.0, 18.0]];
        let found = stratified_bootstrap(&games, REPETITIONS, interquartile_mean);
        assert_eq!(found, Estimate { value: 7.0, interval: (5.0, 11.0) });
        let seen = std::cell::RefCell::new(Vec::new());
        let record = |scores: &mut [f64]| {
            let iqm = interquartile_mean(scores);
            seen.borrow_mut().push(iqm);
            iqm
        };
        stratified_bootstrap(&games, REPETITIONS, record);
        let seen = seen.into_inner();
        for (iqm, probability) in [(5.0, 3.0 / 16.0), (7.0, 9.0 / 16.0), (9.0, 1.0 / 16.0), (11.0, 3.0 / 16.0)] {
            // Skips the first value, of the original scores.
            let share = seen[1..].iter().filter(|value| **value == iqm).count() as f64 / REPETITIONS as f64;
            // Three standard deviations of a share of 10 000 draws are at most 0.015.
            assert!((share - probability).abs() < 0.015, "{iqm}: {share}");
        }
    }

    /// Of the seeds 0, 3, 6, 9, three are drawn: the mean is 3, 4, 5 or 6, each with probability 1/4. Every tail is
    /// above 2.5 %, so the interval is from 3 to 6, and the mean of all repetitions is 4.5.
    #[test]
    fn papers_procedure_of_one_game_by_hand() {
        let found = three_seeds(&[vec![0.0, 3.0, 6.0, 9.0]], &[Statistic::Mean])[0];
        assert_eq!(found.interval, (3.0, 6.0));
        // Three standard deviations of the mean of 10 000 draws are 0.034.
        assert!((found.value - 4.5).abs() < 0.034, "{found:?}");
        // Of three seeds, all are drawn every time.
        let all = three_seeds(&[vec![1.0, 2.0, 6.0]], &[Statistic::Mean])[0];
        assert_eq!(all, Estimate { value: 3.0, interval: (3.0, 3.0) });
    }

    #[test]
    fn profile_counts_runs_above_the_threshold() {
        let scores = [0.0, 50.0, 100.0, 200.0];
        assert_eq!([-1.0, 0.0, 99.0, 100.0, 200.0].map(|tau| share_above(&scores, tau)), [1.0, 0.75, 0.5, 0.25, 0.0]);
    }
}
