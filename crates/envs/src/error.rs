//! Errors of making, stepping, saving and restoring environments.

use std::time::Duration;

use crate::tasks::{self, TaskError};
use crate::workers::MAX_REWARD;

/// An error of a set of environments.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// No environment has that name.
    #[error("unknown environment `{name}`: {hint}")]
    UnknownEnvironment {
        /// The name given.
        name: String,
        /// What it may have meant.
        hint: NameHint,
    },
    /// A setting is invalid.
    #[error("{field} is {value}, expected {allowed}")]
    Setting {
        /// The setting's name.
        field: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        allowed: String,
    },
    /// The environment does not have that action.
    #[error("action {action} is out of range: {name} has {actions} actions, 0 to {}", actions - 1)]
    ActionOutOfRange {
        /// The environment.
        name: String,
        /// The action.
        action: usize,
        /// Number of actions.
        actions: usize,
    },
    /// A step got too few or too many actions.
    #[error("a step of {name} takes {expected} actions, one per environment of the group, got {given}")]
    WrongActionCount {
        /// The environment.
        name: String,
        /// Environments of the group.
        expected: usize,
        /// Actions given.
        given: usize,
    },
    /// The group or environment does not exist.
    #[error("{name} has no environment {env} in group {group}: it has {groups} groups of {group_size} environments")]
    NoSuchEnvironment {
        /// The environment.
        name: String,
        /// Number of groups.
        groups: usize,
        /// Environments in each group.
        group_size: usize,
        /// The requested group.
        group: usize,
        /// The requested environment.
        env: usize,
    },
    /// Calls came in the wrong order.
    #[error("{request} of group {group} of {name} came out of turn: {state}")]
    OutOfTurn {
        /// The environment.
        name: String,
        /// The call.
        request: &'static str,
        /// The group.
        group: usize,
        /// Why the call cannot be made now.
        state: &'static str,
    },
    /// A save is damaged, or of another environment or other options.
    #[error("the saved environment cannot be restored to {name}: {reason}")]
    Foreign {
        /// The environment to be restored.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The environment cannot do that.
    #[error("{name} cannot {request}: {reason}")]
    Unsupported {
        /// The environment.
        name: String,
        /// The request.
        request: &'static str,
        /// Why not.
        reason: String,
    },
    /// The worker process or its shared memory could not be created.
    #[error("the environment worker of {name} failed to start ({what}): {cause}")]
    Launch {
        /// The environment.
        name: String,
        /// What failed.
        what: String,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The worker did not answer in time.
    #[error("the environment worker of {name} did not answer {request} within {limit:?}{stderr_tail}")]
    Timeout {
        /// The environment.
        name: String,
        /// The request.
        request: &'static str,
        /// The time limit.
        limit: Duration,
        /// The end of its output, as a clause; may be empty.
        stderr_tail: String,
    },
    /// The worker process died or closed its connection.
    #[error("the environment worker of {name} was lost during {request} ({how}){stderr_tail}")]
    Lost {
        /// The environment.
        name: String,
        /// The request.
        request: &'static str,
        /// How it ended.
        how: WorkerEnd,
        /// The end of its output, as a clause; may be empty.
        stderr_tail: String,
    },
    /// The environment raised a Python exception.
    #[error("{name} failed during {request}: {text}")]
    Raised {
        /// The environment.
        name: String,
        /// The request.
        request: &'static str,
        /// The exception and where it was raised.
        text: String,
    },
    /// The worker's answer violates the protocol.
    #[error("the environment worker of {name} gave an invalid answer to {request}: {what}{stderr_tail}")]
    Protocol {
        /// The environment.
        name: String,
        /// The request.
        request: &'static str,
        /// What is wrong with the answer.
        what: String,
        /// The end of its output, as a clause; may be empty.
        stderr_tail: String,
    },
    /// The environment gave a reward that is not finite or absurdly large; replacing the worker would not help.
    #[error(
        "environment {environment} of {name} gave the reward {value:e}, expected a number from -{MAX_REWARD:e} to \
         {MAX_REWARD:e}"
    )]
    Reward {
        /// The environment.
        name: String,
        /// Its index in the whole run.
        environment: u64,
        /// The reward.
        value: f64,
    },
    /// The worker failed or hung too often.
    #[error("gave up on the environment workers of {name} after {attempts} {failures}; the last one: {last}")]
    GaveUp {
        /// The environment.
        name: String,
        /// Number of failures.
        attempts: u32,
        /// What kind of failures, and what was missing between them, as a phrase.
        failures: String,
        /// The last failure.
        last: String,
    },
    /// A built-in task could not be made.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// How a worker process ended.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum WorkerEnd {
    /// With this exit status.
    #[error("it exited with code {0}")]
    Exited(i32),
    /// By this signal: out of memory, a crash, or somebody's `kill`.
    #[error("it was killed by signal {0}")]
    Killed(i32),
    /// It closed its connection and did not exit.
    #[error("it closed its connection and was killed")]
    HungUp,
    /// The connection failed.
    #[error("{0}")]
    Connection(String),
}

/// What an unknown name of an environment may have meant.
#[derive(Debug, thiserror::Error)]
pub enum NameHint {
    /// These names, the most similar first.
    #[error("did you mean {}?", listed(.0))]
    Similar(Vec<String>),
    /// No name is similar.
    #[error("expected one of the 57 Atari games, {} or gym:ENV_ID", tasks::names())]
    NothingSimilar,
    /// A Gymnasium environment, of which the name lacks a part.
    #[error("expected gym:ENV_ID, or gym:MODULE:ENV_ID with a module to import first")]
    IncompleteGym,
}

fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
