//! The 57 Atari games: names, and the scores that an agent's are compared with.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Mean and standard deviation over seeds of an agent's score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentScore {
    /// Mean over seeds.
    pub mean: f64,
    /// Standard deviation over seeds.
    pub std: f64,
}

/// One game of the Atari-57 suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Game {
    /// The name of its ROM, which is the name a user types.
    pub rom: String,
    /// The name on the box.
    pub title: String,
    /// Actions that do something in this game, of the 18 that there are.
    pub minimal_actions: usize,
    /// Score of random play.
    pub random: f64,
    /// The score of random play that the mean of the paper's table 1 was computed with, where it is another; all other
    /// aggregates there are the same with [`Self::random`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_in_paper: Option<f64>,
    /// Score of a human.
    pub human: f64,
    /// Agent57 after 1 billion frames.
    pub agent57_1b: AgentScore,
    /// Agent57 after 90 billion frames.
    pub agent57_90b: AgentScore,
    /// MEME after 200 million frames.
    pub meme_200m: AgentScore,
    /// MEME after 1 billion frames.
    pub meme_1b: AgentScore,
    /// MEME after 200 million frames with sticky actions.
    pub meme_sticky_200m: AgentScore,
    /// MEME after 1 billion frames with sticky actions.
    pub meme_sticky_1b: AgentScore,
}

impl Game {
    /// A score on the scale where random play is 0 and a human 1.
    pub fn normalised(&self, score: f64) -> f64 {
        (score - self.random) / (self.human - self.random)
    }
}

#[derive(Deserialize)]
struct Table {
    games: Vec<Game>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/atari57.json")).expect("the table is part of the binary and tested")
});

/// All 57 games, ordered by ROM name.
pub fn games() -> &'static [Game] {
    &TABLE.games
}

/// The game of this ROM name.
pub fn game(rom: &str) -> Option<&'static Game> {
    games().iter().find(|game| game.rom == rom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_57_games_in_order() {
        assert_eq!(games().len(), 57);
        assert!(games().is_sorted_by(|a, b| a.rom < b.rom));
    }

    #[test]
    fn every_game_has_a_gap_between_random_and_human() {
        for game in games() {
            assert!(game.human > game.random, "{}", game.rom);
            assert_eq!((game.normalised(game.random), game.normalised(game.human)), (0.0, 1.0));
            assert!((3..=18).contains(&game.minimal_actions), "{}", game.rom);
        }
    }

    #[test]
    fn a_game_is_found_by_its_rom_name() {
        let pong = game("pong").unwrap();
        assert_eq!((pong.title.as_str(), pong.random, pong.human), ("Pong", -20.7, 14.6));
        assert!(game("Pong").is_none());
    }

    #[test]
    fn the_paper_has_another_random_score_for_one_game() {
        let others = games().iter().filter_map(|game| Some((game.rom.as_str(), game.random_in_paper?)));
        assert_eq!(others.collect::<Vec<_>>(), [("video_pinball", 0.0)]);
    }
}
