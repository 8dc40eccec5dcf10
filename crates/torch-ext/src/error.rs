//! Why something on the GPU could not be done.

/// Result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something on the GPU could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program was built without the `cuda` feature.
    #[error("this build has no CUDA; build it with the cuda feature")]
    NotBuilt,
    /// A library or one of its functions is not there.
    #[error("{library} can't be used: {reason}")]
    Library {
        /// The library.
        library: &'static str,
        /// What the loader said.
        reason: String,
    },
    /// The CUDA driver refused a call.
    #[error("CUDA: {call}: {reason}")]
    Driver {
        /// What was asked of it.
        call: String,
        /// What it said.
        reason: String,
    },
    /// The kernels did not compile for this GPU.
    #[error("the GPU kernels can't be compiled: {0}")]
    Compile(String),
    /// The GPU has not enough memory left.
    #[error(
        "the GPU has not enough memory: {0}; smaller values of learner.batch_size, replay.trace or actors.environments \
         need less"
    )]
    OutOfMemory(String),
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(String),
    /// A tensor does not fit a fused piece.
    #[error("{what} is {found}, not {expected}")]
    Shape {
        /// The tensor.
        what: &'static str,
        /// Its kind and shape.
        found: String,
        /// What it should be.
        expected: String,
    },
}

impl Error {
    /// Of a text that libtorch gave: the first line, since a C++ stack trace follows that tells a user nothing.
    pub fn from_libtorch(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        if text.contains("out of memory") {
            // "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...": the second sentence says how much.
            let tried = line.split_once("Tried to").map(|(_, rest)| rest.split(". ").next().unwrap_or(rest));
            return Self::OutOfMemory(match tried {
                Some(tried) => format!("tried to{tried}"),
                None => line.to_owned(),
            });
        }
        Self::Torch(line.to_owned())
    }
}

impl From<tch::TchError> for Error {
    fn from(error: tch::TchError) -> Self {
        match &error {
            tch::TchError::Torch(text) => Self::from_libtorch(text),
            other => Self::from_libtorch(&other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_memory_says_how_much_was_wanted_and_what_to_set() {
        let text = "CUDA out of memory. Tried to allocate 2.61 GiB. GPU 0 has a total capacity of 23.6 GiB\nExceptions";
        let error = Error::from_libtorch(text);
        assert_eq!(error, Error::OutOfMemory("tried to allocate 2.61 GiB".to_owned()));
        assert!(error.to_string().contains("learner.batch_size"));
        assert_eq!(Error::from_libtorch("no\nframe #0"), Error::Torch("no".to_owned()));
    }
}
