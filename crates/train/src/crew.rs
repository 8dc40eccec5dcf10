//! What the threads of a run share: whether to stop, whether to rest, and how far the actors are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a role waits in one go before it looks whether to stop or to rest.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// What all threads share.
pub(crate) struct Crew {
    stopping: AtomicBool,
    rest: Mutex<Rest>,
    changed: Condvar,
    actor_steps: AtomicU64,
    actor_environments: u64,
}

/// Whether all are to rest, so that everything can be copied.
#[derive(Clone, Copy, Default)]
struct Rest {
    wanted: bool,
    /// Which rest it is: a player that sleeps through the end of one must notice that the next has begun.
    number: u64,
}

impl Crew {
    /// All go on; the actors' environments, so many, have made so many steps.
    pub(crate) fn new(actor_steps: u64, actor_environments: u64) -> Self {
        Self {
            stopping: AtomicBool::new(false),
            rest: Mutex::default(),
            changed: Condvar::new(),
            actor_steps: AtomicU64::new(actor_steps),
            actor_environments,
        }
    }

    /// Agent steps of all actors.
    pub(crate) fn actor_steps(&self) -> u64 {
        self.actor_steps.load(Ordering::Relaxed)
    }

    /// Actors have made so many more.
    pub(crate) fn count_actor_steps(&self, steps: u64) {
        self.actor_steps.fetch_add(steps, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        // Whole after every statement, so a thread that died while holding it left it usable.
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the rest that is wanted now.
    pub(crate) fn wanted_rest(&self) -> Option<u64> {
        let rest = self.rest();
        rest.wanted.then_some(rest.number)
    }

    /// Lets all rest; the number of that rest.
    pub(crate) fn begin_rest(&self) -> u64 {
        let mut rest = self.rest();
        let number = rest.number + 1;
        *rest = Rest { wanted: true, number };
        drop(rest);
        self.changed.notify_all();
        number
    }

    pub(crate) fn end_rest(&self) {
        self.rest().wanted = false;
        self.changed.notify_all();
    }

    /// Sleeps until the rest of this number is over, or all stop.
    pub(crate) fn wait_out_rest(&self, number: u64) {
        let mut rest = self.rest();
        while rest.wanted && rest.number == number && !self.is_stopping() {
            rest = self.changed.wait(rest).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until a rest is wanted, whose number is returned, or all stop.
    pub(crate) fn await_rest(&self) -> Option<u64> {
        let mut rest = self.rest();
        while !self.is_stopping() {
            if rest.wanted {
                return Some(rest.number);
            }
            rest = self.changed.wait(rest).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// An evaluator keeps the actors' pace: whether it is ahead after so many steps of each of its environments. Sleeps
    /// a little if so.
    pub(crate) fn is_ahead(&self, steps: u64) -> bool {
        let ahead = || steps > self.actor_steps() / self.actor_environments;
        if ahead() {
            drop(self.changed.wait_timeout(self.rest(), PATIENCE));
        }
        ahead()
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Under the lock, so that nobody misses it between looking and sleeping.
        drop(self.rest());
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
    fn who_sleeps_through_the_end_of_a_rest_notices_the_next() {
        let crew = Arc::new(Crew::new(0, 1));
        crew.begin_rest();
        let first = crew.wanted_rest().unwrap();
        crew.end_rest();
        crew.begin_rest();
        let (awake, heard) = channel();
        let sleeper = Arc::clone(&crew);
        let sleeper = thread::spawn(move || {
            sleeper.wait_out_rest(first);
            awake.send(sleeper.wanted_rest()).unwrap();
        });
        let next = heard.recv_timeout(Duration::from_secs(30)).expect("it sleeps on");
        assert_eq!(next, Some(first + 1));
        sleeper.join().unwrap();
    }
}
