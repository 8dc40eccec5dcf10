//! Why the agent could not be built, fed, trained, saved or loaded.

use config_schema::Problem;
use config_schema::text::list_first;

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
        /// Its owner and shape.
        what: String,
        /// Expected number of values.
        expected: usize,
        /// Actual number of values.
        found: usize,
    },
    /// An invalid value.
    #[error("{field} at {place} is {value}, which is not {expected}")]
    Value {
        /// The array.
        field: &'static str,
        /// Sequence and step, or row.
        place: String,
        /// The value.
        value: String,
        /// Description of valid values.
        expected: String,
    },
    /// A write to observations that a GPU still reads.
    #[error("observation row {row} is still in use: finish the step that reads it first")]
    InFlight {
        /// The row.
        row: usize,
    },
    /// A loss, gradient or priority is NaN or infinite; the learner's state is unchanged.
    #[error("{tensor} is {value} in update {update}; the update was not applied")]
    NonFinite {
        /// Name of the tensor.
        tensor: String,
        /// Its first such value.
        value: f64,
        /// The failed update, counted from 1.
        update: u64,
    },
    /// An output of the acting networks is NaN or infinite.
    #[error("{what} of row {row} is {value}; the acting weights are broken")]
    NonFiniteOutput {
        /// Which output.
        what: &'static str,
        /// Its first such value.
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
    /// Tensors of a file that do not match the network.
    #[error("the weights do not fit this network: {}", list(.0))]
    Weights(Vec<WeightsProblem>),
    /// Malformed bytes.
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

/// How one tensor of a file differs from the network's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsProblem {
    /// A tensor of the network that the file lacks.
    #[error("{name} is missing")]
    Missing {
        /// Name of the tensor.
        name: String,
    },
    /// A tensor of the file that the network lacks.
    #[error("{name} is not part of the network")]
    Extra {
        /// Name of the tensor.
        name: String,
    },
    /// A tensor with another shape or element type.
    #[error("{name} is {found}, not {expected}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Element type and shape in the network.
        expected: String,
        /// Element type and shape in the file.
        found: String,
    },
}

impl WeightsProblem {
    /// Name of the tensor.
    pub fn name(&self) -> &str {
        match self {
            Self::Missing { name } | Self::Extra { name } | Self::Shape { name, .. } => name,
        }
    }
}

impl From<tch::TchError> for AgentError {
    fn from(error: tch::TchError) -> Self {
        Self::Torch(error.into())
    }
}

/// Maximum number of problems that a message names; the others are counted.
const MAX_NAMED: usize = 10;

fn list<T: std::fmt::Display>(problems: &[T]) -> String {
    list_first(problems, MAX_NAMED, "; ")
}
