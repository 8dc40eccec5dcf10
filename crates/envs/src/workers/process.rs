//! A Python process with a socket and shared memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use procfs::{ProcError, ProcResult};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::WorkerEnd;

/// Bytes of a worker's output that are kept for error messages.
const TAIL_BYTES: usize = 2000;
/// How long to wait for a process that has closed its socket or was killed.
const END_WAIT: Duration = Duration::from_millis(500);
/// How long a worker may take to close its environments.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// A worker process that leads its own process group; dropping it kills the group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    tail: Arc<Tail>,
    /// Whether the group has been killed.
    is_killed: bool,
}

impl Process {
    /// Starts `python package`.
    ///
    /// Its standard input is one end of a socket, and its standard output the shared memory.
    ///
    /// Passed like this, no other process that starts at the same time can inherit them. The worker moves them
    /// elsewhere first of all.
    pub fn start(python: &Path, package: &Path, memory: &File) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(python);
        command
            .arg(package)
            .arg(std::process::id().to_string())
            // A worker uses one thread; thread pools of numerical libraries would only compete with it.
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

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits briefly for the process to exit, kills what is left, and returns how it ended.
    pub fn end(&mut self) -> WorkerEnd {
        let exited = self.wait_until(Instant::now() + END_WAIT);
        self.kill();
        match exited.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => WorkerEnd::Exited(code),
            Some((None, Some(signal))) => WorkerEnd::Killed(signal),
            Some((None, None)) | None => WorkerEnd::HungUp,
        }
    }

    /// Kills the process and everything it has started, and waits for its end.
    pub fn kill(&mut self) {
        if !self.is_killed {
            self.is_killed = true;
            // Until it is waited for, its id cannot be reused. An error means that no process is left.
            let _ = Pid::from_raw(self.child.id().cast_signed()).map(|leader| kill_process_group(leader, Signal::KILL));
            // Fails only if there is nothing left to wait for.
            let _ = self.child.wait();
        }
    }

    /// Waits for the process to exit as requested; kills it if it does not.
    pub fn close(&mut self) {
        self.wait_until(Instant::now() + CLOSE_WAIT);
        self.kill();
    }

    /// Returns the end of a finished process's output as a clause for an error message.
    ///
    /// Empty if there is none.
    pub fn stderr_tail(&self) -> String {
        self.tail.stderr_tail()
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

/// The end of a worker's standard error, which includes its standard output.
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
    /// Reads until the worker closes its end, so that it never blocks on a full pipe.
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

    fn stderr_tail(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A child of the worker may hold the pipe open; then the output so far must do.
        let (state, _) = self
            .changed
            .wait_timeout_while(state, END_WAIT, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&state.bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("; its last output: {}", lines[lines.len().saturating_sub(8)..].join(" | "))
    }
}

/// Starts a process from a thread that lives as long as this process.
///
/// A worker asks the kernel to kill it when its parent dies, and for the kernel the parent is the thread that started
/// it: a worker started by a shorter-lived thread would die with that thread.
fn start_from_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        // If the thread cannot be started, the channel is closed and each order fails.
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

/// Returns the CPU time of a process, all its threads together.
pub fn cpu_time(process: u32) -> io::Result<Duration> {
    exact_cpu_time(process).or_else(|_| rough_cpu_time(process)).map_err(io::Error::other)
}

/// Sums the scheduler's counts in nanoseconds, which not every kernel provides, over the running threads.
fn exact_cpu_time(process: u32) -> ProcResult<Duration> {
    let mut nanoseconds = 0;
    for thread in procfs::process::Process::new(process.cast_signed())?.tasks()? {
        match thread.and_then(|thread| thread.schedstat()) {
            Ok(count) => nanoseconds += count.sum_exec_runtime,
            // The thread has ended since the list was made.
            Err(ProcError::NotFound(_)) => {}
            Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Returns user and system time in ticks, usually of 10 ms, which every kernel provides.
fn rough_cpu_time(process: u32) -> ProcResult<Duration> {
    let stat = procfs::process::Process::new(process.cast_signed())?.stat()?;
    Ok(Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64))
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
    fn returns_how_processes_end() {
        assert_eq!(shell("exit 3").end(), WorkerEnd::Exited(3));
        assert_eq!(shell("kill -9 $$").end(), WorkerEnd::Killed(9));
        assert_eq!(shell("exec sleep 60").end(), WorkerEnd::HungUp);
    }

    #[test]
    fn kills_children_with_their_process() {
        // The pipe is closed once no process can write to it.
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
    fn keeps_the_last_lines() {
        let mut process = shell("seq 1 100000 >&2");
        process.end();
        let words = process.stderr_tail();
        assert!(words.starts_with("; its last output: 99993 | "), "{words}");
        assert!(words.ends_with(" | 100000"), "{words}");
        let mut silent = shell("true");
        silent.end();
        assert_eq!(silent.stderr_tail(), "");
    }

    #[test]
    fn cpu_time_of_a_busy_process_grows() {
        let mut process = shell("while :; do :; done");
        let id = process.id();
        let measures: [fn(u32) -> Option<Duration>; 3] =
            [|id| cpu_time(id).ok(), |id| exact_cpu_time(id).ok(), |id| rough_cpu_time(id).ok()];
        for measure in measures {
            let before = measure(id).unwrap();
            while measure(id).unwrap() <= before {}
            assert!(measure(u32::MAX).is_none());
        }
        process.kill();
    }
}
