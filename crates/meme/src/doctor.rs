//! `meme doctor`: checks this machine for everything that training needs.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use procfs::process::{MMapPath, Process};
use procfs::{Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::{install, output};

/// The libtorch version that the bindings are written for.
const TORCH: &str = "2.11";
/// The ale-py version that the tests cover.
const ALE: &str = "0.12.1";

/// Arguments of `meme doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Found,
    /// Needed by some commands only.
    Optional,
    Missing,
}

#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    verdict: Verdict,
    what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn found(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Found, what: what.into(), mend: None }
    }

    fn optional(name: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Optional, what: what.into(), mend: Some(mend.into()) }
    }

    fn missing(name: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Missing, ..Self::optional(name, what, mend) }
    }
}

/// Prints the findings; fails if something is missing that every run needs.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut findings = vec![libtorch(), gpu()];
    findings.extend(python());
    findings.extend([ffmpeg(), cores(), memory()]);
    let healthy = findings.iter().all(|finding| finding.verdict != Verdict::Missing);
    output::print_report(args.json, &findings, |findings| text(findings, healthy))?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(findings: &[Finding], healthy: bool) -> String {
    let line = |Finding { name, verdict, what, mend }: &Finding| {
        let verdict = match verdict {
            Verdict::Found => "ok",
            Verdict::Optional => "note",
            Verdict::Missing => "MISSING",
        };
        let mend = mend.as_ref().map_or(String::new(), |mend| format!("; {mend}"));
        format!("{verdict:<7}  {name:<9}  {:<22}  {what}{mend}\n", purpose(name))
    };
    let has_gpu = findings.iter().any(|finding| finding.name == "GPU" && finding.verdict == Verdict::Found);
    let summary = match (healthy, has_gpu) {
        (true, true) => "This machine is ready to train: `meme train pong`.",
        (true, false) => {
            "This machine is ready to train small tasks: `meme train catch` takes minutes. Atari games need a GPU to reach \
             human level; without one, `meme train pong` is only a first look."
        }
        (false, _) => "Training does not work yet: first do what the lines with MISSING say.",
    };
    findings.iter().map(line).collect::<String>() + summary + "\n"
}

/// What a finding is needed for, in plain words.
fn purpose(name: &str) -> &'static str {
    match name {
        "libtorch" => "computes the networks",
        "GPU" => "makes training fast",
        "Python" => "runs the games",
        "numpy" => "passes pictures on",
        "gymnasium" => "runs gym: environments",
        "ale-py" => "emulates the Atari",
        "ROMs" => "the Atari games",
        "ffmpeg" => "writes .mp4 videos",
        "cores" => "play and learn",
        "memory" => "holds replay",
        _ => "",
    }
}

/// The libtorch that the dynamic linker has loaded into this process.
fn libtorch() -> Finding {
    let maps = Process::myself().and_then(|process| process.maps());
    let mut files = maps.into_iter().flatten().filter_map(|map| match map.pathname {
        MMapPath::Path(path) => Some(path),
        _ => None,
    });
    let Some(library) = files.find(|path| path.ends_with("libtorch_cpu.so")) else {
        return Finding::missing("libtorch", "libtorch_cpu.so is not loaded", install::repair());
    };
    let directory = library.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    match torch_version(&directory.join("version.py")) {
        Some(version) if version.starts_with(TORCH) => {
            Finding::found("libtorch", format!("{version} in {}", directory.display()))
        }
        version => Finding::missing(
            "libtorch",
            format!("{} in {}", version.as_deref().unwrap_or("unknown version"), directory.display()),
            format!("version {TORCH} is required: {}", install::repair()),
        ),
    }
}

/// The version in a torch wheel's line `__version__ = '2.11.0+cu130'`.
fn torch_version(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    Some(line.split(['\'', '"']).nth(1)?.to_owned())
}

fn gpu() -> Finding {
    let gpus = lines_of("nvidia-smi", &["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]);
    let Some(gpus) = gpus else {
        return Finding::optional("GPU", "none found by nvidia-smi", "training uses the CPU, which is far slower");
    };
    match torch_ext::gpu() {
        Ok(_) => Finding::found("GPU", gpus.join("; ")),
        Err(error @ torch_ext::Error::Library { .. }) => {
            Finding::missing("GPU", gpus.join("; "), format!("{error}: install torch {TORCH} with CUDA"))
        }
        Err(_) => Finding::missing(
            "GPU",
            gpus.join("; "),
            "libtorch cannot use it: install a driver that supports CUDA 13.0 (version 580 or newer)",
        ),
    }
}

/// What the worker's Python reports about itself.
#[derive(Deserialize)]
struct PythonReport {
    version: String,
    executable: String,
    numpy: Option<String>,
    gymnasium: Option<String>,
    ale_py: Option<String>,
    roms: usize,
    missing_roms: Vec<String>,
}

fn python() -> Vec<Finding> {
    match python_report() {
        Ok(report) => vec![
            Finding::found("Python", format!("{} at {}", report.version, report.executable)),
            package_finding("numpy", report.numpy, None),
            package_finding("gymnasium", report.gymnasium, None),
            package_finding("ale-py", report.ale_py, Some(ALE)),
            roms(report.roms, &report.missing_roms),
        ],
        Err(error) => {
            let mend = format!("{}, or set MEME_PYTHON to Python 3.11 or newer", install::repair());
            vec![Finding::missing("Python", format!("{error:#}"), mend)]
        }
    }
}

fn python_report() -> Result<PythonReport> {
    let (python, package) = (install::python()?, install::worker_package()?);
    let games = envs::games::games().iter().map(|game| game.rom.as_str());
    let output = Command::new(&python).arg(package.join("doctor.py")).args(games).output();
    let output = output.with_context(|| format!("cannot start {}", python.display()))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow!("{} failed ({})", python.display(), stderr.lines().last().unwrap_or("no output"))
    })
}

fn package_finding(name: &'static str, version: Option<String>, wanted: Option<&str>) -> Finding {
    match (version, wanted) {
        (None, _) => Finding::missing(name, "not installed", install::repair()),
        (Some(version), Some(wanted)) if version != wanted => {
            Finding::optional(name, version, format!("tested with {wanted}: games may behave differently"))
        }
        (Some(version), _) => Finding::found(name, version),
    }
}

fn roms(found: usize, missing: &[String]) -> Finding {
    let what = format!("{found} of 57 games");
    if missing.is_empty() {
        Finding::found("ROMs", what)
    } else {
        let what = if found == 0 { what } else { format!("{what}, without {}", missing.join(", ")) };
        Finding::missing("ROMs", what, format!("they come with ale-py: {}", install::repair()))
    }
}

fn ffmpeg() -> Finding {
    match lines_of("ffmpeg", &["-version"]).and_then(|lines| lines.into_iter().next()) {
        Some(line) => Finding::found("ffmpeg", line.split(" Copyright").next().unwrap_or(&line).to_owned()),
        None => Finding::optional(
            "ffmpeg",
            "not found",
            "needed for .mp4 videos only (apt install ffmpeg); .gif works without",
        ),
    }
}

fn cores() -> Finding {
    match thread::available_parallelism() {
        Ok(cores) => Finding::found("cores", cores.to_string()),
        Err(error) => Finding::optional("cores", "unknown", error.to_string()),
    }
}

fn memory() -> Finding {
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match Meminfo::current() {
        Ok(Meminfo { mem_total: total, mem_available: Some(available), .. }) => {
            Finding::found("memory", format!("{:.1} GiB, {:.1} GiB available", gibibytes(total), gibibytes(available)))
        }
        _ => Finding::optional("memory", "unknown", "cannot read /proc/meminfo"),
    }
}

/// The lines that a command prints, if it is installed and succeeds.
fn lines_of(command: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new(command).args(arguments).output().ok().filter(|output| output.status.success())?;
    let lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    (!lines.is_empty()).then_some(lines)
}
