//! Curves: values over emulator frames, one run's or the mean and range of several.

/// Values over emulator frames; NaN where there is none.
pub type Points = Vec<(f64, f64)>;
/// Frames, lowest and highest value.
pub type Band = Vec<(f64, f64, f64)>;

/// Maximum number of points of a line: one point per two units of width.
const MAX_POINTS: usize = 160;

/// Returns a curve's value at `x` by linear interpolation. Before its first and after its last point, where it is
/// unknown, that point's value is used, as NumPy's `interp` does. NaN for an empty curve.
pub fn value_at(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|(at, _)| *at <= x);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((_, y)), None) | (None, Some((_, y))) => *y,
        (None, None) => f64::NAN,
    }
}

/// Returns the mean of several curves, and its range if there is more than one.
///
/// Both are given where all curves are known.
pub fn mean_and_range(curves: &[Points]) -> (Points, Band) {
    let known = |curve: &Points| -> Points { curve.iter().copied().filter(|(_, y)| y.is_finite()).collect() };
    let curves: Vec<Points> = curves.iter().map(known).filter(|curve| !curve.is_empty()).collect();
    if let [curve] = &curves[..] {
        return (curve.clone(), Band::new());
    }
    let first = curves.iter().map(|curve| curve[0].0).fold(f64::NEG_INFINITY, f64::max);
    let last = curves.iter().map(|curve| curve[curve.len() - 1].0).fold(f64::INFINITY, f64::min);
    if curves.is_empty() || first > last {
        return (Points::new(), Band::new());
    }
    let steps = if last > first { MAX_POINTS - 1 } else { 0 };
    let mut both = (Points::new(), Band::new());
    for step in 0..=steps {
        let x = if steps == 0 { first } else { first + (last - first) * step as f64 / steps as f64 };
        let values = curves.iter().map(|curve| value_at(curve, x));
        let (sum, low, high) = values.fold((0.0, f64::INFINITY, f64::NEG_INFINITY), |(sum, low, high), value| {
            (sum + value, value.min(low), value.max(high))
        });
        both.0.push((x, sum / curves.len() as f64));
        both.1.push((x, low, high));
    }
    both
}

/// Replaces groups of neighbouring points by their means, down to [`MAX_POINTS`].
pub fn thinned(points: &Points) -> Points {
    let each = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.filter(|value| value.is_finite()).fold((0.0, 0.0), |(s, c), v| (s + v, c + 1.0));
        sum / count
    };
    let thin = |some: &[(f64, f64)]| {
        (mean(&mut some.iter().map(|(frames, _)| *frames)), mean(&mut some.iter().map(|(_, value)| *value)))
    };
    points.chunks(each).map(thin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_points_become_their_means() {
        let points: Points = (0..1000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), 143);
        assert_eq!(thin[1], (10.0, 4.0 / 7.0));
    }

    #[test]
    fn values_between_points_are_interpolated() {
        let points = [(10.0, 0.0), (20.0, 5.0), (40.0, 1.0)];
        assert_eq!([0.0, 10.0, 14.0, 20.0, 30.0, 50.0].map(|x| value_at(&points, x)), [0.0, 0.0, 2.0, 5.0, 3.0, 1.0]);
        assert!(value_at(&[], 1.0).is_nan());
    }

    #[test]
    fn mean_and_range_cover_what_all_curves_know() {
        let short = vec![(0.0, 0.0), (100.0, 10.0)];
        let long = vec![(50.0, 9.0), (60.0, f64::NAN), (150.0, 19.0)];
        let (mean, band) = mean_and_range(&[short.clone(), long]);
        assert_eq!((mean[0], band[0]), ((50.0, 7.0), (50.0, 5.0, 9.0)));
        assert_eq!((mean[mean.len() - 1], band[band.len() - 1]), ((100.0, 12.0), (100.0, 10.0, 14.0)));
        assert_eq!(mean_and_range(&[short.clone(), vec![]]), (short.clone(), vec![]));
        assert_eq!(mean_and_range(&[short, vec![(200.0, 1.0)]]), (vec![], vec![]));
        assert_eq!(mean_and_range(&[]), (vec![], vec![]));
    }
}
