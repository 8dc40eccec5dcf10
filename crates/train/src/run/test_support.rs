//! Listings, random bytes and child processes for tests.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use agent::Random;
use rand::RngExt;

/// Returns the names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns random bytes, the same on every machine.
pub fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    random.random_iter().take(length).collect()
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
