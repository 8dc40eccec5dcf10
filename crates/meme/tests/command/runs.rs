//! A temporary directory of runs, a quick training command, and the outcome of commands.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use train::run::Rows;
use train::run::checkpoint::Checkpoints;

/// Settings of small, quick runs.
pub const SMALL: [&str; 8] = [
    "run.device=cpu",
    "run.threads=1",
    "actors.environments=4",
    "actors.environments_per_worker=4",
    "evaluation.evaluators=1",
    "evaluation.mean_episodes=2",
    "replay.minimum_fill=20",
    "metrics.interval_seconds=0.05",
];

/// More frames than a run ever reaches.
pub const FOREVER: &str = "1000000000";

/// How long to wait for something that should take a moment, however busy the machine is.
const LONG: Duration = Duration::from_secs(120);

/// The program with these arguments and no standard input.
pub fn meme(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meme"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command after these lines of shell, with the default handling of SIGHUP, which the tests may have been
/// started to ignore.
pub fn after(lines: &str, command: &Command) -> Command {
    let mut shell = Command::new("env");
    shell.args(["--default-signal=HUP", "bash", "-c", &format!("{lines}; exec \"$@\""), "bash"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell.stdin(Stdio::null());
    shell
}

/// Exit status, standard error and standard output of a command.
pub struct Ended {
    pub status: ExitStatus,
    pub said: String,
    pub printed: String,
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let [said, printed] = [output.stderr, output.stdout].map(|bytes| String::from_utf8(bytes).unwrap());
    Ended { status: output.status, said, printed }
}

/// Runs a command that must succeed.
pub fn works(command: &mut Command) -> Ended {
    let ended = ended(command);
    assert!(ended.status.success(), "{command:?}: {}", ended.said);
    ended
}

/// The one-line error of a command that must fail.
pub fn fails(command: &mut Command) -> String {
    let Ended { status, said, .. } = ended(command);
    assert_eq!(status.code(), Some(1), "{command:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said.strip_suffix('\n').unwrap().to_owned()
}

/// A temporary directory of runs. Most tests have one run in it, named `run`.
pub struct Runs {
    /// Contains the output of started commands next to the runs.
    all: TempDir,
    directory: PathBuf,
}

impl Runs {
    pub fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("runs");
        fs::create_dir(&directory).unwrap();
        Self { all, directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A file or directory of the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join("run").join(name)
    }

    /// Frame counts of the run's metrics.
    pub fn rows(&self) -> Vec<u64> {
        match self.file("metrics.jsonl") {
            path if path.exists() => Rows::open(&path).unwrap().map(|row| row.unwrap().frames).collect(),
            _ => Vec::new(),
        }
    }

    /// A budget of `more` frames than the run has played: a busy machine plays past its budget.
    pub fn budget(&self, more: u64) -> String {
        (self.rows().last().unwrap() + more).to_string()
    }

    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::in_directory(&self.file("checkpoints"))
    }

    /// A command about the runs in the directory.
    pub fn meme(&self, arguments: &[&str]) -> Command {
        let mut command = meme(arguments);
        command.arg("--runs").arg(&self.directory);
        command
    }

    /// The command that trains the run, small and quick. Settings among `arguments` take precedence.
    pub fn train(&self, arguments: &[&str]) -> Command {
        let mut command = self.meme(&["train", "catch", "--preset", "tiny", "--name", "run"]);
        for setting in SMALL {
            command.args(["--set", setting]);
        }
        command.args(arguments);
        command
    }

    /// Starts a command, one at a time.
    pub fn start(&self, command: &mut Command) -> Started {
        let [said, printed] = ["said", "printed"].map(|name| self.all.path().join(name));
        let file = |path| File::create(path).unwrap();
        let process = command.stderr(file(&said)).stdout(file(&printed)).spawn().unwrap();
        Started { process, said, printed }
    }
}

/// A running command, killed when dropped.
pub struct Started {
    process: Child,
    said: PathBuf,
    printed: PathBuf,
}

impl Started {
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Standard error so far.
    pub fn said(&self) -> String {
        read(&self.said)
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Waits until something holds while it runs.
    pub fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(self.is_running(), "it ended before {what}: {}", self.said());
            assert!(begun.elapsed() < LONG, "waited in vain until {what}: {}", self.said());
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a message.
    pub fn wait_until_said(&mut self, sentence: &str) {
        let said = self.said.clone();
        self.wait_until(sentence, || read(&said).contains(sentence));
    }

    /// Sends it a signal, such as `INT`.
    pub fn send(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let begun = Instant::now();
        while self.is_running() {
            assert!(begun.elapsed() < LONG, "waited in vain until it ends: {}", self.said());
            sleep(Duration::from_millis(5));
        }
        Ended { status: self.process.wait().unwrap(), said: self.said(), printed: read(&self.printed) }
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}
