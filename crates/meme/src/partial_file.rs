//! A file that is written aside and takes its name only when it is complete.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
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
        let folder = match name.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
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
            .tempfile_in(folder)
            // Without the path, which callers name.
            .map_err(|error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error))?;
        // A file system without locks cannot show others that the file is orphaned either.
        let _ = file.as_file().try_lock();
        remove_orphans(folder);
        Ok(Self { file, name: name.to_owned() })
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
fn remove_orphans(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
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
pub mod tests {
    use std::io::Write;

    use super::*;

    /// The names in a directory, in order.
    pub fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn file_takes_its_name_only_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("out.gif");
        fs::write(&name, "old").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        let usual = mode(&name);
        let partial = PartialFile::create(&name).unwrap();
        partial.writer().unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"old");
        partial.finish().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"new");
        assert_eq!(mode(&name), usual);
        assert_eq!(names(folder.path()), ["out.gif"]);
    }

    #[test]
    fn files_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let running = format!(".b.gif.{}.x.meme-partial", std::os::unix::process::parent_id());
        let elsewhere = ".e.gif.4294967295.x.meme-partial";
        let unrelated = ["c.meme-partial", ".d.gif.mine.x.meme-partial", ".f.gif.4294967295.x.partial"];
        for name in [&[".a.gif.4294967295.x.meme-partial", &running, elsewhere], &unrelated[..]].concat() {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let held = File::open(folder.path().join(elsewhere)).unwrap();
        held.try_lock().unwrap();
        drop(PartialFile::create(&folder.path().join("out.gif")).unwrap());
        let mut expected = [&[running.as_str(), elsewhere], &unrelated[..]].concat();
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
    }

    #[test]
    fn partial_file_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let partial = PartialFile::create(&folder.path().join("out.gif")).unwrap();
        drop(partial.writer().unwrap());
        assert!(File::open(partial.path()).unwrap().try_lock().is_err());
    }

    #[test]
    fn dropped_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let partial = PartialFile::create(&folder.path().join("out.gif")).unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(partial);
        assert!(names(folder.path()).is_empty());
    }
}
