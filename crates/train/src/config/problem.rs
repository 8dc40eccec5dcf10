//! What is wrong with a config, and where it was written.

use std::fmt;
use std::path::PathBuf;

use crate::suggestion::did_you_mean;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: it is the default.
    Default,
    /// In a preset.
    Preset {
        /// The preset's name.
        name: String,
        /// Line in it, counted from 1; none where it is about the whole.
        line: Option<usize>,
    },
    /// In a file of the user's.
    File {
        /// The file.
        path: PathBuf,
        /// Line in it, counted from 1; none where it is about the whole.
        line: Option<usize>,
    },
    /// On the command line.
    Set(String),
    /// In code that made or changed a [`Config`](super::Config).
    Code,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset { name, line: Some(line) } => write!(f, "preset {name}, line {line}"),
            Self::Preset { name, line: None } => write!(f, "preset {name}"),
            Self::File { path, line: Some(line) } => write!(f, "{}, line {line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::Set(setting) => write!(f, "--set {setting}"),
            Self::Code => f.write_str("config"),
        }
    }
}

/// One thing that is wrong, on one line: where it was written, and what it may be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{origin}: {fault}")]
pub struct Problem {
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong.
    pub fault: Fault,
}

/// What can be wrong with a config.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// There is no such field.
    #[error("there is no field {path}{}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// What was written.
        path: String,
        /// The field that was probably meant.
        nearest: Option<String>,
    },
    /// A section was given a value.
    #[error("{path} is a section with fields of its own ({fields}), and {found} was given")]
    Section {
        /// The section.
        path: String,
        /// Its fields.
        fields: String,
        /// The value.
        found: String,
    },
    /// A field was taken for a section.
    #[error("there is no field {path}: {field} is {expected}")]
    NoSection {
        /// What was written.
        path: String,
        /// The field.
        field: String,
        /// What the field is.
        expected: String,
    },
    /// The value is of another type.
    #[error("{path} must be {expected}, not {found}")]
    WrongType {
        /// The field.
        path: String,
        /// What it may be.
        expected: String,
        /// What came.
        found: String,
    },
    /// The value is none of those allowed.
    #[error("{path} is {found}; it must be {expected}{}", did_you_mean(.nearest.as_deref()))]
    OutOfRange {
        /// The field.
        path: String,
        /// What it may be.
        expected: String,
        /// What came.
        found: String,
        /// The choice that was probably meant.
        nearest: Option<String>,
    },
    /// Each value is allowed, but not together.
    #[error("{what}")]
    Impossible {
        /// The sentence, with the fields and their values.
        what: String,
    },
    /// The text is no TOML.
    #[error("not TOML: {what}")]
    Syntax {
        /// What the parser says.
        what: String,
    },
    /// The file could not be read.
    #[error("can't be read: {what}")]
    Unreadable {
        /// Why.
        what: String,
    },
    /// The end of the file is missing.
    #[error("it ends before {field}, so it was cut off")]
    CutOff {
        /// The last field of a whole one.
        field: &'static str,
    },
    /// There is no such preset.
    #[error("there is no such preset; there are {known}{}", did_you_mean(.nearest.as_deref()))]
    UnknownPreset {
        /// Those there are.
        known: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// The argument of `--set` is not of the form `path=value`.
    #[error("must be written path=value, for instance learner.batch_size=32")]
    NoSetting,
}

/// Why there is no config: everything that is wrong with it, or why it could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// All that is wrong, one line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// A config made in code holds a number that TOML can't.
    #[error("the config can't be written as TOML: {0}")]
    NoToml(#[from] toml::ser::Error),
}

impl ConfigError {
    /// What is wrong with the config, if that is the error.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid(problems) => problems,
            Self::NoToml(_) => &[],
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}
