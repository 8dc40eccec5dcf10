//! Signals to a run's threads: stop, pause, evaluate; and the actors' step count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::intrinsic::DistanceMean;

/// How long a role waits before it looks for a stop or pause signal again.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// State that all threads of a run share.
pub(crate) struct RunControl {
    stopping: AtomicBool,
    signals: Mutex<Signals>,
    changed: Condvar,
    actor_steps: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Signals {
    /// Whether all threads pause, so that everything can be copied.
    pausing: bool,
    /// Tells pauses apart: a thread that sleeps through the end of one must notice that the next has begun.
    pause: u64,
    evaluation: BegunEvaluation,
}

/// An evaluation that evaluators are to play.
#[derive(Clone, Copy, Default)]
pub(crate) struct BegunEvaluation {
    /// Counted from 1.
    pub(crate) number: u64,
    /// The d²_m that its episodes begin with.
    pub(crate) distances: DistanceMean,
}

impl RunControl {
    /// Control of a run whose actors' environments have made `actor_steps` steps in all.
    pub(crate) fn new(actor_steps: u64) -> Self {
        Self {
            stopping: AtomicBool::new(false),
            signals: Mutex::default(),
            changed: Condvar::new(),
            actor_steps: AtomicU64::new(actor_steps),
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

    fn signals(&self) -> MutexGuard<'_, Signals> {
        // They are consistent after every statement, so a thread that panicked with the lock left them usable.
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the signals satisfy `condition` or the run stops, and returns them.
    fn sleep_until(&self, condition: impl Fn(&Signals) -> bool) -> Signals {
        let mut signals = self.signals();
        while !condition(&signals) && !self.is_stopping() {
            signals = self.changed.wait(signals).unwrap_or_else(PoisonError::into_inner);
        }
        *signals
    }

    /// The number of the current pause.
    pub(crate) fn wanted_pause(&self) -> Option<u64> {
        let signals = self.signals();
        signals.pausing.then_some(signals.pause)
    }

    /// Begins a pause and returns its number.
    pub(crate) fn begin_pause(&self) -> u64 {
        let mut signals = self.signals();
        (signals.pausing, signals.pause) = (true, signals.pause + 1);
        self.changed.notify_all();
        signals.pause
    }

    pub(crate) fn end_pause(&self) {
        self.signals().pausing = false;
        self.changed.notify_all();
    }

    /// Sleeps until the pause of this number ends or the run stops.
    pub(crate) fn wait_out_pause(&self, number: u64) {
        self.sleep_until(|signals| !(signals.pausing && signals.pause == number));
    }

    /// Sleeps until the pause of this number ends, the run stops, or the time has passed.
    pub(crate) fn wait_out_pause_for(&self, number: u64, timeout: Duration) {
        let lasts = |signals: &mut Signals| signals.pausing && signals.pause == number && !self.is_stopping();
        drop(self.changed.wait_timeout_while(self.signals(), timeout, lasts));
    }

    /// Sleeps until a pause begins, and returns its number, or until the run stops.
    pub(crate) fn await_pause(&self) -> Option<u64> {
        let signals = self.sleep_until(|signals| signals.pausing);
        (!self.is_stopping()).then_some(signals.pause)
    }

    /// Begins the next evaluation.
    pub(crate) fn begin_evaluation(&self, distances: DistanceMean) {
        let mut signals = self.signals();
        signals.evaluation = BegunEvaluation { number: signals.evaluation.number + 1, distances };
        self.changed.notify_all();
    }

    /// Sleeps until an evaluation after that of this number begins, and returns it.
    ///
    /// `None` if a pause begins or the run stops before.
    pub(crate) fn await_evaluation(&self, after: u64) -> Option<BegunEvaluation> {
        let signals = self.sleep_until(|signals| signals.pausing || signals.evaluation.number > after);
        let is_wanted = !signals.pausing && !self.is_stopping();
        is_wanted.then_some(signals.evaluation)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Under the lock, so that no thread misses the signal between checking and sleeping.
        drop(self.signals());
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
        let control = Arc::new(RunControl::new(0));
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
