//! Figures with one place per game or setting: dots with deviations, grouped bars, distributions.

use super::axis::{Axis, Scale};
use super::svg::{Colour, SMALL, Svg, TITLE, text_width};
use super::{BOTTOM, LEGEND_ROW, Line, PlotArea, colour, draw_legend, legend_rows};

/// Values of one group of runs, one per place.
#[derive(Clone, Debug)]
pub struct Series {
    pub label: String,
    pub values: Vec<Option<Measured>>,
}

/// A mean and what is known about its reliability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub mean: f64,
    pub deviation: f64,
    /// Whether only some of the runs contribute to it.
    pub partial: bool,
}

/// What a figure shows besides its values.
pub struct Frame<'a> {
    pub title: &'a str,
    /// Name and unit of the axis of values.
    pub unit: &'a str,
    /// The places, each with a note beside it, which may be empty.
    pub places: &'a [(String, String)],
}

const WIDTH: f64 = 820.0;
const TOP: f64 = 46.0;
/// Height of a row of dots for one series, and around all of them.
const ROW: (f64, f64) = (7.0, 8.0);

impl Frame<'_> {
    /// The figure with its title and legend, and where the rest begins.
    fn begin(&self, width: f64, left: f64, height: f64, series: &[Series]) -> (Svg, f64) {
        let lines: Vec<Line> =
            series.iter().enumerate().map(|(i, series)| Line::numbered(i, &series.label, Vec::new())).collect();
        let legend = legend_rows(lines.iter(), width - left);
        let extra = (legend.len().max(1) - 1) as f64 * LEGEND_ROW;
        let mut svg = Svg::new(width, TOP + extra + height + BOTTOM);
        svg.text((left, 16.0), self.title, TITLE, "start", Colour::Text);
        draw_legend(&mut svg, (left, 33.0), &legend);
        (svg, TOP + extra)
    }

    /// Draws one row per place, from top to bottom, with a dot for each series.
    ///
    /// A line to both sides shows its deviation. A dot for only some of the runs is hollow.
    pub fn dots(&self, series: &[Series]) -> String {
        let names = self.places.iter().map(|(name, _)| text_width(name, SMALL)).fold(0.0, f64::max);
        let notes = self.places.iter().map(|(_, note)| text_width(note, SMALL)).fold(0.0, f64::max);
        let row = ROW.0 * series.len() as f64 + ROW.1;
        let (left, height) = (names + 12.0, row * self.places.len() as f64);
        let (mut svg, top) = self.begin(WIDTH, left, height, series);
        let measured = || series.iter().flat_map(|series| series.values.iter().flatten());
        let ends = measured().flat_map(|value| [value.mean, value.mean + value.deviation]);
        let Some(x) = Axis::of(ends, Scale::Logarithmic) else { return svg.finish() };
        let area = PlotArea { origin: (left, top), size: (WIDTH - left - notes - 24.0, height), x };
        for (value, _) in x.ticks() {
            svg.line(&[(area.x(value), top), (area.x(value), top + height)], 0.6, Colour::Grid);
        }
        area.draw_x_axis(&mut svg, self.unit);
        for (place, (name, note)) in self.places.iter().enumerate() {
            let middle = top + (place as f64 + 0.5) * row;
            svg.text((left - 6.0, middle + 3.5), name, SMALL, "end", Colour::Text);
            svg.text((WIDTH - 12.0, middle + 3.5), note, SMALL, "end", Colour::Faint);
            for (number, series) in series.iter().enumerate() {
                let Some(value) = series.values[place] else { continue };
                let y = top + place as f64 * row + ROW.1 / 2.0 + (number as f64 + 0.5) * ROW.0;
                let at = |value: f64| area.x(value).clamp(left, left + area.size.0);
                let low = if value.mean > value.deviation { at(value.mean - value.deviation) } else { left };
                svg.line(&[(low, y), (at(value.mean + value.deviation), y)], 1.5, colour(number));
                svg.dot((at(value.mean), y), 3.0, colour(number), value.partial);
            }
        }
        svg.finish()
    }

    /// Draws one group of bars per place, from left to right.
    pub fn bars(&self, series: &[Series]) -> String {
        let group = (10.0 * series.len() as f64 + 8.0).max(text_width("m", SMALL));
        let names = self.places.iter().map(|(name, _)| text_width(name, SMALL)).fold(0.0, f64::max);
        // The first name begins to the left of its bars.
        let left = f64::max(58.0, names * 0.8 - group / 2.0);
        let size = (group * self.places.len() as f64, 160.0);
        let width = (left + size.0 + 16.0).max(404.0);
        let (mut svg, top) = self.begin(width, left, size.1 + names * 0.7, series);
        let means = series.iter().flat_map(|series| series.values.iter().flatten()).map(|value| value.mean);
        let Some(y) = Axis::of(means.chain([0.0]), Scale::Linear) else { return svg.finish() };
        let area = PlotArea { origin: (left, top), size, x: Axis::exactly(0.0, 1.0) };
        area.draw_y_axis(&mut svg, &y);
        svg.turned_text((12.0, top + size.1 / 2.0), self.unit, -90, "middle", Colour::Faint);
        let zero = area.y(y.place(0.0));
        svg.line(&area.across(zero), 0.8, Colour::Faint);
        for (place, (name, _)) in self.places.iter().enumerate() {
            let begin = left + place as f64 * group;
            svg.turned_text((begin + group / 2.0, top + size.1 + 12.0), name, -40, "end", Colour::Text);
            for (number, series) in series.iter().enumerate() {
                let Some(value) = series.values[place] else { continue };
                let end = area.y(y.place(value.mean));
                let at = (begin + 4.0 + 10.0 * number as f64, zero.min(end));
                svg.rectangle(at, (9.0, (zero - end).abs().max(0.5)), colour(number));
            }
        }
        svg.finish()
    }

    /// Draws one column per place with a dot for each of its values, spread sideways.
    ///
    /// A line marks their median.
    pub fn distributions(&self, values: &[Vec<f64>]) -> String {
        let each = self.places.iter().map(|(name, _)| text_width(name, SMALL) + 16.0).fold(90.0, f64::max);
        let (left, size) = (58.0, (each * self.places.len() as f64, 200.0));
        let (mut svg, top) = self.begin((left + size.0 + 16.0).max(404.0), left, size.1, &[]);
        let Some(y) = Axis::of(values.iter().flatten().copied(), Scale::Linear) else { return svg.finish() };
        let area = PlotArea { origin: (left, top - 14.0), size, x: Axis::exactly(0.0, 1.0) };
        area.draw_y_axis(&mut svg, &y);
        svg.turned_text((12.0, top + size.1 / 2.0), self.unit, -90, "middle", Colour::Faint);
        for (place, ((name, note), values)) in self.places.iter().zip(values).enumerate() {
            let middle = left + (place as f64 + 0.5) * each;
            svg.text((middle, area.y(0.0) + 16.0), name, SMALL, "middle", Colour::Text);
            svg.text((middle, area.y(0.0) + 30.0), note, SMALL, "middle", Colour::Faint);
            let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
            sorted.sort_by(f64::total_cmp);
            for (number, value) in sorted.iter().enumerate() {
                // Multiples of the golden ratio are spread evenly, whatever their number.
                let aside = (number as f64 * 0.618_034).fract() - 0.5;
                svg.dot((middle + aside * 40.0, area.y(y.place(*value))), 1.8, colour(place), false);
            }
            if let Some(median) = sorted.get(sorted.len() / 2) {
                let y = area.y(y.place(*median));
                svg.line(&[(middle - 30.0, y), (middle + 30.0, y)], 2.0, Colour::Text);
            }
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(label: &str, values: &[Option<f64>]) -> Series {
        let measured = |mean: &Option<f64>| mean.map(|mean| Measured { mean, deviation: mean / 2.0, partial: false });
        Series { label: label.to_owned(), values: values.iter().map(measured).collect() }
    }

    fn places(names: &[&str]) -> Vec<(String, String)> {
        names.iter().map(|name| ((*name).to_owned(), "2 of 3 seeds".to_owned())).collect()
    }

    #[test]
    fn dots_have_names_notes_and_only_known_values() {
        let places = places(&["pong", "skiing"]);
        let frame = Frame { title: "Frames to human level", unit: "emulator frames", places: &places };
        let both = [series("a", &[Some(1e5), None]), series("b", &[Some(1e8), Some(2e6)])];
        let svg = frame.dots(&both);
        assert_eq!(svg.matches("<circle").count(), 3);
        for text in ["Frames to human level", "emulator frames", "pong", "skiing", "2 of 3 seeds", "1M", "a", "b"] {
            assert!(svg.contains(&format!(">{text}<")), "{text}: {svg}");
        }
    }

    #[test]
    fn bars_stand_on_zero_and_have_the_colour_of_their_series() {
        let places = places(&["pong"]);
        let frame = Frame { title: "Area", unit: "share of the best", places: &places };
        let svg = frame.bars(&[series("a", &[Some(1.0)]), series("b", &[Some(0.5)])]);
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect x"))
            .map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((heights[0] - 2.0 * heights[1]).abs() < 0.3, "{heights:?}");
        assert!(svg.contains("fill=\"#d55e00\""));
    }

    #[test]
    fn every_value_of_a_distribution_is_a_dot() {
        let places = places(&["retrace", "soft_watkins"]);
        let frame = Frame { title: "Trace", unit: "λ", places: &places };
        let svg = frame.distributions(&[vec![0.1, 0.2, f64::NAN], vec![0.9]]);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(frame.distributions(&[vec![], vec![]]).contains("Trace"));
    }
}
