//! `meme config`: shows, checks and compares configs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use train::config::{self, Config, ConfigError, ConfigProblem, Difference, EffectiveConfig, Origin, PRESETS, Sources};

use crate::config_page::page;
use crate::output;
use crate::run_args::{RunsDir, find_run, run_config};

/// Problems that are listed; the others are counted.
const MAX_PROBLEMS: usize = 50;

/// Subcommands of `meme config`.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Print the effective config as TOML, with the origin of each value
    Show(ShowArgs),
    /// Check a config and list all errors
    Check(ShowArgs),
    /// Compare two configs field by field
    Diff(DiffArgs),
    /// Print docs/config.md: every field with its range, unit, paper value and description
    Doc,
}

/// Arguments that choose a config.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Preset to start from: paper, quick, cpu or tiny; or another agent: r2d2, ngu or agent57
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Preset whose network, environments and other sizes another agent gets instead of its own
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
    /// TOML file with changes to the preset, or the directory of a run
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Set one field, for example learner.batch_size=32; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
}

impl ConfigArgs {
    /// Returns the arguments as sources for the loader.
    pub fn sources(&self) -> Sources {
        Sources { preset: self.preset_name(), file: self.config.clone(), set: self.set.clone() }
    }

    /// Returns the name of the requested preset with its size, if there is one.
    pub fn preset_name(&self) -> Option<String> {
        match (&self.preset, &self.size) {
            (Some(agent), Some(size)) => Some(format!("{agent}-{size}")),
            (preset, size) => preset.clone().or(size.clone()),
        }
    }

    /// Loads the config, and returns the preset's name with it.
    ///
    /// It is based on `preset` unless another one is requested.
    pub fn load(&self, preset: &str) -> Result<(String, Config)> {
        let preset = self.preset_name().unwrap_or_else(|| preset.to_owned());
        let sources = Sources { preset: Some(preset.clone()), ..self.sources() };
        Ok((preset, load(&sources)?.config))
    }
}

/// Loads a config; errors name the options that its values came from.
pub fn load(sources: &Sources) -> Result<EffectiveConfig> {
    sources.load().map_err(with_options)
}

/// Loads changes to a config, like [`load`].
pub fn load_over(changes: &Sources, base: &Config) -> Result<EffectiveConfig> {
    changes.load_over(base).map_err(with_options)
}

fn with_options(error: ConfigError) -> anyhow::Error {
    match error.problems() {
        [] => error.into(),
        problems => anyhow!(problem_lines(problems).join("\n")),
    }
}

/// Lists the first problems and counts the rest.
fn problem_lines(problems: &[ConfigProblem]) -> Vec<String> {
    let mut lines: Vec<String> = problems.iter().take(MAX_PROBLEMS).map(problem_line).collect();
    if let more @ 1.. = problems.len().saturating_sub(MAX_PROBLEMS) {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn problem_line(ConfigProblem { origin, fault }: &ConfigProblem) -> String {
    format!("{}: {fault}", origin_text(origin))
}

fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Set(setting) => format!("--set {setting}"),
        other => other.to_string(),
    }
}

/// Help of every argument CONFIG.
const CONFIG_HELP: &str = "A preset, a TOML file, or a run's name (`meme runs` lists them) or its directory";

/// Arguments of `meme config show` and `meme config check`.
#[derive(Args)]
pub struct ShowArgs {
    #[arg(value_name = "CONFIG", help = CONFIG_HELP)]
    name: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `meme config diff`.
#[derive(Args)]
pub struct DiffArgs {
    /// A preset, a TOML file, or a run's name or its directory [default: the defaults]
    #[arg(value_name = "CONFIG")]
    left: Option<String>,
    /// The config to compare it with; the options below change it [default: CONFIG itself]
    #[arg(value_name = "OTHER")]
    right: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of both.
#[derive(Args)]
struct OutputArgs {
    #[command(flatten)]
    runs: RunsDir,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand; an invalid config is a failure.
pub fn run(command: ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show(args) => show(&args)?,
        ConfigCommand::Check(args) => return check(&args),
        ConfigCommand::Diff(args) => diff(&args)?,
        ConfigCommand::Doc => output::print(&page()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ShowArgs) -> Result<()> {
    let sources = sources(&args.output.runs.path, args.name.as_deref(), &args.config)?;
    let effective = load(&sources).map_err(|error| anyhow!("invalid config:\n{error}"))?;
    if !args.output.json {
        return output::print(&effective.to_toml(origin_text)?);
    }
    #[derive(Serialize)]
    struct ShownConfig<'a> {
        config: &'a Config,
        /// Origins of the fields that differ from the default.
        origins: BTreeMap<&'static str, String>,
    }
    output::print_json(&ShownConfig { config: &effective.config, origins: origins(&effective) })
}

fn origins(effective: &EffectiveConfig) -> BTreeMap<&'static str, String> {
    config::fields()
        .map(|field| (field.path.as_str(), effective.origin(&field.path)))
        .filter(|(_, origin)| **origin != Origin::Default)
        .map(|(path, origin)| (path, origin_text(origin)))
        .collect()
}

fn check(args: &ShowArgs) -> Result<ExitCode> {
    let problems = match sources(&args.output.runs.path, args.name.as_deref(), &args.config)?.load() {
        Ok(_) => Vec::new(),
        Err(error) if error.problems().is_empty() => return Err(error.into()),
        Err(error) => problem_lines(error.problems()),
    };
    let valid = problems.is_empty();
    if args.output.json {
        #[derive(Serialize)]
        struct ConfigCheck {
            valid: bool,
            problems: Vec<String>,
        }
        output::print_json(&ConfigCheck { valid, problems })?;
    } else if valid {
        output::print("valid\n")?;
    } else {
        output::print(&format!("{}\n", problems.join("\n")))?;
    }
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn diff(args: &DiffArgs) -> Result<()> {
    let differences = differences(args)?;
    if args.output.json { output::print_json(&differences) } else { output::print(&rendered(&differences)) }
}

fn differences(args: &DiffArgs) -> Result<Vec<Difference>> {
    let left = find(&args.output.runs.path, args.left.as_deref(), &ConfigArgs::default())?;
    // Options alone are a config of their own, if they name one.
    let names_other = args.config.preset.is_some() || args.config.config.is_some();
    let right = args.right.as_deref().or(args.left.as_deref().filter(|_| !names_other));
    Ok(config::differences(&left, &find(&args.output.runs.path, right, &args.config)?)?)
}

/// Loads the config that an argument and options name.
fn find(runs: &Path, name: Option<&str>, options: &ConfigArgs) -> Result<Config> {
    let sources = sources(runs, name, options)?;
    let which = name.map_or(String::new(), |name| format!(" {name}"));
    Ok(load(&sources).map_err(|error| anyhow!("invalid config{which}:\n{error}"))?.config)
}

/// Returns the sources that an argument (a preset, a file or a run) and options name together.
fn sources(runs: &Path, name: Option<&str>, options: &ConfigArgs) -> Result<Sources> {
    let mut sources = options.sources();
    let Some(name) = name else { return Ok(sources) };
    let path = Path::new(name);
    if config::presets_of(name).is_some() {
        if let Some(preset) = sources.preset.replace(name.to_owned()) {
            bail!("{name} is a preset, so --preset {preset} is one too many");
        }
        return Ok(sources);
    }
    let file = if path.exists() && !path.is_dir() {
        path.to_owned()
    } else {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        let run = find_run(runs, name)
            .with_context(|| format!("\"{name}\" is not a preset ({}), a file or a run", names.join(", ")))?;
        // A damaged file is reported with its remedy.
        run_config(&run)?;
        run.config_file()
    };
    if let Some(config) = sources.file.replace(file) {
        bail!("{name} is a config already, so --config {} is one too many", config.display());
    }
    Ok(sources)
}

fn rendered(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "no differences\n".to_owned();
    }
    let width = differences.iter().map(|difference| difference.path.len()).max().unwrap_or_default();
    let line = |difference: &Difference| {
        let [left, right] = difference.written();
        format!("{:<width$}  {left} -> {right}\n", difference.path)
    };
    differences.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use train::config::ActionSet;
    use train::run::{ExistingRun, RunDescription, RunDirectory};

    use super::*;

    fn found(name: &str) -> Result<Config> {
        find(Path::new("nowhere"), Some(name), &ConfigArgs::default())
    }

    #[test]
    fn differences_are_aligned() {
        let differences = config::differences(&found("paper").unwrap(), &found("tiny").unwrap()).unwrap();
        let text = rendered(&differences);
        assert_eq!(text.lines().count(), differences.len());
        assert!(text.lines().any(|line| line.starts_with("replay.trace ") && line.ends_with("  160 -> 20")), "{text}");
        assert_eq!(rendered(&[]), "no differences\n");
    }

    #[test]
    fn differences_in_json_keep_their_types() {
        let mut changed = found("paper").unwrap();
        changed.run.lockstep = true;
        changed.run.frames = 20_000_000;
        changed.env.ram = vec![3, 42];
        changed.checkpoint.every_minutes = 0.5;
        changed.env.action_set = ActionSet::Minimal;
        let differences = config::differences(&changed, &found("paper").unwrap()).unwrap();
        let json = serde_json::to_value(&differences).unwrap();
        let left = |path: &str| &json.as_array().unwrap().iter().find(|one| one["path"] == path).unwrap()["left"];
        assert_eq!(*left("run.lockstep"), json!(true));
        assert_eq!(*left("run.frames"), json!(20_000_000));
        assert_eq!(*left("env.ram"), json!([3, 42]));
        assert_eq!(*left("checkpoint.every_minutes"), json!(0.5));
        assert_eq!(*left("env.action_set"), json!("minimal"));
        assert_eq!(json.as_array().unwrap().len(), 5);
    }

    #[test]
    fn options_change_the_second_config() {
        let compared = |names: &[&str], preset: Option<&str>, set: &[&str]| {
            let [left, right] = [0, 1].map(|side| names.get(side).map(|name| (*name).to_owned()));
            let set = set.iter().map(|set| (*set).to_owned()).collect();
            let config = ConfigArgs { preset: preset.map(str::to_owned), set, ..ConfigArgs::default() };
            let output = OutputArgs { runs: RunsDir { path: "nowhere".into() }, json: false };
            rendered(&differences(&DiffArgs { left, right, config, output }).unwrap())
        };
        let batch = &["learner.batch_size=8"][..];
        let tiny = compared(&["paper", "tiny"], None, &[]);
        assert!(tiny.contains("learner.batch_size  "), "{tiny}");
        assert_eq!(compared(&["paper"], Some("tiny"), &[]), tiny);
        assert_eq!(compared(&["tiny"], None, batch), "learner.batch_size  16 -> 8\n");
        assert_eq!(compared(&["tiny", "tiny"], None, batch), "learner.batch_size  16 -> 8\n");
        // Options alone are compared with the defaults.
        assert_eq!(compared(&[], None, batch), "learner.batch_size  64 -> 8\n");
        assert_eq!(compared(&[], Some("tiny"), &[]), tiny);
    }

    #[test]
    fn unknown_config_is_reported_with_the_presets() {
        let error = format!("{:#}", found("papr").unwrap_err());
        let presets = "\"papr\" is not a preset (paper, quick, cpu, tiny, r2d2, ngu, agent57), a file or a run";
        let nowhere = std::path::absolute("nowhere").unwrap();
        let none = format!("there is no run `papr` in {}, which does not exist", nowhere.display());
        assert_eq!(error, format!("{presets}: {none}"));
    }

    #[test]
    fn run_is_found_by_name_and_by_directory() {
        let directory = tempfile::tempdir().unwrap();
        let tiny = found("tiny").unwrap();
        let description = RunDescription::new("catch", "tiny", 1);
        let text = tiny.to_toml().unwrap();
        let (run, _) = RunDirectory::open(directory.path(), "first", ExistingRun::Resume, description, &text).unwrap();
        let path = run.files.path.to_str().unwrap();
        assert_eq!(find(directory.path(), Some("first"), &ConfigArgs::default()).unwrap(), tiny);
        assert_eq!(found(path).unwrap(), tiny);
        let show = |run: &str| {
            let (name, runs) = (Some(run.to_owned()), directory.path().to_path_buf());
            let output = OutputArgs { runs: RunsDir { path: runs }, json: false };
            show(&ShowArgs { name, config: ConfigArgs::default(), output })
        };
        show("first").unwrap();
        show(path).unwrap();
        assert!(format!("{:#}", show("second").unwrap_err()).ends_with("there are: first"));
    }
}
