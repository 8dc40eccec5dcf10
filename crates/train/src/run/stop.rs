//! The request to stop, which every role watches.

mod signals;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use signals::{STATUS_SECOND_SIGNAL, StopError};

/// A request to stop, which every role watches. Clones share it; it is never withdrawn.
#[derive(Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Set in the signal handler itself.
    signalled: Arc<AtomicBool>,
    /// Set a moment after the first signal. From then on the signal handler itself ends the process, even if all other
    /// threads are stuck.
    leaving: Arc<AtomicBool>,
    requested: AtomicBool,
    save_requested: AtomicBool,
    /// Held while falling asleep and while waking the others, so that no wake-up is lost.
    sleepers: Mutex<()>,
    stopped: Condvar,
}

impl Stop {
    /// A request that only this program makes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop, as at the end of training or after an error.
    pub fn request(&self) {
        self.shared.requested.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether a signal has asked for a checkpoint since the last call.
    pub fn take_save_request(&self) -> bool {
        self.shared.save_requested.swap(false, Ordering::SeqCst)
    }

    /// Whether to stop; costs two atomic loads.
    pub fn is_requested(&self) -> bool {
        self.is_signalled() || self.shared.requested.load(Ordering::SeqCst)
    }

    /// Whether a signal requested it.
    pub fn is_signalled(&self) -> bool {
        self.shared.signalled.load(Ordering::SeqCst)
    }

    /// Sleeps for `time` or until a stop is requested, and returns whether it is.
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
    use std::thread;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn request_wakes_all_waiting_threads() {
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
}
