//! What a page is drawn on, and the page as SVG.

use std::fmt::Write;

use crate::video::canvas::Colour;

/// Height of small text; a character of it is 6 wide.
pub const SMALL: f64 = 10.0;
/// Height of a heading's text; a character of it is 9 wide.
pub const HEADING: f64 = 15.0;

/// Where a text is put: its left, middle or right end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    /// It begins there.
    Left,
    /// Its middle is there.
    Middle,
    /// It ends there.
    Right,
}

/// Something to draw on, in units of which a page is some 1200 wide; y grows downwards.
pub trait Surface {
    /// Fills a rectangle.
    fn rectangle(&mut self, corner: (f64, f64), size: (f64, f64), colour: Colour);
    /// Draws a line through the points.
    fn line(&mut self, points: &[(f64, f64)], width: f64, colour: Colour);
    /// Writes a line of text whose letters stand on `at`.
    fn text(&mut self, at: (f64, f64), text: &str, size: f64, anchor: Anchor, colour: Colour);
}

/// Width of a text.
pub fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

/// A page as SVG.
pub struct Svg {
    text: String,
}

impl Svg {
    /// A white page.
    pub fn new(width: f64, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"monospace\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        Self { text }
    }

    /// The file.
    pub fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

/// A number of tenths: 15 as 1.5, -30 as -3.
fn tenth(value: i64) -> String {
    (value as f64 / 10.0).to_string()
}

fn hexadecimal([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

impl Surface for Svg {
    // Writing to a string does not fail, here and below.
    fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: Colour) {
        let fill = hexadecimal(colour);
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    fn line(&mut self, points: &[(f64, f64)], width: f64, colour: Colour) {
        // In tenths, each point relative to the one before: half the length, and nothing adds up.
        let tenths = |(x, y): &(f64, f64)| ((x * 10.0).round() as i64, (y * 10.0).round() as i64);
        let mut path = String::new();
        let mut before = (0, 0);
        for (number, (x, y)) in points.iter().map(tenths).enumerate() {
            let step = (tenth(x - before.0), tenth(y - before.1));
            path += &format!("{}{} {}", if number == 0 { "M" } else { "l" }, step.0, step.1);
            before = (x, y);
        }
        let stroke = hexadecimal(colour);
        let _ = writeln!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>"
        );
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: Anchor, colour: Colour) {
        let anchor = match anchor {
            Anchor::Left => "start",
            Anchor::Middle => "middle",
            Anchor::Right => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let fill = hexadecimal(colour);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{text}</text>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_is_written_element_by_element() {
        let mut svg = Svg::new(100.0, 50.0);
        svg.rectangle((1.0, 2.0), (3.0, 4.25), [255, 0, 16]);
        svg.line(&[(0.0, 1.0), (2.5, 3.1), (0.0, 3.1)], 1.5, [0; 3]);
        svg.text((5.0, 6.0), "a < b & c", SMALL, Anchor::Right, [1, 2, 3]);
        let text = svg.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("<svg ") && lines[0].contains("viewBox=\"0 0 100 50\""));
        assert_eq!(
            lines[2..],
            [
                "<rect x=\"1.0\" y=\"2.0\" width=\"3.0\" height=\"4.2\" fill=\"#ff0010\"/>",
                "<path d=\"M0 1l2.5 2.1l-2.5 0\" fill=\"none\" stroke=\"#000000\" stroke-width=\"1.5\" \
                 stroke-linejoin=\"round\"/>",
                "<text x=\"5.0\" y=\"6.0\" font-size=\"10\" text-anchor=\"end\" fill=\"#010203\">a &lt; b &amp; c</text>",
                "</svg>",
            ]
        );
    }
}
