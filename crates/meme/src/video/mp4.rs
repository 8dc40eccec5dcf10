//! MP4 (H.264), encoded by the user's ffmpeg.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStderr, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};

use crate::child::KillOnDrop;
use crate::partial_file::PartialFile;

/// Pipes raw RGB pictures to ffmpeg, which writes the file.
pub struct Mp4File {
    ffmpeg: KillOnDrop,
    /// Taken when all pictures are written.
    pictures: Option<ChildStdin>,
    /// Reads ffmpeg's messages, as a full pipe would stop it, and keeps the last line.
    last_message: Option<JoinHandle<String>>,
    file: PartialFile,
}

impl Mp4File {
    /// Starts an MP4 of this size; `program` is the ffmpeg to run.
    pub fn create(program: &OsStr, file: PartialFile, (width, height): (usize, usize), rate: u32) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y"]);
        command.args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", &format!("{width}x{height}")]);
        command.args(["-framerate", &rate.to_string(), "-i", "pipe:0", "-an"]);
        // Most players require 4:2:0, which needs even sides.
        command.args(["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p"]);
        command.args(["-movflags", "+faststart", "-f", "mp4"]).arg(file.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ffmpeg = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                anyhow!("ffmpeg, which encodes .mp4 files, is not installed; install it or choose a .gif file")
            }
            _ => anyhow!(error).context("cannot start ffmpeg"),
        })?;
        let pictures = ffmpeg.stdin.take();
        let last_message = ffmpeg.stderr.take().map(|stderr| thread::spawn(move || last_line(stderr)));
        Ok(Self { ffmpeg: KillOnDrop(ffmpeg), pictures, last_message, file })
    }

    /// Adds one RGB picture.
    pub fn frame(&mut self, pixels: &[u8]) -> Result<()> {
        let Some(pictures) = &mut self.pictures else { bail!("ffmpeg has ended") };
        match pictures.write_all(pixels) {
            Ok(()) => Ok(()),
            // ffmpeg has ended. Its message tells why; the broken pipe does not.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.wait()?;
                bail!("ffmpeg ended before the video was complete")
            }
            Err(error) => Err(error).context("cannot send a picture to ffmpeg"),
        }
    }

    /// Waits for ffmpeg to write the rest and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        self.wait()?;
        Ok(self.file.finish()?)
    }

    /// Closes the pipe and waits. A failure is reported with the last line that ffmpeg printed.
    fn wait(&mut self) -> Result<()> {
        drop(self.pictures.take());
        let status = self.ffmpeg.0.wait().context("cannot wait for ffmpeg")?;
        let message = self.last_message.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        match (status.success(), message.as_str()) {
            (true, _) => Ok(()),
            (false, "") => bail!("ffmpeg failed without a message ({status})"),
            (false, message) => bail!("ffmpeg failed: {message}"),
        }
    }
}

/// The last line that is not blank.
fn last_line(stderr: ChildStderr) -> String {
    let lines = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
    let lines = lines.map(|line| String::from_utf8_lossy(&line).trim().to_owned());
    lines.filter(|line| !line.is_empty()).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::partial_file::tests::names;

    /// A stand-in for ffmpeg. A shell writes it: a file that this process has open for writing, or had when another
    /// test started a process, cannot be executed.
    fn stand_in(directory: &Path, script: &str) -> PathBuf {
        let path = directory.join("ffmpeg");
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod +x \"$0\""]).arg(&path).arg(script);
        assert!(shell.status().unwrap().success());
        path
    }

    fn start(directory: &Path, program: &OsStr) -> Result<Mp4File> {
        let file = PartialFile::create(&directory.join("out.mp4")).unwrap();
        Mp4File::create(program, file, (4, 2), 15)
    }

    #[test]
    fn ffmpeg_gets_the_pictures_and_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let program = stand_in(
            directory.path(),
            r#"printf '%s|' "$@" > "${0%/*}/arguments"; for last; do :; done; cat > "$last""#,
        );
        let mut video = start(directory.path(), program.as_os_str()).unwrap();
        video.frame(&[1; 24]).unwrap();
        video.frame(&[2; 24]).unwrap();
        assert!(!directory.path().join("out.mp4").exists());
        video.finish().unwrap();
        assert_eq!(std::fs::read(directory.path().join("out.mp4")).unwrap(), [[1; 24], [2; 24]].concat());
        let arguments = std::fs::read_to_string(directory.path().join("arguments")).unwrap();
        assert!(arguments.contains("|-pix_fmt|rgb24|-video_size|4x2|-framerate|15|-i|pipe:0|"), "{arguments}");
        assert_eq!(names(directory.path()), ["arguments", "ffmpeg", "out.mp4"]);
    }

    #[test]
    fn failure_is_reported_with_ffmpegs_last_message() {
        let directory = tempfile::tempdir().unwrap();
        let program =
            stand_in(directory.path(), "cat > /dev/null; echo first >&2; echo 'Unknown encoder' >&2; echo >&2; exit 1");
        let mut video = start(directory.path(), program.as_os_str()).unwrap();
        video.frame(&[1; 24]).unwrap();
        assert_eq!(video.finish().unwrap_err().to_string(), "ffmpeg failed: Unknown encoder");
        assert_eq!(names(directory.path()), ["ffmpeg"]);
    }

    #[test]
    fn early_end_of_ffmpeg_is_noticed_at_the_next_pictures() {
        let directory = tempfile::tempdir().unwrap();
        let program = stand_in(directory.path(), "echo 'no space left' >&2; exit 1");
        let mut video = start(directory.path(), program.as_os_str()).unwrap();
        let failure = (0..100_000).find_map(|_| video.frame(&[1; 24]).err()).expect("the pipe breaks");
        assert_eq!(failure.to_string(), "ffmpeg failed: no space left");
        assert_eq!(video.frame(&[1; 24]).unwrap_err().to_string(), "ffmpeg has ended");
        drop(video);

        let program = stand_in(directory.path(), "exit 0");
        let mut video = start(directory.path(), program.as_os_str()).unwrap();
        let failure = (0..100_000).find_map(|_| video.frame(&[1; 24]).err()).expect("the pipe breaks");
        assert_eq!(failure.to_string(), "ffmpeg ended before the video was complete");
        drop(video);
        assert_eq!(names(directory.path()), ["ffmpeg"]);
    }

    #[test]
    fn missing_ffmpeg_is_reported_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let refused = start(directory.path(), OsStr::new("/nowhere/ffmpeg")).map(drop).unwrap_err().to_string();
        let sentence = "ffmpeg, which encodes .mp4 files, is not installed; install it or choose a .gif file";
        assert_eq!(refused, sentence);
        assert!(names(directory.path()).is_empty());
    }

    /// With ffmpeg installed, the file is an MP4; without, the error says so.
    #[test]
    fn installed_ffmpeg_writes_an_mp4() {
        let directory = tempfile::tempdir().unwrap();
        let installed = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status().is_ok();
        match start(directory.path(), OsStr::new("ffmpeg")) {
            Ok(mut video) => {
                assert!(installed);
                (0..30).for_each(|level| video.frame(&[level * 8; 24]).unwrap());
                video.finish().unwrap();
                let bytes = std::fs::read(directory.path().join("out.mp4")).unwrap();
                assert_eq!(&bytes[4..8], b"ftyp");
            }
            Err(error) => {
                assert!(!installed && error.to_string().contains("is not installed"), "{error:#}");
            }
        }
    }
}
