//! A picture to draw on: images, bars and text.

use super::font;

/// Red, green, blue.
pub type Colour = [u8; 3];

/// An RGB picture, black at first. Drawing outside of it has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    /// Creates a black picture.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![0; width * height * 3] }
    }

    /// The pixels, row by row, three bytes per pixel.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Fills a rectangle with its upper left corner at `x`, `y`.
    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Colour) {
        let (left, right) = (x.min(self.width), x.saturating_add(width).min(self.width));
        for row in y.min(self.height)..y.saturating_add(height).min(self.height) {
            let row = &mut self.pixels[row * self.width * 3..(row + 1) * self.width * 3];
            row[left * 3..right * 3].as_chunks_mut().0.fill(colour);
        }
    }

    /// Draws an image of the given width with its upper left corner at `x`, `y`, enlarged `scale` times.
    pub fn draw(&mut self, (x, y): (usize, usize), image: Image<'_>, width: usize, scale: usize) {
        let mut square = |at: usize, colour| {
            self.fill((x + at % width * scale, y + at / width * scale), (scale, scale), colour);
        };
        match image {
            Image::Gray(levels) => levels.iter().enumerate().for_each(|(at, &level)| square(at, [level; 3])),
            Image::Rgb(colours) => {
                colours.as_chunks().0.iter().enumerate().for_each(|(at, &colour)| square(at, colour))
            }
        }
    }

    /// Writes a line of text with its upper left corner at `x`, `y`.
    pub fn write(&mut self, (x, y): (usize, usize), text: &str, colour: Colour) {
        for (place, character) in text.chars().enumerate() {
            let x = x + place * (font::WIDTH + 1);
            let rows = 0..font::HEIGHT + font::DEPTH;
            for (column, row) in rows.flat_map(|row| (0..font::WIDTH).map(move |column| (column, row))) {
                if font::is_set(character, column, row) {
                    self.fill((x + column, y + row), (1, 1), colour);
                }
            }
        }
    }
}

/// Width of a line of text in pixels.
pub fn text_width(text: &str) -> usize {
    (text.chars().count() * (font::WIDTH + 1)).saturating_sub(1)
}

/// The pixels of an image, row by row.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// One byte per pixel, from 0 (black) to 255 (white).
    Gray(&'a [u8]),
    /// Three bytes per pixel.
    Rgb(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: Colour = [255; 3];

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
        assert_eq!(canvas.pixels()[18..21], [1, 2, 3]);
    }

    #[test]
    fn image_is_enlarged_by_whole_pixels() {
        let mut canvas = Canvas::new(5, 4);
        canvas.draw((1, 0), Image::Gray(&[0, 9, 9, 0]), 2, 2);
        assert_eq!(shown(&canvas), ["...##", "...##", ".##..", ".##.."]);
        assert_eq!(canvas.pixels()[9..12], [9, 9, 9]);

        let mut canvas = Canvas::new(2, 1);
        canvas.draw((0, 0), Image::Rgb(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 3, 1);
        assert_eq!(canvas.pixels(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn text_is_drawn_with_the_font() {
        assert_eq!((text_width("Hi"), text_width("")), (11, 0));
        let mut canvas = Canvas::new(11, 7);
        canvas.write((0, 0), "Hi", WHITE);
        let expected =
            ["#...#...#..", "#...#......", "#...#..##..", "#####...#..", "#...#...#..", "#...#...#..", "#...#..###."];
        assert_eq!(shown(&canvas), expected);
    }
}
