//! A file that is written aside and takes its name only when it is whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file in the making, beside the one it will become. Dropped before [`finish`](Self::finish), it is removed.
#[derive(Debug)]
pub struct PartialFile {
    name: PathBuf,
    aside: PathBuf,
    /// Holds the file's lock, which shows others that it is being written, also on other machines.
    _lock: File,
}

/// How the names of files in the making end, after the number of the process.
const ENDING: &str = ".meme-partial";

impl PartialFile {
    /// Makes an empty file beside `name`, which also shows that the folder can be written to. What has that name
    /// already stays as it is until the end.
    pub fn create(name: &Path) -> io::Result<(Self, File)> {
        if name.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        let mut aside = OsString::from(".");
        aside.push(name.file_name().unwrap_or_default());
        aside.push(format!(".{}{ENDING}", std::process::id()));
        let aside = name.with_file_name(aside);
        let file = File::create(&aside)?;
        let lock = file.try_clone()?;
        // Where a file system has no locks, nobody takes it for an orphan either.
        let _ = lock.try_lock();
        remove_orphans(&aside);
        Ok((Self { name: name.to_owned(), aside, _lock: lock }, file))
    }

    /// Where it is written.
    pub fn aside(&self) -> &Path {
        &self.aside
    }

    /// Gives the file its name, once all of it is on the disk.
    pub fn finish(&self) -> io::Result<()> {
        File::open(&self.aside)?.sync_all()?;
        fs::rename(&self.aside, &self.name)
    }
}

/// Removes what processes that were killed have left beside `aside`, as Ctrl-C does. What can't be removed does no harm.
fn remove_orphans(aside: &Path) {
    let Some(folder) = aside.parent() else { return };
    // A relative name without a folder has an empty one.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(ENDING)?.rsplit('.').next());
        let is_gone = owner.and_then(|id| id.parse::<u32>().ok()).is_some_and(|id| !is_running(id));
        // Its process may be on another machine, or of another container.
        if is_gone && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_running(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After `finish` there is nothing of this name, and otherwise nobody is left to be told.
        let _ = fs::remove_file(&self.aside);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::video::folder::Folder;

    #[test]
    fn the_name_is_taken_only_at_the_end() {
        let folder = Folder::new();
        let name = folder.path().join("out.gif");
        fs::write(&name, "old").unwrap();
        let (partial, mut file) = PartialFile::create(&name).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"old");
        partial.finish().unwrap();
        drop(partial);
        assert_eq!(fs::read(&name).unwrap(), b"new");
        assert_eq!(folder.names(), ["out.gif"]);
    }

    #[test]
    fn what_killed_processes_left_is_removed() {
        let folder = Folder::new();
        let running = format!(".b.gif.{}.meme-partial", std::os::unix::process::parent_id());
        let elsewhere = ".e.gif.4294967295.meme-partial";
        let strangers = ["c.meme-partial", ".d.gif.mine.meme-partial", ".f.gif.4294967295.partial"];
        for name in [&[".a.gif.4294967295.meme-partial", &running, elsewhere], &strangers[..]].concat() {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let held = File::open(folder.path().join(elsewhere)).unwrap();
        held.try_lock().unwrap();
        drop(PartialFile::create(&folder.path().join("out.gif")).unwrap());
        let mut expected = [&[running.as_str(), elsewhere], &strangers[..]].concat();
        expected.sort_unstable();
        assert_eq!(folder.names(), expected);
    }

    #[test]
    fn a_file_in_the_making_is_locked() {
        let folder = Folder::new();
        let (partial, file) = PartialFile::create(&folder.path().join("out.gif")).unwrap();
        drop(file);
        assert!(File::open(partial.aside()).unwrap().try_lock().is_err());
    }

    #[test]
    fn nothing_is_left_of_an_unfinished_file() {
        let folder = Folder::new();
        let partial = PartialFile::create(&folder.path().join("out.gif")).unwrap();
        assert_eq!(folder.names().len(), 1);
        drop(partial);
        assert_eq!(folder.names().len(), 0);
    }
}
