//! From what a user gave to one checked config: defaults, then a preset, then a file, then every `--set`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use super::combinations;
use super::field::{Kind, Refusal};
use super::fields::{Place, fields, find};
use super::layer::{Entry, read_setting, read_text};
use super::presets::preset;
use super::problem::{ConfigError, Fault, Origin, Problem};
use super::text::{one_line, shortened, shown};
use super::{CONFIG_FILE, Config};
use crate::run::regular_file;
use crate::suggestion::suggest_word;

/// What a user gave; what comes later in this list overrides what comes before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Name of a preset.
    pub preset: Option<String>,
    /// A TOML file, or a run's directory.
    pub file: Option<PathBuf>,
    /// Settings of the form `path=value`; the last one counts where a field is set twice.
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
    /// Where the value of a field was written.
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }
}

impl Sources {
    /// Puts the layers together and checks the outcome. On failure, everything that is wrong is listed.
    pub fn load(&self) -> Result<Effective, ConfigError> {
        let mut layers = Layers::over_the_defaults()?;
        if let Some(name) = &self.preset {
            let origin = |line| Origin::Preset { name: shortened(&one_line(name)), line };
            match preset(name) {
                Ok(preset) => layers.add_text(preset.text, |line| origin(Some(line))),
                Err(fault) => layers.problems.push(Problem { origin: origin(None), fault }),
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
                Err(fault) => layers.problems.push(Problem { origin, fault }),
            }
        }
        layers.finish()
    }
}

impl Config {
    /// Checks a config that was made or changed in code; everything that is wrong is listed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut layers = Layers::over_the_defaults()?;
        for (path, value) in self.values()? {
            layers.add(Entry { path: path.to_owned(), value, line: 0 }, Origin::Code);
        }
        layers.finish().map(|_| ())
    }
}

/// The values so far, where each was written, and what is wrong with those that could not be taken.
struct Layers {
    values: BTreeMap<&'static str, Value>,
    origins: BTreeMap<&'static str, Origin>,
    problems: Vec<Problem>,
}

impl Layers {
    fn over_the_defaults() -> Result<Self, ConfigError> {
        Ok(Self { values: Config::default().values()?, origins: BTreeMap::new(), problems: Vec::new() })
    }

    fn add_file(&mut self, path: &Path) {
        let origin = |line| Origin::File { path: path.to_owned(), line };
        let text = match regular_file::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(_)) => Err("it is not UTF-8 text".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match text {
            Ok(text) => self.add_text(&text, |line| origin(Some(line))),
            Err(what) => self.problems.push(Problem { origin: origin(None), fault: Fault::Unreadable { what } }),
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
            Err(faults) => {
                self.problems.extend(faults.into_iter().map(|(line, fault)| Problem { origin: origin(line), fault }));
            }
        }
    }

    fn add(&mut self, entry: Entry, origin: Origin) {
        let Entry { path, value, .. } = entry;
        let field = match find(&path) {
            Place::Field(field) => field,
            // A section without fields changes nothing.
            Place::Section(_) if value == Value::Table(toml::Table::new()) => return,
            Place::Section(inside) => {
                let fault = Fault::Section { path, fields: inside.join(", "), found: shown(&value) };
                return self.problems.push(Problem { origin, fault });
            }
            Place::Beyond(field) => {
                let fault = Fault::NoSection {
                    path: shortened(&path),
                    field: field.path.to_owned(),
                    expected: field.kind.to_string(),
                };
                return self.problems.push(Problem { origin, fault });
            }
            Place::Nowhere(nearest) => {
                let fault = Fault::Unknown { path: shortened(&path), nearest: nearest.map(str::to_owned) };
                return self.problems.push(Problem { origin, fault });
            }
        };
        let expected = field.kind.to_string();
        match field.kind.accept(&value) {
            Ok(value) => {
                self.values.insert(field.path, value);
                self.origins.insert(field.path, origin);
            }
            Err(Refusal::WrongType { found }) => {
                self.problems.push(Problem { origin, fault: Fault::WrongType { path, expected, found } });
            }
            Err(Refusal::OutOfRange { found }) => {
                let nearest = match (field.kind, &value) {
                    (Kind::Choice(words), Value::String(word)) => {
                        suggest_word(word, words.iter().copied()).map(str::to_owned)
                    }
                    _ => None,
                };
                self.problems.push(Problem { origin, fault: Fault::OutOfRange { path, expected, found, nearest } });
            }
        }
    }

    /// The config that the accepted values make, if nothing was wrong so far and they go together.
    fn finish(mut self) -> Result<Effective, ConfigError> {
        match from_values(&self.values) {
            Ok(config) => {
                for combination in combinations::impossible(&config) {
                    let origin = self.latest_origin(&combination.fields);
                    self.problems.push(Problem { origin, fault: Fault::Impossible { what: combination.what } });
                }
                if self.problems.is_empty() {
                    return Ok(Effective { config, origins: self.origins });
                }
            }
            // The fields' kinds allow only what the structs can hold; this is for a kind that does not.
            Err(error) => self
                .problems
                .push(Problem { origin: Origin::Code, fault: Fault::Impossible { what: one_line(error.message()) } }),
        }
        Err(ConfigError::Invalid(self.problems))
    }

    /// Where the one of these fields was written that was written last.
    fn latest_origin(&self, paths: &[&str]) -> Origin {
        let rank = |origin: &Origin| match origin {
            Origin::Default => 0,
            Origin::Preset { .. } => 1,
            Origin::File { .. } => 2,
            Origin::Set(_) => 3,
            Origin::Code => 4,
        };
        let origins = paths.iter().filter_map(|path| self.origins.get(path));
        origins.max_by_key(|origin| rank(origin)).cloned().unwrap_or(Origin::Default)
    }
}

/// Every field's value by its path, as [`Config::values`] gives them, back into the struct.
fn from_values(values: &BTreeMap<&'static str, Value>) -> Result<Config, toml::de::Error> {
    let mut root = toml::Table::new();
    for field in fields() {
        let Some(value) = values.get(field.path) else { continue };
        if matches!(field.kind, Kind::WholeOrNone(..)) && *value == Value::Integer(0) {
            continue;
        }
        let mut table = &mut root;
        let mut keys = field.path.split('.').peekable();
        while let Some(key) = keys.next() {
            if keys.peek().is_none() {
                table.insert(key.to_owned(), value.clone());
            } else {
                let inner = table.entry(key).or_insert_with(|| Value::Table(toml::Table::new()));
                let Value::Table(inner) = inner else { break };
                table = inner;
            }
        }
    }
    Config::deserialize(root)
}
