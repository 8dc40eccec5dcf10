//! Opening files to read. What has a file's name and is none is refused with a word: opening a named pipe waits for a
//! writer, and reading some devices never ends.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    refuse_others(path)?;
    File::open(path)
}

/// All that is in a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses what is there and is no file.
pub(crate) fn refuse_others(path: &Path) -> io::Result<()> {
    match other_than_a_file(path) {
        Some(what) => Err(io::Error::other(format!("it is {what}, not a file"))),
        None => Ok(()),
    }
}

/// What is there, if it is no file. What can't be looked at is left to whoever opens it.
pub(crate) fn other_than_a_file(path: &Path) -> Option<&'static str> {
    let found = fs::metadata(path).ok()?.file_type();
    match found {
        _ if found.is_file() => None,
        _ if found.is_dir() => Some("a folder"),
        // A pipe that is open already, such as a shell's `<(zcat x.gz)`, has no place of its own. It is read like a file.
        _ if found.is_fifo() => path.canonicalize().is_ok().then_some("a named pipe"),
        _ if found.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{io::Write, thread};

    use super::*;
    use crate::config::Sources;
    use crate::run::checkpoint::{CheckpointError, Checkpoints};
    use crate::run::scratch::Scratch;
    use crate::run::{MetricsSummary, MetricsWriter, RunFiles, RunLock};

    /// What `read` answers, unless it waits for ever.
    fn answer<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, receive) = mpsc::channel();
        thread::spawn(move || send.send(read()));
        receive.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    fn make_pipe(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn only_files_are_opened() {
        let scratch = Scratch::new();
        let path = |name| scratch.path().join(name);
        make_pipe(&path("pipe"));
        fs::create_dir(path("folder")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        for (name, what) in [("pipe", "a named pipe"), ("folder", "a folder"), ("socket", "a socket")] {
            let path = path(name);
            let error = answer(move || read(&path)).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {what}, not a file"));
        }
        let error = answer(|| read(Path::new("/dev/zero"))).unwrap_err();
        assert_eq!(error.to_string(), "it is a device, not a file");
        fs::write(path("file"), "text").unwrap();
        assert_eq!(read(&path("file")).unwrap(), b"text");
        assert_eq!(read(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_pipe_that_is_open_already_is_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        assert_eq!(answer(move || read(&path)).unwrap(), b"text");
    }

    #[test]
    fn a_pipe_in_the_place_of_a_runs_file_is_told_and_not_waited_for() {
        let scratch = Scratch::new();
        let run = RunFiles::in_folder(scratch.path());
        fs::create_dir(run.checkpoints_folder()).unwrap();
        let checkpoint = run.checkpoints_folder().join("000000000100.ckpt");
        for path in [
            run.description_file(),
            run.config_file(),
            run.metrics_file(),
            run.lock_file(),
            run.checkpoints_folder().join("best.ckpt"),
            checkpoint.clone(),
        ] {
            make_pipe(&path);
        }
        let told =
            |path: PathBuf, done: &str| format!("{} can't be {done}: it is a named pipe, not a file", path.display());
        let files = run.clone();
        assert_eq!(answer(move || files.description().unwrap_err().to_string()), told(run.description_file(), "read"));
        let files = run.clone();
        assert_eq!(answer(move || files.config().unwrap_err().to_string()), told(run.config_file(), "read"));
        let path = run.config_file();
        let config = answer(move || Sources { file: Some(path), ..Sources::default() }.load().unwrap_err().to_string());
        assert_eq!(config, format!("{}: can't be read: it is a named pipe, not a file", run.config_file().display()));
        let path = run.metrics_file();
        let metrics = answer(move || MetricsSummary::of(&path).unwrap_err().to_string());
        assert_eq!(metrics, told(run.metrics_file(), "opened"));
        let path = run.metrics_file();
        let metrics = answer(move || MetricsWriter::open(&path, None).unwrap_err().to_string());
        assert_eq!(metrics, told(run.metrics_file(), "opened"));
        let files = run.clone();
        assert_eq!(answer(move || files.owner()), None);
        let path = run.lock_file();
        assert_eq!(answer(move || RunLock::acquire(&path).unwrap_err().to_string()), told(run.lock_file(), "opened"));
        let checkpoints = Checkpoints::in_folder(&run.checkpoints_folder());
        let error = answer({
            let checkpoints = checkpoints.clone();
            move || checkpoints.at(100).unwrap_err()
        });
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
        let how = format!("checkpoint {} is damaged: it is a named pipe, not a file", checkpoint.display());
        assert_eq!(error.to_string(), how);
        assert!(answer(move || checkpoints.best()).is_err());
    }
}
