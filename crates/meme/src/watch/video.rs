//! Videos of the newest checkpoint, played on request by a process of its own with the lowest priority.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::TempDir;
use train::run::RunFiles;
use train::run::checkpoint::Checkpoints;

use crate::locked::locked;

/// Length of a video in seconds.
const SECONDS: &str = "60";
/// Maximum number of videos that are kept.
const MAX_VIDEOS: usize = 20;

/// Records videos, one at a time.
pub struct Recorder {
    /// Videos are written here: the directory of the runs is only read.
    directory: Arc<TempDir>,
    shared: Arc<Mutex<Recordings>>,
}

#[derive(Default)]
struct Recordings {
    /// The run that is being recorded.
    current: Option<String>,
    videos: BTreeMap<String, Video>,
    /// Why the last recording of a run failed.
    failures: BTreeMap<String, String>,
    count: usize,
}

/// A video and the checkpoint that it shows.
#[derive(Clone, Debug, Serialize)]
pub struct Video {
    /// The file, which a page does not need.
    #[serde(skip)]
    pub path: PathBuf,
    /// Frame count of the checkpoint.
    frames: u64,
}

/// What a page shows of a run's videos.
#[derive(Serialize)]
pub struct VideoState {
    newest: Option<Video>,
    newest_checkpoint: Option<u64>,
    /// Whether an episode of this run is being played now.
    recording: bool,
    failure: Option<String>,
}

impl Recorder {
    /// A recorder without any videos.
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        Ok(Self { directory: Arc::new(directory), shared: Arc::default() })
    }

    fn recordings(&self) -> MutexGuard<'_, Recordings> {
        locked(&self.shared)
    }

    /// What there is for a run.
    pub fn state(&self, run: &RunFiles, name: &str, newest_checkpoint: Option<u64>) -> VideoState {
        let newest = self.newest(run, name);
        let recordings = self.recordings();
        VideoState {
            newest,
            newest_checkpoint,
            recording: recordings.current.as_deref() == Some(name),
            failure: recordings.failures.get(name).cloned(),
        }
    }

    /// The video of the newest checkpoint.
    ///
    /// It is one of `meme record` in the run's directory, or one recorded here.
    pub fn newest(&self, run: &RunFiles, name: &str) -> Option<Video> {
        let files = fs::read_dir(run.videos_directory()).into_iter().flatten().flatten();
        let of_run = files.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let frames = name.strip_suffix(".gif")?.split('-').next()?.parse().ok()?;
            // Not a link, which could lead anywhere.
            entry.file_type().ok()?.is_file().then(|| Video { path: entry.path(), frames })
        });
        let recorded = self.recordings().videos.get(name).cloned();
        of_run.chain(recorded).max_by_key(|video| video.frames)
    }

    /// Starts to record the newest checkpoint, if it has no video.
    ///
    /// Nothing happens while something else is being recorded.
    pub fn record(&self, run: &RunFiles, name: &str) -> Result<()> {
        let newest = Checkpoints::in_directory(&run.checkpoints_directory()).list()?.pop();
        let frames = newest.context("there is no checkpoint yet")?;
        if self.newest(run, name).is_some_and(|video| video.frames >= frames) {
            bail!("there is a video of the newest checkpoint");
        }
        let mut recordings = self.recordings();
        if let Some(current) = &recordings.current {
            bail!("an episode of {current} is being played; try again when it is done");
        }
        recordings.count += 1;
        let path = self.directory.path().join(format!("{:08}.gif", recordings.count));
        let mut command = command(run, frames, &path)?;
        let (shared, directory) = (Arc::clone(&self.shared), Arc::clone(&self.directory));
        let of_run = name.to_owned();
        // It waits for the lock that is held here.
        thread::Builder::new().name("recording".to_owned()).spawn(move || {
            let output = command.output();
            let mut recordings = locked(&shared);
            recordings.current = None;
            match output {
                Ok(output) if output.status.success() => recordings.keep(of_run, Video { path, frames }),
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr);
                    let last = said.lines().last().unwrap_or("it was killed").trim_start_matches("error: ");
                    recordings.failures.insert(of_run, last.to_owned());
                }
                Err(error) => drop(recordings.failures.insert(of_run, error.to_string())),
            }
            // The directory stays until the recording is done.
            drop(directory);
        })?;
        recordings.current = Some(name.to_owned());
        recordings.failures.remove(name);
        Ok(())
    }
}

impl Recordings {
    /// Keeps a video in place of the run's older one.
    fn keep(&mut self, name: String, video: Video) {
        if let Some(old) = self.videos.insert(name, video) {
            let _ = fs::remove_file(old.path);
        }
        while self.videos.len() > MAX_VIDEOS {
            let oldest = self.videos.iter().min_by_key(|(_, video)| video.path.clone()).map(|(name, _)| name.clone());
            if let Some(video) = oldest.and_then(|name| self.videos.remove(&name)) {
                let _ = fs::remove_file(video.path);
            }
        }
    }
}

/// `meme record` of a checkpoint on one core that nothing else needs, without the GPU.
fn command(run: &RunFiles, frames: u64, out: &Path) -> Result<Command> {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(env::current_exe()?).arg("record").arg(&run.path);
    command.args(["--checkpoint", &frames.to_string(), "--seconds", SECONDS, "--out"]).arg(out);
    command.env("CUDA_VISIBLE_DEVICES", "").env("OMP_NUM_THREADS", "1").stdin(Stdio::null());
    Ok(command)
}
