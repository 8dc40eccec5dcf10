//! Directories, random numbers and processes for tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

/// A directory for one test, removed at the end.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("meme-test-{}-{count}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names in it, sorted.
    pub fn names(&self) -> Vec<String> {
        names(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns the names in a directory, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// SplitMix64: random enough to damage files with, and the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

const ROLE: &str = "MEME_TEST_CHILD";

/// Returns the role of a test that runs in a process started by [`child`].
pub fn child_role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Returns the command that runs one test of `module`, given as `module_path!()`, in another process, after `launcher`.
pub fn child(launcher: &[&str], module: &str, test: &str, role: &str) -> Command {
    let program = env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let test = format!("{}::{test}", module.split_once("::").unwrap().1);
    let words = [launcher, &[&program, "--exact", &test, "--nocapture", "--test-threads=1"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(ROLE, role);
    command
}
