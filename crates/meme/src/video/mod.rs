//! Videos of play: `.gif` by ourselves, `.mp4` through ffmpeg.

pub mod canvas;
#[cfg(test)]
pub mod folder;
mod font;
mod gif;
mod mp4;
pub mod partial;
pub mod scene;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use envs::{EnvSpec, ObservationKind};

use canvas::{Canvas, Image};
use gif::GifFile;
use mp4::Mp4File;
use partial::PartialFile;

/// Smaller pictures are enlarged, by a whole factor, until the shorter side has this many pixels,
const LEAST_SIDE: usize = 160;
/// as long as the longer side keeps to this.
const MOST_ENLARGED_SIDE: usize = 640;

/// 60 emulator frames a second are 15 steps of an Atari game; a task's steps are watchable at that rate too.
pub const FRAMES_PER_SECOND: u32 = 15;

/// Writes pictures of one size to a video file.
///
/// The file is written aside and takes its name in [`finish`](Self::finish), so that there is never a torn one under
/// it; a writer that is dropped before leaves nothing behind.
pub struct VideoWriter {
    path: PathBuf,
    width: usize,
    height: usize,
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
    /// Begins a video whose kind the ending of `path` says, for pictures of this size. Whatever stands against it, from
    /// an unknown ending to a missing ffmpeg, is said here, before there is anything to show.
    pub fn create(path: &Path, height: usize, width: usize, frames_per_second: u32) -> Result<Self> {
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
        if !["gif", "mp4"].contains(&ending.as_str()) {
            bail!("videos are .gif or .mp4 files, and `{}` is neither", path.display());
        }
        ensure!(height > 0 && width > 0, "pictures of {height} x {width} pixels have nothing to show");
        let scale = scale(height, width);
        let size = (width * scale, height * scale);
        let canvas = Canvas::new(size.0, size.1);
        let file = PartialFile::create(path).context("the file cannot be written")?;
        let file = match ending.as_str() {
            "gif" => VideoFile::Gif(GifFile::create(file, size, frames_per_second)?),
            _ => VideoFile::Mp4(Mp4File::create(OsStr::new("ffmpeg"), file.0, size, frames_per_second)?),
        };
        Ok(Self { path: path.to_owned(), width, height, scale, canvas, frames: 0, file })
    }

    /// Shows a picture for one frame: one byte a pixel is grayscale, three are RGB.
    pub fn frame(&mut self, pixels: &[u8]) -> Result<()> {
        let image = match self.width * self.height {
            count if pixels.len() == count => Image::Gray(pixels),
            count if pixels.len() == count * 3 => Image::Rgb(pixels),
            count => bail!("a picture of {} bytes is neither gray nor RGB with {count} pixels", pixels.len()),
        };
        self.canvas.draw((0, 0), image, self.width, self.scale);
        self.frames += 1;
        let written = match &mut self.file {
            VideoFile::Gif(file) => file.frame(self.canvas.pixels()),
            VideoFile::Mp4(file) => file.frame(self.canvas.pixels()),
        };
        written.with_context(|| unfinished(&self.path))
    }

    /// Ends the video and gives the file its name.
    pub fn finish(self) -> Result<()> {
        ensure!(self.frames > 0, "the video {} has no pictures and was not kept", self.path.display());
        let finished = match self.file {
            VideoFile::Gif(file) => file.finish(),
            VideoFile::Mp4(file) => file.finish(),
        };
        finished.with_context(|| unfinished(&self.path))
    }
}

/// Height and width of an environment's observations, if they are pictures.
pub fn picture_size(spec: &EnvSpec) -> Result<(usize, usize)> {
    match (spec.observation_kind, spec.observation_shape.as_slice()) {
        (ObservationKind::U8, &[height, width] | &[height, width, 3]) => Ok((height, width)),
        _ => bail!(
            "{} has observations of shape {:?}, which are no pictures to make a video of",
            spec.name,
            spec.observation_shape
        ),
    }
}

/// How many times a picture of this size is enlarged.
fn scale(height: usize, width: usize) -> usize {
    LEAST_SIDE.div_ceil(height.min(width)).min(MOST_ENLARGED_SIDE / height.max(width)).max(1)
}

fn unfinished(path: &Path) -> String {
    format!("the video {} could not be written", path.display())
}

#[cfg(test)]
mod tests {
    use super::folder::Folder;
    use super::*;

    fn refused(path: &Path) -> String {
        format!("{:#}", VideoWriter::create(path, 10, 10, 15).map(drop).unwrap_err())
    }

    #[test]
    fn an_unknown_ending_is_refused_before_anything_is_written() {
        let folder = Folder::new();
        for name in ["out.avi", "out", "gif", "out.mp4.txt", ".gif"] {
            let path = folder.path().join(name);
            let sentence = format!("videos are .gif or .mp4 files, and `{}` is neither", path.display());
            assert_eq!(refused(&path), sentence);
        }
        assert!(folder.names().is_empty());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused() {
        let folder = Folder::new();
        let reason = refused(&folder.path().join("nowhere/out.gif"));
        assert!(reason.starts_with("the file cannot be written: No such file"), "{reason}");
        std::fs::create_dir(folder.path().join("folder.gif")).unwrap();
        assert_eq!(refused(&folder.path().join("folder.gif")), "the file cannot be written: it is a folder");
    }

    /// 3 x 2 gray and RGB pictures, enlarged 80 times, come back from the file.
    #[test]
    fn small_pictures_are_enlarged_by_a_whole_factor() {
        let folder = Folder::new();
        let path = folder.path().join("out.GIF");
        let mut video = VideoWriter::create(&path, 2, 3, 15).unwrap();
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
    fn tasks_are_enlarged_and_atari_is_not() {
        for ((height, width), expected) in
            [((10, 10), 16), ((11, 11), 15), ((210, 160), 1), ((1, 5000), 1), ((2, 300), 2)]
        {
            assert_eq!(scale(height, width), expected, "{height} x {width}");
        }
    }

    #[test]
    fn a_picture_of_another_size_and_a_video_of_none_are_refused() {
        let folder = Folder::new();
        let path = folder.path().join("out.gif");
        let mut video = VideoWriter::create(&path, 10, 10, 15).unwrap();
        let reason = video.frame(&[0; 99]).unwrap_err().to_string();
        assert_eq!(reason, "a picture of 99 bytes is neither gray nor RGB with 100 pixels");
        let reason = video.finish().unwrap_err().to_string();
        assert_eq!(reason, format!("the video {} has no pictures and was not kept", path.display()));
        assert!(folder.names().is_empty());
    }

    #[test]
    fn a_writer_that_is_dropped_leaves_nothing() {
        let folder = Folder::new();
        let mut video = VideoWriter::create(&folder.path().join("out.gif"), 10, 10, 15).unwrap();
        video.frame(&[1; 100]).unwrap();
        drop(video);
        assert!(folder.names().is_empty());
    }
}
