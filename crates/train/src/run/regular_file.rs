//! Opens regular files only: opening a named pipe waits for a writer, and reading some devices never ends.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    refuse_other_types(path)?;
    File::open(path)
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fails if something other than a file is there.
pub(crate) fn refuse_other_types(path: &Path) -> io::Result<()> {
    match other_file_type(path) {
        Some(what) => Err(io::Error::other(format!("it is {what}, not a file"))),
        None => Ok(()),
    }
}

/// Returns what is there instead of a file. Errors are left to whoever opens it.
pub(crate) fn other_file_type(path: &Path) -> Option<&'static str> {
    let found = fs::metadata(path).ok()?.file_type();
    match found {
        _ if found.is_file() => None,
        _ if found.is_dir() => Some("a directory"),
        // A pipe that a shell has opened, as in `<(zcat x.gz)`, has no path of its own and is read like a file.
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
    use crate::run::{MetricsSummary, MetricsWriter, RunFiles, RunLock};
    use tempfile::tempdir;

    /// Returns the result of `read`, unless that never returns.
    fn answer<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, receive) = mpsc::channel();
        thread::spawn(move || send.send(read()));
        receive.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    fn make_pipe(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn opens_only_files() {
        let scratch = tempdir().unwrap();
        let path = |name| scratch.path().join(name);
        make_pipe(&path("pipe"));
        fs::create_dir(path("directory")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        for (name, what) in [("pipe", "a named pipe"), ("directory", "a directory"), ("socket", "a socket")] {
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
    fn reads_an_open_pipe() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        assert_eq!(answer(move || read(&path)).unwrap(), b"text");
    }

    #[test]
    fn named_pipe_in_place_of_a_runs_file_is_reported() {
        let scratch = tempdir().unwrap();
        let run = RunFiles::in_directory(scratch.path());
        fs::create_dir(run.checkpoints_directory()).unwrap();
        let checkpoint = run.checkpoints_directory().join("000000000100");
        for path in [
            run.description_file(),
            run.config_file(),
            run.metrics_file(),
            run.lock_file(),
            run.checkpoints_directory().join("best"),
            checkpoint.clone(),
        ] {
            make_pipe(&path);
        }
        let message =
            |path: PathBuf, done: &str| format!("{} cannot be {done}: it is a named pipe, not a file", path.display());
        let files = run.clone();
        assert_eq!(
            answer(move || files.description().unwrap_err().to_string()),
            message(run.description_file(), "read")
        );
        let files = run.clone();
        assert_eq!(answer(move || files.config().unwrap_err().to_string()), message(run.config_file(), "read"));
        let path = run.config_file();
        let config = answer(move || Sources { file: Some(path), ..Sources::default() }.load().unwrap_err().to_string());
        assert_eq!(config, format!("{}: cannot be read: it is a named pipe, not a file", run.config_file().display()));
        let path = run.metrics_file();
        let metrics = answer(move || MetricsSummary::of(&path).unwrap_err().to_string());
        assert_eq!(metrics, message(run.metrics_file(), "opened"));
        let path = run.metrics_file();
        let metrics = answer(move || MetricsWriter::open(&path, None).unwrap_err().to_string());
        assert_eq!(metrics, message(run.metrics_file(), "opened"));
        let files = run.clone();
        assert_eq!(answer(move || files.owner()), None);
        let path = run.lock_file();
        assert_eq!(
            answer(move || RunLock::acquire(&path).unwrap_err().to_string()),
            message(run.lock_file(), "opened")
        );
        let checkpoints = Checkpoints::in_directory(&run.checkpoints_directory());
        let error = answer({
            let checkpoints = checkpoints.clone();
            move || checkpoints.at(100).unwrap_err()
        });
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
        let how = format!("checkpoint {} is damaged: it is not a directory", checkpoint.display());
        assert_eq!(error.to_string(), how);
        assert!(answer(move || checkpoints.best()).is_err());
    }
}
