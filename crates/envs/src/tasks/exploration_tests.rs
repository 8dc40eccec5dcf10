//! Tests that `deep_sea` and `key_door` reward exploration: a tabular learner solves them only with a novelty bonus.

use std::collections::{HashMap, HashSet};

use super::task::Task;
use super::tests::{Scored, image, play};
use super::{DeepSea, KeyDoor};
use crate::environments::Ending;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

const LEARNING_RATE: f64 = 0.5;
const DISCOUNT: f64 = 0.99;
const EPSILON: f64 = 0.1;

/// Q values by image, with and without a novelty bonus; both tables learn from all episodes.
struct TableLearner {
    random: SplitMix64,
    actions: usize,
    bonus_weight: f64,
    visits: HashMap<Vec<u8>, f64>,
    q: HashMap<Vec<u8>, [Vec<f64>; 2]>,
}

impl TableLearner {
    const GAME: usize = 0;
    const NOVELTY: usize = 1;

    /// Returns the best known action, breaking ties at random.
    fn greedy(&mut self, image: &[u8], table: usize) -> usize {
        let Some(q) = self.q.get(image).map(|tables| &tables[table]) else {
            return self.random.random_range(0..self.actions as u64) as usize;
        };
        let best = q.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let ties: Vec<usize> = (0..self.actions).filter(|&action| q[action] == best).collect();
        ties[self.random.random_range(0..ties.len() as u64) as usize]
    }

    fn explore(&mut self, image: &[u8]) -> usize {
        if (self.random.random_range(0..1000u64) as f64) < EPSILON * 1000.0 {
            return self.random.random_range(0..self.actions as u64) as usize;
        }
        self.greedy(image, Self::NOVELTY)
    }

    /// Returns the bonus of an image: 0 if seen in this episode, otherwise less the more episodes have seen it.
    fn bonus(&mut self, image: &[u8], seen: &mut HashSet<Vec<u8>>) -> f64 {
        if !seen.insert(image.to_vec()) {
            return 0.0;
        }
        let visits = self.visits.entry(image.to_vec()).or_default();
        *visits += 1.0;
        self.bonus_weight / visits.sqrt()
    }

    fn value(&self, image: &[u8], table: usize) -> f64 {
        self.q.get(image).map_or(0.0, |tables| tables[table].iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    /// Plays an episode, then learns from it backwards.
    fn learn_from_episode(&mut self, task: &mut dyn Task) {
        task.reset(0);
        let mut seen = HashSet::from([image(task)]);
        let mut episode = Vec::new();
        let mut ended = None;
        while ended.is_none() {
            let before = image(task);
            let action = self.explore(&before);
            let outcome = task.step(action);
            let after = image(task);
            let rewards = [outcome.reward, outcome.reward + self.bonus(&after, &mut seen)];
            ended = outcome.ending;
            let discount = if ended == Some(Ending::Terminated) { 0.0 } else { DISCOUNT };
            episode.push((before, action, rewards, discount, after));
        }
        for (before, action, rewards, discount, after) in episode.into_iter().rev() {
            for table in [Self::GAME, Self::NOVELTY] {
                let target = rewards[table] + discount * self.value(&after, table);
                let tables = self.q.entry(before.clone()).or_insert_with(|| [0, 1].map(|_| vec![0.0; self.actions]));
                let q = &mut tables[table][action];
                *q += LEARNING_RATE * (target - *q);
            }
        }
    }
}

/// Returns the number of episodes until greedy play for the game's reward has the best score, if it ever does.
fn episodes_to_solve(task: &mut impl Scored, bonus_weight: f64, seed: u64, limit: usize) -> Option<usize> {
    let (actions, best) = (task.action_names().len(), task.scores().best);
    let (visits, q) = (HashMap::new(), HashMap::new());
    let mut learner = TableLearner { random: SplitMix64::seed_from_u64(seed), actions, bonus_weight, visits, q };
    (1..=limit).find(|episode| {
        learner.learn_from_episode(task);
        episode % 50 == 0 && {
            let episode = play(task, 0, |image, _| learner.greedy(image, TableLearner::GAME));
            (episode.score - best).abs() < 1e-9
        }
    })
}

#[test]
fn only_novelty_solves_deep_sea() {
    for seed in 0..3 {
        let solved = episodes_to_solve(&mut DeepSea::new(14), 0.1, seed, 3000);
        println!("deep_sea:14, seed {seed}: {solved:?} episodes");
        assert!(solved.is_some());
        assert_eq!(episodes_to_solve(&mut DeepSea::new(14), 0.0, seed, 3000), None, "seed {seed}");
    }
}

#[test]
fn only_novelty_solves_key_door() {
    for seed in 0..3 {
        let solved = episodes_to_solve(&mut KeyDoor::new(9), 0.1, seed, 1000);
        println!("key_door, seed {seed}: {solved:?} episodes");
        assert!(solved.is_some());
        assert_eq!(episodes_to_solve(&mut KeyDoor::new(9), 0.0, seed, 1000), None, "seed {seed}");
    }
}
