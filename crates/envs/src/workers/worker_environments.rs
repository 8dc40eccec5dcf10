//! Environments in a worker process that is replaced when it is lost.

use std::time::Duration;

use super::config::WorkerConfig;
use super::layout::{LAST, Layout, RECORD_BYTES, Record};
use super::message::Request;
use super::process;
use super::shared_memory::{SharedMemory, anonymous_file};
use super::worker::{Launch, Worker, python_launch};
use crate::env_id::EnvId;
use crate::environments::{Ending, EnvSpec, Environments, EpisodeEnd, RenderedPicture, Step};
use crate::error::{EnvError, WorkerEnd};
use crate::saved;

/// The environments of one Python worker process.
///
/// A worker that dies, hangs, raises or violates the protocol is killed and replaced by the call that notices it,
/// mostly [`finish`](Environments::finish). Its episodes are lost: each group's next `finish` returns them as
/// [`Ending::CutOff`], and the next episodes have begun. [`take_faults`](Environments::take_faults) says what happened.
/// If workers keep failing without a successful step, or ten times as often without finishing an episode, all calls
/// return [`EnvError::GaveUp`].
pub struct WorkerEnvironments {
    launch: Launch,
    config: WorkerConfig,
    spec: EnvSpec,
    layout: Layout,
    memory: SharedMemory,
    /// Absent only between a loss and the replacement, and after giving up.
    worker: Option<Worker>,
    groups: Vec<Group>,
    environments: Vec<WorkerEnv>,
    /// Why a step could not be requested; its `finish` handles it.
    broken: Option<EnvError>,
    /// Failures since the last successful step.
    failures: u32,
    /// Failures since an episode ended or a worker made [`MANY_STEPS`].
    early_failures: u32,
    /// Hangs since a worker made [`MANY_STEPS`].
    hangs: u32,
    /// Steps of the current worker.
    steps: u64,
    gave_up: Option<GivenUp>,
    faults: Vec<String>,
}

/// Steps of a group after which a worker counts as working, even if episodes are longer.
const MANY_STEPS: u64 = 1000;
/// Maximum magnitude of a reward.
///
/// The squares of errors overflow single precision at 1e19; no game has more than 1e7.
pub const MAX_REWARD: f64 = 1e12;
/// How many times as many failures are allowed early as in a row.
const EARLY: u32 = 10;

/// States in which some calls are refused.
const NOT_BEGUN: &str = "no episode has begun; reset first";
const NOT_FINISHED: &str = "its step is not finished; finish it first";

/// Why there is no worker left.
#[derive(Clone, Default)]
struct GivenUp {
    attempts: u32,
    failures: String,
    last: String,
}

/// The state of a group.
struct Group {
    stage: Stage,
    /// The slot of the observations to act on; the worker writes the next ones to the other slot.
    slot: usize,
    /// The worker was replaced: the episodes known to the caller are gone, and the first observations of the next ones
    /// wait in the other slot until `finish` reports it.
    lost: bool,
    steps: Vec<Step>,
    /// The RAM after `steps`, environment by environment; empty if unknown.
    ram: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No episode has begun.
    New,
    /// Waiting for actions.
    Ready,
    /// Between `start` and `finish`.
    Started,
}

/// The state of an environment.
#[derive(Clone, Copy, Default)]
struct WorkerEnv {
    /// The episode known to the caller.
    episode: Episode,
    /// The episode begun by a replacement of the worker while the group is lost.
    replacement: Episode,
    /// The number of the next episode.
    next: u64,
}

#[derive(Clone, Copy, Default)]
struct Episode {
    number: u64,
    score: f64,
    frames: u64,
}

impl WorkerEnvironments {
    /// Starts a worker and makes its environments.
    ///
    /// [`reset`](Environments::reset) begins the first episodes.
    pub fn new(config: WorkerConfig) -> Result<Self, EnvError> {
        config.check()?;
        Self::with_launch(python_launch(&config), config)
    }

    /// Starts workers with `launch` instead.
    pub(super) fn with_launch(mut launch: Launch, config: WorkerConfig) -> Result<Self, EnvError> {
        let name = config.environment.to_string();
        let no_memory = |cause| EnvError::Launch { name: name.clone(), what: "shared memory".to_owned(), cause };
        let file = anonymous_file().map_err(no_memory)?;
        let mut faults = Vec::new();
        let (mut worker, spec) = loop {
            match Worker::open(&mut launch, &config, &file) {
                // Whatever killed it need not happen again, unlike an error of the environment.
                Err(error @ EnvError::Lost { how: WorkerEnd::Killed(_), .. })
                    if faults.len() + 1 < config.limits.failures as usize =>
                {
                    faults.push(format!("{error}; another was started"));
                }
                outcome => break outcome?,
            }
        };
        let layout = Layout::new(config.environments, spec.observation_bytes(), config.ram.len()).ok_or_else(|| {
            worker.invalid_answer(Request::Open, format!("observations of {} bytes", spec.observation_bytes()))
        })?;
        let memory = SharedMemory::map(file, layout.total).map_err(no_memory)?;
        worker.attach(&layout)?;
        let group = || Group {
            stage: Stage::New,
            slot: 0,
            lost: false,
            steps: vec![Step::default(); config.group_size()],
            ram: Vec::new(),
        };
        Ok(Self {
            groups: (0..config.groups).map(|_| group()).collect(),
            environments: vec![WorkerEnv::default(); config.environments],
            launch,
            config,
            spec,
            layout,
            memory,
            worker: Some(worker),
            broken: None,
            failures: 0,
            early_failures: 0,
            hangs: 0,
            steps: 0,
            gave_up: None,
            faults,
        })
    }

    /// Returns the id of the worker's process, which changes when the worker is replaced.
    pub fn worker_process(&self) -> Option<u32> {
        self.worker.as_ref().and_then(Worker::id)
    }

    /// Returns the CPU time of the current worker process since its start.
    pub fn worker_cpu_time(&self) -> std::io::Result<Duration> {
        let process = self.worker_process().ok_or_else(|| std::io::Error::other("there is no worker process"))?;
        process::cpu_time(process)
    }

    /// Returns the index in the worker of environment `env` of `group`.
    fn index(&self, group: usize, env: usize) -> usize {
        group * self.config.group_size() + env
    }

    /// Refuses an environment that does not exist, and any call after the worker was given up.
    fn check(&mut self, group: usize, env: usize) -> Result<(), EnvError> {
        self.spec.check_exists([self.config.groups, self.config.group_size()], group, env)?;
        self.worker().map(drop)
    }

    /// Returns the worker, unless it was given up.
    fn worker(&mut self) -> Result<&mut Worker, EnvError> {
        self.worker.as_mut().ok_or_else(|| {
            let GivenUp { attempts, failures, last } = self.gave_up.clone().unwrap_or_default();
            EnvError::GaveUp { name: self.spec.name.clone(), attempts, failures, last }
        })
    }

    /// Refuses to save or restore an environment that is not idle in an episode.
    fn check_idle(&mut self, request: &'static str, group: usize, env: usize) -> Result<(), EnvError> {
        self.check(group, env)?;
        let state = match &self.groups[group] {
            Group { stage: Stage::New, .. } => NOT_BEGUN,
            Group { stage: Stage::Started, .. } => NOT_FINISHED,
            Group { lost: true, .. } => "its worker was lost; step it once more first",
            _ => return Ok(()),
        };
        Err(self.spec.out_of_turn(request, group, state))
    }

    /// Begins the next episodes of a group, with their first observations in the other slot.
    fn begin_episodes(&mut self, group: usize) -> Result<(), EnvError> {
        for env in 0..self.config.group_size() {
            let index = self.index(group, env);
            let number = self.environments[index].next;
            self.environments[index].next = number + 1;
            self.memory.write(self.layout.episode(index), &number.to_le_bytes());
        }
        let slot = 1 - self.groups[group].slot;
        self.worker()?.ask((Request::Reset, group, 0), slot, b"")?;
        for env in 0..self.config.group_size() {
            let index = self.index(group, env);
            let number = self.environments[index].next - 1;
            let begun = self.read_begun(index, Request::Reset, Some(number))?;
            self.environments[index].replacement = begun;
        }
        Ok(())
    }

    /// Shows the caller the episodes that [`begin_episodes`](Self::begin_episodes) began.
    fn show_begun_episodes(&mut self, group: usize) {
        let size = self.config.group_size();
        for env in &mut self.environments[group * size..(group + 1) * size] {
            env.episode = env.replacement;
        }
        let group = &mut self.groups[group];
        group.slot = 1 - group.slot;
        group.lost = false;
        group.stage = Stage::Ready;
        group.ram.clear();
    }

    fn read_record(&self, index: usize) -> Record {
        let mut bytes = [0; RECORD_BYTES];
        self.memory.read(self.layout.record(index), &mut bytes);
        Record::from_bytes(&bytes)
    }

    /// Reads the episode of an environment after a reset or a restore.
    fn read_begun(&mut self, index: usize, request: Request, number: Option<u64>) -> Result<Episode, EnvError> {
        let record = self.read_record(index);
        let plausible = record.score.is_finite()
            && (record.reward, record.ending, record.first_frames) == (0.0, 0, 0)
            && number.is_none_or(|number| number == record.episode)
            && record.episode < u64::MAX;
        if !plausible {
            return Err(self.worker()?.invalid_answer(request, format!("environment {index} has {record:?}")));
        }
        Ok(Episode { number: record.episode, score: record.score, frames: record.frames })
    }

    /// Reads the outcome of a group's step; changes nothing if any part is invalid.
    fn read_steps(&mut self, group: usize) -> Result<(), EnvError> {
        let mut taken = Vec::with_capacity(self.config.group_size());
        for env in 0..self.config.group_size() {
            let index = self.index(group, env);
            let record = self.read_record(index);
            let before = self.environments[index].episode;
            let ending = match record.ending {
                1 => Some(Ending::Terminated),
                2 => Some(Ending::Truncated),
                _ => None,
            };
            let took = record.frames.checked_sub(before.frames);
            if !record.reward.is_finite() || record.reward.abs() > MAX_REWARD {
                let environment = self.config.first_index + index as u64;
                return Err(EnvError::Reward { name: self.spec.name.clone(), environment, value: record.reward });
            }
            let plausible = record.score.is_finite()
                && record.ending <= 2
                && took.is_some_and(|frames| (1..=u64::from(self.spec.frames_per_step)).contains(&frames))
                && record.episode == before.number + u64::from(ending.is_some())
                && (ending.is_some() || record.first_frames == 0);
            if !plausible {
                let what = format!("environment {index} has {record:?} after {} frames", before.frames);
                return Err(self.worker()?.invalid_answer(Request::Step, what));
            }
            let Record { reward, score, frames, .. } = record;
            let end = ending.map(|ending| EpisodeEnd { ending, score, frames });
            let episode = match end {
                None => Episode { number: before.number, score, frames },
                Some(_) => Episode { number: record.episode, score: 0.0, frames: record.first_frames },
            };
            taken.push((Step { reward, end }, episode));
        }
        for (env, (step, episode)) in taken.into_iter().enumerate() {
            let index = self.index(group, env);
            self.groups[group].steps[env] = step;
            self.environments[index].episode = episode;
            self.environments[index].next = episode.number + 1;
        }
        // The bytes of a group are contiguous.
        let first = self.layout.ram(self.index(group, 0));
        let ram = &mut self.groups[group].ram;
        ram.resize(self.config.group_size() * self.layout.ram_bytes, 0);
        if !ram.is_empty() {
            self.memory.read(first, ram);
        }
        Ok(())
    }

    /// Replaces the worker after `error`: begins the next episodes everywhere and marks all groups as lost.
    fn replace_worker(&mut self, error: &EnvError) -> Result<(), EnvError> {
        let mut reason = error.to_string();
        let mut hangs = matches!(error, EnvError::Timeout { .. });
        loop {
            self.broken = None;
            self.worker = None;
            self.failures += 1;
            self.early_failures += 1;
            self.hangs += u32::from(hangs);
            self.steps = 0;
            let limit = self.config.limits.failures;
            let in_a_row = (self.failures, limit, "failures in a row".to_owned());
            let early =
                (self.early_failures, limit.saturating_mul(EARLY), "failures without finishing an episode".to_owned());
            // Each takes a time limit, and nobody waits for thirty.
            let hanging = (self.hangs, limit, format!("hangs with fewer than {MANY_STEPS} steps between them"));
            if let Some((attempts, _, failures)) =
                [in_a_row, early, hanging].into_iter().find(|(count, limit, _)| count >= limit)
            {
                self.gave_up = Some(GivenUp { attempts, failures, last: reason });
                return self.worker().map(drop);
            }
            self.faults.push(format!("{reason}; the worker was replaced and its episodes were cut off"));
            match self.start_replacement() {
                Ok(()) => return Ok(()),
                Err(error) => {
                    reason = error.to_string();
                    hangs = matches!(error, EnvError::Timeout { .. });
                }
            }
        }
    }

    fn start_replacement(&mut self) -> Result<(), EnvError> {
        let (mut worker, spec) = Worker::open(&mut self.launch, &self.config, &self.memory.file)?;
        if spec != self.spec {
            return Err(worker.invalid_answer(Request::Open, format!("{spec:?}, previously {:?}", self.spec)));
        }
        worker.attach(&self.layout)?;
        self.worker = Some(worker);
        for group in 0..self.groups.len() {
            self.begin_episodes(group)?;
            self.groups[group].lost = true;
        }
        Ok(())
    }

    /// Reports the known episodes as cut off and shows the next ones.
    fn cut_off(&mut self, group: usize) {
        let slot = self.groups[group].slot;
        for env in 0..self.config.group_size() {
            let index = self.index(group, env);
            let Episode { score, frames, .. } = self.environments[index].episode;
            let end = Some(EpisodeEnd { ending: Ending::CutOff, score, frames });
            self.groups[group].steps[env] = Step { reward: 0.0, end };
            let (from, to) = (self.layout.observation(index, slot), self.layout.observation(index, LAST));
            self.memory.copy(from, to, self.layout.observation_bytes);
        }
        self.show_begun_episodes(group);
    }

    fn copy_observation(&self, group: usize, env: usize, place: usize, out: &mut [u8]) {
        let (groups, size) = (self.config.groups, self.config.group_size());
        assert!(group < groups && env < size, "environment {env} of group {group}, of {groups} groups of {size}");
        assert_eq!(out.len(), self.layout.observation_bytes, "bytes of an observation of {}", self.spec.name);
        self.memory.read(self.layout.observation(self.index(group, env), place), out);
    }
}

impl Environments for WorkerEnvironments {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn groups(&self) -> usize {
        self.config.groups
    }

    fn group_size(&self) -> usize {
        self.config.group_size()
    }

    fn reset(&mut self) -> Result<(), EnvError> {
        self.check(0, 0)?;
        if let Some(group) = self.groups.iter().position(|group| group.stage == Stage::Started) {
            return Err(self.spec.out_of_turn("reset", group, NOT_FINISHED));
        }
        let mut begun = Ok(());
        for group in 0..self.groups.len() {
            // A lost group has already begun its next episodes.
            if !self.groups[group].lost {
                begun = begun.and_then(|()| self.begin_episodes(group));
            }
        }
        begun.or_else(|error| match error {
            // An environment that hangs before its first step would hang again.
            EnvError::Timeout { .. } if self.groups.iter().all(|group| group.stage == Stage::New) => Err(error),
            error => self.replace_worker(&error),
        })?;
        for group in 0..self.groups.len() {
            self.show_begun_episodes(group);
        }
        Ok(())
    }

    fn episodes_begun(&self, group: usize, env: usize) -> u64 {
        self.environments[self.index(group, env)].next
    }

    fn skip_episodes(&mut self, group: usize, env: usize, begun: u64) {
        let index = self.index(group, env);
        let next = &mut self.environments[index].next;
        *next = (*next).max(begun);
    }

    fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError> {
        self.check(group, 0)?;
        match self.groups[group].stage {
            Stage::New => return Err(self.spec.out_of_turn("start", group, NOT_BEGUN)),
            Stage::Started => return Err(self.spec.out_of_turn("start", group, NOT_FINISHED)),
            Stage::Ready => {}
        }
        self.spec.check_actions(actions, self.config.group_size())?;
        self.groups[group].stage = Stage::Started;
        if self.groups[group].lost || self.broken.is_some() {
            return Ok(());
        }
        for (env, action) in actions.iter().enumerate() {
            let offset = self.layout.action(self.index(group, env));
            self.memory.write(offset, &(*action as u32).to_le_bytes());
        }
        let slot = 1 - self.groups[group].slot;
        self.broken = self.worker()?.ask_step(group, slot).err();
        Ok(())
    }

    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError> {
        self.check(group, 0)?;
        if self.groups[group].stage != Stage::Started {
            return Err(self.spec.out_of_turn("finish", group, "no step was started"));
        }
        if !self.groups[group].lost {
            let stepped = match self.broken.take() {
                Some(error) => Err(error),
                None => self.worker()?.await_step(group).and_then(|()| self.read_steps(group)),
            };
            match stepped {
                Ok(()) => {
                    self.failures = 0;
                    self.steps += 1;
                    let group = &mut self.groups[group];
                    if self.steps >= MANY_STEPS {
                        (self.early_failures, self.hangs) = (0, 0);
                    } else if group.steps.iter().any(|step| step.end.is_some()) {
                        self.early_failures = 0;
                    }
                    group.slot = 1 - group.slot;
                    group.stage = Stage::Ready;
                    return Ok(&group.steps);
                }
                Err(error @ EnvError::Reward { .. }) => {
                    self.groups[group].stage = Stage::Ready;
                    return Err(error);
                }
                Err(error) => self.replace_worker(&error)?,
            }
        }
        self.cut_off(group);
        Ok(&self.groups[group].steps)
    }

    fn observation(&self, group: usize, env: usize, out: &mut [u8]) {
        let slot = self.groups.get(group).map_or(0, |group| group.slot);
        self.copy_observation(group, env, slot, out);
    }

    fn last_observation(&self, group: usize, env: usize, out: &mut [u8]) {
        self.copy_observation(group, env, LAST, out);
    }

    fn ram(&self, group: usize, env: usize) -> &[u8] {
        assert!(env < self.config.group_size(), "environment {env} of a group of {}", self.config.group_size());
        let bytes = self.layout.ram_bytes;
        self.groups[group].ram.get(env * bytes..(env + 1) * bytes).unwrap_or_default()
    }

    fn render(&mut self, group: usize, env: usize, last: bool) -> Result<RenderedPicture, EnvError> {
        self.check_idle("render", group, env)?;
        if !matches!(self.config.environment, EnvId::Gym { .. }) {
            let (name, reason) = (self.spec.name.clone(), "only gym: environments can".to_owned());
            return Err(EnvError::Unsupported { name, request: "render", reason });
        }
        let (index, slot) = (self.index(group, env), if last { LAST } else { self.groups[group].slot });
        let content = self.worker()?.ask((Request::Render, group, index), slot, b"")?;
        let picture = rendered_picture(content);
        match picture {
            Ok(picture) => Ok(picture),
            Err(what) => Err(self.worker()?.invalid_answer(Request::Render, what)),
        }
    }

    fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError> {
        self.check_idle("save", group, env)?;
        let (index, slot) = (self.index(group, env), self.groups[group].slot);
        match self.worker()?.ask((Request::Save, group, index), slot, b"") {
            Ok(content) => Ok(saved::seal(&saved::label(&self.spec), &content)),
            Err(refused @ EnvError::Unsupported { .. }) => Err(refused),
            Err(error) => {
                self.replace_worker(&error)?;
                Err(error)
            }
        }
    }

    fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError> {
        self.check_idle("restore", group, env)?;
        let foreign = |reason| EnvError::Foreign { name: self.spec.name.clone(), reason };
        let content = saved::open(&saved::label(&self.spec), saved).map_err(foreign)?;
        let (index, slot) = (self.index(group, env), self.groups[group].slot);
        let restored = self
            .worker()?
            .ask((Request::Restore, group, index), slot, content)
            .and_then(|_| self.read_begun(index, Request::Restore, None));
        match restored {
            Ok(episode) => {
                self.groups[group].ram.clear();
                self.environments[index].episode = episode;
                self.environments[index].next = episode.number + 1;
                Ok(())
            }
            Err(refused @ (EnvError::Unsupported { .. } | EnvError::Foreign { .. })) => Err(refused),
            Err(error) => {
                self.replace_worker(&error)?;
                Err(error)
            }
        }
    }

    fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }
}

/// Reads the reply to a render: height and width (u32, little-endian), then the pixels.
fn rendered_picture(mut content: Vec<u8>) -> Result<RenderedPicture, String> {
    let Some((header, _)) = content.split_first_chunk::<8>() else {
        return Err(format!("a picture of {} bytes", content.len()));
    };
    let (sides, _) = header.as_chunks();
    let size: [usize; 2] = std::array::from_fn(|i| u32::from_le_bytes(sides[i]) as usize);
    let pixels = content.split_off(8);
    if size[0].checked_mul(size[1]).and_then(|count| count.checked_mul(3)) != Some(pixels.len()) || pixels.is_empty() {
        return Err(format!("a picture of {} x {} pixels in {} bytes", size[0], size[1], pixels.len()));
    }
    Ok(RenderedPicture { size, pixels })
}
