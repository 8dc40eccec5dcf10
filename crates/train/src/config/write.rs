//! A config as values and as TOML text that reads back to the same bits.

use std::path::Path;

use config_schema::text::written;
use config_schema::value_at;
use serde::Serialize;
use toml::{Table, Value};

use super::load::{EffectiveConfig, Sources};
use super::problem::{ConfigError, ConfigFault, ConfigProblem, Origin};
use super::{Config, SECTIONS, fields};

impl Config {
    /// Returns all of it as TOML.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml_text(self, |_| None)
    }

    /// Reads and checks a config file.
    ///
    /// It is one that [`to_toml`](Self::to_toml) wrote, or the one in a run's directory.
    ///
    /// Missing fields get their defaults, except for the last one: without it the end of the file is missing, and the
    /// defaults would make another config than the one that was written.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let effective = Sources { file: Some(path.to_owned()), ..Sources::default() }.load()?;
        match fields().last() {
            Some(last) if *effective.origin(&last.path) == Origin::Default => {
                let origin = Origin::File { path: path.to_owned(), line: None };
                Err(ConfigError::Invalid(vec![ConfigProblem {
                    origin,
                    fault: ConfigFault::CutOff { field: &last.path },
                }]))
            }
            _ => Ok(effective.config),
        }
    }
}

impl EffectiveConfig {
    /// Returns all of it as TOML, with a note on the origin next to every value that is not a default.
    pub fn to_toml(&self, note: impl Fn(&Origin) -> String) -> Result<String, ConfigError> {
        toml_text(&self.config, |path| self.origins.get(path).map(&note))
    }
}

fn toml_text(config: &Config, note: impl Fn(&str) -> Option<String>) -> Result<String, ConfigError> {
    let values = Table::try_from(config)?;
    let mut text = String::new();
    for section in SECTIONS.iter() {
        let gap = if text.is_empty() { "" } else { "\n" };
        text += &format!("{gap}[{}]\n", section.path);
        for field in &section.fields {
            let value = value_at(&values, &field.path).map(written).unwrap_or_default();
            let note = note(&field.path).map(|note| format!("  # {note}")).unwrap_or_default();
            text += &format!("{} = {value}{note}\n", field.name);
        }
    }
    Ok(text)
}

/// A field in which two configs differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The field.
    pub path: &'static str,
    /// The first config's value.
    pub left: Value,
    /// The second config's value.
    pub right: Value,
}

impl Difference {
    /// Returns both values as a config file has them.
    pub fn written(&self) -> [String; 2] {
        [&self.left, &self.right].map(written)
    }
}

/// Returns every field in which two configs differ, in the order in which a config is written.
pub fn differences(left: &Config, right: &Config) -> Result<Vec<Difference>, ConfigError> {
    let (left, right) = (Table::try_from(left)?, Table::try_from(right)?);
    let both = fields().filter_map(|field| {
        let (left, right) = (value_at(&left, &field.path)?.clone(), value_at(&right, &field.path)?.clone());
        Some(Difference { path: &field.path, left, right })
    });
    Ok(both.filter(|difference| difference.left != difference.right).collect())
}
