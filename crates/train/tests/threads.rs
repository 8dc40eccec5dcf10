//! Runs with every role on its own thread: they end, save and resume, and no thread waits for a dead one.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use agent::acting::ObservationRows;
use envs::{EnvError, EnvSpec, Environments, Step, WorkerConfig};
use replay::Writer;
use support::{checkpoints, config, task, train, train_watched};
use tempfile::tempdir;
use train::TrainError;
use train::config::Config;
use train::roles::actor::Actor;
use train::roles::actor_env::{EnvActor, EnvActorSpec, Exploration};
use train::roles::messages::Role;
use train::roles::published_parameters::PublishedParameters;
use train::run::checkpoint::Checkpoint;
use train::run::stop::Stop;
use train::run::{Row, Rows};
use train::runtime::assembly::Assembly;
use train::runtime::starting_point::StartingPoint;
use train::runtime::status::RunStatus;
use train::runtime::threads::Threads;
use train::runtime::{AfterSnapshot, TrainingRuntime};

/// Settings of a run that ends long before learning begins, however late it notices that it should end.
const NO_LEARNING: [&str; 2] = ["replay.capacity=10000", "replay.minimum_fill=10000"];

/// Runs `test` on its own thread, and fails if it takes so long that a thread must be stuck.
fn within_patience<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = channel();
    let thread = thread::spawn(move || drop(done.send(test())));
    match outcome.recv_timeout(Duration::from_secs(240)) {
        Ok(outcome) => outcome,
        Err(_) if thread.is_finished() => panic!("the test failed; its message is above"),
        Err(_) => panic!("it hangs"),
    }
}

#[test]
fn run_ends_saves_and_resumes() {
    within_patience(|| {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        let mut config = config(&["run.frames=400", "metrics.interval_seconds=0.05"]);
        let (first, _) = train(root, "run", "catch", &config);
        assert!(first.frames >= 400 && first.updates > 0, "{first}");
        let saved = Checkpoint::open(checkpoints(root, "run").last().unwrap()).unwrap().frames();
        assert_eq!(saved, first.frames);

        config.run.frames = 800;
        let (second, said) = train(root, "run", "catch", &config);
        assert_eq!(said, [format!("resuming from {saved} frames")]);
        assert!(second.frames >= 800 && second.updates > first.updates, "{second}");
        let rows: Vec<Row> =
            Rows::open(&support::files(root, "run").metrics_file()).unwrap().map(|row| row.unwrap()).collect();
        let frames: Vec<u64> = rows.iter().map(|row| row.frames).collect();
        assert!(frames.is_sorted() && frames.last() > Some(&saved), "{frames:?}");
        // The training time continues.
        let seconds: Vec<f64> = rows.iter().filter_map(|row| row.get("speed/seconds")).collect();
        assert!(seconds.len() == rows.len() && seconds[0] > 0.0 && seconds.is_sorted(), "{seconds:?}");
    });
}

/// An episodic memory can be compared only with embeddings of the same f.
#[test]
fn resumed_run_holds_the_f_that_acted() {
    within_patience(|| {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        let mut config = config(&["run.frames=400", "intrinsic.embedding_every=1000"]);
        let f = |assembly: &Assembly| {
            let PublishedParameters { embedding_version, online, average, .. } = &assembly.published;
            (*embedding_version, [online, average].map(|all| all.action_prediction.flat().copy()))
        };
        let assembly = |config: &Config, checkpoint: Option<&Path>| {
            let from = checkpoint.map(|path| Checkpoint::open(path).unwrap()).into();
            Assembly::new(&task("catch"), config, tch::Device::Cpu, &from, 0).unwrap()
        };
        let begun = f(&assembly(&config, None));
        train(root, "run", "catch", &config);
        let checkpoint = checkpoints(root, "run").pop().unwrap();
        let mut resumed = assembly(&config, Some(&checkpoint));
        assert!(resumed.published.version > 0, "nothing was learned");
        assert_eq!(begun, f(&resumed));
        // Held until it is due.
        resumed.published = resumed.agent.learner_loop.publish_parameters().unwrap();
        assert_eq!(begun, f(&resumed));

        // Due, but not published yet: the next publication replaces it, not the resume.
        config.intrinsic.embedding_every = 1;
        let mut resumed = assembly(&config, Some(&checkpoint));
        assert_eq!(begun, f(&resumed));
        resumed.published = resumed.agent.learner_loop.publish_parameters().unwrap();
        let (version, newest) = f(&resumed);
        assert_eq!(version, resumed.published.version);
        assert_ne!(newest, begun.1);
    });
}

/// Before learning starts nothing blocks actors, so they would play on while the end is saved.
#[test]
fn final_status_is_that_of_the_checkpoint() {
    within_patience(|| {
        let scratch = tempdir().unwrap();
        let (status, _) =
            train(scratch.path(), "run", "catch", &config(&["run.frames=60", NO_LEARNING[0], NO_LEARNING[1]]));
        let saved = Checkpoint::open(checkpoints(scratch.path(), "run").last().unwrap()).unwrap();
        assert_eq!((status.frames, status.updates), (saved.frames(), 0));
    });
}

/// Saves as fast as possible while actors wait for the rate limiter and the evaluator for the actors; without
/// prefetched batches the sampler waits for the learner too.
#[test]
fn saves_in_quick_succession_do_not_block() {
    within_patience(|| {
        for prefetch in ["learner.prefetch=0", "learner.prefetch=2"] {
            let scratch = tempdir().unwrap();
            let settings = [prefetch, "run.frames=400", "checkpoint.every_minutes=0.00001", "replay.limiter_slack=8"];
            let (status, said) = train(scratch.path(), "run", "catch", &config(&settings));
            assert!(status.frames >= 400, "{status}");
            assert!(said.is_empty(), "{said:?}");
            assert_eq!(checkpoints(scratch.path(), "run").len(), 2);
        }
    });
}

#[test]
fn evaluations_have_all_their_episodes_and_begin_again_after_a_resume() {
    within_patience(|| {
        let scratch = tempdir().unwrap();
        let mut settings = ["run.frames=20000", "evaluation.evaluators=3", "evaluation.mean_episodes=7"];
        for evaluators in ["evaluation.evaluators=3", "evaluation.evaluators=2"] {
            settings[1] = evaluators;
            let stop = Stop::new();
            let mut seen = Vec::new();
            let watch = |status: &RunStatus| {
                let evaluated = status.evaluation_frames.filter(|_| status.evaluation_age_seconds.is_some());
                seen.extend(evaluated.filter(|frames| seen.last() != Some(frames)));
                if seen.len() == 3 {
                    stop.request();
                }
            };
            let (status, _) = train_watched(scratch.path(), "run", "catch", &config(&settings), &stop, watch).unwrap();
            // Three of each of three, four of each of two.
            let episodes = if evaluators.ends_with('3') { 9 } else { 8 };
            assert_eq!(status.evaluation_episodes, Some(episodes), "{status}");
            assert!(seen.is_sorted() && seen.len() == 3, "{seen:?}");
        }
    });
}

/// Stops once something was played.
fn train_a_moment(root: &Path, config: &Config) -> (RunStatus, Vec<String>) {
    let stop = Stop::new();
    let begun = |status: &RunStatus| {
        if status.frames > 0 {
            stop.request();
        }
    };
    train_watched(root, "run", "catch", config, &stop, begun).unwrap()
}

#[test]
fn stop_before_the_first_update_saves() {
    within_patience(|| {
        let scratch = tempdir().unwrap();
        let config = config(&NO_LEARNING);
        let (status, _) = train_a_moment(scratch.path(), &config);
        assert_eq!(checkpoints(scratch.path(), "run").len(), 1);
        assert_eq!(status.updates, 0);
    });
}

/// The sampler is ahead of the learner when that stops, and must not be waited for.
#[test]
fn diverging_learner_stops_the_run_and_keeps_its_checkpoint() {
    within_patience(|| {
        let scratch = tempdir().unwrap();
        let root = scratch.path();
        let mut config = config(&["run.frames=8000", "replay.capacity=1000", "replay.minimum_fill=800"]);
        // In f32 it is 0, so a gradient of 0 makes the parameter 0/0.
        config.agent.optimizer.epsilon = 1e-300;
        train_a_moment(root, &config);
        let known = checkpoints(root, "run");
        let error = train_watched(root, "run", "catch", &config, &Stop::new(), |_| {}).unwrap_err().to_string();
        assert!(error.contains("; the update was not applied"), "{error}");
        assert_eq!(checkpoints(root, "run"), known);
        Checkpoint::open(&known[0]).unwrap();
    });
}

/// How an environment fails: it returns an error, or does not return.
type Failure = fn() -> EnvError;

/// Environments that fail after a while.
struct Fragile {
    inner: Box<dyn Environments>,
    steps_left: usize,
    fail: Failure,
}

impl Environments for Fragile {
    envs::delegate_to! { inner:
        fn spec(&self) -> &EnvSpec;
        fn groups(&self) -> usize;
        fn group_size(&self) -> usize;
        fn reset(&mut self) -> Result<(), EnvError>;
        fn episodes_begun(&self, group: usize, env: usize) -> u64;
        fn skip_episodes(&mut self, group: usize, env: usize, begun: u64);
        fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError>;
        fn observation(&self, group: usize, env: usize, out: &mut [u8]);
        fn last_observation(&self, group: usize, env: usize, out: &mut [u8]);
        fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError>;
        fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError>;
        fn take_faults(&mut self) -> Vec<String>;
    }

    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError> {
        match self.steps_left.checked_sub(1) {
            None => return Err((self.fail)()),
            Some(left) => self.steps_left = left,
        }
        self.inner.finish(group)
    }
}

/// An actor with one environment that fails after a few steps.
fn fragile_actor(config: &Config, assembly: &Assembly, fail: Failure) -> Actor {
    let task = task("catch");
    let inner = envs::make(&WorkerConfig::new(task.environment, task.python, task.package)).unwrap();
    let spec = EnvActorSpec {
        role: Role::Actor,
        environment: 0,
        slot: 0,
        epsilon: 0.1,
        hides_rewards: false,
        exploration: Exploration::default(),
    };
    let embedding = config.agent.network.intrinsic.embedding;
    let writer = Writer::new(&assembly.agent.learner_loop.replay, 0);
    let env_actor =
        EnvActor::new(spec, &config.intrinsic, embedding, 1, Some(writer), &*assembly.agent.bandit).unwrap();
    let observations = ObservationRows::on_host(1, inner.spec().observation_bytes());
    Actor::new(Box::new(Fragile { inner, steps_left: 20, fail }), vec![env_actor], observations).unwrap()
}

#[test]
fn failed_or_panicked_actor_ends_the_run_even_during_a_snapshot() {
    let gave_up = || EnvError::GaveUp {
        name: "catch".to_owned(),
        attempts: 3,
        failures: "failures in a row".to_owned(),
        last: "it is tired".to_owned(),
    };
    let panics = || panic!("this panic belongs to the test");
    let cases: [(Failure, &str); 2] = [(gave_up, "it is tired"), (panics, "the actor thread panicked")];
    for (fail, expected) in cases {
        for copying in [false, true] {
            let sentence = within_patience(move || {
                tch::set_num_threads(1);
                // Learning never starts, so nothing else can end the run.
                let config = config(&["replay.minimum_fill=100", "evaluation.evaluators=0"]);
                let mut assembly =
                    Assembly::new(&task("catch"), &config, tch::Device::Cpu, &StartingPoint::Nothing, 0).unwrap();
                assembly.actors[0] = fragile_actor(&config, &assembly, fail);
                let mut runtime = Threads::start(assembly, &config, None).unwrap();
                loop {
                    let outcome = if copying {
                        runtime.snapshot(AfterSnapshot::Continue, &mut |_| {}).map(drop)
                    } else {
                        runtime.advance(&mut |_| {})
                    };
                    if let Err(error) = outcome {
                        if let TrainError::Environment(_) = error {
                            // The others, and this actor except for its episode, can still be saved.
                            runtime.snapshot(AfterSnapshot::StayPaused, &mut |_| {}).unwrap();
                        }
                        return error.to_string();
                    }
                }
            });
            assert!(sentence.contains(expected), "{sentence}");
        }
    }
}
