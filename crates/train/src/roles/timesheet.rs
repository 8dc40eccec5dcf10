//! How the threads of each role spend their time: working, or waiting and for what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::roles::thread_role::ThreadRole;

/// What a thread does; all of its time counts as one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The role's own work.
    Working,
    /// The networks decide.
    WaitingForInference,
    /// The environments step.
    WaitingForEnvironments,
    /// The rate limiter blocks inserts.
    WaitingForReplay,
    /// Evaluators rest between two evaluations.
    BetweenEvaluations,
    /// The rate limiter blocks sampling.
    WaitingForInserts,
    /// The learner has enough batches prefetched.
    WaitingForLearner,
    /// No request or no batch is there.
    Waiting,
    /// Some actors have sent requests, and others may still join the batch.
    Gathering,
    /// The run is paused for a snapshot.
    Resting,
    /// Metrics, progress display, and snapshots for checkpoints.
    Bookkeeping,
}

impl Activity {
    /// Number of variants.
    const COUNT: usize = Self::Bookkeeping as usize + 1;

    /// Name in the metrics.
    const fn metrics_name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::WaitingForInference => "waiting_for_inference",
            Self::WaitingForEnvironments => "waiting_for_environments",
            Self::WaitingForReplay => "waiting_for_replay",
            Self::BetweenEvaluations => "between_evaluations",
            Self::WaitingForInserts => "waiting_for_inserts",
            Self::WaitingForLearner => "waiting_for_learner",
            Self::Waiting => "waiting",
            Self::Gathering => "gathering",
            Self::Resting => "resting",
            Self::Bookkeeping => "bookkeeping",
        }
    }
}

/// Time of all roles so far, summed over the threads of each.
#[derive(Debug, Default)]
pub struct Timesheet {
    nanoseconds: [[AtomicU64; Activity::COUNT]; ThreadRole::ALL.len()],
}

impl Timesheet {
    fn add(&self, role: ThreadRole, activity: Activity, time: Duration) {
        self.nanoseconds[role as usize][activity as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns a reading.
    pub fn times(&self) -> ActivityTimes {
        ActivityTimes(self.nanoseconds.each_ref().map(|role| role.each_ref().map(|time| time.load(Ordering::Relaxed))))
    }
}

/// A reading of a [`Timesheet`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityTimes([[u64; Activity::COUNT]; ThreadRole::ALL.len()]);

/// The share of its role's time that an activity took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeShare {
    /// Name of the role.
    pub role: &'static str,
    /// Name of the activity.
    pub activity: &'static str,
    /// Share of the time of all threads of the role.
    pub share: f64,
}

impl ActivityTimes {
    /// How each role spent its time since an earlier reading; omits roles without any.
    pub fn shares_since(&self, earlier: &Self) -> Vec<TimeShare> {
        let mut shares = Vec::new();
        for (role, (now, before)) in ThreadRole::ALL.into_iter().zip(self.0.iter().zip(&earlier.0)) {
            let spent = |activity: usize| now[activity].saturating_sub(before[activity]) as f64;
            let all: f64 = (0..Activity::COUNT).map(spent).sum();
            let share = |&activity: &Activity| TimeShare {
                role: role.metrics_name(),
                activity: activity.metrics_name(),
                share: spent(activity as usize) / all,
            };
            shares.extend(role.activities().iter().map(share).filter(|_| all > 0.0));
        }
        shares
    }
}

/// Times one thread: each lap ends where the next one starts.
#[derive(Debug)]
pub struct Stopwatch {
    sheet: Arc<Timesheet>,
    role: ThreadRole,
    last: Instant,
}

impl Stopwatch {
    /// Starts the clock of a thread with this role.
    pub fn new(sheet: &Arc<Timesheet>, role: ThreadRole) -> Self {
        Self { sheet: Arc::clone(sheet), role, last: Instant::now() }
    }

    /// Counts the time since the last lap as `activity`.
    pub fn lap(&mut self, activity: Activity) {
        let now = Instant::now();
        self.sheet.add(self.role, activity, now - self.last);
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_roles_are_listed_in_the_order_of_their_variants() {
        assert!(ThreadRole::ALL.iter().enumerate().all(|(index, &role)| role as usize == index));
        assert!(ThreadRole::ALL.iter().all(|role| role.activities()[0] == Activity::Working));
    }

    #[test]
    fn shares_are_relative_to_the_role_and_the_interval() {
        let sheet = Timesheet::default();
        sheet.add(ThreadRole::Actor, Activity::Working, Duration::from_secs(7));
        sheet.add(ThreadRole::Learner, Activity::Working, Duration::from_secs(7));
        let before = sheet.times();
        assert_eq!(before.shares_since(&before), []);
        sheet.add(ThreadRole::Learner, Activity::Waiting, Duration::from_millis(30));
        sheet.add(ThreadRole::Learner, Activity::Working, Duration::from_millis(10));
        sheet.add(ThreadRole::Inference, Activity::Working, Duration::from_nanos(1));
        let shares = sheet.times().shares_since(&before);
        let share = |role, activity| {
            shares.iter().find(|share| (share.role, share.activity) == (role, activity)).map(|share| share.share)
        };
        assert_eq!(share("inference", "working"), Some(1.0));
        assert_eq!(share("actor", "working"), None);
        assert_eq!((share("learner", "working"), share("learner", "waiting")), (Some(0.25), Some(0.75)));
        assert_eq!(share("learner", "bookkeeping"), Some(0.0));
    }

    #[test]
    fn laps_leave_no_gap() {
        let sheet = Arc::new(Timesheet::default());
        let mut stopwatch = Stopwatch::new(&sheet, ThreadRole::Actor);
        let start = stopwatch.last;
        stopwatch.lap(Activity::Working);
        stopwatch.lap(Activity::Resting);
        let all: u64 = sheet.times().0.iter().flatten().sum();
        assert_eq!(u128::from(all), (stopwatch.last - start).as_nanos());
    }
}
