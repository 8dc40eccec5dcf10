use std::io::Write;

use super::*;

/// The names in a directory, in order.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn file_takes_its_name_only_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("out.gif");
    fs::write(&name, "old").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let usual = mode(&name);
    let partial = PartialFile::create(&name).unwrap();
    partial.writer().unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read(&name).unwrap(), b"old");
    partial.finish().unwrap();
    assert_eq!(fs::read(&name).unwrap(), b"new");
    assert_eq!(mode(&name), usual);
    assert_eq!(names(directory.path()), ["out.gif"]);
}

#[test]
fn files_of_killed_processes_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let running = format!(".b.gif.{}.x.meme-partial", std::os::unix::process::parent_id());
    let elsewhere = ".e.gif.4294967295.x.meme-partial";
    let unrelated = ["c.meme-partial", ".d.gif.mine.x.meme-partial", ".f.gif.4294967295.x.partial"];
    for name in [&[".a.gif.4294967295.x.meme-partial", &running, elsewhere], &unrelated[..]].concat() {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let held = File::open(directory.path().join(elsewhere)).unwrap();
    held.try_lock().unwrap();
    drop(PartialFile::create(&directory.path().join("out.gif")).unwrap());
    let mut expected = [&[running.as_str(), elsewhere], &unrelated[..]].concat();
    expected.sort_unstable();
    assert_eq!(names(directory.path()), expected);
}

#[test]
fn partial_file_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let partial = PartialFile::create(&directory.path().join("out.gif")).unwrap();
    drop(partial.writer().unwrap());
    assert!(File::open(partial.path()).unwrap().try_lock().is_err());
}

#[test]
fn dropped_file_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let partial = PartialFile::create(&directory.path().join("out.gif")).unwrap();
    assert_eq!(names(directory.path()).len(), 1);
    drop(partial);
    assert!(names(directory.path()).is_empty());
}
