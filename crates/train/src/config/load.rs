//! From what a user gave to one checked config: defaults, then a preset, then a file, then settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config_schema::text::{one_line, shortened, shown};
use config_schema::{FlatField, Kind};
use serde::Deserialize;
use toml::{Table, Value};

use super::layer::{Entry, read_setting, read_text};
use super::problem::{ConfigError, Fault, Origin, Problem};
use super::{CONFIG_FILE, Config, fields, rules};
use crate::run::regular_file;
use crate::suggestion::{suggest_path, suggest_word};

/// A preset: what differs from the defaults, as commented TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal),+) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../../../../configs/", $name, ".toml")) }),+]
    };
}

/// Every preset, from the largest to the smallest; compiled in, so that the binary needs no directory.
pub const PRESETS: &[Preset] = presets!["paper", "quick", "cpu", "tiny"];

/// What a user gave. Later sources override earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Name of a preset.
    pub preset: Option<String>,
    /// A TOML file, or a run's directory.
    pub file: Option<PathBuf>,
    /// Settings of the form `path=value`; the last one counts if a field is set twice.
    pub set: Vec<String>,
}

/// A checked config, and where each of its values was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// The config.
    pub config: Config,
    pub(super) origins: BTreeMap<&'static str, Origin>,
}

impl Effective {
    /// Returns where the value of a field was written.
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }
}

impl Sources {
    /// Layers the sources and checks the result; on failure, lists everything that is wrong.
    pub fn load(&self) -> Result<Effective, ConfigError> {
        let mut layers = Layers::over_defaults()?;
        if let Some(name) = &self.preset {
            let origin = |line| Origin::Preset { name: shortened(&one_line(name)), line };
            let names = || PRESETS.iter().map(|preset| preset.name);
            match PRESETS.iter().find(|preset| preset.name == name) {
                Some(preset) => layers.add_text(preset.text, |line| origin(Some(line))),
                None => layers.report(
                    origin(None),
                    Fault::UnknownPreset {
                        known: names().collect::<Vec<_>>().join(", "),
                        suggestion: suggest_word(name, names()),
                    },
                ),
            }
        }
        if let Some(file) = &self.file {
            let path = if file.is_dir() { file.join(CONFIG_FILE) } else { file.clone() };
            layers.add_file(&path);
        }
        for setting in &self.set {
            let origin = Origin::Set(shortened(&one_line(setting)));
            match read_setting(setting) {
                Ok(entries) => entries.into_iter().for_each(|entry| layers.add(entry, origin.clone())),
                Err(fault) => layers.report(origin, fault),
            }
        }
        layers.finish()
    }
}

/// The values so far, where each was written, and what is wrong with the rest.
struct Layers {
    values: Table,
    origins: BTreeMap<&'static str, Origin>,
    problems: Vec<Problem>,
}

impl Layers {
    fn over_defaults() -> Result<Self, ConfigError> {
        Ok(Self { values: Table::try_from(Config::default())?, origins: BTreeMap::new(), problems: Vec::new() })
    }

    fn report(&mut self, origin: Origin, fault: Fault) {
        self.problems.push(Problem { origin, fault });
    }

    fn add_file(&mut self, path: &Path) {
        let origin = |line| Origin::File { path: path.to_owned(), line };
        let text = regular_file::read(path).map_err(|error| error.to_string());
        match text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())) {
            Ok(text) => self.add_text(&text, |line| origin(Some(line))),
            Err(error) => self.report(origin(None), Fault::Unreadable(error)),
        }
    }

    fn add_text(&mut self, text: &str, origin: impl Fn(usize) -> Origin) {
        match read_text(text) {
            Ok(entries) => {
                for entry in entries {
                    let origin = origin(entry.line);
                    self.add(entry, origin);
                }
            }
            Err(faults) => faults.into_iter().for_each(|(line, fault)| self.report(origin(line), fault)),
        }
    }

    fn add(&mut self, Entry { path, value, .. }: Entry, origin: Origin) {
        if let Some(field) = fields().find(|field| field.path == path) {
            return self.set(field, &value, origin);
        }
        let mut inside: Vec<_> = fields().filter_map(|field| below(&path, &field.path)?.split('.').next()).collect();
        if inside.is_empty() {
            let paths = || fields().map(|field| field.path.as_str());
            // A path that continues after a field means that field.
            let suggestion = paths().find(|field| below(field, &path).is_some());
            let suggestion = suggestion.or_else(|| suggest_path(&path, paths()));
            self.report(origin, Fault::Unknown { path: shortened(&path), suggestion });
        } else if value != Value::Table(Table::new()) {
            inside.dedup();
            self.report(origin, Fault::Section { path, fields: inside.join(", "), found: shown(&value) });
        }
    }

    fn set(&mut self, field: &'static FlatField, value: &Value, origin: Origin) {
        match field.kind.accept(value) {
            Ok(value) => {
                if let Some(place) = place_of(&mut self.values, &field.path) {
                    *place = value;
                }
                self.origins.insert(&field.path, origin);
            }
            Err(found) => {
                let suggestion = match (field.kind, value) {
                    (Kind::Choice(words), Value::String(word)) => {
                        suggest_word(word, words.iter().map(|(word, _)| *word))
                    }
                    _ => None,
                };
                let expected = field.kind.to_string();
                self.report(origin, Fault::Invalid { path: &field.path, found, expected, suggestion });
            }
        }
    }

    /// Returns the config if nothing was wrong and its values work together.
    fn finish(mut self) -> Result<Effective, ConfigError> {
        match Config::deserialize(self.values.clone()) {
            Ok(config) => {
                for broken in rules::broken(&config) {
                    let origin = self.latest_origin(&broken.fields);
                    self.report(origin, Fault::Rule(broken.what));
                }
                if self.problems.is_empty() {
                    return Ok(Effective { config, origins: self.origins });
                }
            }
            // Unreachable while every range fits the type of its field.
            Err(error) => self.report(Origin::Default, Fault::Rule(one_line(error.message()))),
        }
        Err(ConfigError::Invalid(self.problems))
    }

    /// Returns the origin of the last of these fields to be written.
    fn latest_origin(&self, paths: &[&str]) -> Origin {
        let rank = |origin: &Origin| match origin {
            Origin::Default => 0,
            Origin::Preset { .. } => 1,
            Origin::File { .. } => 2,
            Origin::Set(_) => 3,
        };
        let origins = paths.iter().filter_map(|path| self.origins.get(path));
        origins.max_by_key(|origin| rank(origin)).cloned().unwrap_or(Origin::Default)
    }
}

/// Returns what follows the section in the path of a field inside it.
fn below<'a>(section: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(section)?.strip_prefix('.')
}

fn place_of<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    let mut keys = path.split('.');
    let first = table.get_mut(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get_mut(key))
}
