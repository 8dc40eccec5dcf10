//! A file that is written aside and takes its name only when it is complete.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;

use tempfile::{Builder, NamedTempFile};

/// Ending of the names of partial files, after the process ID and some random letters.
const ENDING: &str = ".meme-partial";

/// A file in the making, next to the one it will become. It is removed if dropped before [`finish`](Self::finish).
///
/// Its lock shows other processes, also on other machines, that it is being written.
#[derive(Debug)]
pub struct PartialFile {
    file: NamedTempFile,
    name: PathBuf,
}

impl PartialFile {
    /// Creates an empty file next to `name`. An existing file of that name stays as it is until the end.
    pub fn create(name: &Path) -> io::Result<Self> {
        if name.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        let directory = match name.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let mut prefix = OsString::from(".");
        prefix.push(name.file_name().unwrap_or_default());
        prefix.push(format!(".{}.", process::id()));
        // The usual permissions, less the umask: the default of temporary files is to be private.
        let file = Builder::new()
            .prefix(&prefix)
            .suffix(ENDING)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)
            // Without the path, which callers name.
            .map_err(|error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error))?;
        // A file system without locks cannot show others that the file is orphaned either.
        let _ = file.as_file().try_lock();
        remove_orphans(directory);
        Ok(Self { file, name: name.to_owned() })
    }

    /// Writes a whole file.
    pub fn write(name: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = Self::create(name)?;
        file.writer()?.write_all(bytes)?;
        file.finish()
    }

    /// The path it is written to.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Opens it for writing.
    pub fn writer(&self) -> io::Result<File> {
        self.file.as_file().try_clone()
    }

    /// Gives the file its name once all of it is on disk.
    pub fn finish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.name)?;
        Ok(())
    }
}

/// Removes what killed processes have left behind, for instance after Ctrl-C. Failing to do so does no harm.
fn remove_orphans(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(ENDING)?.rsplit('.').nth(1));
        let is_gone = owner.and_then(|id| id.parse::<u32>().ok()).is_some_and(|id| !is_running(id));
        // Its process may run on another machine or in another container.
        if is_gone && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_running(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
pub mod tests;
