//! What tells runs apart: task, preset, seed and config fields, and which of them differ between some runs.

use std::collections::BTreeMap;

use anyhow::Result;
use config_schema::text::written;
use config_schema::value_at;
use toml::Table;
use train::config::{self, Config, Sources};
use train::run::RunDescription;

/// Key of the environment.
pub const TASK: &str = "task";
/// Key of the preset.
pub const PRESET: &str = "preset";
/// Key of the random seed.
pub const SEED: &str = "seed";

/// Fields without influence on what is learned, and those that have a key of their own or are read from the metrics.
const NEUTRAL: [&str; 6] = ["run.seed", "run.frames", "run.device", "run.threads", "metrics.", "checkpoint."];

/// A run's task, preset, seed and config fields, with their values as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    values: BTreeMap<&'static str, String>,
    /// Fields that the preset does not have like this.
    overridden: Vec<&'static str>,
}

impl Settings {
    /// Collects the settings of a run.
    pub fn new(description: &RunDescription, config: &Config) -> Result<Self> {
        let own = [
            (TASK, description.task.clone()),
            (PRESET, description.preset.clone()),
            (SEED, description.seed.to_string()),
        ];
        let table = Table::try_from(config)?;
        let is_neutral = |path: &str| NEUTRAL.iter().any(|neutral| path.starts_with(neutral));
        let fields = config::fields().map(|field| field.path.as_str()).filter(|path| !is_neutral(path));
        let values = fields.filter_map(|path| Some((path, written(value_at(&table, path)?))));
        let values = own.into_iter().chain(values).collect();
        let preset = Sources { preset: Some(description.preset.clone()), ..Sources::default() };
        // A preset that does not exist any more has nothing in common with the run.
        let preset = preset.load().map(|preset| preset.config).unwrap_or_default();
        let overridden = config::differences(&preset, config)?.into_iter().map(|difference| difference.path);
        Ok(Self { values, overridden: overridden.filter(|path| !is_neutral(path)).collect() })
    }

    /// Returns a setting.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Whether two runs differ at most in these settings.
    pub fn same_but(&self, other: &Self, keys: &[&str]) -> bool {
        let relevant = |(key, _): &(&&str, &String)| !keys.contains(*key);
        self.values.iter().filter(relevant).eq(other.values.iter().filter(relevant))
    }

    /// Whether two runs may be pooled: they differ at most in their seed and in the name of their preset.
    pub fn same_but_seed(&self, other: &Self) -> bool {
        self.same_but(other, &[SEED, PRESET])
    }
}

/// Returns the keys that tell these settings apart, in the order in which a label has them. A field that all presets
/// have like this stands behind the preset's name.
pub fn distinguishing<'a>(all: impl Iterator<Item = &'a Settings> + Clone) -> Vec<&'static str> {
    let overridden = |path: &str| all.clone().any(|settings| settings.overridden.contains(&path));
    let fields = config::fields().map(|field| field.path.as_str()).filter(|path| overridden(path));
    let differs = |key: &&str| {
        let mut values = all.clone().map(|settings| settings.get(key));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    [TASK, PRESET].into_iter().chain(fields).chain([SEED]).filter(differs).collect()
}

/// Returns a label of the settings with these keys.
pub fn label(settings: &Settings, keys: &[&str]) -> String {
    let part = |key: &&str| {
        let value = settings.get(key).unwrap_or("none").trim_matches('"').to_owned();
        match *key {
            TASK | PRESET => value,
            path => format!("{} {value}", short_path(path)),
        }
    };
    keys.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// Returns the last two words of a field's path, which are enough to recognise it.
pub fn short_path(path: &str) -> &str {
    path.rmatch_indices('.').nth(1).map_or(path, |(dot, _)| &path[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(task: &str, preset: &str, seed: u64, set: &[&str]) -> Settings {
        let set = set.iter().map(|setting| (*setting).to_owned()).chain([format!("run.seed={seed}")]).collect();
        let sources = Sources { preset: Some(preset.to_owned()), set, ..Sources::default() };
        Settings::new(&RunDescription::new(task, preset, seed), &sources.load().unwrap().config).unwrap()
    }

    fn labels(all: &[Settings]) -> Vec<String> {
        let keys = distinguishing(all.iter());
        all.iter().map(|settings| label(settings, &keys)).collect()
    }

    #[test]
    fn labels_name_only_what_differs() {
        let same = [settings("pong", "cpu", 1, &[]), settings("pong", "cpu", 1, &[])];
        assert_eq!(labels(&same), ["", ""]);
        let seeds = [settings("pong", "cpu", 1, &[]), settings("pong", "cpu", 2, &["metrics.interval_seconds=99"])];
        assert_eq!(labels(&seeds), ["seed 1", "seed 2"]);
        let presets = [settings("pong", "cpu", 1, &[]), settings("pong", "tiny", 2, &[])];
        assert_eq!(labels(&presets), ["cpu, seed 1", "tiny, seed 2"]);
        let tasks = [
            settings("pong", "cpu", 1, &[]),
            settings("breakout", "cpu", 1, &["agent.returns.kind=retrace", "learner.batch_size=3"]),
        ];
        let [first, second] = &labels(&tasks)[..] else { panic!("two labels") };
        assert!(
            first.starts_with("pong, learner.batch_size ") && first.ends_with("returns.kind soft_watkins"),
            "{first}"
        );
        assert_eq!(second, "breakout, learner.batch_size 3, returns.kind retrace");
    }

    #[test]
    fn only_runs_that_differ_in_nothing_but_the_seed_may_be_pooled() {
        let one = settings("pong", "cpu", 1, &[]);
        assert!(one.same_but_seed(&settings("pong", "cpu", 2, &["checkpoint.keep_last=9", "run.frames=9000"])));
        for other in [
            settings("breakout", "cpu", 1, &[]),
            settings("pong", "tiny", 1, &[]),
            settings("pong", "cpu", 1, &["env.sticky_probability=0.25"]),
        ] {
            assert!(!one.same_but_seed(&other), "{other:?}");
        }
    }
}
