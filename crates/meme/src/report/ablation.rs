//! What distinguishes the settings of an ablation sweep: areas under the score curve, and trace coefficients.

use super::cohort::Cohort;
use super::figures::Figure;
use super::table::{Cell, Table};
use crate::chart::rows::{Frame, Measured, Series};
use crate::chart::value_at;
use crate::output::grouped;

/// Equally spaced points of a score curve.
const POINTS: usize = 10_000;

/// Areas under the score curves, by task and cohort.
pub struct Areas {
    frames: u64,
    tasks: Vec<String>,
    /// For each task, one value per cohort: a share of the task's largest, if that is positive.
    shares: Vec<Vec<Option<f64>>>,
}

impl Areas {
    /// Computes the areas of all cohorts up to the frames that all of them have. `None` for a single cohort.
    ///
    /// As in the paper: scores at 10 000 equally spaced points from 0 to the last frame by linear interpolation,
    /// averaged over seeds; the trapezoidal rule; divided by the task's largest.
    pub fn of(cohorts: &[Cohort]) -> Option<Self> {
        if cohorts.len() < 2 {
            return None;
        }
        let frames = cohorts.iter().map(|cohort| cohort.frames).min()?;
        let mut tasks: Vec<String> = cohorts.iter().flat_map(|cohort| cohort.tasks.keys()).cloned().collect();
        tasks.sort();
        tasks.dedup();
        let shares = tasks.iter().map(|task| {
            let areas = cohorts.iter().map(|cohort| {
                let curves: Vec<&[(f64, f64)]> = cohort.tasks.get(task)?.iter().map(|run| &run.scores[..]).collect();
                Some(area(&curves, frames as f64))
            });
            let areas: Vec<Option<f64>> = areas.collect();
            let most = areas.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
            areas.into_iter().map(|area| area.filter(|_| most > 0.0).map(|area| area / most)).collect()
        });
        let shares = shares.collect();
        Some(Self { frames, tasks, shares })
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "Area under the score curve up to {} frames as a share of the largest of the game: the scores at {} \
             equally spaced points, linearly interpolated and averaged over seeds, and the trapezoidal rule. A game \
             whose largest area is not positive has no shares.",
            grouped(self.frames),
            grouped(POINTS as u64)
        )]
    }

    /// One row per task and one column per cohort.
    pub fn table(&self, cohorts: &[Cohort]) -> Table {
        let headings = ["game".to_owned()].into_iter().chain(cohorts.iter().map(|cohort| cohort.label.clone()));
        let row = |(task, shares): (&String, &Vec<Option<f64>>)| {
            let cells = shares.iter().map(|share| Cell::number(*share, 3));
            [Cell::Text(task.clone())].into_iter().chain(cells).collect()
        };
        Table {
            id: "areas",
            title: "Areas under the score curve".to_owned(),
            notes: self.notes(),
            columns: headings.collect(),
            rows: self.tasks.iter().zip(&self.shares).map(row).collect(),
        }
    }

    /// Grouped bars, one group per task.
    pub fn figure(&self, cohorts: &[Cohort]) -> Figure {
        let places: Vec<(String, String)> = self.tasks.iter().map(|task| (task.clone(), String::new())).collect();
        let series = |(number, cohort): (usize, &Cohort)| {
            let value = |shares: &Vec<Option<f64>>| {
                shares[number].map(|mean| Measured { mean, deviation: 0.0, partial: false })
            };
            Series { label: cohort.label.clone(), values: self.shares.iter().map(value).collect() }
        };
        let series: Vec<Series> = cohorts.iter().enumerate().map(series).collect();
        let svg =
            Frame { title: "Area under the score curve", unit: "share of the largest", places: &places }.bars(&series);
        Figure { id: "areas".to_owned(), svg, caption: self.notes().join(" ") }
    }
}

/// Area under the mean of several curves from 0 to `frames`.
fn area(curves: &[&[(f64, f64)]], frames: f64) -> f64 {
    let step = frames / (POINTS - 1) as f64;
    let value = |point: usize| {
        let sum: f64 = curves.iter().map(|curve| value_at(curve, point as f64 * step)).sum();
        sum / curves.len() as f64
    };
    let inner: f64 = (1..POINTS - 1).map(value).sum();
    step * (inner + (value(0) + value(POINTS - 1)) / 2.0)
}

/// The distribution of trace coefficients, one value per seed, game and policy. `None` if no run has them.
pub fn traces(cohorts: &[Cohort]) -> Option<Figure> {
    let values: Vec<Vec<f64>> = cohorts
        .iter()
        .map(|cohort| cohort.tasks.values().flatten().flat_map(|run| run.traces.iter().copied()).collect())
        .collect();
    if cohorts.len() < 2 || values.iter().all(Vec::is_empty) {
        return None;
    }
    let note = |values: &Vec<f64>| format!("{} values", values.len());
    let places: Vec<(String, String)> =
        cohorts.iter().zip(&values).map(|(cohort, values)| (cohort.label.clone(), note(values))).collect();
    let svg =
        Frame { title: "Trace coefficients", unit: "mean trace coefficient λ", places: &places }.distributions(&values);
    let caption = "Mean trace coefficient between 20 and 25 % of the frames (in the paper, 200 to 250 million of 1 \
                   billion), one dot per seed, game and policy, and their median."
        .to_owned();
    Some(Figure { id: "trace_coefficients".to_owned(), svg, caption })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of two straight lines, from 0 to 10 and from 4 to 4, is a line from 2 to 7: its area is 4.5 per frame.
    #[test]
    fn area_is_that_of_the_mean_curve() {
        let (one, other) = ([(0.0, 0.0), (100.0, 10.0)], [(0.0, 4.0), (100.0, 4.0)]);
        assert!((area(&[&one, &other], 100.0) - 450.0).abs() < 1e-9);
        // Before its first point, a curve has that point's value.
        assert!((area(&[&[(50.0, 0.0), (100.0, 1.0)]], 100.0) - 25.0).abs() < 1e-3);
    }
}
