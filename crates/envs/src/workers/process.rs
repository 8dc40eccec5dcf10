//! One Python process: started with a socket and shared memory, listened to, and ended.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

/// How much of what a worker prints is kept for error messages.
const TAIL_BYTES: usize = 2000;
/// How long to wait for the end of a process that has closed its socket or was killed.
const END_WAIT: Duration = Duration::from_millis(500);
/// How long a worker may take to close its environments.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// A running worker process, which leads a group of its own. It is killed with all that it has started, and waited for,
/// when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    tail: Arc<Tail>,
    /// Whether that has been done.
    is_killed: bool,
}

impl Process {
    /// Starts `python package`, and gives the process one end of a socket and the shared memory.
    ///
    /// They travel as its standard input and output, which std passes on without a moment in which another process
    /// that is being started could inherit them; the worker moves them elsewhere before it does anything else.
    pub fn start(python: &Path, package: &Path, memory: &File) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(python);
        command
            .arg(package)
            .arg(std::process::id().to_string())
            // A worker is one thread; the thread pools of numerical libraries would only get in the way.
            .envs(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"].map(|name| (name, "1")))
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(memory.try_clone()?))
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = start_from_lasting_thread(command)?;
        let tail = Arc::new(Tail::default());
        if let Some(stderr) = child.stderr.take() {
            let tail = Arc::clone(&tail);
            std::thread::Builder::new().name("worker-stderr".to_owned()).spawn(move || tail.fill(stderr))?;
        }
        Ok((Self { child, tail, is_killed: false }, ours))
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process and says how it ended, as far as it did so by itself.
    pub fn end(&mut self) -> String {
        let deadline = Instant::now() + END_WAIT;
        let by_itself = self.wait_until(deadline);
        self.kill();
        match by_itself {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with exit code {code}"),
                (None, Some(signal)) => format!("it was killed by signal {signal}"),
                (None, None) => status.to_string(),
            },
            None => "it closed its connection and was killed".to_owned(),
        }
    }

    /// Kills the process if it still runs, and all that it has started, and waits for its end.
    pub fn kill(&mut self) {
        if !self.is_killed {
            self.is_killed = true;
            // Before the process is waited for, its id cannot belong to another one. An error means that no process is left.
            let _ = Pid::from_raw(self.child.id().cast_signed()).map(|leader| kill_process_group(leader, Signal::KILL));
            // Fails only where there is nothing left to wait for.
            let _ = self.child.wait();
        }
    }

    /// Waits for the process to end after it was told to; kills it if it does not.
    pub fn close(&mut self) {
        self.wait_until(Instant::now() + CLOSE_WAIT);
        self.kill();
    }

    /// The end of what the process printed, as a clause that follows a sentence; empty if it printed nothing. To be
    /// called after the process has ended.
    pub fn last_words(&self) -> String {
        self.tail.last_words()
    }

    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last bytes that a worker wrote to its standard error, where its standard output goes too.
#[derive(Debug, Default)]
struct Tail {
    state: Mutex<TailState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TailState {
    bytes: Vec<u8>,
    ended: bool,
}

impl Tail {
    /// Reads until the worker has closed its end, so that it never blocks on a full pipe.
    fn fill(&self, mut stderr: ChildStderr) {
        let mut part = [0; 4096];
        loop {
            let count = match stderr.read(&mut part) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.bytes.extend_from_slice(&part[..count]);
            let surplus = state.bytes.len().saturating_sub(TAIL_BYTES);
            state.bytes.drain(..surplus);
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_all();
    }

    fn last_words(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A process that the worker started may hold the pipe open: then what is there so far must do.
        let (state, _) = self
            .changed
            .wait_timeout_while(state, END_WAIT, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&state.bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("; the last it printed: {}", lines[lines.len().saturating_sub(8)..].join(" | "))
    }
}

/// Starts a process from one thread that lives as long as this process.
///
/// A worker asks the kernel to be killed when its parent dies, and the kernel takes the thread that started it for the
/// parent: from a thread that ends earlier, a worker would be killed with it.
fn start_from_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        // If the thread cannot be had, the channel is closed and each order says so.
        let _ = std::thread::Builder::new().name("worker-starter".to_owned()).spawn(move || {
            for (mut command, answer) in taken {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let no_thread = || io::Error::other("the thread that starts workers could not be started");
    let (answer, started) = mpsc::channel();
    orders.send((command, answer)).map_err(|_| no_thread())?;
    started.recv().map_err(|_| no_thread())?
}

/// CPU time that a process has used so far, all its threads together.
pub fn cpu_time(process: u32) -> io::Result<Duration> {
    exact_cpu_time(process).or_else(|_| rough_cpu_time(process))
}

/// From the scheduler's own count in nanoseconds, which not every kernel shows. Only threads that still run count: a
/// worker works in its main thread.
fn exact_cpu_time(process: u32) -> io::Result<Duration> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let line = match std::fs::read_to_string(thread?.path().join("schedstat")) {
            // It ended since the folder was listed.
            Err(error)
                if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
            {
                continue;
            }
            line => line?,
        };
        let first = line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        nanoseconds += first.ok_or_else(|| io::Error::other(format!("`{line}` is no line of schedstat")))?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// In ticks of 10 ms, which is what Linux shows on every machine.
fn rough_cpu_time(process: u32) -> io::Result<Duration> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in brackets may hold spaces and brackets of its own; user and system time are 12th and 13th after it.
    let fields = line.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks.as_slice() {
        [user, system] => Ok(Duration::from_millis(10 * (user + system))),
        _ => Err(io::Error::other(format!("`{line}` is no line of stat"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped()).process_group(0);
        let mut child = start_from_lasting_thread(command).unwrap();
        let tail = Arc::new(Tail::default());
        let stderr = child.stderr.take().unwrap();
        let filling = Arc::clone(&tail);
        std::thread::spawn(move || filling.fill(stderr));
        Process { child, tail, is_killed: false }
    }

    #[test]
    fn the_end_of_a_process_is_told() {
        assert_eq!(shell("exit 3").end(), "it ended with exit code 3");
        assert_eq!(shell("kill -9 $$").end(), "it was killed by signal 9");
        assert_eq!(shell("exec sleep 60").end(), "it closed its connection and was killed");
    }

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        // The pipe is closed when the last process that may write to it is gone.
        for (script, ends) in [("sleep 60 & exec sleep 60", false), ("sleep 60 & exit 0", true)] {
            let mut process = shell(script);
            if ends {
                process.close();
            } else {
                process.kill();
            }
            let state = process.tail.state.lock().unwrap();
            let limit = Duration::from_secs(20);
            let (state, _) = process.tail.changed.wait_timeout_while(state, limit, |state| !state.ended).unwrap();
            assert!(state.ended, "{script}");
        }
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut process = shell("seq 1 100000 >&2");
        process.end();
        let words = process.last_words();
        assert!(words.starts_with("; the last it printed: 99993 | "), "{words}");
        assert!(words.ends_with(" | 100000"), "{words}");
        let mut silent = shell("true");
        silent.end();
        assert_eq!(silent.last_words(), "");
    }

    #[test]
    fn cpu_time_of_a_busy_process_grows() {
        let mut process = shell("while :; do :; done");
        let id = process.id();
        for measure in [cpu_time, exact_cpu_time, rough_cpu_time] {
            let before = measure(id).unwrap();
            while measure(id).unwrap() <= before {}
            assert!(measure(u32::MAX).is_err());
        }
        process.kill();
    }
}
