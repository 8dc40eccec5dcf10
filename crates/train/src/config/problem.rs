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
        /// Name of the preset.
        name: String,
        /// Line, counted from 1; `None` for the whole preset.
        line: Option<usize>,
    },
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1; `None` for the whole file.
        line: Option<usize>,
    },
    /// In a setting of the form `path=value`.
    Set(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset { name, line: Some(line) } => write!(f, "preset {name}, line {line}"),
            Self::Preset { name, line: None } => write!(f, "preset {name}"),
            Self::File { path, line: Some(line) } => write!(f, "{}, line {line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::Set(setting) => f.write_str(setting),
        }
    }
}

/// One thing that is wrong, as one line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{origin}: {fault}")]
pub struct ConfigProblem {
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong.
    pub fault: ConfigFault,
}

/// What can be wrong with a config.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigFault {
    /// The path names neither a field nor a section.
    #[error("unknown field {path}{}", did_you_mean(*.suggestion))]
    Unknown {
        /// The path.
        path: String,
        /// The closest field.
        suggestion: Option<&'static str>,
    },
    /// A section was given a value.
    #[error("{path} is a section with the fields {fields}; it cannot be {found}")]
    Section {
        /// The section.
        path: String,
        /// Its fields.
        fields: String,
        /// The value.
        found: String,
    },
    /// The value is outside the field's range or of another type.
    #[error("{path} is {found}; it must be {expected}{}", did_you_mean(*.suggestion))]
    Invalid {
        /// The field.
        path: &'static str,
        /// The value.
        found: String,
        /// The values that the field takes.
        expected: String,
        /// The closest word, for a choice.
        suggestion: Option<&'static str>,
    },
    /// Each value is valid, but not together with the others.
    #[error("{0}")]
    Rule(String),
    /// The text is not valid TOML.
    #[error("invalid TOML: {0}")]
    Syntax(String),
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The end of the file is missing.
    #[error("it was cut off: {field} is missing")]
    CutOff {
        /// The last field of a complete file.
        field: &'static str,
    },
    /// The preset does not exist.
    #[error("unknown preset; available: {known}{}", did_you_mean(*.suggestion))]
    UnknownPreset {
        /// The presets that exist.
        known: String,
        /// The closest preset.
        suggestion: Option<&'static str>,
    },
    /// A setting is not of the form `path=value`.
    #[error("expected path=value, for example learner.batch_size=32")]
    NotASetting,
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Everything that is wrong, one line each.
    #[error("{}", .0.iter().map(ConfigProblem::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<ConfigProblem>),
    /// A config made in code holds a number that TOML cannot represent.
    #[error("the config cannot be written as TOML: {0}")]
    NoToml(#[from] toml::ser::Error),
}

impl ConfigError {
    /// Returns what is wrong with the config; empty for other errors.
    pub fn problems(&self) -> &[ConfigProblem] {
        match self {
            Self::Invalid(problems) => problems,
            Self::NoToml(_) => &[],
        }
    }
}
