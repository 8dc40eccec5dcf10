//! What the threads of a run do.

use std::fmt;
use std::thread::{self, JoinHandle};

use crate::error::{Result, TrainError};
use crate::roles::messages::Role;
use crate::roles::timesheet::Activity::{self, *};

/// Role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadRole {
    /// Drives actor environments.
    Actor,
    /// Drives evaluators' environments.
    Evaluator,
    /// The inference server.
    Inference,
    /// Prefetches batches.
    Prefetch,
    /// The learner loop.
    Learner,
}

impl ThreadRole {
    /// All roles, in the order of their variants.
    pub(crate) const ALL: [Self; 5] = [Self::Actor, Self::Evaluator, Self::Inference, Self::Prefetch, Self::Learner];

    /// Name in the metrics.
    pub(crate) const fn metrics_name(self) -> &'static str {
        match self {
            Self::Actor => "actor",
            Self::Evaluator => "evaluator",
            Self::Inference => "inference",
            Self::Prefetch => "sampler",
            Self::Learner => "learner",
        }
    }

    /// What threads of this role do.
    pub(crate) const fn activities(self) -> &'static [Activity] {
        match self {
            Self::Actor => &[Working, WaitingForInference, WaitingForEnvironments, WaitingForReplay, Resting],
            Self::Evaluator => &[Working, WaitingForInference, WaitingForEnvironments, BetweenEvaluations, Resting],
            Self::Inference => &[Working, Gathering, Waiting],
            Self::Prefetch => &[Working, WaitingForInserts, WaitingForLearner],
            Self::Learner => &[Working, Waiting, Bookkeeping],
        }
    }

    /// Starts a thread of this role.
    pub(crate) fn spawn(self, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let started = thread::Builder::new().name(self.to_string()).spawn(run);
        started.map_err(|cause| TrainError::Thread { role: self, cause })
    }
}

impl fmt::Display for ThreadRole {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(if *self == Self::Prefetch { "prefetch" } else { self.metrics_name() })
    }
}

impl From<Role> for ThreadRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Actor => Self::Actor,
            Role::Evaluator => Self::Evaluator,
        }
    }
}
