//! One small chart over emulator frames: lines, or a map of shares.

use super::axis::{Axis, Scale};
use super::svg::{Colour, SMALL, Svg, TITLE};

/// Width and height of a chart, including its title and labels.
pub const SIZE: (f64, f64) = (404.0, 240.0);

const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 44.0;

const TEXT: Colour = [32; 3];
const FAINT: Colour = [96; 3];
const GRID: Colour = [224; 3];

/// Longest line: one point per two units of width.
const MAX_POINTS: usize = 160;

/// Values over emulator frames; NaN where there is none.
pub type Points = Vec<(f64, f64)>;

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its entry in the legend; empty to leave it out.
    pub label: String,
    pub colour: Colour,
    pub points: Points,
}

/// Label and value of a horizontal line for reference, such as a human's score.
pub type Level = (&'static str, f64);

/// What a chart shows.
#[derive(Clone, Debug)]
pub enum Content {
    Lines {
        lines: Vec<Line>,
        levels: Vec<Level>,
        scale: Scale,
    },
    /// One share per policy, the first at the bottom, over time.
    Shares {
        /// The frame count at which each column begins, and its shares. A column ends where the next one begins.
        columns: Vec<(f64, Vec<f64>)>,
        /// Where the last column ends.
        end: f64,
    },
}

/// A small chart.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// Unit of the vertical axis.
    pub unit: String,
    pub content: Content,
    /// Number of policies, if the colours of the lines stand for policies.
    pub policies: Option<usize>,
}

/// Colour of one of `count` policies, from dark blue (exploits most) to orange (explores most).
///
/// Lightness rises from end to end, which keeps the order visible to colour-blind readers.
pub fn policy_colour(policy: usize, count: usize) -> Colour {
    const STOPS: [[f64; 3]; 5] =
        [[13.0, 8.0, 135.0], [106.0, 0.0, 168.0], [177.0, 42.0, 144.0], [225.0, 100.0, 98.0], [252.0, 166.0, 54.0]];
    let place = policy as f64 / (count.max(2) - 1) as f64 * (STOPS.len() - 1) as f64;
    let stop = (place as usize).min(STOPS.len() - 2);
    let share = place - stop as f64;
    std::array::from_fn(|i| (STOPS[stop][i] + (STOPS[stop + 1][i] - STOPS[stop][i]) * share) as u8)
}

/// Distinct colours without an order (Okabe and Ito's, which colour-blind readers can tell apart).
pub fn colour(index: usize) -> Colour {
    const COLOURS: [Colour; 7] =
        [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [90, 90, 90]];
    COLOURS[index % COLOURS.len()]
}

impl Chart {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Lines { lines, .. } => {
                lines.iter().flat_map(|line| &line.points).all(|(_, value)| !value.is_finite())
            }
            Content::Shares { columns, .. } => columns.is_empty(),
        }
    }

    /// Draws the chart with its upper left corner at `corner`, from 0 to `frames`.
    pub fn draw(&self, svg: &mut Svg, corner: (f64, f64), frames: f64) {
        let origin = (corner.0 + LEFT, corner.1 + TOP);
        let size = (SIZE.0 - LEFT - RIGHT, SIZE.1 - TOP - BOTTOM);
        let area = PlotArea { origin, size, x: Axis::exactly(0.0, frames) };
        svg.text((origin.0, corner.1 + 16.0), &self.title, TITLE, "start", TEXT);
        svg.vertical_text((corner.0 + 12.0, origin.1 + size.1 / 2.0), &self.unit, FAINT);
        area.draw_x_axis(svg);
        match &self.content {
            Content::Lines { lines, levels, scale } => {
                let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
                let values = values.chain(levels.iter().map(|(_, value)| *value));
                if let Some(y) = Axis::of(values, *scale) {
                    area.draw_lines(svg, &y, lines, levels);
                }
                self.draw_legend(svg, (origin.0, corner.1 + 33.0), lines);
            }
            Content::Shares { columns, end } => area.draw_shares(svg, columns, *end),
        }
    }

    /// Draws the names of the lines in their colours, or the colours of the policies.
    fn draw_legend(&self, svg: &mut Svg, (x, y): (f64, f64), lines: &[Line]) {
        let Some(count) = self.policies else {
            let named = lines.iter().filter(|line| !line.label.is_empty());
            return svg.texts((x, y), named.map(|line| (line.label.as_str(), line.colour)));
        };
        let (left, width) = (x + 50.0, 120.0 / count as f64);
        svg.text((left - 5.0, y), "policy 0", SMALL, "end", FAINT);
        for policy in 0..count {
            let at = (left + policy as f64 * width, y - 8.0);
            svg.rectangle(at, (width, 8.0), policy_colour(policy, count));
        }
        svg.text((left + 125.0, y), &count.saturating_sub(1).to_string(), SMALL, "start", FAINT);
    }
}

/// The part of a chart inside its axes.
struct PlotArea {
    origin: (f64, f64),
    size: (f64, f64),
    x: Axis,
}

impl PlotArea {
    fn x(&self, frames: f64) -> f64 {
        self.origin.0 + self.x.place(frames) * self.size.0
    }

    /// Maps a fraction of the height, from the bottom.
    fn y(&self, fraction: f64) -> f64 {
        self.origin.1 + (1.0 - fraction) * self.size.1
    }

    /// A horizontal line across the area.
    fn across(&self, y: f64) -> [(f64, f64); 2] {
        [(self.origin.0, y), (self.origin.0 + self.size.0, y)]
    }

    fn draw_x_axis(&self, svg: &mut Svg) {
        let bottom = self.y(0.0);
        svg.line(&self.across(bottom), 0.8, FAINT);
        for (value, label) in self.x.ticks() {
            let x = self.x(value);
            svg.line(&[(x, bottom), (x, bottom + 3.0)], 0.8, FAINT);
            svg.text((x, bottom + 14.0), &label, SMALL, "middle", FAINT);
        }
        let middle = self.origin.0 + self.size.0 / 2.0;
        svg.text((middle, bottom + 28.0), "emulator frames", SMALL, "middle", FAINT);
    }

    fn draw_lines(&self, svg: &mut Svg, axis: &Axis, lines: &[Line], levels: &[Level]) {
        for (value, label) in axis.ticks() {
            let y = self.y(axis.place(value));
            svg.line(&self.across(y), 0.6, GRID);
            svg.text((self.origin.0 - 5.0, y + 3.5), &label, SMALL, "end", FAINT);
        }
        for (_, value) in levels {
            svg.dashes(&self.across(self.y(axis.place(*value))), FAINT);
        }
        let width = if lines.len() > 6 { 1.0 } else { 1.5 };
        for line in lines {
            let thinned = thinned(&line.points);
            let unbroken = thinned.split(|(_, value)| !value.is_finite()).filter(|points| !points.is_empty());
            for points in unbroken {
                let places: Vec<(f64, f64)> =
                    points.iter().map(|(frames, value)| (self.x(*frames), self.y(axis.place(*value)))).collect();
                match places[..] {
                    // A line of one point would be invisible.
                    [(x, y)] => svg.rectangle((x - 1.5, y - 1.5), (3.0, 3.0), line.colour),
                    _ => svg.line(&places, width, line.colour),
                }
            }
        }
        // On top of the lines, so that they stay readable.
        for (label, value) in levels {
            let y = self.y(axis.place(*value));
            svg.text((self.origin.0 + self.size.0, y - 3.0), label, SMALL, "end", FAINT);
        }
    }

    fn draw_shares(&self, svg: &mut Svg, columns: &[(f64, Vec<f64>)], end: f64) {
        let largest = columns.iter().flat_map(|(_, shares)| shares).copied().fold(0.0, f64::max);
        let policies = columns.iter().map(|(_, shares)| shares.len()).max().unwrap_or(0);
        let y = |policy: f64| self.y(policy / policies as f64);
        let ends = columns.iter().skip(1).map(|(frames, _)| *frames).chain([end]);
        for ((begin, shares), end) in columns.iter().zip(ends) {
            let (left, right) = (self.x(*begin), self.x(end));
            for (policy, share) in shares.iter().enumerate() {
                // The square root makes rare choices visible.
                let strength = if largest > 0.0 { (share / largest).sqrt() } else { 0.0 };
                let (top, bottom) = (y(policy as f64 + 1.0), y(policy as f64));
                let colour = [20.0, 60.0, 140.0].map(|dark: f64| (255.0 + (dark - 255.0) * strength) as u8);
                svg.rectangle((left, top), (right - left, bottom - top), colour);
            }
        }
        for policy in (0..policies).step_by((policies / 8).max(1)) {
            let at = (self.origin.0 - 5.0, y(policy as f64 + 0.5) + 3.5);
            svg.text(at, &policy.to_string(), SMALL, "end", FAINT);
        }
    }
}

/// Replaces groups of neighbouring points by their means, down to [`MAX_POINTS`].
fn thinned(points: &Points) -> Points {
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

    fn lines(points: Points) -> Chart {
        let lines = vec![Line { label: "actors".to_owned(), colour: colour(0), points }];
        let levels = vec![("human", 10.0)];
        let content = Content::Lines { lines, levels, scale: Scale::Linear };
        Chart { title: "Score".to_owned(), unit: "points".to_owned(), content, policies: None }
    }

    /// The elements that a chart consists of.
    fn drawn(chart: &Chart) -> Vec<String> {
        let mut svg = Svg::new(SIZE.0, SIZE.1);
        chart.draw(&mut svg, (0.0, 0.0), 100.0);
        svg.finish().lines().skip(2).map(str::to_owned).collect()
    }

    /// The elements in the colour of the first line.
    fn coloured(elements: &[String], kind: &str) -> Vec<String> {
        elements.iter().filter(|line| line.starts_with(kind) && line.contains("#0072b2")).cloned().collect()
    }

    /// The number of an attribute.
    fn number(element: &str, attribute: &str) -> f64 {
        let rest = &element[element.find(attribute).unwrap() + attribute.len() + 2..];
        rest[..rest.find(['"', ' ']).unwrap()].trim_start_matches('M').parse().unwrap()
    }

    #[test]
    fn line_spans_the_chart_and_breaks_where_values_are_missing() {
        let elements = drawn(&lines(vec![(0.0, 0.0), (50.0, 5.0), (60.0, f64::NAN), (80.0, 7.0), (100.0, 10.0)]));
        let paths = coloured(&elements, "<path");
        assert_eq!(paths.len(), 2);
        assert_eq!(number(&paths[0], " d"), LEFT);
        assert_eq!(number(&paths[1], " d"), LEFT + 0.8 * (SIZE.0 - LEFT - RIGHT));
        for text in ["Score", "points", "actors", "human", "100", "emulator frames"] {
            assert!(elements.iter().any(|element| element.contains(&format!(">{text}<"))), "{text}: {elements:?}");
        }
    }

    #[test]
    fn single_value_is_a_dot_and_missing_values_are_nothing() {
        let elements = drawn(&lines(vec![(50.0, 3.0)]));
        assert_eq!((coloured(&elements, "<path").len(), coloured(&elements, "<rect").len()), (0, 1));
        assert!(lines(vec![(50.0, f64::NAN)]).is_empty() && lines(vec![]).is_empty());
    }

    #[test]
    fn shares_fill_the_chart_and_the_largest_is_darkest() {
        let columns = vec![(0.0, vec![0.5, 0.5]), (50.0, vec![0.0, 1.0])];
        let content = Content::Shares { columns, end: 100.0 };
        let elements = drawn(&Chart { title: String::new(), unit: "policy".to_owned(), content, policies: None });
        let rectangles: Vec<&String> = elements.iter().filter(|element| element.starts_with("<rect")).collect();
        let area: f64 = rectangles.iter().map(|one| number(one, "width") * number(one, "height")).sum();
        assert!((area - (SIZE.0 - LEFT - RIGHT) * (SIZE.1 - TOP - BOTTOM)).abs() < 1e-6);
        let shade = |rectangle: &str| u8::from_str_radix(&rectangle[rectangle.find('#').unwrap() + 1..][..2], 16);
        let shades: Vec<u8> = rectangles.iter().map(|rectangle| shade(rectangle).unwrap()).collect();
        assert_eq!((shades[2], shades[3]), (255, 20));
        assert!(shades[0] == shades[1] && shades[0] > 20 && shades[0] < 255);
    }

    #[test]
    fn many_points_become_their_means() {
        let points: Points = (0..1000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), 143);
        assert_eq!(thin[1], (10.0, 4.0 / 7.0));
    }

    #[test]
    fn policy_colours_go_from_dark_blue_to_orange() {
        assert_eq!(policy_colour(0, 16), [13, 8, 135]);
        assert_eq!(policy_colour(15, 16), [252, 166, 54]);
        assert_eq!(policy_colour(0, 1), [13, 8, 135]);
    }
}
