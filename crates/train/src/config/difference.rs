//! Where two configs differ.

use serde::Serialize;
use toml::Value;

use super::Config;
use super::fields::fields;
use super::problem::ConfigError;
use super::text::written;

/// A field that two configs hold different values of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The field.
    pub path: &'static str,
    /// The first config's value.
    pub left: Value,
    /// The second's.
    pub right: Value,
}

impl Difference {
    /// Both values as a config file has them.
    pub fn written(&self) -> [String; 2] {
        [&self.left, &self.right].map(written)
    }
}

/// Every field that the two differ in, in the order of the documentation.
pub fn differences(left: &Config, right: &Config) -> Result<Vec<Difference>, ConfigError> {
    let (left, right) = (left.values()?, right.values()?);
    let both = fields().filter_map(|field| {
        let (left, right) = (left.get(field.path)?.clone(), right.get(field.path)?.clone());
        Some(Difference { path: field.path, left, right })
    });
    Ok(both.filter(|difference| difference.left != difference.right).collect())
}
