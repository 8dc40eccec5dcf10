//! A picture to draw on: games, bars and text.

use super::font;

/// Red, green, blue.
pub type Colour = [u8; 3];

/// An RGB picture, black at first. What is drawn outside of it is cut off.
#[derive(Clone, Debug, PartialEq)]
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    /// A black picture.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![0; width * height * 3] }
    }

    /// The pixels, row by row, three bytes each.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Fills a rectangle whose upper left corner is at `x`, `y`.
    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Colour) {
        let (left, right) = (x.min(self.width), x.saturating_add(width).min(self.width));
        for row in y.min(self.height)..y.saturating_add(height).min(self.height) {
            let row = &mut self.pixels[row * self.width * 3..(row + 1) * self.width * 3];
            row[left * 3..right * 3].as_chunks_mut().0.fill(colour);
        }
    }

    /// Mixes a colour into a pixel: all of it at a `cover` of 1, nothing at 0.
    pub fn blend(&mut self, (x, y): (usize, usize), colour: Colour, cover: f64) {
        if x < self.width && y < self.height {
            let at = (y * self.width + x) * 3;
            for (old, new) in self.pixels[at..at + 3].iter_mut().zip(colour) {
                *old = (f64::from(*old) + (f64::from(new) - f64::from(*old)) * cover).round() as u8;
            }
        }
    }

    /// Draws an image that is `width` wide, each of its pixels as a square of `scale`, with its upper left corner at
    /// `x`, `y`.
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

    /// Writes a line of text, `scale` pixels for each of the font's 5 x 7, with its upper left corner at `x`, `y`; some
    /// letters reach below it.
    pub fn write(&mut self, (x, y): (usize, usize), text: &str, scale: usize, colour: Colour) {
        for (place, character) in text.chars().enumerate() {
            let x = x + place * (font::WIDTH + 1) * scale;
            let rows = 0..font::HEIGHT + font::DEPTH;
            for (column, row) in rows.flat_map(|row| (0..font::WIDTH).map(move |column| (column, row))) {
                if font::is_set(character, column, row) {
                    self.fill((x + column * scale, y + row * scale), (scale, scale), colour);
                }
            }
        }
    }
}

/// Width and height of a line of text in pixels.
pub fn text_size(text: &str, scale: usize) -> (usize, usize) {
    let characters = text.chars().count();
    ((characters * (font::WIDTH + 1)).saturating_sub(1) * scale, font::HEIGHT * scale)
}

/// The pixels of an image, row by row.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// One byte a pixel, 0 black to 255 white.
    Gray(&'a [u8]),
    /// Three bytes a pixel.
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
    fn a_rectangle_is_filled_and_cut_at_the_edge() {
        let mut canvas = Canvas::new(5, 3);
        canvas.fill((1, 1), (2, 1), [1, 2, 3]);
        canvas.fill((4, 0), (9, usize::MAX), WHITE);
        canvas.fill((7, 8), (1, 1), WHITE);
        assert_eq!(shown(&canvas), ["....#", ".##.#", "....#"]);
        assert_eq!(canvas.pixels()[18..21], [1, 2, 3]);
    }

    #[test]
    fn a_colour_is_mixed_into_a_pixel() {
        let mut canvas = Canvas::new(2, 1);
        canvas.blend((1, 0), [200, 100, 50], 0.5);
        canvas.blend((1, 0), [100, 50, 25], 0.0);
        canvas.blend((0, 0), WHITE, 1.0);
        canvas.blend((2, 0), WHITE, 1.0);
        canvas.blend((0, 1), WHITE, 1.0);
        assert_eq!(canvas.pixels(), [255, 255, 255, 100, 50, 25]);
    }

    #[test]
    fn an_image_is_scaled_by_whole_pixels() {
        let mut canvas = Canvas::new(5, 4);
        canvas.draw((1, 0), Image::Gray(&[0, 9, 9, 0]), 2, 2);
        assert_eq!(shown(&canvas), ["...##", "...##", ".##..", ".##.."]);
        assert_eq!(canvas.pixels()[9..12], [9, 9, 9]);

        let mut canvas = Canvas::new(2, 1);
        canvas.draw((0, 0), Image::Rgb(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 3, 1);
        assert_eq!(canvas.pixels(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn text_is_written_in_the_font() {
        assert_eq!(text_size("Hi", 1), (11, 7));
        assert_eq!(text_size("", 3), (0, 21));
        let mut canvas = Canvas::new(11, 7);
        canvas.write((0, 0), "Hi", 1, WHITE);
        let expected =
            ["#...#...#..", "#...#......", "#...#..##..", "#####...#..", "#...#...#..", "#...#...#..", "#...#..###."];
        assert_eq!(shown(&canvas), expected);
        let mut twice = Canvas::new(22, 14);
        twice.write((0, 0), "Hi", 2, WHITE);
        let doubled: Vec<String> = expected
            .iter()
            .map(|row| row.chars().flat_map(|pixel| [pixel, pixel]).collect::<String>())
            .flat_map(|row| [row.clone(), row])
            .collect();
        assert_eq!(shown(&twice), doubled);
    }
}
