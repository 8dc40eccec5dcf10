//! How `meme train` shows its progress: a live panel on a terminal, lines or JSON elsewhere, or nothing.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use train::run::{ACTOR_SCORE, EVALUATION_SCORE};
use train::runtime::status::RunStatus;
use train::runtime::trainer::ProgressDisplay;

use crate::console::{self, ProgressLine};
use crate::locked::locked;
use crate::panel::{self, Panel};
use crate::plot::{Curves, checks};

/// Shortest time between two looks at the metrics.
const LOOK: Duration = Duration::from_secs(20);

/// Options about what appears on standard error.
#[derive(Args, Clone, Debug)]
pub struct DisplayArgs {
    /// Show warnings and errors only
    #[arg(long)]
    quiet: bool,
    /// Messages and progress on standard error: a live panel on a terminal (auto), lines, or JSON lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Auto,
    Lines,
    Json,
}

impl DisplayArgs {
    /// Applies the options to all messages from now on.
    pub fn apply(&self) {
        console::set_style(match (self.quiet, self.log_format) {
            (true, LogFormat::Json) => console::Style::QuietJson,
            (true, _) => console::Style::Quiet,
            (false, LogFormat::Auto) => console::Style::Live,
            (false, LogFormat::Lines) => console::Style::Lines,
            (false, LogFormat::Json) => console::Style::Json,
        });
    }
}

/// Shows the status of training.
pub struct TrainDisplay {
    progress: Arc<Mutex<ProgressLine>>,
    name: String,
    health: Option<HealthThread>,
}

/// What the metrics file tells: the score's curve, and warnings.
#[derive(Clone, Debug, Default)]
struct Health {
    curve: Vec<f64>,
    warnings: Vec<String>,
}

/// A thread that looks at the metrics now and then, as reading them may take a while. It ends when this is dropped.
struct HealthThread {
    seen: Arc<Mutex<Health>>,
    _stop: mpsc::Sender<()>,
}

impl HealthThread {
    /// Starts the thread; without it, the panel has no curve.
    fn start(runs: PathBuf, name: String) -> Option<Self> {
        let (stop, stopped) = mpsc::channel();
        let seen = Arc::new(Mutex::new(Health::default()));
        let shared = Arc::clone(&seen);
        let look = move || {
            let mut pause = Duration::from_secs(2);
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let start = Instant::now();
                // A run at its beginning has no metrics.
                if let Ok(health) = Health::of(&runs, &name) {
                    *locked(&shared) = health;
                }
                // At most a fiftieth of the time, however long the run.
                pause = LOOK.max(start.elapsed() * 50);
            }
        };
        thread::Builder::new().name("health".to_owned()).spawn(look).ok()?;
        Some(Self { seen, _stop: stop })
    }
}

impl Health {
    fn of(runs: &Path, name: &str) -> anyhow::Result<Self> {
        let curves = Curves::read(runs, name, None)?;
        let score = |metric| curves.scalar(metric).into_iter().map(|(_, score)| score).collect::<Vec<_>>();
        let mut curve = score(EVALUATION_SCORE);
        if curve.is_empty() {
            curve = score(ACTOR_SCORE);
        }
        let warnings = checks(&curves).into_iter().map(|check| format!("{}: {}", check.metric, check.sentence));
        Ok(Self { curve, warnings: warnings.collect() })
    }
}

impl TrainDisplay {
    /// Shows the progress of the run `name` in `runs`.
    pub fn new(progress: Arc<Mutex<ProgressLine>>, runs: &Path, name: &str) -> Self {
        let health = console::is_live().then(|| HealthThread::start(runs.to_owned(), name.to_owned())).flatten();
        Self { progress, name: name.to_owned(), health }
    }

    fn progress(&self) -> MutexGuard<'_, ProgressLine> {
        locked(&self.progress)
    }

    fn panel(&self, status: &RunStatus, width: u16) -> Vec<String> {
        let health = self.health.as_ref().map(|thread| locked(&thread.seen));
        let health = health.map(|health| health.clone()).unwrap_or_default();
        let panel = Panel { name: &self.name, status, curve: &health.curve, warnings: &health.warnings };
        panel::lines(&panel.draw(width), std::env::var_os("NO_COLOR").is_none())
    }
}

impl ProgressDisplay for TrainDisplay {
    fn status(&mut self, status: &RunStatus) {
        self.progress().show_status(status, |width| match width {
            Some(width) if width >= panel::NARROWEST => self.panel(status, width),
            _ => status.lines().to_vec(),
        });
    }

    fn message(&mut self, text: &str) {
        self.progress().message(text);
    }

    fn warn(&mut self, text: &str) {
        self.progress().warn(text);
    }
}
