//! One small chart over frames: lines, or a map of shares.

use super::axis::{Axis, Scale};
use super::surface::{Anchor, SMALL, Surface, text_width};
use crate::video::canvas::Colour;

/// Width and height of a chart, its title and labels included.
pub const SIZE: (f64, f64) = (396.0, 216.0);

const LEFT: f64 = 48.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 20.0;

const TEXT: Colour = [32; 3];
const FAINT: Colour = [128; 3];
const GRID: Colour = [228; 3];

/// A line has at most so many points: one every two units.
const POINTS: usize = 160;

/// A value at each of some frame counts; NaN where there is none.
pub type Points = Vec<(f64, f64)>;

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it shows; empty for a line that is one of many.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// What it goes through.
    pub points: Points,
}

/// A line across the chart, such as a human's score.
#[derive(Clone, Debug)]
pub struct Level {
    /// What it is.
    pub label: String,
    /// Where it is.
    pub value: f64,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// Lines over frames.
    Lines {
        /// The lines.
        lines: Vec<Line>,
        /// Lines across.
        levels: Vec<Level>,
        /// How the values may be scaled.
        scale: Scale,
    },
    /// A share for each policy, the first at the bottom, and each of some frame counts.
    Shares {
        /// By frame count: where its column begins, and the shares. It ends where the next one begins.
        columns: Vec<(f64, Vec<f64>)>,
        /// Where the last column ends.
        end: f64,
    },
}

/// A small chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it is of.
    pub title: String,
    /// What it shows.
    pub content: Content,
    /// How many policies the colours of its lines tell apart, if they do.
    pub policies: Option<usize>,
}

/// The colour of one of `count` policies: from blue, which exploits, to red, which explores.
pub fn policy_colour(policy: usize, count: usize) -> Colour {
    const STOPS: [[f64; 3]; 5] =
        [[30.0, 70.0, 180.0], [0.0, 150.0, 190.0], [60.0, 165.0, 80.0], [230.0, 150.0, 20.0], [200.0, 30.0, 40.0]];
    let place = policy as f64 / (count.max(2) - 1) as f64 * (STOPS.len() - 1) as f64;
    let stop = (place as usize).min(STOPS.len() - 2);
    let share = place - stop as f64;
    std::array::from_fn(|i| (STOPS[stop][i] + (STOPS[stop + 1][i] - STOPS[stop][i]) * share) as u8)
}

/// Colours that are told apart without an order.
pub fn colour(index: usize) -> Colour {
    const COLOURS: [Colour; 7] =
        [[31, 92, 178], [214, 96, 20], [40, 140, 70], [170, 40, 60], [120, 80, 170], [20, 140, 150], [110, 110, 40]];
    COLOURS[index % COLOURS.len()]
}

impl Chart {
    /// Whether it has anything to show.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Lines { lines, .. } => {
                lines.iter().flat_map(|line| &line.points).all(|(_, value)| !value.is_finite())
            }
            Content::Shares { columns, .. } => columns.is_empty(),
        }
    }

    /// Draws it with its upper left corner at `corner`; frames run from 0 to `frames`.
    pub fn draw(&self, surface: &mut dyn Surface, corner: (f64, f64), frames: f64) {
        let origin = (corner.0 + LEFT, corner.1 + TOP);
        let size = (SIZE.0 - LEFT - RIGHT, SIZE.1 - TOP - BOTTOM);
        let frame = Frame { origin, size, x: Axis::exactly(0.0, frames) };
        surface.text((origin.0, corner.1 + 12.0), &self.title, SMALL, Anchor::Left, TEXT);
        frame.draw_x(surface);
        match &self.content {
            Content::Lines { lines, levels, scale } => {
                let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
                let values = values.chain(levels.iter().map(|level| level.value));
                if let Some(y) = Axis::of(values, *scale) {
                    frame.draw_lines(surface, &y, lines, levels);
                }
                self.draw_key(surface, (origin.0, corner.1 + 26.0), lines);
            }
            Content::Shares { columns, end } => frame.draw_shares(surface, columns, *end),
        }
    }

    /// Names of the lines in their colours, or the colours of the policies.
    fn draw_key(&self, surface: &mut dyn Surface, (mut x, y): (f64, f64), lines: &[Line]) {
        if let Some(count) = self.policies {
            surface.text((x, y), "policy 0", SMALL, Anchor::Left, FAINT);
            x += text_width("policy 0 ", SMALL);
            for policy in 0..count {
                let width = 120.0 / count as f64;
                let at = (x + policy as f64 * width, y - 7.0);
                surface.rectangle(at, (width, 7.0), policy_colour(policy, count));
            }
            let last = count.saturating_sub(1).to_string();
            surface.text((x + 126.0, y), &last, SMALL, Anchor::Left, FAINT);
            return;
        }
        for line in lines.iter().filter(|line| !line.label.is_empty()) {
            surface.text((x, y), &line.label, SMALL, Anchor::Left, line.colour);
            x += text_width(&line.label, SMALL) + 12.0;
        }
    }
}

/// The part of a chart that is drawn in.
struct Frame {
    origin: (f64, f64),
    size: (f64, f64),
    x: Axis,
}

impl Frame {
    fn x(&self, frames: f64) -> f64 {
        self.origin.0 + self.x.place(frames) * self.size.0
    }

    /// A share of the height, from the bottom.
    fn y(&self, share: f64) -> f64 {
        self.origin.1 + (1.0 - share) * self.size.1
    }

    fn draw_x(&self, surface: &mut dyn Surface) {
        let bottom = self.y(0.0);
        surface.line(&[(self.origin.0, bottom), (self.origin.0 + self.size.0, bottom)], 0.8, FAINT);
        for (value, label) in self.x.ticks() {
            let x = self.x(value);
            surface.line(&[(x, bottom), (x, bottom + 3.0)], 0.8, FAINT);
            surface.text((x, bottom + 13.0), &label, SMALL, Anchor::Middle, FAINT);
        }
    }

    fn draw_lines(&self, surface: &mut dyn Surface, axis: &Axis, lines: &[Line], levels: &[Level]) {
        let right = self.origin.0 + self.size.0;
        for (value, label) in axis.ticks() {
            let y = self.y(axis.place(value));
            surface.line(&[(self.origin.0, y), (right, y)], 0.5, GRID);
            surface.text((self.origin.0 - 5.0, y + 3.5), &label, SMALL, Anchor::Right, FAINT);
        }
        for level in levels {
            let y = self.y(axis.place(level.value));
            let dashes = (self.size.0 / 8.0) as usize;
            for dash in 0..dashes {
                let x = self.origin.0 + dash as f64 * 8.0;
                surface.line(&[(x, y), (x + 4.0, y)], 0.8, FAINT);
            }
            surface.text((right, y - 3.0), &level.label, SMALL, Anchor::Right, FAINT);
        }
        let width = if lines.len() > 6 { 1.0 } else { 1.4 };
        for line in lines {
            for stretch in stretches(&thinned(&line.points)) {
                let places: Vec<(f64, f64)> =
                    stretch.iter().map(|(frames, value)| (self.x(*frames), self.y(axis.place(*value)))).collect();
                match places[..] {
                    // A value on its own would not be seen as a line.
                    [(x, y)] => surface.rectangle((x - 1.0, y - 1.0), (2.0, 2.0), line.colour),
                    _ => surface.line(&places, width, line.colour),
                }
            }
        }
    }

    fn draw_shares(&self, surface: &mut dyn Surface, columns: &[(f64, Vec<f64>)], end: f64) {
        let most = columns.iter().flat_map(|(_, shares)| shares).copied().fold(0.0, f64::max);
        let policies = columns.iter().map(|(_, shares)| shares.len()).max().unwrap_or(0);
        let ends = columns.iter().skip(1).map(|(frames, _)| *frames).chain([end]);
        for ((begin, shares), end) in columns.iter().zip(ends) {
            let (left, right) = (self.x(*begin), self.x(end));
            for (policy, share) in shares.iter().enumerate() {
                // Square roots, so that an arm that is pulled now and then is told from one that never is.
                let strength = if most > 0.0 { (share / most).sqrt() } else { 0.0 };
                let fade = |dark: f64| (255.0 + (dark - 255.0) * strength) as u8;
                let (top, bottom) =
                    (self.y((policy + 1) as f64 / policies as f64), self.y(policy as f64 / policies as f64));
                let colour = [fade(20.0), fade(60.0), fade(140.0)];
                surface.rectangle((left, top), (right - left, bottom - top), colour);
            }
        }
        for policy in (0..policies).step_by((policies / 8).max(1)) {
            let y = self.y((policy as f64 + 0.5) / policies as f64) + 3.5;
            surface.text((self.origin.0 - 5.0, y), &policy.to_string(), SMALL, Anchor::Right, FAINT);
        }
    }
}

/// Fewer points: the mean of each stretch of neighbours.
fn thinned(points: &Points) -> Points {
    let each = points.len().div_ceil(POINTS).max(1);
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.filter(|value| value.is_finite()).fold((0.0, 0.0), |(s, c), v| (s + v, c + 1.0));
        sum / count
    };
    let thin = |some: &[(f64, f64)]| {
        (mean(&mut some.iter().map(|(frames, _)| *frames)), mean(&mut some.iter().map(|(_, value)| *value)))
    };
    points.chunks(each).map(thin).collect()
}

/// The stretches without a gap.
fn stretches(points: &Points) -> impl Iterator<Item = &[(f64, f64)]> {
    points.split(|(_, value)| !value.is_finite()).filter(|stretch| !stretch.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Corner, size and colour.
    type Rectangle = ((f64, f64), (f64, f64), Colour);

    /// Remembers what was drawn.
    #[derive(Default)]
    struct Drawn {
        lines: Vec<Vec<(f64, f64)>>,
        rectangles: Vec<Rectangle>,
        texts: Vec<String>,
    }

    impl Surface for Drawn {
        fn rectangle(&mut self, corner: (f64, f64), size: (f64, f64), colour: Colour) {
            self.rectangles.push((corner, size, colour));
        }

        fn line(&mut self, points: &[(f64, f64)], _width: f64, colour: Colour) {
            if colour == super::colour(0) {
                self.lines.push(points.to_vec());
            }
        }

        fn text(&mut self, _at: (f64, f64), text: &str, _size: f64, _anchor: Anchor, _colour: Colour) {
            self.texts.push(text.to_owned());
        }
    }

    fn lines(points: Points) -> Chart {
        let lines = vec![Line { label: "score".to_owned(), colour: colour(0), points }];
        let levels = vec![Level { label: "human".to_owned(), value: 10.0 }];
        let content = Content::Lines { lines, levels, scale: Scale::Linear };
        Chart { title: "a title".to_owned(), content, policies: None }
    }

    #[test]
    fn a_line_goes_from_corner_to_corner_and_breaks_where_nothing_is_known() {
        let chart = lines(vec![(0.0, 0.0), (50.0, 5.0), (60.0, f64::NAN), (80.0, 7.0), (100.0, 10.0)]);
        let mut drawn = Drawn::default();
        chart.draw(&mut drawn, (0.0, 0.0), 100.0);
        assert_eq!(drawn.lines.len(), 2);
        let (first, last) = (drawn.lines[0][0], drawn.lines[1][1]);
        assert_eq!((first.0, last.0), (LEFT, SIZE.0 - RIGHT));
        assert!(first.1 > last.1 && last.1 > TOP && first.1 < SIZE.1 - BOTTOM);
        assert!(["a title", "score", "human", "100"].iter().all(|text| drawn.texts.iter().any(|t| t == text)));
    }

    #[test]
    fn a_single_value_is_a_dot_and_none_is_nothing() {
        let mut drawn = Drawn::default();
        lines(vec![(50.0, 3.0)]).draw(&mut drawn, (0.0, 0.0), 100.0);
        assert_eq!((drawn.lines.len(), drawn.rectangles.len()), (0, 1));
        assert!(lines(vec![(50.0, f64::NAN)]).is_empty() && lines(vec![]).is_empty());
    }

    #[test]
    fn shares_fill_the_chart_and_the_largest_is_darkest() {
        let columns = vec![(0.0, vec![0.5, 0.5]), (50.0, vec![0.0, 1.0])];
        let content = Content::Shares { columns, end: 100.0 };
        let chart = Chart { title: String::new(), content, policies: None };
        let mut drawn = Drawn::default();
        chart.draw(&mut drawn, (0.0, 0.0), 100.0);
        let area: f64 = drawn.rectangles.iter().map(|(_, size, _)| size.0 * size.1).sum();
        assert!((area - (SIZE.0 - LEFT - RIGHT) * (SIZE.1 - TOP - BOTTOM)).abs() < 1e-6);
        let colours: Vec<Colour> = drawn.rectangles.iter().map(|(.., colour)| *colour).collect();
        assert_eq!((colours[2], colours[3]), ([255; 3], [20, 60, 140]));
        assert!(colours[0] == colours[1] && colours[0][0] > 20 && colours[0][0] < 255);
    }

    #[test]
    fn many_points_become_their_means() {
        let points: Points = (0..1000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), 143);
        assert_eq!(thin[1], (10.0, 4.0 / 7.0));
    }

    #[test]
    fn policies_go_from_blue_to_red() {
        assert_eq!(policy_colour(0, 16), [30, 70, 180]);
        assert_eq!(policy_colour(15, 16), [200, 30, 40]);
        assert_eq!(policy_colour(0, 1), [30, 70, 180]);
    }
}
