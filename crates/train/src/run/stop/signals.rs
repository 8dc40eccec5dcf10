//! Signals that ask a run to stop or to save.
//!
//! The first Ctrl-C, SIGTERM or SIGHUP asks the run to stop, and the second ends the process. SIGUSR1 and SIGUSR2 ask it
//! to save and continue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use thiserror::Error;
use torch_ext::signals;

use super::Stop;

/// Exit status after the second signal, a shell's for "interrupted".
pub const STATUS_SECOND_SIGNAL: i32 = 130;

/// Signals this soon after the first are part of it: `timeout` signals a process and then its whole group.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Why signals cannot be caught.
#[derive(Debug, Error)]
#[error("cannot catch Ctrl-C and SIGTERM: {cause}")]
pub struct StopError {
    cause: io::Error,
}

impl Stop {
    /// A request that Ctrl-C, SIGTERM and, unless it is ignored, SIGHUP make too.
    ///
    /// The next signal, if it comes more than half a second later, ends the process with status 130. After
    /// [`request`](Self::request), the next signal still counts as the first, so that the end of training can be saved.
    ///
    /// Only a thread of its own receives these signals, neither this thread nor those that it starts from now on: call
    /// it before anything computes.
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
        // Caught, so that a file over the shell's size limit is an error instead of the end.
        flag::register(SIGXFSZ, Arc::default())?;
        let caught: Vec<i32> = asking.iter().copied().chain([SIGUSR1, SIGUSR2]).collect();
        let mut received = Signals::new(&caught)?;
        let stop = self.clone();
        let taken = caught.clone();
        let watch = move || {
            // Cannot fail if refusing them below does not.
            let _ = signals::unblock(&taken);
            let mut asked = false;
            // Never ends: this is the thread on which the handlers run.
            for signal in received.forever() {
                if [SIGUSR1, SIGUSR2].contains(&signal) {
                    stop.shared.save_requested.store(true, Ordering::SeqCst);
                    continue;
                }
                if asked {
                    continue;
                }
                asked = true;
                // The handler may not have set it yet.
                stop.shared.signalled.store(true, Ordering::SeqCst);
                stop.wake();
                thread::sleep(SAME_REQUEST);
                stop.shared.leaving.store(true, Ordering::SeqCst);
            }
        };
        signals::block(&caught)?;
        thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        for signal in asking {
            flag::register_conditional_shutdown(signal, STATUS_SECOND_SIGNAL, Arc::clone(&self.shared.leaving))?;
            flag::register(signal, Arc::clone(&self.shared.signalled))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;
    use crate::run::test_support::{child, child_role};

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn first_signal_requests_a_stop_and_second_ends_the_process() {
        match child_role().as_deref() {
            None => {
                for role in ["INT INT", "TERM TERM", "HUP TERM", "INT TERM", "request INT INT"] {
                    let test = "first_signal_requests_a_stop_and_second_ends_the_process";
                    // The tests may have been started to ignore it.
                    let launcher = ["env", "--default-signal=HUP"];
                    let output = child(&launcher, module_path!(), test, role).output().unwrap();
                    let said = String::from_utf8_lossy(&output.stdout);
                    assert_eq!(output.status.code(), Some(STATUS_SECOND_SIGNAL), "{role}: {said}");
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
                    let signal = match signal {
                        "INT" => Signal::INT,
                        "TERM" => Signal::TERM,
                        _ => Signal::HUP,
                    };
                    kill_process(getpid(), signal).unwrap();
                };
                let await_flag = |flag: &AtomicBool| {
                    let begun = Instant::now();
                    while !flag.load(Ordering::SeqCst) && begun.elapsed() < LONG {
                        thread::yield_now();
                    }
                    assert!(flag.load(Ordering::SeqCst));
                };
                send(signals.next().unwrap());
                // An earlier request does not wait for the signal.
                await_flag(&stop.shared.signalled);
                send("INT");
                assert!(stop.wait(LONG) && stop.is_signalled());
                assert!(sleeper.join().unwrap());
                println!("asked, woken, stuck");
                await_flag(&stop.shared.leaving);
                // Every lock is held: the handler alone must end the process.
                let _held = stop.sleepers();
                send(signals.next().unwrap());
                thread::sleep(LONG);
                println!("still here");
            }
        }
    }
}
