//! Where two configs differ.

use serde::Serialize;

use super::Config;
use super::fields::fields;
use super::problem::ConfigError;
use super::text::written;

/// A field that two configs hold different values of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field.
    pub path: &'static str,
    /// The first config's value, as a config file has it.
    pub left: String,
    /// The second's.
    pub right: String,
}

/// Every field that the two differ in, in the order of the documentation.
pub fn differences(left: &Config, right: &Config) -> Result<Vec<Difference>, ConfigError> {
    let (left, right) = (left.values()?, right.values()?);
    let text = |value: Option<&toml::Value>| value.map(written).unwrap_or_default();
    Ok(fields()
        .filter(|field| left.get(field.path) != right.get(field.path))
        .map(|field| Difference {
            path: field.path,
            left: text(left.get(field.path)),
            right: text(right.get(field.path)),
        })
        .collect())
}
