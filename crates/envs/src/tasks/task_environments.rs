//! A built-in task as a set of environments.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::make;
use super::task::{Outcome, Task};
use crate::environments::{EnvSpec, Environments, EpisodeEnd, ObservationKind, Step};
use crate::error::EnvError;
use crate::saved;
use crate::seeds::episode_seed;
use crate::workers::{WorkerConfig, check_ram};

/// Environments of one built-in task.
///
/// [`finish`](Environments::finish) steps them in the caller's thread.
pub struct TaskEnvironments {
    spec: EnvSpec,
    group_size: usize,
    slots: Vec<Slot>,
    /// The outcome of each environment's last step.
    steps: Vec<Step>,
    /// The current or last action of each environment.
    actions: Vec<usize>,
    /// Whether each group is between `start` and `finish`.
    started: Vec<bool>,
}

/// One environment.
struct Slot {
    task: Box<dyn Task>,
    /// Whether an episode has begun.
    is_playing: bool,
    progress: TaskProgress,
    last_observation: Vec<u8>,
}

/// Everything saved of one environment. Seed and actions determine the state of its task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct TaskProgress {
    run_seed: u64,
    /// Index of the environment in the whole run.
    environment: u64,
    /// Episodes begun, including the current one.
    episodes_begun: u64,
    /// Seed of the current episode.
    seed: u64,
    /// Actions of the current episode so far.
    actions: Vec<usize>,
    /// Score of the current episode so far.
    #[serde(skip)]
    score: f64,
}

impl TaskEnvironments {
    /// Creates the environments of the task `name`, such as `deep_sea:14`, that `config` describes.
    pub fn new(name: &str, config: &WorkerConfig) -> Result<Self, EnvError> {
        config.check_counts()?;
        check_ram(&config.environment, &config.ram)?;
        let (name, task) = make(name)?;
        let (height, width) = task.image_size();
        let spec = EnvSpec {
            observation_shape: vec![height, width],
            observation_kind: ObservationKind::U8,
            observation_parts: vec![],
            action_names: task.action_names().iter().map(|&name| name.to_owned()).collect(),
            frames_per_step: 1,
            name,
        };
        let slot = |index: usize| -> Result<Slot, EnvError> {
            let environment = config.first_index.wrapping_add(index as u64);
            Ok(Slot {
                task: make(&spec.name)?.1,
                is_playing: false,
                progress: TaskProgress { run_seed: config.seed, environment, ..TaskProgress::default() },
                last_observation: vec![0; spec.observation_bytes()],
            })
        };
        let slots = (0..config.environments).map(slot).collect::<Result<Vec<_>, _>>()?;
        let (steps, actions) = (vec![Step::default(); slots.len()], vec![0; slots.len()]);
        Ok(Self { spec, group_size: config.group_size(), slots, steps, actions, started: vec![false; config.groups] })
    }

    fn range(&self, group: usize) -> Range<usize> {
        group * self.group_size..(group + 1) * self.group_size
    }

    /// Refuses an environment that does not exist, and a call while its group is between `start` and `finish`.
    fn idle_index(&self, request: &'static str, group: usize, env: usize) -> Result<usize, EnvError> {
        self.spec.check_exists([self.groups(), self.group_size], group, env)?;
        if self.started[group] {
            return Err(self.spec.out_of_turn(request, group, "its step is not finished"));
        }
        Ok(group * self.group_size + env)
    }
}

impl Slot {
    fn begin_episode(&mut self) {
        let progress = &mut self.progress;
        progress.seed = episode_seed(progress.run_seed, progress.environment, progress.episodes_begun);
        progress.episodes_begun += 1;
        progress.actions.clear();
        progress.score = 0.0;
        self.task.reset(progress.seed);
        self.is_playing = true;
    }

    fn step(&mut self, action: usize) -> Step {
        let Outcome { reward, ending } = self.task.step(action);
        self.progress.score += reward;
        self.progress.actions.push(action);
        let end = ending.map(|ending| {
            let frames = self.progress.actions.len() as u64;
            let end = EpisodeEnd { ending, score: self.progress.score, frames };
            self.task.draw(&mut self.last_observation);
            self.begin_episode();
            end
        });
        Step { reward, end }
    }
}

impl TaskProgress {
    /// Plays the episode again from its start; `false` if it cannot have taken this course.
    fn replay(&mut self, task: &mut dyn Task) -> bool {
        task.reset(self.seed);
        let mut step = |&action: &usize| {
            let outcome = (action < task.action_names().len()).then(|| task.step(action));
            self.score += outcome.map_or(0.0, |outcome| outcome.reward);
            outcome.is_some_and(|outcome| outcome.ending.is_none())
        };
        self.actions.iter().all(&mut step)
    }
}

impl Environments for TaskEnvironments {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn groups(&self) -> usize {
        self.started.len()
    }

    fn group_size(&self) -> usize {
        self.group_size
    }

    fn reset(&mut self) -> Result<(), EnvError> {
        (0..self.groups()).try_for_each(|group| self.idle_index("reset", group, 0).map(drop))?;
        self.slots.iter_mut().for_each(Slot::begin_episode);
        Ok(())
    }

    fn episodes_begun(&self, group: usize, env: usize) -> u64 {
        self.slots[group * self.group_size + env].progress.episodes_begun
    }

    fn skip_episodes(&mut self, group: usize, env: usize, begun: u64) {
        let progress = &mut self.slots[group * self.group_size + env].progress;
        progress.episodes_begun = progress.episodes_begun.max(begun);
    }

    fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError> {
        self.idle_index("start", group, 0)?;
        self.spec.check_actions(actions, self.group_size)?;
        let range = self.range(group);
        if self.slots[range.clone()].iter().any(|slot| !slot.is_playing) {
            return Err(self.spec.out_of_turn("start", group, "no episode has begun"));
        }
        self.actions[range].copy_from_slice(actions);
        self.started[group] = true;
        Ok(())
    }

    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError> {
        self.spec.check_exists([self.groups(), self.group_size], group, 0)?;
        if !std::mem::take(&mut self.started[group]) {
            return Err(self.spec.out_of_turn("finish", group, "no step was started"));
        }
        let range = self.range(group);
        let slots = self.slots[range.clone()].iter_mut().zip(&self.actions[range.clone()]);
        for ((slot, &action), step) in slots.zip(&mut self.steps[range.clone()]) {
            *step = slot.step(action);
        }
        Ok(&self.steps[range])
    }

    fn observation(&self, group: usize, env: usize, out: &mut [u8]) {
        self.slots[group * self.group_size + env].task.draw(out);
    }

    fn last_observation(&self, group: usize, env: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.slots[group * self.group_size + env].last_observation);
    }

    fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError> {
        let slot = &self.slots[self.idle_index("save", group, env)?];
        if !slot.is_playing {
            return Err(self.spec.out_of_turn("save", group, "no episode has begun"));
        }
        let content = postcard::to_stdvec(&slot.progress);
        Ok(saved::seal(&saved::label(&self.spec), &content.expect("numbers always serialize")))
    }

    /// Takes over seed and index as well, so that later episodes are those of the saved environment too.
    fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError> {
        let slot = self.idle_index("restore", group, env)?;
        let spec = &self.spec;
        let foreign = |reason| EnvError::Foreign { name: spec.name.clone(), reason };
        let content = saved::open(&saved::label(spec), saved).map_err(foreign)?;
        let mut progress: TaskProgress =
            postcard::from_bytes(content).map_err(|error| foreign(format!("it is malformed ({error})")))?;
        let (_, mut task) = make(&spec.name)?;
        if progress.episodes_begun == 0 || !progress.replay(task.as_mut()) {
            return Err(foreign("its state is impossible".to_owned()));
        }
        let slot = &mut self.slots[slot];
        (slot.task, slot.progress, slot.is_playing) = (task, progress, true);
        Ok(())
    }

    fn take_faults(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::Ending;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::SplitMix64;

    const NAMES: [&str; 5] = ["catch", "memory", "deep_sea:14", "key_door:5", "key_door"];

    fn configured(name: &str, edit: impl FnOnce(&mut WorkerConfig)) -> TaskEnvironments {
        let mut config = WorkerConfig::new(name.parse().unwrap(), "", "");
        edit(&mut config);
        TaskEnvironments::new(name, &config).unwrap()
    }

    fn set(name: &str, groups: usize, group_size: usize) -> TaskEnvironments {
        configured(name, |config| {
            (config.groups, config.environments) = (groups, groups * group_size);
            (config.seed, config.first_index) = (11, 5);
        })
    }

    fn observe(envs: &TaskEnvironments, group: usize, env: usize) -> Vec<u8> {
        let mut image = vec![7; envs.spec().observation_bytes()];
        envs.observation(group, env, &mut image);
        image
    }

    /// A step, the observation after it, and the one that ended the episode.
    type Seen = (Step, Vec<u8>, Option<Vec<u8>>);

    #[test]
    fn never_plays_skipped_episodes() {
        let (mut played, mut skipped) = (set("catch", 1, 2), set("catch", 1, 2));
        for _ in 0..4 {
            played.reset().unwrap();
        }
        skipped.skip_episodes(0, 1, 3);
        assert!(skipped.start(0, &[0, 0]).is_err(), "no episode has begun");
        skipped.reset().unwrap();
        assert_eq!([0, 1].map(|env| skipped.episodes_begun(0, env)), [1, 4]);
        assert_eq!(observe(&skipped, 0, 1), observe(&played, 0, 1));
        // The number never falls.
        skipped.skip_episodes(0, 1, 2);
        assert_eq!(skipped.episodes_begun(0, 1), 4);
    }

    /// Returns all steps of each environment under random actions of its own seed.
    fn transcript(envs: &mut TaskEnvironments, steps: usize) -> Vec<Vec<Seen>> {
        let actions = envs.spec().actions();
        let count = envs.groups() * envs.group_size();
        let mut random: Vec<_> = (0..count as u64).map(SplitMix64::seed_from_u64).collect();
        let mut transcript = vec![Vec::new(); count];
        for _ in 0..steps {
            for group in 0..envs.groups() {
                let range = envs.range(group);
                let chosen: Vec<usize> =
                    random[range.clone()].iter_mut().map(|random| random.random_range(0..actions)).collect();
                envs.start(group, &chosen).unwrap();
                let steps = envs.finish(group).unwrap().to_vec();
                for (env, step) in steps.into_iter().enumerate() {
                    let last = step.end.map(|_| {
                        let mut image = vec![7; envs.spec().observation_bytes()];
                        envs.last_observation(group, env, &mut image);
                        image
                    });
                    transcript[range.start + env].push((step, observe(envs, group, env), last));
                }
            }
        }
        transcript
    }

    #[test]
    fn episodes_do_not_depend_on_grouping() {
        for name in NAMES {
            let [mut one, mut two] = [(1, 4), (2, 2)].map(|(groups, size)| set(name, groups, size));
            one.reset().unwrap();
            two.reset().unwrap();
            assert_eq!(transcript(&mut one, 250), transcript(&mut two, 250), "{name}");
        }
    }

    #[test]
    fn episodes_depend_on_index_in_run() {
        let first_images = |first_environment, group_size| {
            let mut envs = configured("catch", |config| {
                (config.environments, config.seed, config.first_index) = (group_size, 11, first_environment);
            });
            envs.reset().unwrap();
            (0..group_size).map(|env| observe(&envs, 0, env)).collect::<Vec<_>>()
        };
        let all = first_images(0, 20);
        assert_eq!(first_images(5, 15), all[5..]);
        assert!(all.iter().any(|image| *image != all[0]));
    }

    #[test]
    fn different_seeds_give_different_episodes() {
        let first_images = |run_seed| {
            let mut envs = configured("catch", |config| (config.environments, config.seed) = (20, run_seed));
            envs.reset().unwrap();
            (0..20).map(|env| observe(&envs, 0, env)).collect::<Vec<_>>()
        };
        assert_ne!(first_images(1), first_images(2));
        assert_eq!(first_images(1), first_images(1));
    }

    #[test]
    fn restored_environments_continue_like_the_saved_one() {
        for name in NAMES {
            for steps in [0, 1, 5, 13, 60] {
                let mut envs = set(name, 2, 2);
                envs.reset().unwrap();
                transcript(&mut envs, steps);
                let saved: Vec<_> = (0..4).map(|at| envs.save(at / 2, at % 2).unwrap()).collect();
                let images: Vec<_> = (0..4).map(|at| observe(&envs, at / 2, at % 2)).collect();
                let expected = transcript(&mut envs, 150);

                let mut other = configured(name, |config| {
                    (config.groups, config.environments, config.seed) = (2, 4, 99);
                });
                for (at, saved) in saved.iter().enumerate() {
                    other.restore(at / 2, at % 2, saved).unwrap();
                    assert_eq!(observe(&other, at / 2, at % 2), images[at], "{name} after {steps}");
                    assert_eq!(other.save(at / 2, at % 2).unwrap(), *saved);
                }
                assert_eq!(transcript(&mut other, 150), expected, "{name} after {steps}");
            }
        }
    }

    #[test]
    fn reports_score_length_and_both_images_at_an_episodes_end() {
        let mut envs = set("key_door:5", 1, 1);
        envs.reset().unwrap();
        let first = observe(&envs, 0, 0);
        let mut end = None;
        for _ in 0..55 {
            assert_eq!(end, None);
            envs.start(0, &[2]).unwrap();
            end = envs.finish(0).unwrap()[0].end;
        }
        assert_eq!(end, Some(EpisodeEnd { ending: Ending::Truncated, score: 0.0, frames: 55 }));
        assert_eq!(observe(&envs, 0, 0), first);
        let mut last = vec![0; first.len()];
        envs.last_observation(0, 0, &mut last);
        assert_ne!(last, first);
    }

    #[test]
    fn spec_describes_observations_and_actions() {
        let envs = set("key_door", 1, 1);
        assert_eq!(envs.spec().name, "key_door:9");
        assert_eq!(envs.spec().observation_shape, [11, 11]);
        assert_eq!(envs.spec().observation_bytes(), 121);
        assert_eq!(envs.spec().action_names, ["up", "right", "down", "left"]);
        assert_eq!((envs.groups(), envs.group_size(), envs.spec().frames_per_step), (1, 1, 1));
    }

    #[test]
    fn refuses_invalid_calls() {
        let out_of_turn = |result: Result<(), EnvError>, what: &str| match result {
            Err(EnvError::OutOfTurn { request, state, .. }) => assert_eq!(format!("{request}: {state}"), what),
            other => panic!("{what}: {other:?}"),
        };
        let mut envs = set("catch", 2, 2);
        out_of_turn(envs.start(0, &[0, 0]), "start: no episode has begun");
        out_of_turn(envs.save(1, 0).map(drop), "save: no episode has begun");
        envs.reset().unwrap();
        out_of_turn(envs.finish(1).map(drop), "finish: no step was started");

        let before = observe(&envs, 0, 0);
        let refused = envs.start(0, &[0, 3]);
        assert!(matches!(refused, Err(EnvError::ActionOutOfRange { action: 3, actions: 3, .. })), "{refused:?}");
        assert_eq!(observe(&envs, 0, 0), before, "a refused step changes nothing");
        let before = observe(&envs, 1, 0);
        envs.start(1, &[0, 0]).unwrap();
        assert_eq!(observe(&envs, 1, 0), before, "neither does an unfinished one");
        envs.finish(1).unwrap();
        assert_ne!(observe(&envs, 1, 0), before);
        let refused = envs.start(0, &[0]);
        assert!(matches!(refused, Err(EnvError::WrongActionCount { expected: 2, given: 1, .. })), "{refused:?}");
        let refused = envs.start(2, &[0, 0]);
        assert!(matches!(refused, Err(EnvError::NoSuchEnvironment { group: 2, groups: 2, .. })), "{refused:?}");
        let refused = envs.save(0, 2);
        assert!(matches!(refused, Err(EnvError::NoSuchEnvironment { env: 2, group_size: 2, .. })), "{refused:?}");

        envs.start(0, &[0, 0]).unwrap();
        out_of_turn(envs.start(0, &[0, 0]), "start: its step is not finished");
        out_of_turn(envs.reset(), "reset: its step is not finished");
        out_of_turn(envs.save(0, 1).map(drop), "save: its step is not finished");
        out_of_turn(envs.restore(0, 1, &[]), "restore: its step is not finished");

        let mut empty = WorkerConfig::new("catch".parse().unwrap(), "", "");
        empty.groups = 0;
        let refused = TaskEnvironments::new("catch", &empty).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), "groups is 0, expected 1 or 2");
    }

    #[test]
    fn refuses_foreign_saves_without_changes() {
        let mut sea = set("deep_sea:10", 1, 1);
        sea.reset().unwrap();
        transcript(&mut sea, 3);
        let of_the_sea = sea.save(0, 0).unwrap();
        let mut other = set("deep_sea:14", 1, 1);
        other.reset().unwrap();
        let before = other.save(0, 0).unwrap();
        let said = |result: Result<(), EnvError>| result.unwrap_err().to_string();
        let refusal = said(other.restore(0, 0, &of_the_sea));
        assert!(refusal.contains("deep_sea:10") && refusal.contains("deep_sea:14"), "{refusal}");
        let refusal = said(other.restore(0, 0, b"rubbish"));
        assert!(refusal.starts_with("the saved environment cannot be restored to deep_sea:14: "), "{refusal}");
        assert_eq!(other.save(0, 0).unwrap(), before);

        let label = saved::label(sea.spec());
        let progress: TaskProgress = postcard::from_bytes(saved::open(&label, &of_the_sea).unwrap()).unwrap();
        let changes: [fn(&mut TaskProgress); 3] = [
            |progress| progress.episodes_begun = 0,
            |progress| progress.actions[1] = 2,
            |progress| progress.actions = vec![0; 10],
        ];
        for change in changes {
            let mut impossible = progress.clone();
            change(&mut impossible);
            let refusal = said(sea.restore(0, 0, &saved::seal(&label, &postcard::to_stdvec(&impossible).unwrap())));
            assert!(refusal.ends_with(": its state is impossible"), "{refusal}");
            assert_eq!(sea.save(0, 0).unwrap(), of_the_sea);
        }
    }
}
