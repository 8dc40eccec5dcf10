//! Why the agent could not be built, fed, trained, saved or loaded.

use config_schema::Problem;

/// Result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, AgentError>;

/// Why the agent could not be built, fed, trained, saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration is invalid; lists every problem.
    #[error("invalid agent config: {}", list(.0))]
    Config(Vec<Problem>),
    /// An array has the wrong length for the batch's shape.
    #[error("{field} has {found} values, but {what} needs {expected}")]
    Length {
        /// The array.
        field: &'static str,
        /// What it belongs to, with its shape.
        what: String,
        /// How many values were expected.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A value that the agent can't use.
    #[error("{field} at {place} is {value}, which is not {expected}")]
    Value {
        /// The array.
        field: &'static str,
        /// Sequence and step, or row.
        place: String,
        /// What was found.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// Observations were to be written over while a GPU reads them.
    #[error("row {row} of the observations can't be written to: the step that they were given to is not finished")]
    InFlight {
        /// The row.
        row: usize,
    },
    /// A loss, gradient or priority became NaN or infinite; the learner's state is as it was before the step.
    #[error("{tensor} is {value} in update {update}; the update was not applied")]
    NonFinite {
        /// Name of the tensor.
        tensor: String,
        /// The first such value found in it.
        value: f64,
        /// The update that was being computed, counted from 1.
        update: u64,
    },
    /// What the networks say to act by is NaN or infinite.
    #[error("{what} of row {row} is {value}; the weights that are acted with are broken")]
    NonFiniteOutput {
        /// Which output.
        what: &'static str,
        /// The first such value found.
        value: f32,
        /// The row of the step.
        row: usize,
    },
    /// The learner was saved or stepped while an update is pending.
    #[error("update {update} is still pending: finish it first")]
    PendingUpdate {
        /// The update, counted from 1.
        update: u64,
    },
    /// Tensors of a file don't match the network; all of them are listed.
    #[error("the weights don't fit this network: {}", list(.0))]
    Weights(Vec<WeightsProblem>),
    /// The bytes are not what they should be.
    #[error("not a valid {what}: {reason}")]
    Format {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("reading or writing the agent's state failed: {0}")]
    Io(#[from] std::io::Error),
    /// libtorch or the GPU refused an operation, for instance because memory ran out.
    #[error(transparent)]
    Torch(#[from] torch_ext::Error),
}

/// How one tensor of a file differs from what the network wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsProblem {
    /// The network has it, the file has not.
    #[error("{name} is missing")]
    Missing {
        /// Name of the tensor.
        name: String,
    },
    /// The file has it, the network has not.
    #[error("{name} is not part of the network")]
    Extra {
        /// Name of the tensor.
        name: String,
    },
    /// Both have it, with different shapes or element types.
    #[error("{name} is {found}, not {expected}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Element type and shape that the network has.
        expected: String,
        /// Element type and shape in the file.
        found: String,
    },
}

impl From<tch::TchError> for AgentError {
    fn from(error: tch::TchError) -> Self {
        Self::Torch(error.into())
    }
}

fn list<T: std::fmt::Display>(problems: &[T]) -> String {
    problems.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}
