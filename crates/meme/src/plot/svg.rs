//! The page as an SVG document, and the same document as a PNG.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// Red, green, blue.
pub type Colour = [u8; 3];

/// Font size of labels.
pub const SMALL: f64 = 10.0;
/// Font size of a chart's title.
pub const TITLE: f64 = 12.0;
/// Font size of the page's heading.
pub const HEADING: f64 = 16.0;

/// Pixels of the PNG per unit of the SVG.
const PNG_SCALE: f32 = 2.0;

/// An SVG document in the making, one element per line; y grows downwards.
pub struct Svg {
    text: String,
}

// Writing to a string never fails, here and below.
impl Svg {
    /// Creates a white page.
    pub fn new(width: f64, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        Self { text }
    }

    /// Fills a rectangle.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: Colour) {
        let fill = hexadecimal(colour);
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    /// Draws a line through the points.
    pub fn line(&mut self, points: &[(f64, f64)], width: f64, colour: Colour) {
        self.path(points, &format!("stroke=\"{}\" stroke-width=\"{width}\"", hexadecimal(colour)));
    }

    /// Draws a thin dashed line through the points.
    pub fn dashes(&mut self, points: &[(f64, f64)], colour: Colour) {
        let stroke = hexadecimal(colour);
        self.path(points, &format!("stroke=\"{stroke}\" stroke-width=\"0.8\" stroke-dasharray=\"4\""));
    }

    /// Writes a path in tenths of a unit, each point relative to the one before: half as long as absolute positions, and
    /// rounding errors do not add up.
    fn path(&mut self, points: &[(f64, f64)], stroke: &str) {
        let tenths = |(x, y): &(f64, f64)| ((x * 10.0).round() as i64, (y * 10.0).round() as i64);
        let mut path = String::new();
        let mut before = (0, 0);
        for (number, (x, y)) in points.iter().map(tenths).enumerate() {
            let [dx, dy] = [x - before.0, y - before.1].map(|tenths| tenths as f64 / 10.0);
            let _ = write!(path, "{}{dx} {dy}", if number == 0 { "M" } else { "l" });
            before = (x, y);
        }
        let _ = writeln!(self.text, "<path d=\"{path}\" fill=\"none\" {stroke} stroke-linejoin=\"round\"/>");
    }

    /// Writes a line of text with its baseline at `y` and its start, middle or end at `x`, as `anchor` says. A white
    /// outline keeps it readable on top of lines.
    pub fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: &str, colour: Colour) {
        let (fill, text) = (hexadecimal(colour), escaped(text));
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\" \
             stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">{text}</text>"
        );
    }

    /// Writes a line of small text from bottom to top, its middle at `x`, `y`.
    pub fn vertical_text(&mut self, (x, y): (f64, f64), text: &str, colour: Colour) {
        let (fill, text) = (hexadecimal(colour), escaped(text));
        let _ = writeln!(
            self.text,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"{SMALL}\" text-anchor=\"middle\" \
             fill=\"{fill}\">{text}</text>"
        );
    }

    /// Writes small texts side by side, each in its colour.
    pub fn texts<'a>(&mut self, (x, y): (f64, f64), texts: impl Iterator<Item = (&'a str, Colour)>) {
        let _ = write!(self.text, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{SMALL}\">");
        for (number, (text, colour)) in texts.enumerate() {
            let (gap, fill, text) = (if number == 0 { 0 } else { 10 }, hexadecimal(colour), escaped(text));
            let _ = write!(self.text, "<tspan dx=\"{gap}\" fill=\"{fill}\">{text}</tspan>");
        }
        self.text += "</text>\n";
    }

    /// Returns the document.
    pub fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

fn hexadecimal([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Renders a document with the embedded typeface, so that it looks the same on every machine.
pub fn to_png(document: &str) -> Result<Vec<u8>> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(document, &options).context("invalid SVG")?;
    let pixels = |size: f32| (size * PNG_SCALE).ceil() as u32;
    let (width, height) = (pixels(tree.size().width()), pixels(tree.size().height()));
    let mut pixmap =
        Pixmap::new(width, height).with_context(|| format!("{width} x {height} pixels do not fit in memory"))?;
    resvg::render(&tree, Transform::from_scale(PNG_SCALE, PNG_SCALE), &mut pixmap.as_mut());
    pixmap.encode_png().context("PNG encoding failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_is_written_element_by_element() {
        let mut svg = Svg::new(100.0, 50.0);
        svg.rectangle((1.0, 2.0), (3.0, 4.25), [255, 0, 16]);
        svg.line(&[(0.0, 1.0), (2.5, 3.1), (0.0, 3.1)], 1.5, [0; 3]);
        svg.texts((5.0, 6.0), [("a < b & c", [1, 2, 3]), ("d", [0; 3])].into_iter());
        let text = svg.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("<svg ") && lines[0].contains("viewBox=\"0 0 100 50\""));
        assert_eq!(
            lines[2..],
            [
                "<rect x=\"1.0\" y=\"2.0\" width=\"3.0\" height=\"4.2\" fill=\"#ff0010\"/>",
                "<path d=\"M0 1l2.5 2.1l-2.5 0\" fill=\"none\" stroke=\"#000000\" stroke-width=\"1.5\" \
                 stroke-linejoin=\"round\"/>",
                "<text x=\"5.0\" y=\"6.0\" font-size=\"10\"><tspan dx=\"0\" fill=\"#010203\">a &lt; b &amp; c</tspan>\
                 <tspan dx=\"10\" fill=\"#000000\">d</tspan></text>",
                "</svg>",
            ]
        );
    }

    #[test]
    fn png_has_twice_the_resolution_and_shows_lines_and_letters() {
        let mut svg = Svg::new(40.0, 20.0);
        svg.line(&[(0.0, 18.0), (40.0, 18.0)], 2.0, [0, 0, 255]);
        svg.text((2.0, 12.0), "W", HEADING, "start", [0; 3]);
        let pixmap = Pixmap::decode_png(&to_png(&svg.finish()).unwrap()).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), (80, 40));
        let pixel = |x, y| pixmap.pixel(x, y).map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]);
        assert_eq!((pixel(40, 36), pixel(70, 10)), (Some([0, 0, 255]), Some([255; 3])));
        let dark = (0..80).filter(|&x| pixel(x, 16).is_some_and(|[red, green, blue]| red | green | blue < 64)).count();
        assert!((4..30).contains(&dark), "{dark} dark pixels in the letter's row");
    }
}
