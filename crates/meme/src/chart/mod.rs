//! Charts that `meme plot`, `meme report` and `meme watch` share: lines with bands, and maps of shares.

pub mod axis;
mod curve;
pub mod rows;
pub mod svg;

pub use self::curve::{Band, Points, mean_and_range, value_at};

use self::axis::{Axis, Scale};
use self::curve::thinned;
use self::svg::{Colour, SMALL, Svg, TITLE, text_width};

/// Width and height of a small chart, including its title and labels and one row of legend.
pub const SIZE: (f64, f64) = (404.0, 240.0);
/// Label of most horizontal axes.
pub const FRAMES: &str = "emulator frames";

const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 44.0;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 14.0;
/// Distance between the labels of two marks.
const MARK_ROW: f64 = 12.0;
/// Length of the sample of a line in the legend, with the gap after it.
const SAMPLE: f64 = 20.0;

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its entry in the legend; empty to leave it out.
    pub label: String,
    pub colour: Colour,
    pub dashed: bool,
    pub points: Points,
    /// The range around the line, shaded; may be empty.
    pub band: Band,
}

impl Line {
    /// A line without a band, in a colour that follows from its number.
    pub fn numbered(number: usize, label: impl Into<String>, points: Points) -> Self {
        Self { dashed: is_dashed(number), ..Self::coloured(colour(number), label, points) }
    }

    /// A solid line without a band.
    pub fn coloured(colour: Colour, label: impl Into<String>, points: Points) -> Self {
        Self { label: label.into(), colour, dashed: false, points, band: Band::new() }
    }
}

/// Label and value of a horizontal line for reference, such as a human's score; higher ones come first.
pub type Level = (&'static str, f64);

/// A vertical line with a label, such as the frame at which a setting changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub x: f64,
    pub label: String,
}

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

/// A chart with a horizontal and a vertical axis.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// Unit of the vertical axis.
    pub unit: String,
    pub x: Axis,
    /// Name and unit of the horizontal axis.
    pub x_label: &'static str,
    pub content: Content,
    /// Number of policies, if the colours of the lines stand for policies.
    pub policies: Option<usize>,
    /// Drawn on top of the content.
    pub marks: Vec<Mark>,
    pub width: f64,
}

/// Colour of one of `count` policies, from blue to orange.
///
/// Blue exploits most, orange explores most. Lightness rises from end to end, which keeps the order visible to
/// colour-blind readers. The darkest colour has a contrast ratio of 3 against the dark page.
pub fn policy_colour(policy: usize, count: usize) -> Colour {
    const STOPS: [[f64; 3]; 5] =
        [[72.0, 84.0, 228.0], [150.0, 62.0, 205.0], [200.0, 75.0, 160.0], [228.0, 104.0, 98.0], [252.0, 166.0, 54.0]];
    let place = policy as f64 / (count.max(2) - 1) as f64 * (STOPS.len() - 1) as f64;
    let stop = (place as usize).min(STOPS.len() - 2);
    let share = place - stop as f64;
    Colour::Rgb(std::array::from_fn(|i| (STOPS[stop][i] + (STOPS[stop + 1][i] - STOPS[stop][i]) * share) as u8))
}

/// Okabe and Ito's colours, which colour-blind readers can tell apart, less black and yellow, and a grey: all are
/// visible on light and dark pages.
const COLOURS: [[u8; 3]; 7] =
    [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [128, 128, 128]];

/// Distinct colours without an order.
pub fn colour(number: usize) -> Colour {
    Colour::Rgb(COLOURS[number % COLOURS.len()])
}

/// Returns whether a line with this number is dashed, as its colour is used a second time.
fn is_dashed(number: usize) -> bool {
    number / COLOURS.len() % 2 == 1
}

impl Chart {
    /// A chart of lines over emulator frames, from 0.
    pub fn lines(title: impl Into<String>, unit: impl Into<String>, frames: f64, lines: Vec<Line>) -> Self {
        Self {
            title: title.into(),
            unit: unit.into(),
            x: Axis::exactly(0.0, frames),
            x_label: FRAMES,
            content: Content::Lines { lines, levels: Vec::new(), scale: Scale::Linear },
            policies: None,
            marks: Vec::new(),
            width: SIZE.0,
        }
    }

    /// Adds reference levels, and makes the vertical axis logarithmic where that suits the values.
    pub fn with(mut self, levels: Vec<Level>, scale: Scale) -> Self {
        if let Content::Lines { levels: old_levels, scale: old_scale, .. } = &mut self.content {
            (*old_levels, *old_scale) = (levels, scale);
        }
        self
    }

    /// Returns whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Lines { lines, .. } => {
                lines.iter().flat_map(|line| &line.points).all(|(_, value)| !value.is_finite())
            }
            Content::Shares { columns, .. } => columns.is_empty(),
        }
    }

    /// Height of the chart, which depends on its legend.
    pub fn height(&self) -> f64 {
        SIZE.1 + (self.legend().len().max(1) - 1) as f64 * LEGEND_ROW
    }

    /// Returns the chart as a document of its own.
    pub fn document(&self) -> String {
        let mut svg = Svg::new(self.width, self.height());
        self.draw(&mut svg, (0.0, 0.0));
        svg.finish()
    }

    /// Draws the chart with its upper left corner at `corner`.
    pub fn draw(&self, svg: &mut Svg, corner: (f64, f64)) {
        let legend = self.legend();
        let top = TOP + (legend.len().max(1) - 1) as f64 * LEGEND_ROW;
        let origin = (corner.0 + LEFT, corner.1 + top);
        let size = (self.width - LEFT - RIGHT, SIZE.1 - TOP - BOTTOM);
        let area = PlotArea { origin, size, x: self.x };
        svg.text((origin.0, corner.1 + 16.0), &self.title, TITLE, "start", Colour::Text);
        svg.turned_text((corner.0 + 12.0, origin.1 + size.1 / 2.0), &self.unit, -90, "middle", Colour::Faint);
        area.draw_x_axis(svg, self.x_label);
        match &self.content {
            Content::Lines { lines, levels, scale } => {
                let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
                let bands = lines.iter().flat_map(|line| &line.band).flat_map(|(_, low, high)| [*low, *high]);
                let values = values.chain(bands).chain(levels.iter().map(|(_, value)| *value));
                if let Some(y) = Axis::of(values, *scale) {
                    area.draw_lines(svg, &y, lines, levels);
                }
            }
            Content::Shares { columns, end } => area.draw_shares(svg, columns, *end),
        }
        area.draw_marks(svg, &self.marks);
        let at = (origin.0, corner.1 + 33.0);
        match self.policies {
            Some(count) => draw_policies(svg, at, count),
            None => draw_legend(svg, at, &legend),
        }
    }

    /// The rows of the legend: lines, each with its distance from the left.
    fn legend(&self) -> Vec<Vec<(f64, &Line)>> {
        let Content::Lines { lines, .. } = &self.content else { return Vec::new() };
        legend_rows(lines.iter().filter(|line| !line.label.is_empty()), self.width - LEFT - RIGHT)
    }
}

/// Arranges the entries of a legend in rows that are at most `width` wide where that is possible.
fn legend_rows<'a>(lines: impl Iterator<Item = &'a Line>, width: f64) -> Vec<Vec<(f64, &'a Line)>> {
    let mut rows: Vec<Vec<(f64, &Line)>> = Vec::new();
    let mut x = f64::INFINITY;
    for line in lines {
        let wide = SAMPLE + text_width(&line.label, SMALL);
        if x + wide > width {
            rows.push(Vec::new());
            x = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, line));
        }
        x += wide + 8.0;
    }
    rows
}

/// Draws a sample of each line with its name.
fn draw_legend(svg: &mut Svg, (left, top): (f64, f64), rows: &[Vec<(f64, &Line)>]) {
    for (number, row) in rows.iter().enumerate() {
        let y = top + number as f64 * LEGEND_ROW;
        for (x, line) in row {
            let sample = [(left + x, y - 3.5), (left + x + SAMPLE - 5.0, y - 3.5)];
            if line.dashed {
                svg.dashes(&sample, 2.0, line.colour)
            } else {
                svg.line(&sample, 2.5, line.colour)
            }
            svg.text((left + x + SAMPLE, y), &line.label, SMALL, "start", Colour::Text);
        }
    }
}

/// Draws the colours of the policies.
fn draw_policies(svg: &mut Svg, (x, y): (f64, f64), count: usize) {
    let (left, width) = (x + 50.0, 120.0 / count as f64);
    svg.text((left - 5.0, y), "policy 0", SMALL, "end", Colour::Faint);
    for policy in 0..count {
        svg.rectangle((left + policy as f64 * width, y - 8.0), (width, 8.0), policy_colour(policy, count));
    }
    svg.text((left + 125.0, y), &count.saturating_sub(1).to_string(), SMALL, "start", Colour::Faint);
}

/// The part of a chart inside its axes.
struct PlotArea {
    origin: (f64, f64),
    size: (f64, f64),
    x: Axis,
}

impl PlotArea {
    fn x(&self, value: f64) -> f64 {
        self.origin.0 + self.x.place(value) * self.size.0
    }

    /// Maps a fraction of the height, from the bottom.
    fn y(&self, fraction: f64) -> f64 {
        self.origin.1 + (1.0 - fraction) * self.size.1
    }

    /// A horizontal line across the area.
    fn across(&self, y: f64) -> [(f64, f64); 2] {
        [(self.origin.0, y), (self.origin.0 + self.size.0, y)]
    }

    fn draw_x_axis(&self, svg: &mut Svg, label: &str) {
        let bottom = self.y(0.0);
        svg.line(&self.across(bottom), 0.8, Colour::Faint);
        for (value, label) in self.x.ticks() {
            let x = self.x(value);
            svg.line(&[(x, bottom), (x, bottom + 3.0)], 0.8, Colour::Faint);
            svg.text((x, bottom + 14.0), &label, SMALL, "middle", Colour::Faint);
        }
        let middle = self.origin.0 + self.size.0 / 2.0;
        svg.text((middle, bottom + 28.0), label, SMALL, "middle", Colour::Faint);
    }

    fn draw_y_axis(&self, svg: &mut Svg, axis: &Axis) {
        for (value, label) in axis.ticks() {
            let y = self.y(axis.place(value));
            svg.line(&self.across(y), 0.6, Colour::Grid);
            svg.text((self.origin.0 - 5.0, y + 3.5), &label, SMALL, "end", Colour::Faint);
        }
    }

    fn draw_lines(&self, svg: &mut Svg, axis: &Axis, lines: &[Line], levels: &[Level]) {
        self.draw_y_axis(svg, axis);
        for (_, value) in levels {
            svg.dashes(&self.across(self.y(axis.place(*value))), 0.8, Colour::Faint);
        }
        let place = |x: f64, value: f64| (self.x(x), self.y(axis.place(value)));
        for line in lines.iter().filter(|line| !line.band.is_empty()) {
            let above = line.band.iter().map(|(x, _, high)| place(*x, *high));
            let below = line.band.iter().rev().map(|(x, low, _)| place(*x, *low));
            svg.shade(&above.chain(below).collect::<Vec<_>>(), line.colour);
        }
        let width = if lines.len() > 6 { 1.0 } else { 1.5 };
        for line in lines {
            let thinned = thinned(&line.points);
            let unbroken = thinned.split(|(_, value)| !value.is_finite()).filter(|points| !points.is_empty());
            for points in unbroken {
                let places: Vec<(f64, f64)> = points.iter().map(|(x, value)| place(*x, *value)).collect();
                match places[..] {
                    // A line of one point would be invisible.
                    [(x, y)] => svg.rectangle((x - 1.5, y - 1.5), (3.0, 3.0), line.colour),
                    _ if line.dashed => svg.dashes(&places, width, line.colour),
                    _ => svg.line(&places, width, line.colour),
                }
            }
        }
        // On top of the lines, so that they stay readable; levels that are close share a label.
        let mut labels: Vec<(f64, String)> = Vec::new();
        for (label, value) in levels {
            let y = self.y(axis.place(*value));
            match labels.last_mut() {
                Some((above, names)) if (y - *above).abs() < SMALL + 2.0 => *names += &format!(", {label}"),
                _ => labels.push((y, (*label).to_owned())),
            }
        }
        for (y, names) in labels {
            svg.text((self.origin.0 + self.size.0, y - 3.0), &names, SMALL, "end", Colour::Faint);
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
                svg.tinted((left, top), (right - left, bottom - top), colour(0), strength);
            }
        }
        for policy in (0..policies).step_by((policies / 8).max(1)) {
            let at = (self.origin.0 - 5.0, y(policy as f64 + 0.5) + 3.5);
            svg.text(at, &policy.to_string(), SMALL, "end", Colour::Faint);
        }
    }

    /// Draws the marks, each label a row below the one before, so that labels of neighbours do not overlap.
    fn draw_marks(&self, svg: &mut Svg, marks: &[Mark]) {
        let (top, bottom) = (self.y(1.0), self.y(0.0));
        for mark in marks {
            let x = self.x(mark.x);
            svg.dashes(&[(x, top), (x, bottom)], 1.0, Colour::Text);
        }
        let rows = (self.size.1 / MARK_ROW) as usize;
        for (number, mark) in marks.iter().enumerate() {
            // Towards the middle, where there is room.
            let (anchor, gap) = if self.x.place(mark.x) < 0.5 { ("start", 3.0) } else { ("end", -3.0) };
            let y = top + 8.0 + (number % rows) as f64 * MARK_ROW;
            svg.text((self.x(mark.x) + gap, y), &mark.label, SMALL, anchor, Colour::Text);
        }
    }
}

#[cfg(test)]
mod tests;
