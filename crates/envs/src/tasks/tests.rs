//! Tests of the table of tasks, and what the tests of single tasks share: playing one, and its documented scores.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

use super::*;
use crate::environments::Ending;
use crate::seeds::episode_seed;

/// The result of an episode.
pub struct Episode {
    pub score: f64,
    pub steps: u64,
    pub ending: Ending,
}

/// Draws the current image of a task.
pub fn image(task: &dyn Task) -> Vec<u8> {
    let (height, width) = task.image_size();
    let mut image = vec![1; height * width];
    task.draw(&mut image);
    image
}

/// Plays one episode with a policy of the image and the number of steps taken.
pub fn play(task: &mut dyn Task, seed: u64, mut policy: impl FnMut(&[u8], usize) -> usize) -> Episode {
    task.reset(seed);
    let mut image = image(task);
    let mut score = 0.0;
    for step in 0.. {
        let outcome = task.step(policy(&image, step));
        score += outcome.reward;
        if let Some(ending) = outcome.ending {
            return Episode { score, steps: step as u64 + 1, ending };
        }
        task.draw(&mut image);
    }
    unreachable!("every task ends its episodes")
}

/// Returns the mean score of a policy over the first episodes of environment 0 of run 0.
pub fn mean_score(task: &mut dyn Task, episodes: u64, mut policy: impl FnMut(&[u8], usize) -> usize) -> f64 {
    let scores = (0..episodes).map(|episode| play(task, episode_seed(0, 0, episode), &mut policy).score);
    scores.sum::<f64>() / episodes as f64
}

/// Plays episodes twice, the second time in a task that has played another episode before.
pub fn assert_repeats<T: Task>(new: impl Fn() -> T) {
    for seed in 0..20 {
        let mut random = SplitMix64::seed_from_u64(seed);
        let (mut one, mut other) = (new(), new());
        play(&mut other, seed + 1, |_, _| 0);
        one.reset(seed);
        other.reset(seed);
        for step in 0.. {
            assert_eq!(image(&one), image(&other), "seed {seed}, step {step}");
            let action = random.random_range(0..one.action_names().len() as u64) as usize;
            let outcome = one.step(action);
            assert_eq!(outcome, other.step(action), "seed {seed}, step {step}");
            if outcome.ending.is_some() {
                break;
            }
        }
    }
}

/// A task with known scores.
pub trait Scored: Task {
    /// Returns the exact mean scores of three policies, as documented in docs/tasks.md.
    fn scores(&self) -> Scores;
}

/// Mean scores per episode, to measure an agent against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Of the best policy.
    pub best: f64,
    /// Of uniformly random actions.
    pub random: f64,
    /// Of the policy that an agent without the tested ability ends up with; each task describes it.
    pub naive: f64,
}

#[test]
fn plain_names_mean_the_default_parameter() {
    for (asked, name) in [
        ("catch", "catch"),
        ("memory", "memory:8"),
        ("deep_sea", "deep_sea:10"),
        ("deep_sea:14", "deep_sea:14"),
        ("key_door", "key_door:9"),
    ] {
        assert_eq!(make(asked).unwrap().0, name);
        assert_eq!(make(name).unwrap().0, name);
    }
}

#[test]
fn makes_tasks_of_all_valid_parameters() {
    for task in &BUILT_IN {
        let Some(parameter) = &task.parameter else {
            continue;
        };
        for value in [*parameter.range.start(), *parameter.range.end()] {
            let (name, made) = make(&format!("{}:{value}", task.name)).unwrap();
            let (height, width) = made.image_size();
            assert!(height.min(width) >= MIN_SIDE && height.max(width) <= 50, "{name}");
        }
    }
}

#[test]
fn refuses_invalid_names_and_parameters() {
    let refused = |name: &str| make(name).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(refused("chess"), "unknown built-in task `chess`");
    assert_eq!(refused("catch:3"), "the task `catch` takes no parameter, got `3`");
    let sentence =
        |given: &str| format!("invalid size `{given}` of the task `deep_sea`, expected an integer from 2 to 50");
    for given in ["", "1", "51", "ten", "-4", "10:3", "99999999999999999999999"] {
        assert_eq!(refused(&format!("deep_sea:{given}")), sentence(given));
    }
    assert!(BuiltIn::find("gym:CartPole-v1").is_none() && BuiltIn::find("pong").is_none());
}

#[test]
fn best_scores_stand_out() {
    let scores = [
        ("catch", Catch::new().scores()),
        ("memory", Memory::new(Memory::DEFAULT_DELAY).scores()),
        ("deep_sea", DeepSea::new(DeepSea::DEFAULT_SIZE).scores()),
        ("key_door", KeyDoor::new(KeyDoor::DEFAULT_SIZE).scores()),
    ];
    assert_eq!(scores.map(|(name, _)| name), BUILT_IN.each_ref().map(|task| task.name));
    for (name, Scores { best, random, naive }) in scores {
        assert!(best > random.max(naive) + 0.9, "{name}");
    }
}
