//! `key_door`: fetch the key from one chamber, open the door in another, and only then be paid. Solved only by an agent
//! that seeks what it has not seen yet in the episode.

use std::ops::RangeInclusive;

#[cfg(test)]
use super::task::Scores;
use super::task::{ImpossibleState, Outcome, Task};
use super::{cell_size, fill_cell};

const WALL: u8 = 64;
const DOOR: u8 = 96;
const KEY: u8 = 192;
/// The player is drawn brighter with the key in hand: the way back is then new to look at, also for an embedding that
/// keeps only what the actions move.
const PLAYER: u8 = 128;
const PLAYER_WITH_KEY: u8 = 255;
const ACTIONS: [&str; 4] = ["up", "right", "down", "left"];
/// Steps to the time limit, for each cell of the grid's side.
const STEPS_A_CELL: usize = 11;

/// A grid of `n` x `n` cells: two chambers at the ends of a passage. At n = 9:
///
/// ```text
/// k . # # # # # . D     . floor   # wall   @ start   k key   D door
/// . . # # # # # . .
/// . # # # # # # # .
/// . # # # # # # # .
/// . # # # # # # # .
/// . # # # # # # # .
/// . # # # # # # # .
/// . # # # @ # # # .
/// . . . . . . . . .
/// ```
///
/// **Rules.** A step moves the player one cell; walls, the edge and, without the key, the door stop it. Reaching the
/// key takes it. Reaching the door with the key terminates the episode; after 11 n steps (99) it is truncated. The
/// layout depends on n alone and there is no randomness.
///
/// **Reward.** 1 for opening the door, nothing else.
///
/// **Observation.** The grid within a border of wall, n + 2 cells wide and high. A cell is one pixel, or so many that
/// the image is at least 10 x 10. Floor 0, wall 64, door 96, player 128, key 192 and, once taken, the player 255.
///
/// **Actions.** `up`, `right`, `down`, `left`.
///
/// **Scores.** Best 1, in 37 steps at n = 9. Random 0.00000008 at n = 9: one episode in 13 million. Naive, going
/// straight for the door: 0.
#[derive(Clone, Debug)]
pub struct KeyDoor {
    n: usize,
    player: Place,
    time: usize,
}

/// Where the player is, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    row: usize,
    column: usize,
    has_key: bool,
}

impl KeyDoor {
    /// The size of plain `key_door`.
    pub const DEFAULT_SIZE: usize = 9;
    /// What the size may be.
    pub const SIZES: RangeInclusive<usize> = 5..=22;

    /// A grid of side `n`, which must be one of [`SIZES`](Self::SIZES).
    pub fn new(n: usize) -> Self {
        let mut task = Self { n, player: Place { row: 0, column: 0, has_key: false }, time: 0 };
        task.player = task.start();
        task
    }

    /// A niche over the middle of the passage.
    fn start(&self) -> Place {
        Place { row: self.n - 2, column: self.n / 2, has_key: false }
    }

    fn key(&self) -> (usize, usize) {
        (0, 0)
    }

    fn door(&self) -> (usize, usize) {
        (0, self.n - 1)
    }

    fn time_limit(&self) -> usize {
        STEPS_A_CELL * self.n
    }

    /// The passage runs along the left, lower and right edges; the chambers are in the upper corners. A passage is hard
    /// on random walks and easy on those who look for what is new: many wrong turns would be hard on both.
    fn is_wall(&self, row: usize, column: usize) -> bool {
        let last = self.n - 1;
        let chamber = last / 4;
        let in_passage = column == 0 || column == last || row == last;
        let in_chamber = row < chamber && (column < chamber || column > last - chamber);
        let in_niche = (row, column) == (last - 1, self.n / 2);
        !(in_passage || in_chamber || in_niche)
    }

    fn is_open(&self, place: Place) -> bool {
        place.has_key && (place.row, place.column) == self.door()
    }

    /// Where an action leads.
    fn after(&self, place: Place, action: usize) -> Place {
        let Place { row, column, has_key } = place;
        let (row, column) = match action {
            0 => (row.saturating_sub(1), column),
            1 => (row, (column + 1).min(self.n - 1)),
            2 => ((row + 1).min(self.n - 1), column),
            _ => (row, column.saturating_sub(1)),
        };
        if self.is_wall(row, column) || (!has_key && (row, column) == self.door()) {
            return place;
        }
        Place { row, column, has_key: has_key || (row, column) == self.key() }
    }

    /// The share of episodes that even random actions solve: the distribution over places, carried to the time limit.
    #[cfg(test)]
    fn random_score(&self) -> f64 {
        let index = |place: Place| (place.row * self.n + place.column) * 2 + usize::from(place.has_key);
        let place =
            |index: usize| Place { row: index / 2 / self.n, column: index / 2 % self.n, has_key: index % 2 == 1 };
        let mut share = vec![0.0; 2 * self.n * self.n];
        share[index(self.start())] = 1.0;
        let mut opened = 0.0;
        for _ in 0..self.time_limit() {
            let mut next = vec![0.0; share.len()];
            for (from, &share) in share.iter().enumerate().filter(|&(_, &share)| share > 0.0) {
                for action in 0..ACTIONS.len() {
                    let to = self.after(place(from), action);
                    let part = share / ACTIONS.len() as f64;
                    if self.is_open(to) { opened += part } else { next[index(to)] += part }
                }
            }
            share = next;
        }
        opened
    }
}

impl Task for KeyDoor {
    fn name(&self) -> String {
        format!("key_door:{}", self.n)
    }

    fn image_size(&self) -> (usize, usize) {
        let side = (self.n + 2) * cell_size(self.n + 2);
        (side, side)
    }

    fn action_names(&self) -> &'static [&'static str] {
        &ACTIONS
    }

    #[cfg(test)]
    fn scores(&self) -> Scores {
        Scores { best: 1.0, random: self.random_score(), naive: 0.0 }
    }

    fn reset(&mut self, _seed: u64) {
        self.player = self.start();
        self.time = 0;
    }

    fn step(&mut self, action: usize) -> Outcome {
        self.player = self.after(self.player, action);
        self.time += 1;
        if self.is_open(self.player) {
            Outcome::terminated(1.0)
        } else if self.time == self.time_limit() {
            Outcome::truncated(0.0)
        } else {
            Outcome::goes_on(0.0)
        }
    }

    fn draw(&self, image: &mut [u8]) {
        image.fill(WALL);
        let side = self.n + 2;
        let mut draw = |row: usize, column: usize, value| fill_cell(image, side, row + 1, column + 1, value);
        for row in 0..self.n {
            for column in (0..self.n).filter(|&column| !self.is_wall(row, column)) {
                draw(row, column, 0);
            }
        }
        let (row, column) = self.door();
        draw(row, column, DOOR);
        if !self.player.has_key {
            let (row, column) = self.key();
            draw(row, column, KEY);
        }
        let player = if self.player.has_key { PLAYER_WITH_KEY } else { PLAYER };
        draw(self.player.row, self.player.column, player);
    }

    fn save(&self) -> Vec<u32> {
        let Place { row, column, has_key } = self.player;
        vec![row as u32, column as u32, u32::from(has_key), self.time as u32]
    }

    fn restore(&mut self, saved: &[u32]) -> Result<(), ImpossibleState> {
        let &[row, column, has_key @ (0 | 1), time] = saved else {
            return Err(ImpossibleState);
        };
        let player = Place { row: row as usize, column: column as usize, has_key: has_key == 1 };
        let cell = (player.row, player.column);
        let possible = player.row < self.n
            && player.column < self.n
            && !self.is_wall(player.row, player.column)
            && cell != self.door()
            && (player.has_key || cell != self.key())
            && (time as usize) < self.time_limit();
        if !possible {
            return Err(ImpossibleState);
        }
        self.player = player;
        self.time = time as usize;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;
    use crate::environments::Ending;
    use crate::tasks::play::{image, mean_score, play};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::SplitMix64;

    /// The shortest action sequence that opens the door, by breadth-first search over the task's own steps.
    fn shortest_solution(n: usize) -> Vec<usize> {
        let task = KeyDoor::new(n);
        let mut seen = HashSet::from([image(&task)]);
        let mut queue = VecDeque::from([(task, Vec::new())]);
        while let Some((task, actions)) = queue.pop_front() {
            for action in 0..4 {
                let mut next = task.clone();
                let outcome = next.step(action);
                let actions: Vec<usize> = actions.iter().copied().chain([action]).collect();
                if outcome.ending == Some(Ending::Terminated) {
                    return actions;
                }
                if outcome.ending.is_none() && seen.insert(image(&next)) {
                    queue.push_back((next, actions));
                }
            }
        }
        panic!("key_door:{n} has no solution within its time limit");
    }

    #[test]
    fn the_shortest_solution_has_37_steps_and_scores_1() {
        let actions = shortest_solution(9);
        assert_eq!(actions.len(), 37);
        let episode = play(&mut KeyDoor::new(9), 0, |_, step| actions[step]);
        assert_eq!((episode.score, episode.steps, episode.ending), (1.0, 37, Ending::Terminated));
    }

    /// No size is out of reach: the solution takes less than half the time.
    #[test]
    fn every_size_can_be_solved_and_is_hard_to_solve_by_chance() {
        for n in KeyDoor::SIZES {
            let steps = shortest_solution(n).len();
            assert!(2 * steps < KeyDoor::new(n).time_limit(), "size {n}: {steps} steps");
        }
        let random = KeyDoor::new(9).scores().random;
        assert!((7.6e-8..7.8e-8).contains(&random), "random play solves {random}");
    }

    /// At n = 5 random play solves often enough to be counted; four standard errors are allowed.
    #[test]
    fn random_play_solves_as_often_as_computed() {
        const EPISODES: u64 = 200_000;
        let mut task = KeyDoor::new(5);
        let expected = task.scores().random;
        let mut random = SplitMix64::seed_from_u64(3);
        let mean = mean_score(&mut task, EPISODES, |_, _| random.random_range(0..4));
        let allowed = 4.0 * (expected * (1.0 - expected) / EPISODES as f64).sqrt();
        assert!((mean - expected).abs() < allowed, "computed {expected}, played {mean}");
        assert!(allowed < 0.5 * expected, "too rare to be counted: {expected}");
    }

    /// Straight for the door: down, right along the passage, up, and on against the closed door.
    #[test]
    fn without_the_key_the_door_stays_shut() {
        let mut task = KeyDoor::new(9);
        let episode = play(&mut task, 0, |_, step| match step {
            0 => 2,
            1..=4 => 1,
            _ => 0,
        });
        assert_eq!((episode.score, episode.steps, episode.ending), (0.0, 99, Ending::Truncated));
        assert_eq!(task.player, Place { row: 1, column: 8, has_key: false });
    }

    #[test]
    fn distinct_places_give_distinct_images() {
        for n in [5, 9, 10] {
            let mut task = KeyDoor::new(n);
            let mut images = HashSet::new();
            let mut places = 0;
            for (cell, has_key) in (0..n * n).flat_map(|cell| [(cell, 0), (cell, 1)]) {
                if task.restore(&[(cell / n) as u32, (cell % n) as u32, has_key, 0]).is_ok() {
                    places += 1;
                    let drawn = image(&task);
                    assert!(drawn.len() >= 100);
                    images.insert(drawn);
                }
            }
            assert!(places > n * n / 2 && images.len() == places, "size {n}: {} of {places}", images.len());
        }
    }

    #[test]
    fn the_image_shows_the_documented_map() {
        let task = KeyDoor::new(9);
        let image = image(&task);
        let row = |row: usize| -> Vec<u8> { image[row * 11..][..11].to_vec() };
        assert_eq!(row(0), [64; 11]);
        assert_eq!(row(1), [64, 192, 0, 64, 64, 64, 64, 64, 0, 96, 64]);
        assert_eq!(row(2), [64, 0, 0, 64, 64, 64, 64, 64, 0, 0, 64]);
        for passage in 3..8 {
            assert_eq!(row(passage), [64, 0, 64, 64, 64, 64, 64, 64, 64, 0, 64]);
        }
        assert_eq!(row(8), [64, 0, 64, 64, 64, 128, 64, 64, 64, 0, 64]);
        assert_eq!(row(9), [64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64]);
        assert_eq!(row(10), [64; 11]);
    }

    #[test]
    fn impossible_states_are_refused() {
        let mut task = KeyDoor::new(9);
        let in_wall = &[4, 4, 0, 5];
        let outside = &[9, 0, 0, 20];
        let at_the_key_without_it = &[0, 0, 0, 20];
        let in_the_door = &[0, 8, 1, 50];
        let too_late = &[8, 0, 0, 99];
        for saved in [in_wall, outside, at_the_key_without_it, in_the_door, too_late, &[3, 0, 2, 0]] {
            assert_eq!(task.restore(saved), Err(ImpossibleState), "{saved:?}");
        }
        assert_eq!(task.restore(&[3, 0]), Err(ImpossibleState));
    }
}
