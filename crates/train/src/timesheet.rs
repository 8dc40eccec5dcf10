//! How the threads of each role spend their time: working, or waiting and for what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a thread of a role does; all its time is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Novelty, actions and sequences.
    ActorWorks,
    /// The networks decide.
    ActorWaitsForInference,
    /// The environments step.
    ActorWaitsForEnvironments,
    /// The rate limiter has no room for another sequence.
    ActorWaitsForReplay,
    /// Everything is copied for a checkpoint.
    ActorRests,
    /// Novelty and actions.
    EvaluatorWorks,
    /// The networks decide.
    EvaluatorWaitsForInference,
    /// The environments step.
    EvaluatorWaitsForEnvironments,
    /// It keeps the actors' pace and is ahead of them.
    EvaluatorWaitsForActors,
    /// Everything is copied for a checkpoint.
    EvaluatorRests,
    /// Decisions, and newer parameters.
    InferenceWorks,
    /// Some have asked, and others may still join the batch.
    InferenceGathers,
    /// Nobody asks.
    InferenceWaits,
    /// Batches are decoded.
    SamplerWorks,
    /// Too few sequences were inserted.
    SamplerWaitsForInserts,
    /// The learner has enough batches ahead.
    SamplerWaitsForLearner,
    /// Updates, and publishing them.
    LearnerWorks,
    /// No batch is there.
    LearnerWaits,
    /// Metrics, the screen, and copies for checkpoints.
    LearnerKeepsBooks,
}

/// Every activity with its role and its name in the metrics.
const ACTIVITIES: [(Activity, &str, &str); 19] = [
    (Activity::ActorWorks, "actor", "working"),
    (Activity::ActorWaitsForInference, "actor", "waiting_for_inference"),
    (Activity::ActorWaitsForEnvironments, "actor", "waiting_for_environments"),
    (Activity::ActorWaitsForReplay, "actor", "waiting_for_replay"),
    (Activity::ActorRests, "actor", "resting"),
    (Activity::EvaluatorWorks, "evaluator", "working"),
    (Activity::EvaluatorWaitsForInference, "evaluator", "waiting_for_inference"),
    (Activity::EvaluatorWaitsForEnvironments, "evaluator", "waiting_for_environments"),
    (Activity::EvaluatorWaitsForActors, "evaluator", "waiting_for_actors"),
    (Activity::EvaluatorRests, "evaluator", "resting"),
    (Activity::InferenceWorks, "inference", "working"),
    (Activity::InferenceGathers, "inference", "gathering"),
    (Activity::InferenceWaits, "inference", "waiting"),
    (Activity::SamplerWorks, "sampler", "working"),
    (Activity::SamplerWaitsForInserts, "sampler", "waiting_for_inserts"),
    (Activity::SamplerWaitsForLearner, "sampler", "waiting_for_learner"),
    (Activity::LearnerWorks, "learner", "working"),
    (Activity::LearnerWaits, "learner", "waiting"),
    (Activity::LearnerKeepsBooks, "learner", "keeping_books"),
];

/// Time of all roles so far, added up over the threads of each.
#[derive(Debug, Default)]
pub struct Timesheet {
    nanoseconds: [AtomicU64; ACTIVITIES.len()],
}

impl Timesheet {
    fn add(&self, activity: Activity, time: Duration) {
        self.nanoseconds[activity as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// A reading.
    pub fn times(&self) -> Times {
        Times(std::array::from_fn(|i| self.nanoseconds[i].load(Ordering::Relaxed)))
    }
}

/// What a [`Timesheet`] said at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times([u64; ACTIVITIES.len()]);

/// The share of its role's time that an activity took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The role.
    pub role: &'static str,
    /// What it did.
    pub activity: &'static str,
    /// Of the time of all threads of the role.
    pub share: f64,
}

impl Times {
    /// How each role spent its time since an earlier reading; a role of which nothing is known is left out.
    pub fn shares_since(&self, earlier: &Self) -> Vec<Share> {
        let spent = |i: usize| self.0[i].saturating_sub(earlier.0[i]) as f64;
        let of_role = |role: &str| -> f64 { (0..self.0.len()).filter(|&i| ACTIVITIES[i].1 == role).map(spent).sum() };
        let shares = ACTIVITIES.iter().enumerate().map(|(i, &(_, role, activity))| {
            let all = of_role(role);
            Share { role, activity, share: spent(i) / all }
        });
        shares.filter(|share| share.share.is_finite()).collect()
    }
}

/// Times one thread: every lap goes to an activity, so that nothing of its time is left out.
#[derive(Debug)]
pub struct Stopwatch {
    sheet: Arc<Timesheet>,
    last: Instant,
}

impl Stopwatch {
    /// Runs from now on.
    pub fn new(sheet: &Arc<Timesheet>) -> Self {
        Self { sheet: Arc::clone(sheet), last: Instant::now() }
    }

    /// The time since the last lap was spent on `activity`.
    pub fn lap(&mut self, activity: Activity) {
        let now = Instant::now();
        self.sheet.add(activity, now - self.last);
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_activity_stands_at_its_own_place() {
        for (place, (activity, ..)) in ACTIVITIES.iter().enumerate() {
            assert_eq!(*activity as usize, place, "{activity:?}");
        }
    }

    #[test]
    fn shares_are_of_the_role_and_of_the_time_between() {
        let sheet = Timesheet::default();
        sheet.add(Activity::ActorWorks, Duration::from_secs(7));
        sheet.add(Activity::LearnerWorks, Duration::from_secs(7));
        let before = sheet.times();
        assert_eq!(before.shares_since(&before), []);
        sheet.add(Activity::LearnerWaits, Duration::from_millis(30));
        sheet.add(Activity::LearnerWorks, Duration::from_millis(10));
        sheet.add(Activity::InferenceWorks, Duration::from_nanos(1));
        let shares = sheet.times().shares_since(&before);
        let share = |role, activity| {
            shares.iter().find(|share| (share.role, share.activity) == (role, activity)).map(|share| share.share)
        };
        assert_eq!(share("inference", "working"), Some(1.0));
        assert_eq!(share("actor", "working"), None);
        assert_eq!((share("learner", "working"), share("learner", "waiting")), (Some(0.25), Some(0.75)));
        assert_eq!(share("learner", "keeping_books"), Some(0.0));
    }

    #[test]
    fn laps_leave_nothing_out() {
        let sheet = Arc::new(Timesheet::default());
        let mut watch = Stopwatch::new(&sheet);
        let begun = watch.last;
        watch.lap(Activity::ActorWorks);
        watch.lap(Activity::ActorRests);
        let all: u64 = sheet.times().0.iter().sum();
        assert_eq!(u128::from(all), (watch.last - begun).as_nanos());
    }
}
