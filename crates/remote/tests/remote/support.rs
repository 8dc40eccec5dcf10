//! A learner on a thread of its own, and actors on others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use remote::tls::Trust;
use remote::{ActorOptions, ActorPool, ConnectOptions, ListenOptions, Listener, RemoteError, TlsMismatch, Token};
use train::config::{Config, Sources};
use train::environments::Task;
use train::roles::remote_actors::RemoteActors;
use train::run::stop::Stop;
use train::run::{ExistingRun, RunDescription, RunDirectory};
use train::runtime::resume;
use train::runtime::status::RunStatus;
use train::runtime::trainer::{self, ProgressDisplay, TrainingSetup};

/// How long to wait for something that should take a moment, however busy the machine is.
const LONG: Duration = Duration::from_secs(180);

/// The preset `tiny` with small networks, and these settings.
pub fn config(settings: &[&str]) -> Config {
    let smaller = [
        "run.device=cpu",
        "run.threads=1",
        "actors.environments=2",
        "actors.environments_per_worker=2",
        "evaluation.evaluators=1",
        "replay.capacity=200",
        "replay.minimum_fill=20",
        "replay.limiter_slack=24",
        "replay.samples_per_insert=2",
        "replay.trace=8",
        "replay.period=4",
        "agent.intrinsic.steps=5",
        "learner.batch_size=4",
        "intrinsic.memory_capacity=64",
        "metrics.interval_seconds=0.05",
        "agent.network.core=16",
        "agent.network.head_hidden=16",
    ];
    let set = [&smaller, settings].concat().iter().map(|&setting| setting.to_owned()).collect();
    Sources { preset: Some("tiny".to_owned()), file: None, set }.load().unwrap().config
}

pub fn task(name: &str) -> Task {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = std::env::var_os("MEME_PYTHON").map_or_else(|| workspace.join(".venv/bin/python"), PathBuf::from);
    Task { environment: name.parse().unwrap(), python, package: workspace.join("python/meme_worker") }
}

pub fn on_loopback() -> ListenOptions {
    ListenOptions { address: "127.0.0.1:0".parse().unwrap(), token: None, identity: None, run: "run".to_owned() }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "waited in vain until {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A run that trains on its own thread and accepts actors.
pub struct Learner {
    pub actors: Arc<RemoteActors>,
    pub listener: Listener,
    pub stop: Stop,
    pub said: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<train::Result<RunStatus>>,
}

struct Said(Arc<Mutex<Vec<String>>>);

impl ProgressDisplay for Said {
    fn status(&mut self, _: &RunStatus) {}
    fn message(&mut self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Learner {
    /// Starts or resumes the run in `root`, with places for eight remote environments.
    pub fn start(root: &Path, config: &Config, options: ListenOptions) -> Self {
        let actors = Arc::new(RemoteActors::new(8));
        let listener = Listener::start(options, Arc::clone(&actors)).unwrap();
        let (stop, said) = (Stop::new(), Arc::default());
        let (root, config) = (root.to_owned(), config.clone());
        let train = {
            let (actors, stop, mut display) = (Arc::clone(&actors), stop.clone(), Said(Arc::clone(&said)));
            move || {
                tch::set_num_threads(1);
                let description = RunDescription::new("catch", "tiny", config.run.seed);
                let text = config.to_toml().unwrap();
                let (directory, _) = RunDirectory::open(&root, "run", ExistingRun::Resume, description, &text).unwrap();
                let from = resume::newest_checkpoint(&directory, &config, &mut |_| {})?;
                let (task, from, remote) = (&task("catch"), from.into(), Some(actors));
                let setup = TrainingSetup { task, config: &config, directory: &directory, from, remote };
                trainer::train(setup, &stop, &mut display)
            }
        };
        Self { actors, listener, stop, said, thread: thread::spawn(train) }
    }

    pub fn address(&self) -> String {
        self.listener.address().to_string()
    }

    pub fn has_said(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said.contains(text))
    }

    pub fn refused(&self) -> u64 {
        self.actors.counters().refused.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn steps(&self) -> u64 {
        self.actors.counters().steps.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits for the end of the run.
    pub fn end(self) -> RunStatus {
        let status = self.thread.join().unwrap().unwrap();
        drop(self.listener);
        status
    }

    /// Stops the run and waits until it is saved.
    pub fn stop(self) -> RunStatus {
        self.stop.request();
        self.end()
    }
}

/// Actors on threads of their own.
pub struct Actors {
    pub stop: Stop,
    pub said: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<Result<(), RemoteError>>,
}

impl Actors {
    pub fn start(connect: ConnectOptions, environments: usize) -> Self {
        let (stop, said) = (Stop::new(), Arc::<Mutex<Vec<String>>>::default());
        let play = {
            let (stop, said) = (stop.clone(), Arc::clone(&said));
            move || {
                let options = ActorOptions { connect, environments, patience: None };
                let task = |name: &str| Ok(task(name));
                let say = |text: &str| said.lock().unwrap().push(text.to_owned());
                ActorPool::play(&options, &task, &stop, &say)
            }
        };
        Self { stop, said, thread: thread::spawn(play) }
    }

    pub fn plain(learner: &Learner, environments: usize) -> Self {
        Self::start(connect_to(learner.address(), None, None), environments)
    }

    pub fn end(self) -> Result<(), RemoteError> {
        self.thread.join().unwrap()
    }
}

/// Options of an actor that connects to this address.
pub fn connect_to(address: String, token: Option<Token>, trust: Option<Trust>) -> ConnectOptions {
    let advice = |mismatch| match mismatch {
        TlsMismatch::PerhapsRequired => "trust it",
        TlsMismatch::NotUsed => "do not trust it",
    };
    ConnectOptions { address, token, trust, advice }
}
