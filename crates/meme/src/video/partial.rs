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
}

impl PartialFile {
    /// Makes an empty file beside `name`, which also shows that the folder can be written to. What has that name
    /// already stays as it is until the end.
    pub fn create(name: &Path) -> io::Result<(Self, File)> {
        if name.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        let mut aside = OsString::from(".");
        aside.push(name.file_name().unwrap_or_default());
        aside.push(format!(".{}.partial", std::process::id()));
        let aside = name.with_file_name(aside);
        let file = File::create(&aside)?;
        remove_orphans(&aside);
        Ok((Self { name: name.to_owned(), aside }, file))
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
        let owner = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".partial")?.rsplit('.').next());
        let is_orphan = owner.and_then(|id| id.parse::<u32>().ok()).is_some_and(|id| !is_running(id));
        if is_orphan {
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
        let running = format!(".b.gif.{}.partial", std::os::unix::process::parent_id());
        for name in [".a.gif.4294967295.partial", &running, "c.partial", ".d.gif.mine.partial"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        drop(PartialFile::create(&folder.path().join("out.gif")).unwrap());
        let mut left = folder.names();
        left.sort();
        let mut expected = [running.as_str(), "c.partial", ".d.gif.mine.partial"];
        expected.sort_unstable();
        assert_eq!(left, expected);
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
