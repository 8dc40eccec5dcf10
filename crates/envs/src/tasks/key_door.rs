//! `key_door`: fetch a key in one chamber to open a door in another. Tests exploration within an episode.

use std::ops::RangeInclusive;

use super::task::{Outcome, Task};
use super::{cell_size, fill_cell};

const WALL: u8 = 64;
const DOOR: u8 = 96;
const KEY: u8 = 192;
/// The player without the key, and with it.
///
/// The second is brighter, so that the way back looks new even to an embedding that keeps only what the actions move.
const PLAYER: u8 = 128;
const PLAYER_WITH_KEY: u8 = 255;
const ACTIONS: [&str; 4] = ["up", "right", "down", "left"];
/// Steps of the time limit per cell of the grid's side.
const STEPS_PER_CELL: usize = 11;

/// Two chambers at the ends of a passage, in a grid of `n` x `n` cells. For n = 9:
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
/// **Rules.** A step moves the player one cell, unless a wall, the edge or, without the key, the door stops it. The
/// player takes the key by reaching it. Reaching the door with the key terminates the episode; after 11 n steps (99) it
/// is truncated. The layout depends only on n, and there is no randomness.
///
/// **Reward.** 1 for opening the door, nothing else.
///
/// **Observation.** The grid within a border of wall, n + 2 cells wide and high. A cell is one pixel, or as many as
/// make the image at least 10 x 10. Floor 0, wall 64, door 96, player 128 (255 with the key), key 192.
///
/// **Actions.** `up`, `right`, `down`, `left`.
///
/// **Scores.** Best 1, in 37 steps for n = 9. Random 0.00000008 for n = 9: one episode in 13 million. Naive (going
/// straight to the door) 0.
#[derive(Clone, Debug)]
pub struct KeyDoor {
    n: usize,
    player: Player,
    time: usize,
}

/// Where the player is, and whether it has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Player {
    row: usize,
    column: usize,
    has_key: bool,
}

impl KeyDoor {
    /// Size of plain `key_door`.
    pub const DEFAULT_SIZE: usize = 9;
    /// Valid sizes.
    pub const SIZES: RangeInclusive<usize> = 5..=22;

    /// Creates a grid of side `n`, one of [`SIZES`](Self::SIZES).
    pub fn new(n: usize) -> Self {
        let mut task = Self { n, player: Player { row: 0, column: 0, has_key: false }, time: 0 };
        task.player = task.start();
        task
    }

    /// The start: a niche above the middle of the passage.
    fn start(&self) -> Player {
        Player { row: self.n - 2, column: self.n / 2, has_key: false }
    }

    fn key(&self) -> (usize, usize) {
        (0, 0)
    }

    fn door(&self) -> (usize, usize) {
        (0, self.n - 1)
    }

    fn time_limit(&self) -> usize {
        STEPS_PER_CELL * self.n
    }

    /// The passage runs along the left, lower and right edges; the chambers are in the upper corners. A passage is hard
    /// for a random walk and easy for an agent that seeks novelty; many wrong turns would be hard for both.
    fn is_wall(&self, row: usize, column: usize) -> bool {
        let last = self.n - 1;
        let chamber = last / 4;
        let in_passage = column == 0 || column == last || row == last;
        let in_chamber = row < chamber && (column < chamber || column > last - chamber);
        let in_niche = (row, column) == (last - 1, self.n / 2);
        !(in_passage || in_chamber || in_niche)
    }

    fn is_open(&self, place: Player) -> bool {
        place.has_key && (place.row, place.column) == self.door()
    }

    /// Returns where an action leads.
    fn after(&self, place: Player, action: usize) -> Player {
        let Player { row, column, has_key } = place;
        let (row, column) = match action {
            0 => (row.saturating_sub(1), column),
            1 => (row, (column + 1).min(self.n - 1)),
            2 => ((row + 1).min(self.n - 1), column),
            _ => (row, column.saturating_sub(1)),
        };
        if self.is_wall(row, column) || (!has_key && (row, column) == self.door()) {
            return place;
        }
        Player { row, column, has_key: has_key || (row, column) == self.key() }
    }
}

impl Task for KeyDoor {
    fn image_size(&self) -> (usize, usize) {
        let side = (self.n + 2) * cell_size(self.n + 2);
        (side, side)
    }

    fn action_names(&self) -> &'static [&'static str] {
        &ACTIONS
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
            Outcome::running(0.0)
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
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;
    use crate::environments::Ending;
    use crate::tasks::tests::{Scored, Scores, assert_repeats, image, mean_score, play};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::SplitMix64;

    impl Scored for KeyDoor {
        fn scores(&self) -> Scores {
            Scores { best: 1.0, random: self.random_score(), naive: 0.0 }
        }
    }

    impl KeyDoor {
        /// Computes the share of episodes that random actions solve from the distribution over states at each step.
        fn random_score(&self) -> f64 {
            let index = |place: Player| (place.row * self.n + place.column) * 2 + usize::from(place.has_key);
            let place =
                |index: usize| Player { row: index / 2 / self.n, column: index / 2 % self.n, has_key: index % 2 == 1 };
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

    /// Finds the shortest action sequence that opens the door, by breadth-first search.
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
    fn shortest_solution_takes_37_steps_and_scores_1() {
        let actions = shortest_solution(9);
        assert_eq!(actions.len(), 37);
        let episode = play(&mut KeyDoor::new(9), 0, |_, step| actions[step]);
        assert_eq!((episode.score, episode.steps, episode.ending), (1.0, 37, Ending::Terminated));
    }

    /// The solution takes less than half the time limit.
    #[test]
    fn every_size_is_solvable_but_hard_to_solve_by_chance() {
        for n in KeyDoor::SIZES {
            let steps = shortest_solution(n).len();
            assert!(2 * steps < KeyDoor::new(n).time_limit(), "size {n}: {steps} steps");
        }
        let random = KeyDoor::new(9).scores().random;
        assert!((7.6e-8..7.8e-8).contains(&random), "random play solves {random}");
    }

    /// Random play solves n = 5 often enough to count; allows four standard errors.
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

    /// Goes straight to the door: down, right along the passage, up, and on against the closed door.
    #[test]
    fn door_stays_shut_without_the_key() {
        let mut task = KeyDoor::new(9);
        let episode = play(&mut task, 0, |_, step| match step {
            0 => 2,
            1..=4 => 1,
            _ => 0,
        });
        assert_eq!((episode.score, episode.steps, episode.ending), (0.0, 99, Ending::Truncated));
        assert_eq!(task.player, Player { row: 1, column: 8, has_key: false });
    }

    #[test]
    fn distinct_states_give_distinct_images() {
        for n in [5, 9, 10] {
            let mut task = KeyDoor::new(n);
            let mut images = HashSet::new();
            let mut places = 0;
            for (cell, has_key) in (0..n * n).flat_map(|cell| [(cell, false), (cell, true)]) {
                let (row, column) = (cell / n, cell % n);
                let takes_the_key = !has_key && (row, column) == task.key();
                if !task.is_wall(row, column) && (row, column) != task.door() && !takes_the_key {
                    task.player = Player { row, column, has_key };
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
    fn image_shows_the_documented_map() {
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
    fn seed_and_actions_repeat_an_episode() {
        assert_repeats(|| KeyDoor::new(9));
    }
}
