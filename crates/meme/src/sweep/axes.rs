//! From axes to runs: games, seeds, variants and config fields, every combination of which is one run.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use envs::EnvId;
use envs::games::games;
use serde::Deserialize;
use serde_json::Value;
use train::config::Sources;

use super::manifest::{Manifest, SweepAxis, SweepRun};
use crate::config;

/// Maximum number of runs of a sweep: the paper's 57 games and 6 seeds for 30 variants.
const MAX_RUNS: usize = 10_260;

/// A sweep as a user describes it: a file, or the options of the command.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// Preset of all runs.
    pub preset: Option<String>,
    /// Games and other environments: a list, or `"all"` for the 57 games.
    pub games: Option<Games>,
    /// Seeds, such as `"1-3"`.
    pub seeds: Option<String>,
    /// Settings of all runs, by field.
    #[serde(default)]
    set: toml::Table,
    /// Values of config fields; every combination is a run.
    #[serde(default)]
    axes: toml::Table,
    /// Named sets of settings, one of which each run has.
    #[serde(default)]
    variants: Vec<Variant>,
}

/// Environments of a sweep.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum Games {
    /// `all`, a list with commas, or `@FILE` with one on each line.
    Text(String),
    /// Their names.
    List(Vec<String>),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    #[serde(default)]
    set: toml::Table,
}

/// Settings that runs share, with the label that goes into their names.
#[derive(Clone)]
struct Point {
    label: Vec<String>,
    variant: Option<String>,
    settings: BTreeMap<String, Value>,
}

impl SweepFile {
    /// Reads a sweep file.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        toml::from_str(&text).map_err(|error| anyhow!("{shown}: {}", error.to_string().trim().replace('\n', " ")))
    }

    /// Returns the sweep's manifest, once every run has a valid config. `set` has more settings of all runs.
    pub fn plan(&self, id: String, set: &[String]) -> Result<Manifest> {
        let preset = self.preset.clone().context("choose the preset of the runs with --preset")?;
        let environments = match &self.games {
            Some(games) => games.names()?,
            None => bail!("choose what to play with --games, for example --games pong,boxing or --games all"),
        };
        let seeds = parse_seeds(self.seeds.as_deref().unwrap_or("1"))?;
        let common = fields(&self.set)?.into_iter().map(|(path, value)| format!("{path}={value}"));
        let set: Vec<String> = common.chain(set.iter().cloned()).collect();
        let (mut axes, points) = self.points()?;
        let count = environments.len().saturating_mul(seeds.len()).saturating_mul(points.len());
        if count > MAX_RUNS {
            bail!("this would be {count} runs; a sweep has at most {MAX_RUNS}");
        }
        let mut runs = Vec::with_capacity(count);
        for environment in &environments {
            for point in &points {
                runs.extend(seeds.iter().map(|&seed| point.run(environment, seed)));
            }
        }
        axes.insert(
            0,
            SweepAxis { name: "environment".into(), values: environments.iter().cloned().map(Value::from).collect() },
        );
        axes.push(SweepAxis { name: "seed".into(), values: seeds.into_iter().map(Value::from).collect() });
        let manifest = Manifest::new(id, preset, set, axes, runs);
        manifest.check()?;
        Ok(manifest)
    }

    /// Every combination of variants and fields.
    fn points(&self) -> Result<(Vec<SweepAxis>, Vec<Point>)> {
        let mut axes = Vec::new();
        let mut points = vec![Point { label: Vec::new(), variant: None, settings: BTreeMap::new() }];
        if !self.variants.is_empty() {
            let values = self.variants.iter().map(|variant| variant.name.clone().into()).collect();
            axes.push(SweepAxis { name: "variant".into(), values });
            let point = |variant: &Variant| {
                let (label, name) = (vec![variant.name.clone()], Some(variant.name.clone()));
                let settings = fields(&variant.set)?.into_iter().map(|(path, value)| Ok((path, json(value)?)));
                Ok(Point { label, variant: name, settings: settings.collect::<Result<_>>()? })
            };
            points = self.variants.iter().map(point).collect::<Result<_>>()?;
        }
        for (path, values) in fields(&self.axes)? {
            let toml::Value::Array(values) = values else {
                bail!("axes.{path}: expected a list of values, got {values}");
            };
            let values = values.into_iter().map(json).collect::<Result<Vec<Value>>>()?;
            let field = path.rsplit('.').next().unwrap_or(&path);
            let along = |point: &Point| -> Vec<Point> {
                let at = |value: &Value| {
                    let mut point = point.clone();
                    point.label.push(format!("{field}_{}", value.to_string().replace('"', "")));
                    point.settings.insert(path.clone(), value.clone());
                    point
                };
                values.iter().map(at).collect()
            };
            points = points.iter().flat_map(along).collect();
            axes.push(SweepAxis { name: path.clone(), values });
        }
        Ok((axes, points))
    }
}

impl Point {
    fn run(&self, environment: &str, seed: u64) -> SweepRun {
        let seed_text = seed.to_string();
        let parts = [environment].into_iter().chain(self.label.iter().map(String::as_str)).chain([seed_text.as_str()]);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let name = parts.collect::<Vec<_>>().join("-").replace(|c| !is_plain(c), "-");
        let (variant, settings) = (self.variant.clone(), self.settings.clone());
        SweepRun { name, environment: environment.to_owned(), seed, variant, settings }
    }
}

impl Manifest {
    /// The sources of a run's config.
    pub fn sources(&self, run: &SweepRun) -> Result<Sources> {
        let mut set = self.set.clone();
        set.extend(run.set()?);
        set.push(format!("run.seed={}", run.seed));
        Ok(Sources { preset: Some(self.preset.clone()), file: None, set })
    }

    /// Checks that every run has its own name and a valid config.
    fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        for run in &self.runs {
            if !names.insert(&run.name) {
                bail!("two runs would be named {}; give axes and variants distinct values", run.name);
            }
            let environment: EnvId = run.environment.parse()?;
            let config =
                config::load(&self.sources(run)?).map_err(|error| anyhow!("run {}: {error}", run.name))?.config;
            envs::check_ram(&environment, &config.env.ram)?;
        }
        Ok(())
    }
}

impl Games {
    fn names(&self) -> Result<Vec<String>> {
        let text = match self {
            Self::List(names) => names.join(","),
            Self::Text(text) => match text.strip_prefix('@') {
                Some(file) => fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
                None => text.clone(),
            },
        };
        if text.trim() == "all" {
            return Ok(games().iter().map(|game| game.rom.clone()).collect());
        }
        let mut names = Vec::new();
        for name in text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty() && !name.starts_with('#')) {
            let environment: EnvId = name.parse()?;
            names.push(environment.to_string());
        }
        if names.is_empty() {
            bail!("expected at least one game, got \"{}\"", text.trim());
        }
        Ok(names)
    }
}

/// Parses seeds such as `1-3,7`.
fn parse_seeds(text: &str) -> Result<Vec<u64>> {
    let invalid = || anyhow!("expected seeds such as 1-3 or 1,5,7, got \"{text}\"");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| invalid());
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || (last - first) as usize >= MAX_RUNS {
            return Err(invalid());
        }
        seeds.extend((first..=last).map(u64::from));
    }
    Ok(seeds)
}

/// The values of nested tables with their paths.
fn fields(table: &toml::Table) -> Result<Vec<(String, toml::Value)>> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                found.extend(fields(inner)?.into_iter().map(|(path, value)| (format!("{key}.{path}"), value)));
            }
            value => found.push((key.clone(), value.clone())),
        }
    }
    Ok(found)
}

fn json(value: toml::Value) -> Result<Value> {
    Ok(serde_json::to_value(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(text: &str, set: &[&str]) -> Result<Manifest> {
        let file: SweepFile = toml::from_str(text).unwrap();
        file.plan("id".into(), &set.iter().map(|&setting| setting.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_combination_is_a_run() {
        let text = "preset = 'tiny'\ngames = ['catch', 'memory']\nseeds = '1-2,7'\n[set]\nrun.frames = 800\n\
                    [axes]\nreplay.samples_per_insert = [3.0, 6.0]\n\
                    [[variants]]\nname = 'full'\n[[variants]]\nname = 'no trust'\nset = { agent.loss.trust_region = false }";
        let sweep = plan(text, &["learner.batch_size=8"]).unwrap();
        assert_eq!(sweep.runs.len(), 2 * 3 * 2 * 2);
        let axes: Vec<_> = sweep.axes.iter().map(|axis| axis.name.as_str()).collect();
        assert_eq!(axes, ["environment", "variant", "replay.samples_per_insert", "seed"]);
        assert_eq!(sweep.set, ["run.frames=800", "learner.batch_size=8"]);
        let last = sweep.runs.last().unwrap();
        assert_eq!(last.name, "memory-no-trust-samples_per_insert_6.0-7");
        let settings = [("agent.loss.trust_region", json!(false)), ("replay.samples_per_insert", json!(6.0))];
        assert_eq!(last.settings, settings.map(|(path, value)| (path.to_owned(), value)).into());
        assert_eq!(last.variant.as_deref(), Some("no trust"));
        let config = sweep.sources(last).unwrap().load().unwrap().config;
        assert_eq!((config.run.seed, config.run.frames, config.learner.batch_size), (7, 800, 8));
        assert!(!config.agent.loss.trust_region);
    }

    #[test]
    fn all_games_are_the_57() {
        let sweep = plan("preset = 'quick'\ngames = 'all'\nseeds = '1-6'", &[]).unwrap();
        assert_eq!(sweep.runs.len(), 57 * 6);
    }

    #[test]
    fn mistakes_are_reported_before_anything_starts() {
        for (text, expected) in [
            ("games = 'catch'", "choose the preset"),
            ("preset = 'tiny'", "choose what to play"),
            ("preset = 'tiny'\ngames = 'pnog'", "pnog"),
            ("preset = 'tiny'\ngames = ','", "expected at least one game"),
            ("preset = 'tiny'\ngames = '@/nowhere'", "cannot read /nowhere"),
            ("preset = 'tiny'\ngames = 'catch'\nseeds = '3-1'", "expected seeds such as 1-3"),
            ("preset = 'tiny'\ngames = 'catch'\nseeds = '1-99999999'", "expected seeds such as 1-3"),
            ("preset = 'tiny'\ngames = 'catch,catch'", "two runs would be named catch-1"),
            ("preset = 'tiny'\ngames = 'all'\nseeds = '1-1000'", "this would be 57000 runs"),
            ("preset = 'tiny'\ngames = 'catch'\n[axes]\nreplay.trace = 5", "axes.replay.trace: expected a list"),
            ("preset = 'tiny'\ngames = 'catch'\n[axes]\nreplay.trase = [5]", "run catch-trase_5-1: "),
            ("preset = 'tiny'\ngames = 'catch'\n[axes]\nreplay.trace = [20, -5]", "run catch-trace_-5-1: "),
        ] {
            let message = plan(text, &[]).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn shipped_sweeps_compare_different_valid_configs() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/sweeps");
        let mut count = 0;
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let sweep = SweepFile::read(&path).unwrap().plan("id".into(), &[]);
            let sweep = sweep.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let first = &sweep.runs[0];
            let compared = sweep.runs.iter().filter(|run| (&run.environment, run.seed) == (&first.environment, 1));
            let configs: Vec<_> =
                compared.map(|run| sweep.sources(run).unwrap().load().unwrap().config.to_toml().unwrap()).collect();
            let distinct: HashSet<_> = configs.iter().collect();
            assert!(configs.len() > 1 && distinct.len() == configs.len(), "{}", path.display());
            count += 1;
        }
        assert!(count >= 8, "{count}");
    }
}
