//! Workers with random answers must lead to results or errors within the limits, and never to a panic.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::channel::Channel;
use super::config::{Limits, WorkerConfig};
use super::layout::RECORD_BYTES;
use super::message::{HEADER_BYTES, Header, PROTOCOL};
use super::worker::Launch;
use super::worker_environments::WorkerEnvironments;
use crate::environments::{Ending, Environments, ObservationKind, Step};
use crate::error::EnvError;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

const LIMIT: Duration = Duration::from_millis(40);
const ENVIRONMENTS: usize = 4;
const GROUPS: usize = 2;

/// Starts threads that answer like a worker, except for one spoilt reply in `one_in`.
fn fake_launch(seed: u64, launched: Arc<AtomicU64>, one_in: usize) -> Launch {
    Box::new(move |memory| {
        let (ours, theirs) = UnixStream::pair()?;
        let number = launched.fetch_add(1, Ordering::Relaxed);
        let worker = FakeWorker {
            socket: theirs,
            memory: memory.try_clone()?,
            random: SplitMix64::seed_from_u64(seed ^ (number << 32)),
            one_in,
            layout: Value::Null,
            episodes: [0; ENVIRONMENTS],
            frames: [0; ENVIRONMENTS],
        };
        // It ends when the other end of its socket is closed.
        std::thread::spawn(move || worker.serve());
        Ok((Channel::new(ours), None))
    })
}

struct FakeWorker {
    socket: UnixStream,
    memory: File,
    random: SplitMix64,
    one_in: usize,
    layout: Value,
    episodes: [u64; ENVIRONMENTS],
    frames: [u64; ENVIRONMENTS],
}

impl FakeWorker {
    /// Answers until the other side hangs up.
    fn serve(mut self) -> io::Result<()> {
        loop {
            let mut header = [0; HEADER_BYTES];
            self.socket.read_exact(&mut header)?;
            let mut header = Header::from_bytes(&header);
            let mut content = vec![0; header.length as usize];
            self.socket.read_exact(&mut content)?;
            let answer = self.answer(header, &content)?;
            header.length = 0;
            // A notice of beginning episodes may precede the reply to a step.
            if header.request == 4 && self.random.random_range(0..2) == 0 {
                header.detail = 4;
                self.socket.write_all(&header.to_bytes())?;
            }
            (header.detail, header.length) = (0, answer.len() as u32);
            let mut bytes = [&header.to_bytes()[..], &answer].concat();
            if self.random.random_range(0..self.one_in) == 0 {
                self.spoil(&mut bytes)?;
            }
            self.socket.write_all(&bytes)?;
        }
    }

    /// Answers like a good worker.
    fn answer(&mut self, header: Header, content: &[u8]) -> io::Result<Vec<u8>> {
        let size = ENVIRONMENTS / GROUPS;
        let group = header.group as usize * size..(header.group as usize + 1) * size;
        match header.request {
            1 => {
                let hello = json!({
                    "magic": "meme-worker",
                    "protocol": PROTOCOL,
                    "observation_shape": [3],
                    "observation_kind": "u8",
                    "action_names": ["a", "b"],
                    "frames_per_step": 4,
                });
                return Ok(hello.to_string().into_bytes());
            }
            2 => self.layout = serde_json::from_slice(content)?,
            3 => {
                for env in group {
                    let mut number = [0; 8];
                    self.memory.read_exact_at(&mut number, self.at("episodes", 8, env))?;
                    (self.episodes[env], self.frames[env]) = (u64::from_le_bytes(number), 3);
                    self.record(env, 0.0, 0, 0)?;
                }
            }
            4 => {
                for env in group {
                    self.frames[env] += 4;
                    let ends = self.random.random_range(0..3) == 0;
                    self.episodes[env] += u64::from(ends);
                    self.record(env, 1.0, u64::from(ends), if ends { 5 } else { 0 })?;
                    if ends {
                        self.frames[env] = 5;
                    }
                }
            }
            5 => return Ok(b"saved".to_vec()),
            6 => self.record(header.env as usize, 0.0, 0, 0)?,
            _ => {}
        }
        Ok(Vec::new())
    }

    fn at(&self, field: &str, size: u64, env: usize) -> u64 {
        self.layout[field].as_u64().unwrap_or_default() + size * env as u64
    }

    fn record(&self, env: usize, reward: f64, ending: u64, first_frames: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend(reward.to_le_bytes());
        bytes.extend(2.0_f64.to_le_bytes());
        for number in [self.frames[env], ending, self.episodes[env], first_frames] {
            bytes.extend(number.to_le_bytes());
        }
        self.memory.write_all_at(&bytes, self.at("records", RECORD_BYTES as u64, env))
    }

    /// Spoils a reply or the shared memory.
    fn spoil(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let random = &mut self.random;
        match random.random_range(0..9) {
            0 => *bytes = (0..random.random_range(0..200)).map(|_| random.random_range(0..256) as u8).collect(),
            1 => {
                for _ in 0..=random.random_range(0..8) {
                    let bit = random.random_range(0..8 * bytes.len());
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
            2 => bytes.truncate(random.random_range(0..bytes.len())),
            3 => return Err(io::Error::other("hangs up")),
            4 => bytes.extend(std::iter::repeat_n(random.random_range(0..256) as u8, 1 + random.random_range(0..100))),
            5 => bytes[8..12].copy_from_slice(&random.random::<u32>().to_le_bytes()),
            6 => bytes[2] = 1 + random.random_range(0..4) as u8,
            7 => {
                // Rare, because each costs the whole time limit.
                if random.random_range(0..8) == 0 {
                    bytes.clear();
                }
            }
            _ => {
                if let Some(total) = self.layout["observations"].as_u64() {
                    let noise: Vec<u8> = (0..RECORD_BYTES).map(|_| random.random_range(0..256) as u8).collect();
                    let at = random.random_range(0..total as usize - RECORD_BYTES);
                    let length = 1 + random.random_range(0..RECORD_BYTES);
                    self.memory.write_all_at(&noise[..length], at as u64)?;
                }
            }
        }
        Ok(())
    }
}

fn config(limit: Duration) -> WorkerConfig {
    let mut config = WorkerConfig::new("pong".parse().unwrap(), "", "");
    (config.environments, config.groups) = (ENVIRONMENTS, GROUPS);
    config.limits = Limits { start_up: limit, step: limit, failures: 3 };
    config
}

/// Outcomes of many calls.
#[derive(Default)]
struct Tally {
    calls: u64,
    cut_off: u64,
    refused: u64,
    gave_up: u64,
    not_made: u64,
}

/// Makes environments and calls them at random until they are given up, 40 times at most.
fn drive(seed: u64, one_in: usize, tally: &mut Tally) {
    let mut random = SplitMix64::seed_from_u64(!seed);
    let launched = Arc::new(AtomicU64::new(0));
    let launch = fake_launch(seed, Arc::clone(&launched), one_in);
    let begin = Instant::now();
    let Ok(mut envs) = WorkerEnvironments::with_launch(launch, config(LIMIT)) else {
        tally.not_made += 1;
        return;
    };
    let mut saved = Vec::new();
    let mut observation = vec![0; envs.spec().observation_bytes()];
    // A spoilt but valid hello may have changed these.
    let (actions, kind) = (envs.spec().actions(), envs.spec().observation_kind);
    assert!(actions > 0 && matches!(kind, ObservationKind::U8 | ObservationKind::F32));
    let mut started = [false; GROUPS];
    for call in 0..40 {
        let group = random.random_range(0..GROUPS);
        // Mostly in turn, so that most calls reach the worker.
        let result = match random.random_range(0..10) {
            _ if call == 0 => envs.reset(),
            0 => envs.reset(),
            1 => envs.save(group, random.random_range(0..2)).map(|bytes| saved = bytes),
            2 => envs.restore(group, random.random_range(0..2), &saved),
            _ if !started[group] => {
                started[group] = true;
                envs.start(group, &[random.random_range(0..actions), 0])
            }
            _ => {
                started[group] = false;
                envs.finish(group).map(|steps| {
                    assert!(steps.iter().all(|step| step.reward.is_finite()));
                    let cut_off = |step: &&Step| step.end.is_some_and(|end| end.ending == Ending::CutOff);
                    tally.cut_off += steps.iter().filter(cut_off).count() as u64;
                })
            }
        };
        tally.calls += 1;
        match result {
            Ok(()) => {}
            Err(EnvError::GaveUp { .. }) => {
                tally.gave_up += 1;
                break;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                tally.refused += 1;
            }
        }
        envs.observation(group, random.random_range(0..2), &mut observation);
    }
    drop(envs);
    // Every worker uses up its limits at most a few times.
    let most = LIMIT * 20 * (2 + launched.load(Ordering::Relaxed) as u32) + Duration::from_secs(5);
    assert!(begin.elapsed() < most, "seed {seed}: {:?}", begin.elapsed());
}

#[test]
fn random_answers_lead_to_results_or_errors_without_panic_or_hang() {
    let cases = if std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 20_000 } else { 1200 };
    // Most of the time is spent waiting for missing answers, which many can do at once.
    let lanes = 8;
    let run = |lane: u64| {
        let mut tally = Tally::default();
        for seed in (lane..cases).step_by(lanes) {
            drive(seed, [2, 4, 10, 30][seed as usize / lanes % 4], &mut tally);
        }
        tally
    };
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..lanes as u64).map(|lane| scope.spawn(move || run(lane))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Every outcome must occur often, or the test would test nothing.
    let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
    let (calls, refused) = (sum(|tally| tally.calls), sum(|tally| tally.refused));
    let (cut_off, gave_up, not_made) =
        (sum(|tally| tally.cut_off), sum(|tally| tally.gave_up), sum(|tally| tally.not_made));
    println!("{calls} calls: {cut_off} episodes cut off, {refused} errors, {gave_up} given up, {not_made} not made");
    for count in [calls / 10, cut_off, refused, gave_up, not_made] {
        assert!(count > cases / 20, "{count} of {cases}");
    }
}

#[test]
fn unspoilt_fake_workers_have_no_faults() {
    let launch = fake_launch(1, Arc::default(), usize::MAX);
    let mut envs = WorkerEnvironments::with_launch(launch, config(Duration::from_secs(20))).unwrap();
    envs.reset().unwrap();
    let mut ends = 0;
    for _ in 0..100 {
        envs.start(0, &[0, 1]).unwrap();
        envs.start(1, &[1, 0]).unwrap();
        // The reply of group 0 comes first and is kept.
        for group in [1, 0] {
            ends += envs.finish(group).unwrap().iter().filter(|step| step.end.is_some()).count();
        }
        let saved = envs.save(1, 1).unwrap();
        envs.restore(1, 1, &saved).unwrap();
    }
    assert!(ends > 50);
    assert_eq!(envs.take_faults(), Vec::<String>::new());
}
