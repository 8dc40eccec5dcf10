//! The page as pixels, two for each unit.

use super::surface::{Anchor, SMALL, Surface, text_width};
use crate::video::canvas::{Canvas, Colour};

/// Pixels of a unit.
const SCALE: f64 = 2.0;

/// A page of pixels.
pub struct Raster {
    canvas: Canvas,
    width: usize,
    height: usize,
}

impl Raster {
    /// A white page.
    pub fn new(width: f64, height: f64) -> Self {
        let (width, height) = ((width * SCALE).ceil() as usize, (height * SCALE).ceil() as usize);
        let mut canvas = Canvas::new(width, height);
        canvas.fill((0, 0), (width, height), [255; 3]);
        Self { canvas, width, height }
    }

    /// Width and height in pixels, and the pixels, three bytes each.
    pub fn pixels(&self) -> (usize, usize, &[u8]) {
        (self.width, self.height, self.canvas.pixels())
    }

    /// Draws one stretch of a line, its edges smoothed by how much of each pixel it covers.
    fn segment(&mut self, from: (f64, f64), to: (f64, f64), width: f64, colour: Colour) {
        let reach = width / 2.0 + 1.0;
        let range = |a: f64, b: f64, most: usize| {
            let (low, high) = (a.min(b) - reach, a.max(b) + reach);
            low.clamp(0.0, most as f64) as usize..high.ceil().clamp(0.0, most as f64) as usize
        };
        let along = (to.0 - from.0, to.1 - from.1);
        let length = along.0.hypot(along.1);
        for y in range(from.1, to.1, self.height) {
            for x in range(from.0, to.0, self.width) {
                let at = (x as f64 + 0.5 - from.0, y as f64 + 0.5 - from.1);
                let share = if length > 0.0 { (at.0 * along.0 + at.1 * along.1) / (length * length) } else { 0.0 };
                let share = share.clamp(0.0, 1.0);
                let distance = (at.0 - share * along.0).hypot(at.1 - share * along.1);
                let cover = (width / 2.0 + 0.5 - distance).clamp(0.0, 1.0);
                if cover > 0.0 {
                    self.canvas.blend((x, y), colour, cover);
                }
            }
        }
    }
}

impl Surface for Raster {
    fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: Colour) {
        // Edges are rounded, not sizes, so that rectangles side by side leave no gap.
        let pixel = |value: f64| (value * SCALE).round().max(0.0) as usize;
        let (left, top) = (pixel(x), pixel(y));
        let size = (pixel(x + width).saturating_sub(left), pixel(y + height).saturating_sub(top));
        self.canvas.fill((left, top), size, colour);
    }

    fn line(&mut self, points: &[(f64, f64)], width: f64, colour: Colour) {
        let pixels: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x * SCALE, y * SCALE)).collect();
        for pair in pixels.windows(2) {
            self.segment(pair[0], pair[1], width * SCALE, colour);
        }
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: Anchor, colour: Colour) {
        let x = match anchor {
            Anchor::Left => x,
            Anchor::Middle => x - text_width(text, size) / 2.0,
            Anchor::Right => x - text_width(text, size),
        };
        // The font's letters are 7 high, 14 of small text's 20 pixels.
        let scale = (size / SMALL * SCALE).round() as usize;
        let pixel = |value: f64| (value * SCALE).round().max(0.0) as usize;
        self.canvas.write((pixel(x), pixel(y).saturating_sub(7 * scale)), text, scale, colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixel(raster: &Raster, x: usize, y: usize) -> [u8; 3] {
        let (width, _, pixels) = raster.pixels();
        pixels[(y * width + x) * 3..][..3].try_into().unwrap()
    }

    #[test]
    fn a_line_covers_what_it_crosses_and_nothing_else() {
        let mut raster = Raster::new(10.0, 10.0);
        assert_eq!((raster.pixels().0, raster.pixels().1), (20, 20));
        raster.line(&[(1.0, 5.0), (9.0, 5.0)], 1.0, [0, 0, 255]);
        // Two pixels wide around y = 10, from x = 2 to x = 18 and half a pixel more at its ends.
        assert_eq!((pixel(&raster, 10, 9), pixel(&raster, 10, 10)), ([0, 0, 255], [0, 0, 255]));
        assert_eq!((pixel(&raster, 10, 7), pixel(&raster, 10, 12)), ([255; 3], [255; 3]));
        assert_eq!(pixel(&raster, 19, 10), [255; 3]);
    }

    #[test]
    fn a_line_out_of_the_page_is_cut_off() {
        let mut raster = Raster::new(5.0, 5.0);
        raster.line(&[(-10.0, 2.0), (20.0, 2.0)], 1.0, [0; 3]);
        raster.line(&[(2.0, 30.0), (2.0, 50.0)], 1.0, [255, 0, 0]);
        assert_eq!(pixel(&raster, 0, 4), [0; 3]);
        assert_eq!(pixel(&raster, 4, 9), [255; 3]);
    }

    #[test]
    fn text_ends_where_it_is_anchored() {
        let mut raster = Raster::new(40.0, 10.0);
        raster.text((40.0, 9.0), "|", SMALL, Anchor::Right, [0; 3]);
        // The font's middle column, 2 pixels wide, 4 pixels into a character of 12.
        assert_eq!((pixel(&raster, 72, 10), pixel(&raster, 73, 10)), ([0; 3], [0; 3]));
        assert_eq!(pixel(&raster, 71, 10), [255; 3]);
    }
}
