//! Videos of play: `.gif` built in, `.mp4` through ffmpeg.

pub mod canvas;
mod gif;
mod mp4;
pub mod pictures;
pub mod scene;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use canvas::Canvas;
use gif::GifFile;
use mp4::Mp4File;

use crate::partial_file::PartialFile;

/// Small pictures are enlarged by an integer factor until the shorter side has this many pixels,
const MIN_SIDE: usize = 160;
/// as long as the longer side stays within this limit.
const MAX_ENLARGED_SIDE: usize = 640;

/// Video frames per second: Atari runs at 60 frames per second, four per step. The rate suits the built-in tasks too.
pub const FRAMES_PER_SECOND: u32 = 15;

/// Writes pictures of one size to a video file.
///
/// The file is written aside and takes its name in [`finish`](Self::finish). A writer that is dropped earlier leaves
/// nothing behind.
pub struct VideoWriter {
    path: PathBuf,
    /// Height and width of the pictures.
    size: (usize, usize),
    scale: usize,
    canvas: Canvas,
    frames: u64,
    file: VideoFile,
}

enum VideoFile {
    Gif(GifFile),
    Mp4(Mp4File),
}

impl VideoWriter {
    /// Starts a video in the format that the extension of `path` names. All that can go wrong at the start, from an
    /// unknown extension to a missing ffmpeg, fails here, before anything is played.
    pub fn create(path: &Path, (height, width): (usize, usize)) -> Result<Self> {
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
        if !["gif", "mp4"].contains(&extension.as_str()) {
            bail!("unknown video format \"{}\": expected a file name that ends in .gif or .mp4", path.display());
        }
        ensure!(height > 0 && width > 0, "cannot make a video of {height} x {width} pixels");
        let scale = scale(height, width);
        let enlarged = (width * scale, height * scale);
        let canvas = Canvas::new(enlarged.0, enlarged.1);
        let file = PartialFile::create(path)?;
        let file = match extension.as_str() {
            "gif" => VideoFile::Gif(GifFile::create(file.writer()?, file, enlarged, FRAMES_PER_SECOND)?),
            _ => VideoFile::Mp4(Mp4File::create(OsStr::new("ffmpeg"), file, enlarged, FRAMES_PER_SECOND)?),
        };
        Ok(Self { path: path.to_owned(), size: (height, width), scale, canvas, frames: 0, file })
    }

    /// Adds a picture with one byte per pixel (grayscale) or three (RGB).
    pub fn frame(&mut self, pixels: &[u8]) -> Result<()> {
        let gray = self.size.0 * self.size.1;
        let (rgb, got) = (3 * gray, pixels.len());
        ensure!(
            [gray, rgb].contains(&got),
            "expected a picture of {gray} bytes (grayscale) or {rgb} bytes (RGB), got {got}"
        );
        self.canvas.draw(pixels, self.size, self.scale);
        self.frames += 1;
        let written = match &mut self.file {
            VideoFile::Gif(file) => file.frame(&self.canvas.pixels),
            VideoFile::Mp4(file) => file.frame(&self.canvas.pixels),
        };
        written.with_context(|| unfinished(&self.path))
    }

    /// Completes the video and gives the file its name.
    pub fn finish(self) -> Result<()> {
        ensure!(self.frames > 0, "the video {} has no pictures, so it was discarded", self.path.display());
        let finished = match self.file {
            VideoFile::Gif(file) => file.finish(),
            VideoFile::Mp4(file) => file.finish(),
        };
        finished.with_context(|| unfinished(&self.path))
    }
}

/// Returns the factor by which a picture is enlarged.
fn scale(height: usize, width: usize) -> usize {
    MIN_SIDE.div_ceil(height.min(width)).min(MAX_ENLARGED_SIDE / height.max(width)).max(1)
}

fn unfinished(path: &Path) -> String {
    format!("cannot write the video {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial_file::tests::names;

    fn rejection(path: &Path) -> String {
        format!("{:#}", VideoWriter::create(path, (10, 10)).map(drop).unwrap_err())
    }

    #[test]
    fn unknown_format_is_rejected_before_anything_is_written() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["out.avi", "out", "gif", "out.mp4.txt", ".gif"] {
            let path = directory.path().join(name);
            let sentence =
                format!("unknown video format \"{}\": expected a file name that ends in .gif or .mp4", path.display());
            assert_eq!(rejection(&path), sentence);
        }
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn path_that_cannot_be_written_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let reason = rejection(&directory.path().join("nowhere/out.gif"));
        assert!(reason.starts_with("No such file"), "{reason}");
        std::fs::create_dir(directory.path().join("directory.gif")).unwrap();
        assert_eq!(rejection(&directory.path().join("directory.gif")), "it is a directory");
    }

    /// Pictures of 3 x 2 pixels, grayscale and RGB, enlarged 80 times.
    #[test]
    fn small_pictures_are_enlarged_by_an_integer_factor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.GIF");
        let mut video = VideoWriter::create(&path, (2, 3)).unwrap();
        video.frame(&[0, 50, 100, 150, 200, 250]).unwrap();
        video.frame(&[7; 18]).unwrap();
        video.finish().unwrap();
        let mut options = ::gif::DecodeOptions::new();
        options.set_color_output(::gif::ColorOutput::RGBA);
        let mut decoder = options.read_info(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!((decoder.width(), decoder.height()), (240, 160));
        let frame = decoder.read_next_frame().unwrap().unwrap();
        for (at, pixel) in frame.buffer.as_chunks::<4>().0.iter().enumerate() {
            let level = (at % 240 / 80 + at / 240 / 80 * 3) as u8 * 50;
            assert_eq!(*pixel, [level, level, level, 255], "pixel {at}");
        }
        let frame = decoder.read_next_frame().unwrap().unwrap();
        assert!(frame.buffer.as_chunks().0.iter().all(|pixel| *pixel == [7, 7, 7, 255]));
        assert!(decoder.read_next_frame().unwrap().is_none());
    }

    #[test]
    fn tasks_are_enlarged_and_atari_games_are_not() {
        for ((height, width), expected) in
            [((10, 10), 16), ((11, 11), 15), ((210, 160), 1), ((1, 5000), 1), ((2, 300), 2)]
        {
            assert_eq!(scale(height, width), expected, "{height} x {width}");
        }
    }

    #[test]
    fn picture_of_another_size_and_video_without_pictures_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.gif");
        let mut video = VideoWriter::create(&path, (10, 10)).unwrap();
        let reason = video.frame(&[0; 99]).unwrap_err().to_string();
        assert_eq!(reason, "expected a picture of 100 bytes (grayscale) or 300 bytes (RGB), got 99");
        let reason = video.finish().unwrap_err().to_string();
        assert_eq!(reason, format!("the video {} has no pictures, so it was discarded", path.display()));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn dropped_writer_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut video = VideoWriter::create(&directory.path().join("out.gif"), (10, 10)).unwrap();
        video.frame(&[1; 100]).unwrap();
        drop(video);
        assert!(names(directory.path()).is_empty());
    }
}
