//! Animated GIF; exact for pictures of up to 256 colours, hence for all grayscale ones.

use std::fs::File;
use std::io::{BufWriter, Write};

use ::gif::{Encoder, EncodingError, Frame, Repeat};
use anyhow::{Context, Result, ensure};

use crate::partial_file::PartialFile;

/// Units of a frame's delay per second. Viewers slow down frames with a delay under 2, hence at most 50 per second.
const HUNDREDTHS: u64 = 100;
const MAX_FRAMES_PER_SECOND: u32 = 50;
/// How fast the palette of more than 256 colours is chosen, from 1 (best) to 30.
const QUANTISATION_SPEED: i32 = 10;

/// Writes a GIF that loops. Repeated pictures become one frame; of others, only the changed rectangle is stored.
pub struct GifFile {
    encoder: Encoder<BufWriter<File>>,
    file: PartialFile,
    width: usize,
    frames_per_second: u64,
    /// Frames shown so far.
    count: u64,
    /// What the viewer sees before `pending`.
    written: Option<Vec<u8>>,
    /// The last picture and the number of its first frame; written once its duration is known.
    pending: Option<(Vec<u8>, u64)>,
}

impl GifFile {
    /// Starts a GIF of this size; `writer` writes to `file`.
    pub fn create(
        writer: File,
        file: PartialFile,
        (width, height): (usize, usize),
        frames_per_second: u32,
    ) -> Result<Self> {
        let rates = 1..=MAX_FRAMES_PER_SECOND;
        ensure!(rates.contains(&frames_per_second), "a GIF has 1 to 50 frames per second, not {frames_per_second}");
        let side = |pixels: usize| {
            u16::try_from(pixels).with_context(|| format!("a GIF is at most 65535 pixels wide and high, not {pixels}"))
        };
        let mut encoder = Encoder::new(BufWriter::new(writer), side(width)?, side(height)?, &[]).map_err(unwrapped)?;
        encoder.set_repeat(Repeat::Infinite).map_err(unwrapped)?;
        let frames_per_second = u64::from(frames_per_second);
        Ok(Self { encoder, file, width, frames_per_second, count: 0, written: None, pending: None })
    }

    /// Adds one RGB picture.
    pub fn frame(&mut self, pixels: &[u8]) -> Result<()> {
        if self.pending.as_ref().is_none_or(|(pending, _)| pending != pixels) {
            self.write_pending()?;
            self.pending = Some((pixels.to_vec(), self.count));
        }
        self.count += 1;
        Ok(())
    }

    /// Writes the rest and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        self.write_pending()?;
        self.encoder.into_inner()?.flush()?;
        Ok(self.file.finish()?)
    }

    /// Start time of a frame, rounded; rounding errors do not add up.
    fn time(&self, frame: u64) -> u64 {
        (frame * HUNDREDTHS + self.frames_per_second / 2) / self.frames_per_second
    }

    fn write_pending(&mut self) -> Result<()> {
        let Some((pixels, first)) = self.pending.take() else { return Ok(()) };
        let mut left = self.time(self.count) - self.time(first);
        let mut area = match &self.written {
            Some(written) => changed(written, &pixels, self.width),
            None => Area { left: 0, top: 0, width: self.width, height: pixels.len() / 3 / self.width },
        };
        // A delay has 16 bits. A picture shown for longer gets extra frames of a single pixel.
        while left > 0 {
            let delay = left.min(u64::from(u16::MAX));
            self.encoder.write_frame(&encoded(&pixels, self.width, area, delay as u16)).map_err(unwrapped)?;
            area = Area { left: 0, top: 0, width: 1, height: 1 };
            left -= delay;
        }
        self.written = Some(pixels);
        Ok(())
    }
}

/// Unwraps I/O errors, which the encoder would print twice: as its own and as the cause.
fn unwrapped(error: EncodingError) -> anyhow::Error {
    match error {
        EncodingError::Io(cause) => cause.into(),
        error => error.into(),
    }
}

/// A rectangle of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Area {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
}

/// The smallest rectangle that contains all differences between two different pictures.
fn changed(before: &[u8], after: &[u8], width: usize) -> Area {
    let (before, after) = (before.as_chunks::<3>().0, after.as_chunks::<3>().0);
    let differs = |&at: &usize| before[at] != after[at];
    let (mut left, mut right, mut top, mut bottom) = (width, 0, after.len() / width, 0);
    for at in (0..after.len()).filter(differs) {
        (left, right) = (left.min(at % width), right.max(at % width));
        (top, bottom) = (top.min(at / width), bottom.max(at / width));
    }
    Area { left, top, width: right + 1 - left, height: bottom + 1 - top }
}

/// Encodes an area of a picture as a frame with its own palette, exact for up to 256 colours.
fn encoded(pixels: &[u8], width: usize, area: Area, delay: u16) -> Frame<'static> {
    let rows = pixels.as_chunks::<3>().0.chunks_exact(width).skip(area.top).take(area.height);
    let colours: Vec<u8> = rows.flat_map(|row| &row[area.left..area.left + area.width]).flatten().copied().collect();
    let frame = Frame::from_rgb_speed(area.width as u16, area.height as u16, &colours, QUANTISATION_SPEED);
    Frame { delay, left: area.left as u16, top: area.top as u16, ..frame }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every frame as a viewer shows it, with its delay in hundredths of a second.
    fn decoded(path: &std::path::Path) -> Vec<(Vec<u8>, u16)> {
        let mut decoder = ::gif::Decoder::new(File::open(path).unwrap()).unwrap();
        let width = usize::from(decoder.width());
        let mut screen = vec![0; width * usize::from(decoder.height()) * 3];
        let mut seen = Vec::new();
        while let Some(frame) = decoder.read_next_frame().unwrap() {
            let palette = frame.palette.as_ref().unwrap();
            for (at, &index) in frame.buffer.iter().enumerate() {
                let (x, y) = (at % usize::from(frame.width), at / usize::from(frame.width));
                let to = ((y + usize::from(frame.top)) * width + x + usize::from(frame.left)) * 3;
                screen[to..to + 3].copy_from_slice(&palette[usize::from(index) * 3..][..3]);
            }
            seen.push((screen.clone(), frame.delay));
        }
        assert_eq!(decoder.repeat(), Repeat::Infinite);
        seen
    }

    #[test]
    fn system_error_is_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let partial = PartialFile::create(&directory.path().join("out.gif")).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut file = GifFile::create(full, partial, (160, 160), 15).unwrap();
        // More than the buffer holds, so that the encoder fails.
        let picture = |shift: usize| (0..160 * 160 * 3).map(|at| (at * at + shift) as u8).collect::<Vec<u8>>();
        let error = (0..10).find_map(|shift| file.frame(&picture(shift)).err()).unwrap();
        assert_eq!(format!("{error:#}"), "No space left on device (os error 28)");
    }

    fn written(frames: &[Vec<u8>], width: usize, frames_per_second: u32) -> Vec<(Vec<u8>, u16)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.gif");
        let height = frames[0].len() / 3 / width;
        let file = PartialFile::create(&path).unwrap();
        let mut gif = GifFile::create(file.writer().unwrap(), file, (width, height), frames_per_second).unwrap();
        frames.iter().for_each(|frame| gif.frame(frame).unwrap());
        gif.finish().unwrap();
        decoded(&path)
    }

    fn gray(levels: impl Iterator<Item = u8>) -> Vec<u8> {
        levels.flat_map(|level| [level; 3]).collect()
    }

    #[test]
    fn decoded_pictures_equal_the_originals() {
        let all_levels = gray(0..=255);
        let one_changed = gray((0..=255).map(|level| if level == 77 { 3 } else { level }));
        let corners = gray((0..=255).map(|level| if level == 0 || level == 255 { 100 } else { level }));
        let frames = [all_levels, one_changed, corners];
        let seen = written(&frames, 16, 15);
        assert_eq!(seen.iter().map(|(picture, _)| picture.clone()).collect::<Vec<_>>(), frames);
    }

    /// 15 frames per second last 6.67 hundredths each: 7, 6, 7 in turn, and exact over a minute.
    #[test]
    fn delays_keep_time() {
        let frames: Vec<_> = (0..900).map(|frame| gray([(frame % 256) as u8].into_iter())).collect();
        let delays: Vec<u16> = written(&frames, 1, 15).into_iter().map(|(_, delay)| delay).collect();
        assert_eq!(delays[..6], [7, 6, 7, 7, 6, 7]);
        assert_eq!(delays.iter().map(|&delay| u64::from(delay)).sum::<u64>(), 6000);
        assert_eq!(delays.len(), 900);
    }

    #[test]
    fn equal_frames_become_one() {
        let [a, b] = [1, 2].map(|level| gray([level, 0].into_iter()));
        let frames = [a.clone(), a.clone(), a.clone(), b.clone(), a.clone(), a.clone()];
        assert_eq!(written(&frames, 2, 10), [(a.clone(), 30), (b, 10), (a, 20)]);
    }

    #[test]
    fn long_lasting_picture_keeps_its_duration() {
        let still = vec![gray([9, 8].into_iter()); 1500];
        let seen = written(&still, 2, 2);
        assert_eq!(seen.iter().map(|(_, delay)| *delay).collect::<Vec<_>>(), [65535, 9465]);
        assert!(seen.iter().all(|(picture, _)| *picture == still[0]));
    }

    #[test]
    fn only_the_changed_rectangle_is_stored() {
        let before = vec![0; 8 * 6 * 3];
        let mut after = before.clone();
        after[(2 * 8 + 3) * 3] = 1;
        after[(4 * 8 + 6) * 3 + 2] = 1;
        assert_eq!(changed(&before, &after, 8), Area { left: 3, top: 2, width: 4, height: 3 });
    }

    #[test]
    fn more_than_256_colours_are_rounded() {
        let colours = |at: usize| [(at * 7 % 256) as u8, (at * 13 % 256) as u8, (at * 29 % 256) as u8];
        let frame: Vec<u8> = (0..400).flat_map(colours).collect();
        let seen = written(std::slice::from_ref(&frame), 20, 15);
        let error: u32 = seen[0].0.iter().zip(&frame).map(|(shown, drawn)| u32::from(shown.abs_diff(*drawn))).sum();
        assert!(error / 1200 <= 12, "a mean error of {}", error / 1200);
    }

    #[test]
    fn impossible_rate_and_size_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let rejection = |width, rate| {
            let file = PartialFile::create(&directory.path().join("out.gif")).unwrap();
            GifFile::create(file.writer().unwrap(), file, (width, 10), rate).map(drop).unwrap_err().to_string()
        };
        assert_eq!(rejection(10, 60), "a GIF has 1 to 50 frames per second, not 60");
        assert_eq!(rejection(10, 0), "a GIF has 1 to 50 frames per second, not 0");
        assert_eq!(rejection(70_000, 15), "a GIF is at most 65535 pixels wide and high, not 70000");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
