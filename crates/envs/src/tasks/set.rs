//! Any built-in task as a set of environments.

use std::ops::Range;

use super::make;
use super::progress::Progress;
use super::task::{Outcome, Task, TaskError};
use crate::environments::{EnvSpec, Environments, EpisodeEnd, ObservationKind, Step};
use crate::error::EnvError;
use crate::saved;
use crate::seeds::episode_seed;

/// How many environments of a task there are, and which of the run's they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSet {
    /// Number of groups.
    pub groups: usize,
    /// Environments in each group.
    pub group_size: usize,
    /// The run's seed.
    pub run_seed: u64,
    /// Index in the whole run of the set's first environment.
    pub first_environment: u64,
}

/// Environments of one built-in task. They are so cheap that [`finish`](Environments::finish) computes the step itself,
/// in the caller's thread.
pub struct TaskEnvironments {
    spec: EnvSpec,
    group_size: usize,
    slots: Vec<Slot>,
    /// What the last step of each environment led to.
    steps: Vec<Step>,
    /// The actions that each is to take or took last.
    actions: Vec<usize>,
    /// For each group, whether it is between `start` and `finish`.
    started: Vec<bool>,
}

/// One environment.
struct Slot {
    task: Box<dyn Task>,
    run_seed: u64,
    environment: u64,
    episodes_begun: u64,
    /// Whether an episode has begun here.
    is_playing: bool,
    score: f64,
    frames: u64,
    last_observation: Vec<u8>,
}

impl TaskEnvironments {
    /// Environments of the task that a user asked for by `name`, such as `deep_sea:14`.
    pub fn new(name: &str, set: TaskSet) -> Result<Self, EnvError> {
        let TaskSet { groups, group_size, run_seed, first_environment } = set;
        let task = make(name)?;
        for (field, value) in [("groups", groups), ("group_size", group_size)] {
            if value == 0 {
                return Err(EnvError::Setting { field, value: "0".to_owned(), allowed: "at least 1".to_owned() });
            }
        }
        let (height, width) = task.image_size();
        let spec = EnvSpec {
            name: task.name(),
            observation_shape: vec![height, width],
            observation_kind: ObservationKind::U8,
            action_names: task.action_names().iter().map(|&name| name.to_owned()).collect(),
            frames_per_step: 1,
        };
        let slot = |index| {
            Ok(Slot {
                task: make(name)?,
                run_seed,
                environment: first_environment.wrapping_add(index as u64),
                episodes_begun: 0,
                is_playing: false,
                score: 0.0,
                frames: 0,
                last_observation: vec![0; spec.observation_bytes()],
            })
        };
        let slots = (0..groups * group_size).map(slot).collect::<Result<Vec<_>, TaskError>>()?;
        let (steps, actions) = (vec![Step::default(); slots.len()], vec![0; slots.len()]);
        Ok(Self { spec, group_size, slots, steps, actions, started: vec![false; groups] })
    }

    fn range(&self, group: usize) -> Range<usize> {
        group * self.group_size..(group + 1) * self.group_size
    }

    fn index(&self, group: usize, env: usize) -> Result<usize, EnvError> {
        if group < self.groups() && env < self.group_size {
            return Ok(group * self.group_size + env);
        }
        let (name, groups, group_size) = (self.spec.name.clone(), self.groups(), self.group_size);
        Err(EnvError::NoSuchEnvironment { name, group, env, groups, group_size })
    }

    fn out_of_turn(&self, request: &'static str, group: usize, state: &'static str) -> EnvError {
        EnvError::OutOfTurn { name: self.spec.name.clone(), request, group, state }
    }

    /// Refuses a request of a group that is between `start` and `finish`.
    fn check_idle(&self, request: &'static str, group: usize) -> Result<(), EnvError> {
        if self.started[group] {
            return Err(self.out_of_turn(request, group, "a step of it is not finished"));
        }
        Ok(())
    }

    fn check_actions(&self, actions: &[usize]) -> Result<(), EnvError> {
        let (name, known) = (&self.spec.name, self.spec.actions());
        if actions.len() != self.group_size {
            let (expected, given) = (self.group_size, actions.len());
            return Err(EnvError::WrongActionCount { name: name.clone(), expected, given });
        }
        match actions.iter().find(|&&action| action >= known) {
            Some(&action) => Err(EnvError::ActionOutOfRange { name: name.clone(), action, actions: known }),
            None => Ok(()),
        }
    }
}

impl Slot {
    fn begin_episode(&mut self) {
        self.task.reset(episode_seed(self.run_seed, self.environment, self.episodes_begun));
        self.episodes_begun += 1;
        self.is_playing = true;
        self.score = 0.0;
        self.frames = 0;
    }

    fn step(&mut self, action: usize) -> Step {
        let Outcome { reward, ending } = self.task.step(action);
        self.score += reward;
        self.frames += 1;
        let end = ending.map(|ending| {
            let end = EpisodeEnd { ending, score: self.score, frames: self.frames };
            self.task.draw(&mut self.last_observation);
            self.begin_episode();
            end
        });
        Step { reward, end }
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
        (0..self.groups()).try_for_each(|group| self.check_idle("reset", group))?;
        self.slots.iter_mut().for_each(Slot::begin_episode);
        Ok(())
    }

    fn episodes_begun(&self, group: usize, env: usize) -> u64 {
        self.slots[group * self.group_size + env].episodes_begun
    }

    fn skip_episodes(&mut self, group: usize, env: usize, begun: u64) {
        let slot = &mut self.slots[group * self.group_size + env];
        slot.episodes_begun = slot.episodes_begun.max(begun);
    }

    fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError> {
        self.index(group, 0)?;
        self.check_idle("start", group)?;
        self.check_actions(actions)?;
        let range = self.range(group);
        if self.slots[range.clone()].iter().any(|slot| !slot.is_playing) {
            return Err(self.out_of_turn("start", group, "no episode has begun"));
        }
        self.actions[range].copy_from_slice(actions);
        self.started[group] = true;
        Ok(())
    }

    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError> {
        self.index(group, 0)?;
        if !std::mem::take(&mut self.started[group]) {
            return Err(self.out_of_turn("finish", group, "no step of it was started"));
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
        let index = self.index(group, env)?;
        self.check_idle("save", group)?;
        let slot = &self.slots[index];
        if !slot.is_playing {
            return Err(self.out_of_turn("save", group, "no episode has begun"));
        }
        let progress = Progress {
            run_seed: slot.run_seed,
            environment: slot.environment,
            episodes_begun: slot.episodes_begun,
            frames: slot.frames,
            score: slot.score,
            state: slot.task.save(),
        };
        Ok(saved::seal(&saved::label(&self.spec), &progress.to_bytes()))
    }

    /// The environment takes over the saved one's seed and index too, so that its later episodes are the same as well.
    fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError> {
        let index = self.index(group, env)?;
        self.check_idle("restore", group)?;
        let spec = &self.spec;
        let foreign = |reason| EnvError::Foreign { name: spec.name.clone(), reason };
        let content = saved::open(&saved::label(spec), saved).map_err(foreign)?;
        let progress = Progress::from_bytes(content).map_err(foreign)?;
        let slot = &mut self.slots[index];
        let plausible = progress.episodes_begun > 0 && progress.score.is_finite();
        if !plausible || slot.task.restore(&progress.state).is_err() {
            return Err(foreign("it is in a state that no episode has".to_owned()));
        }
        slot.run_seed = progress.run_seed;
        slot.environment = progress.environment;
        slot.episodes_begun = progress.episodes_begun;
        slot.is_playing = true;
        slot.frames = progress.frames;
        slot.score = progress.score;
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

    fn set(name: &str, groups: usize, group_size: usize) -> TaskEnvironments {
        TaskEnvironments::new(name, TaskSet { groups, group_size, run_seed: 11, first_environment: 5 }).unwrap()
    }

    fn observe(envs: &TaskEnvironments, group: usize, env: usize) -> Vec<u8> {
        let mut image = vec![7; envs.spec().observation_bytes()];
        envs.observation(group, env, &mut image);
        image
    }

    /// A step, the observation to act on, and the one that ended the episode.
    type Seen = (Step, Vec<u8>, Option<Vec<u8>>);

    #[test]
    fn skipped_episodes_are_never_played() {
        let (mut played, mut skipped) = (set("catch", 1, 2), set("catch", 1, 2));
        for _ in 0..4 {
            played.reset().unwrap();
        }
        skipped.skip_episodes(0, 1, 3);
        assert!(skipped.start(0, &[0, 0]).is_err(), "nothing has begun yet");
        skipped.reset().unwrap();
        assert_eq!([0, 1].map(|env| skipped.episodes_begun(0, env)), [1, 4]);
        assert_eq!(observe(&skipped, 0, 1), observe(&played, 0, 1));
        // It never goes back.
        skipped.skip_episodes(0, 1, 2);
        assert_eq!(skipped.episodes_begun(0, 1), 4);
    }

    /// What each environment goes through under actions drawn from a seed of its own.
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
    fn episodes_do_not_depend_on_the_grouping() {
        for name in NAMES {
            let [mut one, mut two] = [(1, 4), (2, 2)].map(|(groups, size)| set(name, groups, size));
            one.reset().unwrap();
            two.reset().unwrap();
            assert_eq!(transcript(&mut one, 250), transcript(&mut two, 250), "{name}");
        }
    }

    #[test]
    fn episodes_depend_on_the_index_in_the_run() {
        let first_images = |first_environment, group_size| {
            let set = TaskSet { groups: 1, group_size, run_seed: 11, first_environment };
            let mut envs = TaskEnvironments::new("catch", set).unwrap();
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
            let set = TaskSet { groups: 1, group_size: 20, run_seed, first_environment: 0 };
            let mut envs = TaskEnvironments::new("catch", set).unwrap();
            envs.reset().unwrap();
            (0..20).map(|env| observe(&envs, 0, env)).collect::<Vec<_>>()
        };
        assert_ne!(first_images(1), first_images(2));
        assert_eq!(first_images(1), first_images(1));
    }

    #[test]
    fn a_restored_environment_goes_on_as_the_saved_one() {
        for name in NAMES {
            for steps in [0, 1, 5, 13, 60] {
                let mut envs = set(name, 2, 2);
                envs.reset().unwrap();
                transcript(&mut envs, steps);
                let saved: Vec<_> = (0..4).map(|at| envs.save(at / 2, at % 2).unwrap()).collect();
                let images: Vec<_> = (0..4).map(|at| observe(&envs, at / 2, at % 2)).collect();
                let expected = transcript(&mut envs, 150);

                let set = TaskSet { groups: 2, group_size: 2, run_seed: 99, first_environment: 0 };
                let mut other = TaskEnvironments::new(name, set).unwrap();
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
    fn the_end_of_an_episode_comes_with_score_length_and_both_images() {
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
    fn the_spec_says_what_the_agent_sees() {
        let envs = set("key_door", 1, 1);
        assert_eq!(envs.spec().name, "key_door:9");
        assert_eq!(envs.spec().observation_shape, [11, 11]);
        assert_eq!(envs.spec().observation_bytes(), 121);
        assert_eq!(envs.spec().action_names, ["up", "right", "down", "left"]);
        assert_eq!((envs.groups(), envs.group_size(), envs.spec().frames_per_step), (1, 1, 1));
    }

    #[test]
    fn mistakes_of_the_caller_are_refused() {
        let out_of_turn = |result: Result<(), EnvError>, what: &str| match result {
            Err(EnvError::OutOfTurn { request, state, .. }) => assert_eq!(format!("{request}: {state}"), what),
            other => panic!("{what}: {other:?}"),
        };
        let mut envs = set("catch", 2, 2);
        out_of_turn(envs.start(0, &[0, 0]), "start: no episode has begun");
        out_of_turn(envs.save(1, 0).map(drop), "save: no episode has begun");
        envs.reset().unwrap();
        out_of_turn(envs.finish(1).map(drop), "finish: no step of it was started");

        let before = observe(&envs, 0, 0);
        let refused = envs.start(0, &[0, 3]);
        assert!(matches!(refused, Err(EnvError::ActionOutOfRange { action: 3, actions: 3, .. })), "{refused:?}");
        assert_eq!(observe(&envs, 0, 0), before, "a refused step moves nothing");
        let before = observe(&envs, 1, 0);
        envs.start(1, &[0, 0]).unwrap();
        assert_eq!(observe(&envs, 1, 0), before, "nor does one that is not finished");
        envs.finish(1).unwrap();
        assert_ne!(observe(&envs, 1, 0), before);
        let refused = envs.start(0, &[0]);
        assert!(matches!(refused, Err(EnvError::WrongActionCount { expected: 2, given: 1, .. })), "{refused:?}");
        let refused = envs.start(2, &[0, 0]);
        assert!(matches!(refused, Err(EnvError::NoSuchEnvironment { group: 2, groups: 2, .. })), "{refused:?}");
        let refused = envs.save(0, 2);
        assert!(matches!(refused, Err(EnvError::NoSuchEnvironment { env: 2, group_size: 2, .. })), "{refused:?}");

        envs.start(0, &[0, 0]).unwrap();
        out_of_turn(envs.start(0, &[0, 0]), "start: a step of it is not finished");
        out_of_turn(envs.reset(), "reset: a step of it is not finished");
        out_of_turn(envs.save(0, 1).map(drop), "save: a step of it is not finished");
        out_of_turn(envs.restore(0, 1, &[]), "restore: a step of it is not finished");

        let empty = TaskSet { groups: 0, group_size: 3, run_seed: 0, first_environment: 0 };
        let refused = TaskEnvironments::new("catch", empty).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), "groups is 0, and must be at least 1");
    }

    #[test]
    fn a_foreign_save_is_refused_and_changes_nothing() {
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
        let progress = Progress::from_bytes(saved::open(&label, &of_the_sea).unwrap()).unwrap();
        let changes: [fn(&mut Progress); 3] = [
            |progress| progress.state = vec![3, 4],
            |progress| progress.episodes_begun = 0,
            |progress| progress.score = f64::NAN,
        ];
        for change in changes {
            let mut impossible = progress.clone();
            change(&mut impossible);
            let refusal = said(sea.restore(0, 0, &saved::seal(&label, &impossible.to_bytes())));
            assert!(refusal.ends_with(": it is in a state that no episode has"), "{refusal}");
            assert_eq!(sea.save(0, 0).unwrap(), of_the_sea);
        }
    }
}
