//! An SVG document in the making, and the same document as a PNG.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// A colour: by its role, which has a light and a dark shade, or red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Colour {
    Text,
    Faint,
    Grid,
    Warning,
    Rgb([u8; 3]),
}

/// Font size of labels.
pub const SMALL: f64 = 10.0;
/// Font size of a chart's title.
pub const TITLE: f64 = 12.0;
/// Font size of the page's heading.
pub const HEADING: f64 = 16.0;

/// Pixels of the PNG per unit of the SVG.
const PNG_SCALE: f32 = 2.0;

/// Colours by role. A PNG is light; in a browser, the reader's preference decides.
const STYLE: &str = ".m-page{color:#fff}.m-text{color:#202020}.m-faint{color:#5c5c5c}.m-grid{color:#e0e0e0}\
    .m-warning{color:#96281e}.m-halo{stroke:#fff;stroke-width:3;paint-order:stroke}\
    @media (prefers-color-scheme:dark){.m-page{color:#15171a}.m-text{color:#e8e8e8}.m-faint{color:#a9aeb4}\
    .m-grid{color:#33373c}.m-warning{color:#ff9e8c}.m-halo{stroke:#15171a}}";

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    Arc::new(fonts)
});

/// An SVG document in the making, one element per line; y grows downwards.
pub struct Svg {
    text: String,
}

// Writing to a string never fails, here and below.
impl Svg {
    /// Creates an empty page.
    pub fn new(width: f64, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n\
             <style>{STYLE}</style>\n\
             <rect class=\"m-page\" width=\"{width}\" height=\"{height}\" fill=\"currentColor\"/>\n"
        );
        Self { text }
    }

    /// Fills a rectangle.
    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), colour: Colour) {
        self.tinted(at, size, colour, 1.0);
    }

    /// Fills a rectangle so that the page shows through, entirely at an opacity of 0.
    pub fn tinted(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: Colour, opacity: f64) {
        let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{opacity:.3}\"") } else { String::new() };
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{}{opacity}/>",
            colour.paint("fill")
        );
    }

    /// Draws a dot, only its outline if it is hollow.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: Colour, hollow: bool) {
        let paint = if hollow { format!(" fill=\"none\"{}", colour.paint("stroke")) } else { colour.paint("fill") };
        let _ = writeln!(self.text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"{paint}/>");
    }

    /// Draws a line through the points.
    pub fn line(&mut self, points: &[(f64, f64)], width: f64, colour: Colour) {
        let stroke = format!("{} stroke-width=\"{width}\" stroke-linejoin=\"round\"", colour.paint("stroke"));
        self.path(points, "", &format!(" fill=\"none\"{stroke}"));
    }

    /// Draws a dashed line through the points.
    pub fn dashes(&mut self, points: &[(f64, f64)], width: f64, colour: Colour) {
        let stroke = format!("{} stroke-width=\"{width}\" stroke-dasharray=\"4\"", colour.paint("stroke"));
        self.path(points, "", &format!(" fill=\"none\"{stroke}"));
    }

    /// Fills the area within the points so that what is below shows through.
    pub fn shade(&mut self, points: &[(f64, f64)], colour: Colour) {
        self.path(points, "z", &format!("{} fill-opacity=\"0.2\"", colour.paint("fill")));
    }

    /// Writes a path in tenths of a unit, each point relative to the one before: half as long as absolute positions,
    /// and rounding errors do not add up.
    fn path(&mut self, points: &[(f64, f64)], end: &str, paint: &str) {
        let tenths = |(x, y): &(f64, f64)| ((x * 10.0).round() as i64, (y * 10.0).round() as i64);
        let mut path = String::new();
        let mut before = (0, 0);
        for (number, (x, y)) in points.iter().map(tenths).enumerate() {
            let [dx, dy] = [x - before.0, y - before.1].map(|tenths| tenths as f64 / 10.0);
            let _ = write!(path, "{}{dx} {dy}", if number == 0 { "M" } else { "l" });
            before = (x, y);
        }
        let _ = writeln!(self.text, "<path d=\"{path}{end}\"{paint}/>");
    }

    /// Writes a line of text with its baseline at `y`.
    ///
    /// Its start, middle or end is at `x`, as `anchor` says. An outline in the page's colour keeps it readable on top
    /// of lines.
    pub fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: &str, colour: Colour) {
        let (class, text) = (colour.class(), escaped(text));
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" class=\"{class} m-halo\" \
             fill=\"currentColor\">{text}</text>"
        );
    }

    /// Writes a line of small text, turned by `degrees`.
    ///
    /// Its middle or end is at `x`, `y`, as `anchor` says.
    pub fn turned_text(&mut self, (x, y): (f64, f64), text: &str, degrees: i32, anchor: &str, colour: Colour) {
        let (class, text) = (colour.class(), escaped(text));
        let _ = writeln!(
            self.text,
            "<text transform=\"translate({x:.1} {y:.1}) rotate({degrees})\" font-size=\"{SMALL}\" \
             text-anchor=\"{anchor}\" class=\"{class}\" fill=\"currentColor\">{text}</text>"
        );
    }

    /// Returns the document.
    pub fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

impl Colour {
    fn class(self) -> &'static str {
        match self {
            Self::Faint => "m-faint",
            Self::Grid => "m-grid",
            Self::Warning => "m-warning",
            // Text has no colour of its own: names in a light colour would be hard to read.
            Self::Text | Self::Rgb(_) => "m-text",
        }
    }

    /// The attributes that fill or stroke with it.
    fn paint(self, property: &str) -> String {
        match self {
            Self::Rgb([red, green, blue]) => format!(" {property}=\"#{red:02x}{green:02x}{blue:02x}\""),
            role => format!(" class=\"{}\" {property}=\"currentColor\"", role.class()),
        }
    }
}

/// Width of a line of text, rather too large than too small: a browser may use another typeface.
pub fn text_width(text: &str, size: f64) -> f64 {
    let widths = text.chars().map(|character| if character.is_uppercase() { 0.8 } else { 0.63 });
    size * widths.sum::<f64>()
}

/// Escapes text for XML and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Renders a document with the embedded typeface, so that it looks the same on every machine.
pub fn to_png(document: &str) -> Result<Vec<u8>> {
    let options = Options { fontdb: Arc::clone(&FONTS), ..Options::default() };
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
        svg.rectangle((1.0, 2.0), (3.0, 4.25), Colour::Rgb([255, 0, 16]));
        svg.line(&[(0.0, 1.0), (2.5, 3.1), (0.0, 3.1)], 1.5, Colour::Grid);
        svg.shade(&[(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)], Colour::Rgb([0; 3]));
        svg.text((5.0, 6.0), "a < b & c", SMALL, "end", Colour::Faint);
        let text = svg.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("<svg ") && lines[0].contains("viewBox=\"0 0 100 50\""));
        assert_eq!(
            lines[3..],
            [
                "<rect x=\"1.0\" y=\"2.0\" width=\"3.0\" height=\"4.2\" fill=\"#ff0010\"/>",
                "<path d=\"M0 1l2.5 2.1l-2.5 0\" fill=\"none\" class=\"m-grid\" stroke=\"currentColor\" \
                 stroke-width=\"1.5\" stroke-linejoin=\"round\"/>",
                "<path d=\"M0 0l1 0l0 1z\" fill=\"#000000\" fill-opacity=\"0.2\"/>",
                "<text x=\"5.0\" y=\"6.0\" font-size=\"10\" text-anchor=\"end\" class=\"m-faint m-halo\" \
                 fill=\"currentColor\">a &lt; b &amp; c</text>",
                "</svg>",
            ]
        );
    }

    #[test]
    fn png_has_twice_the_resolution_and_shows_lines_and_letters_on_a_light_page() {
        let mut svg = Svg::new(40.0, 20.0);
        svg.line(&[(0.0, 18.0), (40.0, 18.0)], 2.0, Colour::Rgb([0, 0, 255]));
        svg.text((2.0, 12.0), "W", HEADING, "start", Colour::Text);
        let pixmap = Pixmap::decode_png(&to_png(&svg.finish()).unwrap()).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), (80, 40));
        let pixel = |x, y| pixmap.pixel(x, y).map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]);
        assert_eq!((pixel(40, 36), pixel(70, 10)), (Some([0, 0, 255]), Some([255; 3])));
        let dark = (0..80).filter(|&x| pixel(x, 16).is_some_and(|[red, green, blue]| red | green | blue < 64)).count();
        assert!((4..30).contains(&dark), "{dark} dark pixels in the letter's row");
    }
}
