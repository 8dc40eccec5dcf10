//! Why an environment could not be made, stepped, saved or restored.

use std::time::Duration;

use crate::tasks::TaskError;

/// What can go wrong with a set of environments; each variant is one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// There is no environment of that name.
    #[error("there is no environment `{name}`: {hint}")]
    UnknownEnvironment {
        /// What was asked for.
        name: String,
        /// The nearest names that exist, or how a name is built.
        hint: String,
    },
    /// A setting cannot be used.
    #[error("{field} is {value}, and must be {allowed}")]
    Setting {
        /// The setting's name.
        field: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The action is none of the environment's.
    #[error("action {action} is out of range: {name} has {actions} actions, 0 to {}", actions - 1)]
    ActionOutOfRange {
        /// The environment.
        name: String,
        /// What was asked for.
        action: usize,
        /// How many there are.
        actions: usize,
    },
    /// One action is needed for each environment of the group.
    #[error("a step of {name} takes {expected} actions, one an environment of the group, and {given} were given")]
    WrongActionCount {
        /// The environment.
        name: String,
        /// Environments of the group.
        expected: usize,
        /// Actions given.
        given: usize,
    },
    /// There is no such group or environment.
    #[error("{name} has {groups} groups of {group_size} environments: there is no environment {env} in group {group}")]
    NoSuchEnvironment {
        /// The environment.
        name: String,
        /// Groups that exist.
        groups: usize,
        /// Environments in each.
        group_size: usize,
        /// The group asked for.
        group: usize,
        /// The environment asked for.
        env: usize,
    },
    /// The calls came in a wrong order.
    #[error("`{request}` of group {group} of {name} came out of turn: {state}")]
    OutOfTurn {
        /// The environment.
        name: String,
        /// What was asked for.
        request: &'static str,
        /// The group.
        group: usize,
        /// Why it cannot be done now.
        state: &'static str,
    },
    /// The saved bytes are not an environment of this kind, or were damaged.
    #[error("the saved environment cannot be restored to {name}: {reason}")]
    Foreign {
        /// The environment that was to go on from it.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The environment has no way to do that.
    #[error("{name} cannot {request}: {reason}")]
    Unsupported {
        /// The environment.
        name: String,
        /// What was asked.
        request: &'static str,
        /// Why it cannot be done.
        reason: String,
    },
    /// The worker process could not be started, or its memory could not be set up.
    #[error("the environment worker of {name} could not be started ({what}): {cause}")]
    Launch {
        /// The environment.
        name: String,
        /// What failed.
        what: String,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The worker did not answer in time.
    #[error("the environment worker of {name} did not answer to `{request}` within {limit:?}{last_words}")]
    Timeout {
        /// The environment.
        name: String,
        /// What it was asked.
        request: &'static str,
        /// How long it had.
        limit: Duration,
        /// The end of what it printed, as a clause; may be empty.
        last_words: String,
    },
    /// The worker process is gone.
    #[error("the environment worker of {name} was lost during `{request}` ({how}){last_words}")]
    Lost {
        /// The environment.
        name: String,
        /// What it was asked.
        request: &'static str,
        /// How it ended.
        how: String,
        /// The end of what it printed, as a clause; may be empty.
        last_words: String,
    },
    /// The environment itself failed: the text of its Python exception.
    #[error("{name} failed during `{request}`: {text}")]
    Raised {
        /// The environment.
        name: String,
        /// What it was asked.
        request: &'static str,
        /// The exception and where it was raised.
        text: String,
    },
    /// The worker's answer makes no sense.
    #[error("the environment worker of {name} gave an impossible answer to `{request}`: {what}{last_words}")]
    Protocol {
        /// The environment.
        name: String,
        /// What it was asked.
        request: &'static str,
        /// What is wrong with the answer.
        what: String,
        /// The end of what it printed, as a clause; may be empty.
        last_words: String,
    },
    /// A reward that nothing can be learned from; a new worker would not mend it.
    #[error("environment {environment} of {name} gave the reward {value}; a reward must be finite")]
    Reward {
        /// The environment.
        name: String,
        /// Its index in the whole run.
        environment: u64,
        /// The reward.
        value: f64,
    },
    /// The worker was replaced again and again without one step that succeeded, or early in every episode.
    #[error("gave up on the environment workers of {name} after {attempts} failures {between}; the last one: {last}")]
    GaveUp {
        /// The environment.
        name: String,
        /// How often it failed.
        attempts: u32,
        /// What there was not between the failures, or that there was nothing.
        between: &'static str,
        /// What happened last.
        last: String,
    },
    /// A built-in task was asked for something it does not have or cannot do.
    #[error(transparent)]
    Task(#[from] TaskError),
}
