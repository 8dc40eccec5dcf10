//! The files of a sweep: its manifest, and one record per run of how its attempts ended.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use train::run::RunFiles;

use crate::partial_file::PartialFile;

/// Version of the manifest that this program writes.
const FORMAT: u32 = 1;

/// Contents of `sweep.json`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// Recognises the sweep's directory on another machine.
    pub id: String,
    /// The preset of all runs.
    pub preset: String,
    /// Settings of all runs, as `--set` takes them.
    pub set: Vec<String>,
    /// What differs between runs, in the order in which the runs vary.
    pub axes: Vec<SweepAxis>,
    /// The runs.
    pub runs: Vec<SweepRun>,
}

/// One thing that differs between runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SweepAxis {
    /// `environment`, `seed`, `variant` or a config field.
    pub name: String,
    /// Its values.
    pub values: Vec<Value>,
}

/// One run of a sweep.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SweepRun {
    /// Its name, which is also that of its directory.
    pub name: String,
    /// The game, task or Gymnasium environment.
    pub environment: String,
    /// Its seed.
    pub seed: u64,
    /// The variant it belongs to, if the sweep has variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Config fields that the axes set.
    pub settings: BTreeMap<String, Value>,
}

impl SweepRun {
    /// The settings as `--set` takes them.
    pub fn set(&self) -> Result<Vec<String>> {
        let written = |(path, value): (&String, &Value)| {
            let value = toml::Value::try_from(value).with_context(|| format!("{path} cannot be {value}"))?;
            Ok(format!("{path}={value}"))
        };
        self.settings.iter().map(written).collect()
    }
}

/// How the attempts at a run have ended so far.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RunRecord {
    /// Attempts so far, the present one included.
    pub attempts: u32,
    /// The machine of the last attempt.
    pub node: String,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The directory of a sweep.
#[derive(Clone, Debug)]
pub struct SweepDirectory(PathBuf);

impl SweepDirectory {
    /// The sweep `name` among the runs in `root`, which need not exist.
    pub fn named(root: &Path, name: &str) -> Result<Self> {
        Ok(Self(RunFiles::named(root, name)?.path))
    }

    /// Its directory, in which its runs are.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn manifest_file(&self) -> PathBuf {
        self.0.join("sweep.json")
    }

    /// The output of a run's attempts.
    pub fn log_file(&self, run: &str) -> PathBuf {
        self.0.join("logs").join(format!("{run}.log"))
    }

    fn record_file(&self, run: &str) -> PathBuf {
        self.0.join("records").join(format!("{run}.json"))
    }

    /// The directory of a run.
    pub fn run(&self, run: &SweepRun) -> RunFiles {
        RunFiles::in_directory(&self.0.join(&run.name))
    }

    /// Whether the directory is that of a run.
    pub fn run_exists(&self) -> bool {
        RunFiles::in_directory(&self.0).is_run()
    }

    /// Reads the manifest, if there is one.
    pub fn read(&self) -> Result<Option<Manifest>> {
        let path = self.manifest_file();
        let shown = path.display();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(cause).with_context(|| format!("cannot read {shown}")),
        };
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged = || format!("{shown} is damaged; restore it, or start a sweep with another name");
        let Format { format } = serde_json::from_slice(&text).with_context(damaged)?;
        if format != FORMAT {
            bail!("{shown} has format {format}, and this version of meme reads {FORMAT}");
        }
        let manifest: Manifest = serde_json::from_slice(&text).with_context(damaged)?;
        manifest.runs.iter().try_for_each(|run| RunFiles::named(&self.0, &run.name).map(drop))?;
        Ok(Some(manifest))
    }

    /// Reads the manifest of a sweep that must exist.
    pub fn open(&self) -> Result<Manifest> {
        let shown = self.0.display();
        self.read()?.with_context(|| match self.run_exists() {
            true => format!("{shown} is a run, not a sweep"),
            false => format!("{shown} is not a sweep: it has no sweep.json"),
        })
    }

    /// Writes the manifest, and creates the directories of the sweep.
    pub fn write(&self, manifest: &Manifest) -> Result<()> {
        for directory in ["logs", "records"].map(|name| self.0.join(name)) {
            fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        }
        write_json(&self.manifest_file(), manifest)
    }

    /// Reads how a run's attempts ended; none are recorded before the first.
    pub fn record(&self, run: &SweepRun) -> RunRecord {
        let text = fs::read(self.record_file(&run.name));
        text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Records how a run's attempts ended.
    pub fn write_record(&self, run: &SweepRun, record: &RunRecord) -> Result<()> {
        write_json(&self.record_file(&run.name), record)
    }
}

fn write_json(path: &Path, contents: &impl Serialize) -> Result<()> {
    let text = format!("{}\n", serde_json::to_string_pretty(contents)?);
    let write = || -> io::Result<()> {
        let file = PartialFile::create(path)?;
        file.writer()?.write_all(text.as_bytes())?;
        file.finish()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

impl Manifest {
    /// A manifest of this version.
    pub fn new(id: String, preset: String, set: Vec<String>, axes: Vec<SweepAxis>, runs: Vec<SweepRun>) -> Self {
        Self { format: FORMAT, id, preset, set, axes, runs }
    }

    /// Takes over a plan for a sweep that exists. Its runs must all be part of the plan.
    pub fn extend(&mut self, plan: Self) -> Result<usize> {
        if (&plan.preset, &plan.set) != (&self.preset, &self.set) {
            bail!("the sweep was started with preset {} and the settings {:?}", self.preset, self.set);
        }
        let planned: HashSet<String> = plan.runs.iter().map(|run| format!("{run:?}")).collect();
        if let Some(run) = self.runs.iter().find(|run| !planned.contains(&format!("{run:?}"))) {
            bail!("the sweep has a run {} that this command would not make", run.name);
        }
        let added = plan.runs.len() - self.runs.len();
        *self = Self { id: std::mem::take(&mut self.id), ..plan };
        Ok(added)
    }

    /// Finds a run by its name or its number, counted from 0.
    pub fn find(&self, which: &str) -> Result<&SweepRun> {
        let by_number = || which.parse::<usize>().ok().and_then(|number| self.runs.get(number));
        let found = self.runs.iter().find(|run| run.name == which).or_else(by_number);
        found.with_context(|| format!("the sweep has no run {which}; it has {} runs", self.runs.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(environment: &str, seed: u64) -> SweepRun {
        let settings = BTreeMap::from([("learner.batch_size".to_owned(), json!(8))]);
        SweepRun {
            name: format!("{environment}-{seed}"),
            environment: environment.into(),
            seed,
            variant: None,
            settings,
        }
    }

    fn manifest(id: &str, seeds: u64) -> Manifest {
        let axes = vec![SweepAxis { name: "seed".into(), values: (1..=seeds).map(Value::from).collect() }];
        let runs = (1..=seeds).map(|seed| run("catch", seed)).collect();
        Manifest::new(id.into(), "tiny".into(), vec!["run.frames=5".into()], axes, runs)
    }

    #[test]
    fn manifest_is_read_as_it_was_written() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = SweepDirectory::named(scratch.path(), "lr").unwrap();
        assert_eq!(directory.read().unwrap(), None);
        let missing = directory.open().unwrap_err().to_string();
        assert_eq!(missing, format!("{} is not a sweep: it has no sweep.json", directory.path().display()));
        directory.write(&manifest("a", 2)).unwrap();
        assert_eq!(directory.open().unwrap(), manifest("a", 2));
        assert_eq!(directory.record(&run("catch", 1)), RunRecord::default());
        let record = RunRecord { attempts: 2, node: "here".into(), failure: Some("error: no".into()) };
        directory.write_record(&run("catch", 1), &record).unwrap();
        assert_eq!(directory.record(&run("catch", 1)), record);
    }

    #[test]
    fn manifest_of_another_format_or_with_a_path_for_a_name_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = SweepDirectory::named(scratch.path(), "lr").unwrap();
        directory.write(&manifest("a", 1)).unwrap();
        fs::write(directory.manifest_file(), r#"{"format": 2, "shape": "unknown"}"#).unwrap();
        assert!(directory.open().unwrap_err().to_string().ends_with("has format 2, and this version of meme reads 1"));
        fs::write(directory.manifest_file(), r#"{"format": 1}"#).unwrap();
        assert!(directory.open().unwrap_err().to_string().contains("is damaged"));
        let mut outside = manifest("a", 1);
        outside.runs[0].name = "../../elsewhere".into();
        directory.write(&outside).unwrap();
        assert!(directory.open().unwrap_err().to_string().contains("cannot be named"));
    }

    #[test]
    fn sweep_grows_but_keeps_its_runs() {
        let mut sweep = manifest("a", 2);
        assert_eq!(sweep.extend(manifest("b", 3)).unwrap(), 1);
        assert_eq!((sweep.id.as_str(), sweep.runs.len(), sweep.axes[0].values.len()), ("a", 3, 3));
        let fewer = sweep.extend(manifest("b", 2)).unwrap_err().to_string();
        assert_eq!(fewer, "the sweep has a run catch-3 that this command would not make");
        let other = Manifest { preset: "cpu".into(), ..manifest("b", 3) };
        assert!(sweep.extend(other).unwrap_err().to_string().contains("preset tiny"));
    }

    #[test]
    fn settings_are_written_as_toml() {
        let mut run = run("catch", 1);
        for (path, value) in [("a.b", json!([1, 2.5])), ("c", json!("soft_watkins")), ("d", json!(true))] {
            run.settings.insert(path.into(), value);
        }
        assert_eq!(run.set().unwrap(), ["a.b=[1, 2.5]", "c=\"soft_watkins\"", "d=true", "learner.batch_size=8"]);
    }

    #[test]
    fn run_is_found_by_name_and_by_number() {
        let sweep = manifest("a", 2);
        assert_eq!(sweep.find("catch-2").unwrap().seed, 2);
        assert_eq!(sweep.find("1").unwrap().seed, 2);
        assert_eq!(sweep.find("2").unwrap_err().to_string(), "the sweep has no run 2; it has 2 runs");
    }
}
