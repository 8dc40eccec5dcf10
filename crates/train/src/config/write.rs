//! A config as TOML text, which reads back to the same bits.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Value;

use super::Config;
use super::field::Kind;
use super::fields::{SECTIONS, fields};
use super::load::{Effective, Sources};
use super::problem::{ConfigError, Fault, Origin, Problem};
use super::text::written;

impl Config {
    /// Every field's value by its path, in the form that a config file has. Fails where a number is above 2^63, which
    /// TOML can't hold and [`Sources::load`] never lets through.
    pub fn values(&self) -> Result<BTreeMap<&'static str, Value>, ConfigError> {
        let root = toml::Table::try_from(self)?;
        let value = |path: &str| {
            let mut keys = path.split('.');
            let first = root.get(keys.next()?)?;
            keys.try_fold(first, |value, key| value.get(key)).cloned()
        };
        let none = |kind| matches!(kind, Kind::WholeOrNone(..)).then_some(Value::Integer(0));
        Ok(fields().filter_map(|field| Some((field.path, value(field.path).or(none(field.kind))?))).collect())
    }

    /// All of it as TOML.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml_text(self, |_| None)
    }

    /// Reads and checks a config that [`to_toml`](Self::to_toml) has written, or the one in a run's directory. Fields that
    /// it does not have get the defaults. The last field must be there: without it the end of the file is missing, and
    /// the defaults would be another config than was written.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let sources = Sources { file: Some(path.to_owned()), ..Sources::default() };
        let effective = sources.load()?;
        match fields().last() {
            Some(last) if *effective.origin(last.path) == Origin::Default => {
                let origin = Origin::File { path: path.to_owned(), line: None };
                let fault = Fault::CutOff { field: last.path };
                Err(ConfigError::Invalid(vec![Problem { origin, fault }]))
            }
            _ => Ok(effective.config),
        }
    }
}

impl Effective {
    /// All of it as TOML, with where a value was written beside it; those without a note are defaults.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml_text(&self.config, |path| match self.origin(path) {
            Origin::Default => None,
            origin => Some(origin.to_string()),
        })
    }
}

fn toml_text(config: &Config, note: impl Fn(&str) -> Option<String>) -> Result<String, ConfigError> {
    let values = config.values()?;
    let mut text = String::new();
    for section in SECTIONS {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("[{}]\n", section.path);
        for field in section.fields {
            let Some(value) = values.get(field.path) else { continue };
            text += &format!("{} = {}", field.key(), written(value));
            if let Some(note) = note(field.path) {
                text += &format!("  # {note}");
            }
            text.push('\n');
        }
    }
    Ok(text)
}
