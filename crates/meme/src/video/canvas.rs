//! A picture to draw on: images, bars and text.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_6X9 as FONT;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::text::{Baseline, Text};

/// Width of a character in pixels, including the space after it.
pub const CHARACTER_WIDTH: usize = FONT.character_size.width as usize;

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// An RGB picture, black at first. Drawing outside of it has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Canvas {
    width: usize,
    height: usize,
    /// The pixels, row by row, three bytes per pixel.
    pub pixels: Vec<u8>,
}

impl Canvas {
    /// Creates a black picture.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![0; width * height * 3] }
    }

    /// Fills a rectangle with its upper left corner at `x`, `y`.
    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Rgb) {
        let (left, right) = (x.min(self.width), x.saturating_add(width).min(self.width));
        for row in y.min(self.height)..y.saturating_add(height).min(self.height) {
            let row = &mut self.pixels[row * self.width * 3..(row + 1) * self.width * 3];
            row[left * 3..right * 3].as_chunks_mut().0.fill(colour);
        }
    }

    /// Draws an image from the upper left corner, enlarged `scale` times. It has one byte per pixel (grayscale) or three
    /// (RGB).
    pub fn draw(&mut self, image: &[u8], (height, width): (usize, usize), scale: usize) {
        for (at, pixel) in image.chunks_exact(image.len() / (height * width)).enumerate() {
            let colour = if let [red, green, blue] = *pixel { [red, green, blue] } else { [pixel[0]; 3] };
            self.fill((at % width * scale, at / width * scale), (scale, scale), colour);
        }
    }

    /// Writes a line of text with its upper left corner at `x`, `y`.
    pub fn write(&mut self, (x, y): (usize, usize), text: &str, [red, green, blue]: Rgb) {
        let style = MonoTextStyle::new(&FONT, Rgb888::new(red, green, blue));
        let Ok(_) = Text::with_baseline(text, Point::new(x as i32, y as i32), style, Baseline::Top).draw(self);
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(Point { x, y }, colour) in pixels {
            self.fill((x as usize, y as usize), (1, 1), [colour.r(), colour.g(), colour.b()]);
        }
        Ok(())
    }
}

/// Width of a line of text in pixels.
pub fn text_width(text: &str) -> usize {
    text.chars().count() * CHARACTER_WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: Rgb = [255; 3];

    /// The picture as text: `#` where it is not black.
    fn shown(canvas: &Canvas) -> Vec<String> {
        let lit = |pixel: &[u8; 3]| if *pixel == [0; 3] { '.' } else { '#' };
        canvas.pixels.chunks(canvas.width * 3).map(|row| row.as_chunks().0.iter().map(lit).collect()).collect()
    }

    #[test]
    fn rectangle_is_filled_and_clipped() {
        let mut canvas = Canvas::new(5, 3);
        canvas.fill((1, 1), (2, 1), [1, 2, 3]);
        canvas.fill((4, 0), (9, usize::MAX), WHITE);
        canvas.fill((7, 8), (1, 1), WHITE);
        assert_eq!(shown(&canvas), ["....#", ".##.#", "....#"]);
        assert_eq!(canvas.pixels[18..21], [1, 2, 3]);
    }

    #[test]
    fn image_is_enlarged_by_whole_pixels() {
        let mut canvas = Canvas::new(5, 4);
        canvas.draw(&[0, 9, 9, 0], (2, 2), 2);
        assert_eq!(shown(&canvas), ["..##.", "..##.", "##...", "##..."]);
        assert_eq!(canvas.pixels[6..9], [9, 9, 9]);

        let mut canvas = Canvas::new(2, 1);
        canvas.draw(&[1, 2, 3, 4, 5, 6, 7, 8, 9], (1, 3), 1);
        assert_eq!(canvas.pixels, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn text_is_drawn_at_its_position_and_clipped() {
        assert_eq!((text_width("Hi"), text_width("")), (12, 0));
        let mut canvas = Canvas::new(20, 12);
        canvas.write((4, 1), "Hi", WHITE);
        canvas.write((18, 10), "W", WHITE);
        let shown = shown(&canvas);
        let lit = |columns: std::ops::Range<usize>| shown.iter().any(|row| row[columns.clone()].contains('#'));
        assert!(!lit(0..4) && lit(4..10) && lit(10..16), "{shown:#?}");
        assert!(!shown[0].contains('#'), "{shown:#?}");
    }
}
