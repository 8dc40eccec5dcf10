//! An axis: its range, its ticks and the labels next to them.

/// How values map to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    Linear,
    /// Logarithmic if all values are positive and span a wide range, else linear.
    Logarithmic,
    /// From 0 to 1.
    Share,
}

/// A range of values and its scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

/// Approximate number of ticks on a linear axis.
const TICKS: f64 = 4.0;
/// Ratio of the largest to the smallest value above which a logarithmic scale is used.
const WIDE: f64 = 100.0;

impl Axis {
    /// Returns an axis for the finite ones among `values`, or `None` if there are none.
    pub fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        if scale == Scale::Share {
            return Some(Self::exactly(0.0, 1.0));
        }
        if scale == Scale::Logarithmic && low > 0.0 && high / low > WIDE {
            return Some(Self { scale, low, high });
        }
        // A flat line goes through the middle.
        let margin = if high > low { (high - low) * 0.04 } else { (low.abs() * 0.1).max(0.5) };
        Some(Self { scale: Scale::Linear, low: low - margin, high: high + margin })
    }

    /// Returns a linear axis without a margin.
    pub fn exactly(low: f64, high: f64) -> Self {
        Self { scale: Scale::Linear, low, high: if high > low { high } else { low + 1.0 } }
    }

    /// Maps a value to its position, from 0 at the low end to 1 at the high end.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Share => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Returns the ticks' values and labels.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear | Scale::Share => {
                let step = round_step((self.high - self.low) / TICKS);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                (first..=last).map(|i| i as f64 * step).map(|value| (value, label(value, step))).collect()
            }
            Scale::Logarithmic => {
                let (first, last) = (self.low.log10().floor() as i32, self.high.log10().floor() as i32);
                let every = ((last - first) as usize / 6).max(1);
                // Few powers of ten leave room for numbers between them.
                let factors: &[f64] = if last - first < 4 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let powers = (first..=last).step_by(every);
                let values = powers.flat_map(|power| factors.iter().map(move |factor| (*factor, power)));
                let tick = |(factor, power): (f64, i32)| (factor * 10f64.powi(power), format!("{factor}e{power}"));
                let within = |(value, _): &(f64, String)| (self.low * 0.999..=self.high * 1.001).contains(value);
                let ticks = values.map(tick).filter(within);
                ticks.map(|(value, text)| (value, if value >= 1.0 { label(value, value) } else { text })).collect()
            }
        }
    }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * 0.999).unwrap_or(10.0);
    factor * power
}

/// Formats a value on an axis with ticks `step` apart: 1500000 as 1.5M.
pub fn label(value: f64, step: f64) -> String {
    let (unit, name) = match value.abs().max(step) {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let decimals = (-(step / unit).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{:.decimals$}", value / unit);
    if text.trim_matches(['-', '0', '.']).is_empty() { "0".to_owned() } else { text + name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(Axis::exactly(0.0, 1.0)), ["0", "0.5", "1.0"]);
        assert_eq!(labels(Axis::exactly(-21.0, 21.0)), ["-20", "0", "20"]);
        assert_eq!(labels(Axis::exactly(0.0, 7e6)), ["0", "2M", "4M", "6M"]);
        assert_eq!(labels(Axis::exactly(0.0, 48_000.0)), ["0", "20k", "40k"]);
        assert_eq!(labels(Axis::exactly(0.0, 0.003)), ["0", "0.001", "0.002", "0.003"]);
    }

    #[test]
    fn flat_line_goes_through_the_middle() {
        for value in [0.0, -3.0, 1e9] {
            let axis = Axis::of([value, f64::NAN, value].into_iter(), Scale::Logarithmic).unwrap();
            assert!((axis.place(value) - 0.5).abs() < 1e-9, "{value}");
        }
        assert_eq!(Axis::of([f64::NAN, f64::INFINITY].into_iter(), Scale::Linear), None);
    }

    #[test]
    fn wide_ranges_are_logarithmic_only_if_requested() {
        let values = [0.001, 10.0];
        let axis = Axis::of(values.into_iter(), Scale::Logarithmic).unwrap();
        assert_eq!((axis.place(0.001), axis.place(10.0)), (0.0, 1.0));
        assert!((axis.place(0.1) - 0.5).abs() < 1e-9);
        assert_eq!(labels(axis), ["1e-3", "1e-2", "1e-1", "1", "10"]);
        let axis = Axis::of(values.into_iter(), Scale::Linear).unwrap();
        assert!(axis.place(0.1) < 0.1);
        // A value of 0 has no logarithm.
        let axis = Axis::of([0.0, 10.0].into_iter(), Scale::Logarithmic).unwrap();
        assert!(axis.place(0.0) > 0.0);
    }
}
