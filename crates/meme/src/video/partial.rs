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
    fn nothing_is_left_of_an_unfinished_file() {
        let folder = Folder::new();
        let partial = PartialFile::create(&folder.path().join("out.gif")).unwrap();
        assert_eq!(folder.names().len(), 1);
        drop(partial);
        assert_eq!(folder.names().len(), 0);
    }
}
