//! MP4 (H.264), encoded by the user's ffmpeg.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};

use super::partial::PartialFile;

/// Pipes raw RGB pictures to an ffmpeg that writes the file.
pub struct Mp4File {
    ffmpeg: Child,
    /// Taken when all pictures are through.
    pictures: Option<ChildStdin>,
    /// Reads what ffmpeg complains of, so that a full pipe cannot stop it, and keeps the last line.
    complaints: Option<JoinHandle<String>>,
    file: PartialFile,
}

impl Mp4File {
    /// An MP4 of this size that will be at `file`'s name; `program` is the ffmpeg to run.
    pub fn create(program: &OsStr, file: PartialFile, (width, height): (usize, usize), rate: u32) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y"]);
        command.args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", &format!("{width}x{height}")]);
        command.args(["-framerate", &rate.to_string(), "-i", "pipe:0", "-an"]);
        // Most players want 4:2:0, which needs even sides.
        command.args(["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p"]);
        command.args(["-movflags", "+faststart", "-f", "mp4"]).arg(file.aside());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ffmpeg = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                anyhow!("an .mp4 is made by ffmpeg, which is not installed: install it, or name a .gif file instead")
            }
            _ => anyhow!(error).context("ffmpeg could not be started"),
        })?;
        let pictures = ffmpeg.stdin.take();
        let complaints = ffmpeg.stderr.take().map(|stderr| thread::spawn(move || last_line(stderr)));
        Ok(Self { ffmpeg, pictures, complaints, file })
    }

    /// Shows one RGB picture for one frame.
    pub fn frame(&mut self, pixels: &[u8]) -> Result<()> {
        let Some(pictures) = &mut self.pictures else { bail!("ffmpeg has ended") };
        match pictures.write_all(pixels) {
            Ok(()) => Ok(()),
            // It has gone: what it said tells why, the broken pipe does not.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.wait()?;
                bail!("ffmpeg ended before the video did")
            }
            Err(error) => Err(error).context("a picture could not be passed to ffmpeg"),
        }
    }

    /// Waits for ffmpeg to write the rest and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        self.wait()?;
        Ok(self.file.finish()?)
    }

    /// Closes the pipe and waits; a failure is reported in ffmpeg's own last words.
    fn wait(&mut self) -> Result<()> {
        drop(self.pictures.take());
        let status = self.ffmpeg.wait().context("ffmpeg cannot be waited for")?;
        let complaint = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        match (status.success(), complaint.as_str()) {
            (true, _) => Ok(()),
            (false, "") => bail!("ffmpeg failed without a word ({status})"),
            (false, complaint) => bail!("ffmpeg failed: {complaint}"),
        }
    }
}

impl Drop for Mp4File {
    fn drop(&mut self) {
        // An unfinished video is of no use; both calls fail harmlessly where ffmpeg has ended.
        let _ = self.ffmpeg.kill();
        let _ = self.ffmpeg.wait();
    }
}

/// The last line that says something.
fn last_line(stderr: ChildStderr) -> String {
    let lines = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
    let lines = lines.map(|line| String::from_utf8_lossy(&line).trim().to_owned());
    lines.filter(|line| !line.is_empty()).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::video::folder::Folder;

    /// A stand-in for ffmpeg. A shell writes it: a file that this process has open for writing, or had when another
    /// test started a process, cannot be run.
    fn stand_in(folder: &Folder, script: &str) -> PathBuf {
        let path = folder.path().join("ffmpeg");
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod +x \"$0\""]).arg(&path).arg(script);
        assert!(shell.status().unwrap().success());
        path
    }

    fn start(folder: &Folder, program: &OsStr) -> Result<Mp4File> {
        let (file, _) = PartialFile::create(&folder.path().join("out.mp4")).unwrap();
        Mp4File::create(program, file, (4, 2), 15)
    }

    #[test]
    fn ffmpeg_is_given_the_pictures_and_the_place() {
        let folder = Folder::new();
        let program =
            stand_in(&folder, r#"printf '%s|' "$@" > "${0%/*}/arguments"; for last; do :; done; cat > "$last""#);
        let mut video = start(&folder, program.as_os_str()).unwrap();
        video.frame(&[1; 24]).unwrap();
        video.frame(&[2; 24]).unwrap();
        assert!(!folder.path().join("out.mp4").exists());
        video.finish().unwrap();
        assert_eq!(std::fs::read(folder.path().join("out.mp4")).unwrap(), [[1; 24], [2; 24]].concat());
        let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
        assert!(arguments.contains("|-pix_fmt|rgb24|-video_size|4x2|-framerate|15|-i|pipe:0|"), "{arguments}");
        assert_eq!(folder.names(), ["arguments", "ffmpeg", "out.mp4"]);
    }

    #[test]
    fn a_failure_is_told_in_ffmpegs_last_words() {
        let folder = Folder::new();
        let program =
            stand_in(&folder, "cat > /dev/null; echo first >&2; echo 'Unknown encoder' >&2; echo >&2; exit 1");
        let mut video = start(&folder, program.as_os_str()).unwrap();
        video.frame(&[1; 24]).unwrap();
        assert_eq!(video.finish().unwrap_err().to_string(), "ffmpeg failed: Unknown encoder");
        assert_eq!(folder.names(), ["ffmpeg"]);
    }

    #[test]
    fn an_ffmpeg_that_ends_early_is_noticed_at_the_next_pictures() {
        let folder = Folder::new();
        let program = stand_in(&folder, "echo 'no space left' >&2; exit 1");
        let mut video = start(&folder, program.as_os_str()).unwrap();
        let failure = (0..100_000).find_map(|_| video.frame(&[1; 24]).err()).expect("the pipe breaks");
        assert_eq!(failure.to_string(), "ffmpeg failed: no space left");
        assert_eq!(video.frame(&[1; 24]).unwrap_err().to_string(), "ffmpeg has ended");
        drop(video);

        let program = stand_in(&folder, "exit 0");
        let mut video = start(&folder, program.as_os_str()).unwrap();
        let failure = (0..100_000).find_map(|_| video.frame(&[1; 24]).err()).expect("the pipe breaks");
        assert_eq!(failure.to_string(), "ffmpeg ended before the video did");
        drop(video);
        assert_eq!(folder.names(), ["ffmpeg"]);
    }

    #[test]
    fn a_missing_ffmpeg_is_said_at_once() {
        let folder = Folder::new();
        let refused = start(&folder, OsStr::new("/nowhere/ffmpeg")).map(drop).unwrap_err().to_string();
        let sentence = "an .mp4 is made by ffmpeg, which is not installed: install it, or name a .gif file instead";
        assert_eq!(refused, sentence);
        assert!(folder.names().is_empty());
    }

    /// With ffmpeg a file of the right kind comes out; without, the sentence.
    #[test]
    fn the_ffmpeg_of_this_machine_writes_an_mp4() {
        let folder = Folder::new();
        let installed = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status().is_ok();
        match start(&folder, OsStr::new("ffmpeg")) {
            Ok(mut video) => {
                assert!(installed);
                (0..30).for_each(|level| video.frame(&[level * 8; 24]).unwrap());
                video.finish().unwrap();
                let bytes = std::fs::read(folder.path().join("out.mp4")).unwrap();
                assert_eq!(&bytes[4..8], b"ftyp");
            }
            Err(error) => {
                assert!(!installed && error.to_string().contains("ffmpeg, which is not installed"), "{error:#}");
            }
        }
    }
}
