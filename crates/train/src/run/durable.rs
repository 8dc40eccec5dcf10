//! Files that survive a crash complete: written aside, synced and renamed, and the directory synced too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A failed file operation.
///
/// The cause is part of the message, so it is not a source as well: a printed chain would repeat it.
#[derive(Debug, Error)]
#[error("{} cannot be {done}: {cause}", path.display())]
pub struct FileError {
    /// The operation, as a participle: `written`.
    pub done: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The system's error.
    pub cause: io::Error,
}

impl FileError {
    /// For `map_err`: names the operation and the file.
    pub fn at(done: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self { done, path: path.to_path_buf(), cause }
    }
}

/// Where [`replace`] writes a file before it gets its name.
pub(super) fn aside(path: &Path) -> PathBuf {
    with_suffix(path, ".tmp")
}

/// Replaces a file's content: a crash leaves the old or the new, never a mixture.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let aside = aside(path);
    let write = || -> io::Result<()> {
        let mut file = File::create(&aside)?;
        file.write_all(content)?;
        file.sync_all()
    };
    let written = write().and_then(|()| fs::rename(&aside, path));
    if let Err(cause) = written {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&aside);
        return Err(FileError::at("written", path)(cause));
    }
    sync_directory_of(path)
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<(), FileError> {
    let directory = directory_of(path);
    fs::create_dir_all(directory).map_err(FileError::at("created", directory))?;
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(FileError::at("written", path))
}

/// Syncs the directory of `path`, so that its renames survive a power cut.
pub(super) fn sync_directory_of(path: &Path) -> Result<(), FileError> {
    let directory = directory_of(path);
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(FileError::at("synced to disk", directory))
}

/// Returns the directory that contains `path`.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the sorted paths of everything in a directory; none if it does not exist.
pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = match fs::read_dir(directory) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()),
    };
    let mut paths = entries.map_err(FileError::at("listed", directory))?;
    paths.sort();
    Ok(paths)
}

/// Returns the last part of a path as text.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether `path` still names this open file or directory.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Appends a suffix: `run.json` becomes `run.json.tmp`.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Renames a file or directory to the next free `NAME.1`, `NAME.2` and so on.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, FileError> {
    let aside = next_free(path)?;
    fs::rename(path, &aside).map_err(FileError::at("renamed", path))?;
    sync_directory_of(&aside)?;
    Ok(aside)
}

/// Returns the path with `.n` appended, n being one more than the highest that exists.
pub(super) fn next_free(path: &Path) -> Result<PathBuf, FileError> {
    let prefix = format!("{}.", name_of(path));
    let existing = list(directory_of(path))?;
    let numbers = existing.iter().filter_map(|path| name_of(path).strip_prefix(&prefix)?.parse::<u32>().ok());
    match numbers.max().unwrap_or(0).checked_add(1) {
        Some(next) => Ok(with_suffix(path, &format!(".{next}"))),
        None => Err(FileError::at("numbered", path)(ErrorKind::AlreadyExists.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::test_support::names;
    use tempfile::tempdir;

    #[test]
    fn replacing_leaves_no_other_file() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("run.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(scratch.path()), ["run.json"]);
    }

    #[test]
    fn failed_replacement_keeps_the_target_and_names_it() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("directory");
        fs::create_dir(&path).unwrap();
        let error = replace(&path, b"text").unwrap_err();
        assert_eq!(error.path, path);
        assert!(error.to_string().starts_with(&format!("{} cannot be written: ", path.display())), "{error}");
        assert_eq!(names(scratch.path()), ["directory"]);
    }
}
