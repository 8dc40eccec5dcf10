//! Stop and pause signals of a run's threads, and the actors' step count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a role waits before it looks for a stop or pause signal again.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// State that all threads of a run share.
pub(crate) struct RunControl {
    stopping: AtomicBool,
    pause: Mutex<Pause>,
    changed: Condvar,
    actor_steps: AtomicU64,
    actor_environments: u64,
}

/// Whether all threads pause, so that everything can be copied.
#[derive(Clone, Copy, Default)]
struct Pause {
    wanted: bool,
    /// Tells pauses apart: a thread that sleeps through the end of one must notice that the next has begun.
    number: u64,
}

impl RunControl {
    /// Control of a run whose actors' environments have made `actor_steps` steps in all.
    pub(crate) fn new(actor_steps: u64, actor_environments: u64) -> Self {
        Self {
            stopping: AtomicBool::new(false),
            pause: Mutex::default(),
            changed: Condvar::new(),
            actor_steps: AtomicU64::new(actor_steps),
            actor_environments,
        }
    }

    /// Agent steps of all actors.
    pub(crate) fn actor_steps(&self) -> u64 {
        self.actor_steps.load(Ordering::Relaxed)
    }

    pub(crate) fn count_actor_steps(&self, steps: u64) {
        self.actor_steps.fetch_add(steps, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn pause(&self) -> MutexGuard<'_, Pause> {
        // A pause is consistent after every statement, so a thread that panicked with the lock left it usable.
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the current pause.
    pub(crate) fn wanted_pause(&self) -> Option<u64> {
        let pause = self.pause();
        pause.wanted.then_some(pause.number)
    }

    /// Begins a pause and returns its number.
    pub(crate) fn begin_pause(&self) -> u64 {
        let mut pause = self.pause();
        let number = pause.number + 1;
        *pause = Pause { wanted: true, number };
        drop(pause);
        self.changed.notify_all();
        number
    }

    pub(crate) fn end_pause(&self) {
        self.pause().wanted = false;
        self.changed.notify_all();
    }

    /// Sleeps until the pause of this number ends or the run stops.
    pub(crate) fn wait_out_pause(&self, number: u64) {
        let mut pause = self.pause();
        while pause.wanted && pause.number == number && !self.is_stopping() {
            pause = self.changed.wait(pause).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until a pause begins, and returns its number, or until the run stops.
    pub(crate) fn await_pause(&self) -> Option<u64> {
        let mut pause = self.pause();
        while !self.is_stopping() {
            if pause.wanted {
                return Some(pause.number);
            }
            pause = self.changed.wait(pause).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Whether an evaluator with this many steps per environment is ahead of the actors, whose pace it keeps. Sleeps a
    /// little if so.
    pub(crate) fn is_ahead(&self, steps: u64) -> bool {
        let ahead = || steps > self.actor_steps() / self.actor_environments;
        if ahead() {
            drop(self.changed.wait_timeout(self.pause(), POLL));
        }
        ahead()
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Under the lock, so that no thread misses the signal between checking and sleeping.
        drop(self.pause());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_sleeps_through_the_end_of_a_pause_notices_the_next() {
        let control = Arc::new(RunControl::new(0, 1));
        control.begin_pause();
        let first = control.wanted_pause().unwrap();
        control.end_pause();
        control.begin_pause();
        let (awake, heard) = channel();
        let sleeper = Arc::clone(&control);
        let sleeper = thread::spawn(move || {
            sleeper.wait_out_pause(first);
            awake.send(sleeper.wanted_pause()).unwrap();
        });
        let next = heard.recv_timeout(Duration::from_secs(30)).expect("the thread still sleeps");
        assert_eq!(next, Some(first + 1));
        sleeper.join().unwrap();
    }
}
