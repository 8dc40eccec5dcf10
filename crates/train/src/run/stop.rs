//! Stopping: Ctrl-C, SIGTERM and a terminal that is closed ask once, and the second time the process leaves at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use thiserror::Error;
use torch_ext::signals;

/// The status a process ends with at the second signal: a shell's for "interrupted".
pub const INTERRUPTED: i32 = 130;

/// Signals this soon after the first are the same wish: a shell's `timeout` signals a process and then its whole group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Signals can't be caught.
#[derive(Debug, Error)]
#[error("Ctrl-C and SIGTERM can't be caught: {cause}")]
pub struct StopError {
    cause: io::Error,
}

/// A wish to stop that every role watches. Clones are of the same wish; it is never taken back.
#[derive(Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Set in the signal handler itself.
    signalled: Arc<AtomicBool>,
    /// Set a moment after the first signal. From then on the signal handler itself ends the process, even one whose
    /// other threads are all stuck.
    leaving: Arc<AtomicBool>,
    requested: AtomicBool,
    /// Held by who falls asleep or wakes the others, so that nobody misses it.
    sleepers: Mutex<()>,
    stopped: Condvar,
}

impl Stop {
    /// A wish that only this program makes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A wish that Ctrl-C, SIGTERM or SIGHUP (unless it is to be ignored) makes too. The next of them, unless it comes in
    /// the same half second, ends the process with status 130. One that comes after `request` is the first: the end of
    /// training may still be saved.
    ///
    /// From then on this thread and those that it starts take no such signal, only one of its own does: call it before
    /// anything computes.
    pub fn on_signals() -> Result<Self, StopError> {
        let stop = Self::new();
        stop.watch_signals().map_err(|cause| StopError { cause })?;
        Ok(stop)
    }

    fn watch_signals(&self) -> io::Result<()> {
        let mut asking = vec![SIGINT, SIGTERM];
        if !signals::is_ignored(SIGHUP)? {
            asking.push(SIGHUP);
        }
        // Caught, so that a file over the shell's limit is an error that can be told instead of the end.
        flag::register(SIGXFSZ, Arc::default())?;
        let mut received = Signals::new(&asking)?;
        let stop = self.clone();
        let taken = asking.clone();
        let watch = move || {
            // As many as could be refused below can be taken.
            let _ = signals::take(&taken);
            let mut asked = false;
            // For ever: this is where the handlers run.
            for _ in received.forever() {
                if asked {
                    continue;
                }
                asked = true;
                // The handler that sets it may not have got that far.
                stop.shared.signalled.store(true, Ordering::SeqCst);
                stop.wake();
                thread::sleep(SAME_WISH);
                stop.shared.leaving.store(true, Ordering::SeqCst);
            }
        };
        signals::refuse(&asking)?;
        thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        for signal in asking {
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&self.shared.leaving))?;
            flag::register(signal, Arc::clone(&self.shared.signalled))?;
        }
        Ok(())
    }

    /// Asks all to stop, as at the end of the frames to play or after an error.
    pub fn request(&self) {
        self.shared.requested.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether to stop. Costs two loads.
    pub fn is_requested(&self) -> bool {
        self.is_signalled() || self.shared.requested.load(Ordering::SeqCst)
    }

    /// Whether a signal asked for it.
    pub fn is_signalled(&self) -> bool {
        self.shared.signalled.load(Ordering::SeqCst)
    }

    /// Sleeps for `time`, less if a stop is asked for. Returns whether it is.
    pub fn wait(&self, time: Duration) -> bool {
        let sleepers = self.sleepers();
        let woken = self.shared.stopped.wait_timeout_while(sleepers, time, |_| !self.is_requested());
        drop(woken);
        self.is_requested()
    }

    fn wake(&self) {
        drop(self.sleepers());
        self.shared.stopped.notify_all();
    }

    fn sleepers(&self) -> MutexGuard<'_, ()> {
        self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};
    use std::time::Instant;

    use super::*;
    use crate::run::scratch::{child, child_role};

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_request_wakes_all_who_wait() {
        let stop = Stop::new();
        assert!(!stop.wait(Duration::from_millis(1)));
        let sleeper = thread::spawn({
            let stop = stop.clone();
            move || {
                let start = Instant::now();
                (stop.wait(LONG), start.elapsed())
            }
        });
        thread::sleep(Duration::from_millis(50));
        stop.request();
        stop.request();
        let (requested, slept) = sleeper.join().unwrap();
        assert!(requested && slept < LONG);
        assert!(stop.is_requested() && !stop.is_signalled());
    }

    #[test]
    fn the_first_signal_asks_and_the_second_leaves() {
        match child_role().as_deref() {
            None => {
                for role in ["INT INT", "TERM TERM", "HUP TERM", "INT TERM", "request INT INT"] {
                    let test = "the_first_signal_asks_and_the_second_leaves";
                    // The tests may have been started to ignore it.
                    let launcher = ["env", "--default-signal=HUP"];
                    let output = child(&launcher, module_path!(), test, role).output().unwrap();
                    let said = String::from_utf8_lossy(&output.stdout);
                    assert_eq!(output.status.code(), Some(INTERRUPTED), "{role}: {said}");
                    assert!(said.contains("asked, woken, stuck"), "{role}: {said}");
                    assert!(!said.contains("still here"), "{role}: {said}");
                }
            }
            Some(role) => {
                let stop = Stop::on_signals().unwrap();
                let sleeper = thread::spawn({
                    let stop = stop.clone();
                    move || stop.wait(LONG)
                });
                let mut signals = role.split(' ').peekable();
                if signals.next_if_eq(&"request").is_some() {
                    stop.request();
                    assert!(!stop.is_signalled());
                }
                let send = |signal: &str| {
                    let kill = format!("kill -{signal} {}", process::id());
                    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
                };
                send(signals.next().unwrap());
                assert!(stop.wait(LONG));
                // What was requested before does not wait for the signal.
                let begun = Instant::now();
                while !stop.is_signalled() && begun.elapsed() < LONG {
                    thread::yield_now();
                }
                assert!(stop.is_signalled());
                assert!(sleeper.join().unwrap());
                send("INT");
                println!("asked, woken, stuck");
                thread::sleep(4 * SAME_WISH);
                // Every lock is held and nobody looks: the handler alone must end it.
                let _held = stop.sleepers();
                send(signals.next().unwrap());
                thread::sleep(LONG);
                println!("still here");
            }
        }
    }
}
