//! From what a user gave to one checked config: defaults, then a preset, then a file, then settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config_schema::text::{one_line, shortened, shown};
use config_schema::{FlatField, Kind};
use serde::Deserialize;
use toml::{Table, Value};

use super::layer::{Entry, read_setting, read_text};
use super::problem::{ConfigError, ConfigFault, ConfigProblem, Origin};
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

/// Every preset: the paper's agent from its largest size to its smallest, then other agents.
///
/// They are compiled in, so that the binary needs no directory.
pub const PRESETS: &[Preset] = presets!["paper", "quick", "cpu", "tiny", "r2d2", "ngu", "agent57"];

/// Presets that are other agents; they come in the sizes of the rest.
pub const AGENTS: &[&str] = &["r2d2", "ngu", "agent57"];

/// Fields, or sections of them, that are sizes: those of an agent's preset give way to those of another size.
const SIZE_FIELDS: &[&str] = &[
    "run",
    "env.resize",
    "env.frame_stack",
    "actors.environments",
    "actors.environments_per_worker",
    "inference",
    "replay.capacity",
    "replay.shards",
    "replay.trace",
    "replay.period",
    "replay.samples_per_insert",
    "replay.minimum_fill",
    "replay.limiter_slack",
    "replay.memory_limit_gb",
    "replay.sampler_threads",
    "learner",
    "agent.loss.burn_in",
    "env.max_side",
    "agent.network.action_embedding",
    "agent.network.features",
    "agent.network.core",
    "agent.network.head_hidden",
    "agent.network.head_layers",
    "agent.network.head_skip",
    "agent.network.torso",
    "agent.network.intrinsic",
];

/// Fields that an agent keeps in every size: how much novelty counts is part of what it is.
const SIZE_INDEPENDENT_FIELDS: &[&str] = &["agent.policies.beta_max"];

/// The files that a preset's name stands for, in their order.
///
/// The name is that of a size, of an agent, or of both (`agent57-tiny`).
pub fn presets_of(name: &str) -> Option<Vec<&'static Preset>> {
    let find = |name: &str| PRESETS.iter().find(|preset| preset.name == name);
    let both = || {
        let (agent, size) = name.split_once('-')?;
        let valid = AGENTS.contains(&agent) && !AGENTS.contains(&size);
        Some(vec![find(agent)?, find(size)?]).filter(|_| valid)
    };
    find(name).map(|preset| vec![preset]).or_else(both)
}

/// Maximum number of problems for which the field that was probably meant is looked up.
const MAX_SUGGESTIONS: usize = 100;

/// What a user gave. Later sources override earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Name of a preset, or of an agent and a size (`agent57-tiny`).
    pub preset: Option<String>,
    /// A TOML file, or a run's directory.
    pub file: Option<PathBuf>,
    /// Settings of the form `path=value`; the last one counts if a field is set twice.
    pub set: Vec<String>,
}

/// A checked config, and where each of its values was written.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveConfig {
    /// The config.
    pub config: Config,
    pub(super) origins: BTreeMap<&'static str, Origin>,
}

impl EffectiveConfig {
    /// Returns where the value of a field was written.
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }
}

impl Sources {
    /// Layers the sources and checks the result; on failure, lists everything that is wrong.
    pub fn load(&self) -> Result<EffectiveConfig, ConfigError> {
        let mut layers = Layers::over(&Config::default())?;
        if let Some(name) = &self.preset {
            let origin = |line| Origin::Preset { name: shortened(&one_line(name)), line };
            let names = || PRESETS.iter().map(|preset| preset.name);
            match presets_of(name) {
                Some(presets) => {
                    for (i, preset) in presets.into_iter().enumerate() {
                        let origin = |line| Origin::Preset { name: preset.name.to_owned(), line: Some(line) };
                        if i == 0 {
                            layers.add_text(preset.text, &[], origin);
                        } else {
                            layers.reset(SIZE_FIELDS)?;
                            layers.add_text(preset.text, SIZE_INDEPENDENT_FIELDS, origin);
                        }
                    }
                }
                None => layers.report(
                    origin(None),
                    ConfigFault::UnknownPreset {
                        known: names().collect::<Vec<_>>().join(", "),
                        suggestion: suggest_word(name, names()),
                    },
                ),
            }
        }
        self.add_changes(&mut layers);
        layers.finish()
    }

    /// Layers file and settings over a config, such as that of a run, and checks the result.
    pub fn load_over(&self, base: &Config) -> Result<EffectiveConfig, ConfigError> {
        let mut layers = Layers::over(base)?;
        self.add_changes(&mut layers);
        layers.finish()
    }

    fn add_changes(&self, layers: &mut Layers) {
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
    }
}

impl Config {
    /// Reads and checks a config that [`to_toml`](Self::to_toml) has written.
    ///
    /// `name` stands for its file in messages.
    pub fn from_toml(text: &str, name: &str) -> Result<Self, ConfigError> {
        let mut layers = Layers::over(&Self::default())?;
        layers.add_text(text, &[], |line| Origin::File { path: name.into(), line: Some(line) });
        layers.finish().map(|effective| effective.config)
    }
}

/// The values so far, where each was written, and what is wrong with the rest.
struct Layers {
    values: Table,
    origins: BTreeMap<&'static str, Origin>,
    problems: Vec<ConfigProblem>,
}

impl Layers {
    fn over(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self { values: Table::try_from(config)?, origins: BTreeMap::new(), problems: Vec::new() })
    }

    /// Sets these fields, or sections of fields, back to their defaults.
    fn reset(&mut self, paths: &[&str]) -> Result<(), ConfigError> {
        let defaults = Table::try_from(Config::default())?;
        for field in fields() {
            let is_meant = |path: &&str| field.path == **path || below(path, &field.path).is_some();
            let default = config_schema::value_at(&defaults, &field.path);
            if let (true, Some(value)) = (paths.iter().any(is_meant), default) {
                if let Some(place) = place_of(&mut self.values, &field.path) {
                    *place = value.clone();
                }
                self.origins.remove(field.path.as_str());
            }
        }
        Ok(())
    }

    fn report(&mut self, origin: Origin, fault: ConfigFault) {
        self.problems.push(ConfigProblem { origin, fault });
    }

    fn add_file(&mut self, path: &Path) {
        let origin = |line| Origin::File { path: path.to_owned(), line };
        let text = regular_file::read(path).map_err(|error| error.to_string());
        match text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())) {
            Ok(text) => self.add_text(&text, &[], |line| origin(Some(line))),
            Err(error) => self.report(origin(None), ConfigFault::Unreadable(error)),
        }
    }

    /// Adds the fields of a TOML text, except for those of `left_out`.
    fn add_text(&mut self, text: &str, left_out: &[&str], origin: impl Fn(usize) -> Origin) {
        match read_text(text) {
            Ok(entries) => {
                for entry in entries.into_iter().filter(|entry| !left_out.contains(&entry.path.as_str())) {
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
            let suggest =
                || paths().find(|field| below(field, &path).is_some()).or_else(|| suggest_path(&path, paths()));
            // Nobody reads hundreds of suggestions, and each takes a while.
            let suggestion = (self.problems.len() < MAX_SUGGESTIONS).then(suggest).flatten();
            self.report(origin, ConfigFault::Unknown { path: shortened(&path), suggestion });
        } else if value != Value::Table(Table::new()) {
            inside.dedup();
            self.report(origin, ConfigFault::Section { path, fields: inside.join(", "), found: shown(&value) });
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
                self.report(origin, ConfigFault::Invalid { path: &field.path, found, expected, suggestion });
            }
        }
    }

    /// Returns the config if nothing was wrong and its values work together.
    fn finish(mut self) -> Result<EffectiveConfig, ConfigError> {
        match Config::deserialize(self.values.clone()) {
            Ok(config) => {
                for broken in rules::broken(&config) {
                    let origin = self.latest_origin(&broken.fields);
                    self.report(origin, ConfigFault::Rule(broken.what));
                }
                if self.problems.is_empty() {
                    return Ok(EffectiveConfig { config, origins: self.origins });
                }
            }
            // Unreachable while every range fits the type of its field.
            Err(error) => self.report(Origin::Default, ConfigFault::Syntax(one_line(error.message()))),
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

#[cfg(test)]
mod tests {
    use agent::bandit::BanditKind;
    use agent::config::{PolicyInput, TorsoKind, ValueNetworks};

    use super::*;

    fn load(preset: &str) -> EffectiveConfig {
        Sources { preset: Some(preset.to_owned()), ..Sources::default() }.load().unwrap()
    }

    #[test]
    fn an_agent_in_another_size_keeps_its_algorithm_and_gets_the_network_and_environments() {
        let (agent, quick, tiny) = (load("agent57").config, load("quick").config, load("tiny").config);
        assert_eq!(agent.agent.network.torso.kind, TorsoKind::Dqn);
        for (name, size) in [("agent57-quick", &quick), ("agent57-tiny", &tiny)] {
            let both = load(name).config;
            assert_eq!(both.agent.network.policy_input, PolicyInput::OneHot);
            assert_eq!(both.agent.network.value_networks, ValueNetworks::Separate);
            assert_eq!(both.bandit.kind, BanditKind::SlidingWindow);
            assert_eq!((both.agent.policies.count, both.agent.copies.target_period), (32, 1500));
            assert_eq!(both.agent.network.torso, size.agent.network.torso);
            assert_eq!(both.agent.network.core, size.agent.network.core);
            assert_eq!(both.actors.environments, size.actors.environments);
            assert_eq!((&both.learner, both.env.resize), (&size.learner, None));
            assert_eq!((both.replay.trace, both.replay.period), (size.replay.trace, size.replay.period));
        }
        // What a size sets besides is what it needs, and wins.
        assert_eq!(load("agent57-tiny").config.agent.optimizer.learning_rate, 0.001);
        assert_eq!(load("agent57-quick").config.agent.optimizer.learning_rate, 0.0001);
        // Except for how much it explores.
        assert_eq!((quick.agent.policies.beta_max, agent.agent.policies.beta_max), (0.0033, 0.3));
        assert_eq!(load("agent57-quick").config.agent.policies.beta_max, 0.3);
        let origin = |path: &str| load("agent57-tiny").origin(path).to_string();
        assert!(origin("replay.trace").contains("tiny") && origin("bandit.kind").contains("agent57"));
        assert_eq!(origin("env.resize"), Origin::Default.to_string());
    }

    #[test]
    fn every_agent_is_valid_in_every_size() {
        for agent in AGENTS {
            for size in PRESETS.iter().filter(|preset| !AGENTS.contains(&preset.name)) {
                load(&format!("{agent}-{}", size.name));
            }
        }
        for name in ["tiny-tiny", "agent57-", "-tiny", "agent57-r2d2", "agent57-tiny-tiny", "tiny-agent57"] {
            assert!(presets_of(name).is_none(), "{name}");
        }
    }
}
