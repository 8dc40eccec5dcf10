//! The 57 Atari games: their names, and reference scores.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// An agent's score over several seeds.
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
    /// The name of its ROM, which is also the name a user types.
    pub rom: String,
    /// The name on the box.
    pub title: String,
    /// Number of actions that have an effect in this game, of 18.
    pub minimal_actions: usize,
    /// Score of random play.
    pub random: f64,
    /// The score of random play behind the mean in the paper's table 1, if different.
    ///
    /// All other aggregates of that table follow from [`Self::random`].
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
    /// Rescales a score so that random play is 0 and a human 1.
    pub fn normalised(&self, score: f64) -> f64 {
        (score - self.random) / (self.human - self.random)
    }
}

/// A column of the paper's tables of aggregate scores.
///
/// Human-normalised scores of all 57 games in percent, each followed by the ends of its 95 % interval if the paper has
/// one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PaperAggregate {
    /// The agent.
    pub agent: String,
    /// Frames that it was trained for.
    pub frames: u64,
    /// Whether actions were sticky, or the column stands beside one where they were.
    pub sticky: bool,
    /// Number of games with a score above a human's.
    pub games_above_human: Vec<f64>,
    /// Mean of the scores, each between 0 and 100.
    pub capped_mean: Vec<f64>,
    /// Mean.
    pub mean: Vec<f64>,
    /// Median.
    pub median: Vec<f64>,
    /// 25th percentile.
    pub percentile_25: Vec<f64>,
    /// 5th percentile.
    pub percentile_5: Vec<f64>,
}

/// When the paper's agents reach human level.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HumanLevel {
    /// Frames until MEME is above human in every game.
    pub meme: u64,
    /// The same with sticky actions.
    pub meme_sticky: u64,
    /// Frames until Agent57 is above human in every game.
    pub agent57: u64,
    /// How many times fewer frames MEME needs than Agent57 to reach human level: the mean over games.
    pub speedup_mean: f64,
    /// The median over games.
    pub speedup_median: f64,
    /// The games whose number the paper prints.
    pub speedups: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Table {
    games: Vec<Game>,
    aggregates: Vec<PaperAggregate>,
    human_level: HumanLevel,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/atari57.json")).expect("tests parse this built-in table")
});

/// Returns all 57 games, ordered by ROM name.
pub fn games() -> &'static [Game] {
    &TABLE.games
}

/// Returns the columns of the paper's tables of aggregate scores.
pub fn paper_aggregates() -> &'static [PaperAggregate] {
    &TABLE.aggregates
}

/// Returns when the paper's agents reach human level.
pub fn human_level() -> &'static HumanLevel {
    &TABLE.human_level
}

/// Finds a game by its ROM name.
pub fn game(rom: &str) -> Option<&'static Game> {
    games().iter().find(|game| game.rom == rom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_57_games_in_order() {
        assert_eq!(games().len(), 57);
        assert!(games().is_sorted_by(|a, b| a.rom < b.rom));
    }

    #[test]
    fn humans_outscore_random_play_in_every_game() {
        for game in games() {
            assert!(game.human > game.random, "{}", game.rom);
            assert_eq!((game.normalised(game.random), game.normalised(game.human)), (0.0, 1.0));
            assert!((3..=18).contains(&game.minimal_actions), "{}", game.rom);
        }
    }

    #[test]
    fn finds_games_by_rom_name() {
        let pong = game("pong").unwrap();
        assert_eq!((pong.title.as_str(), pong.random, pong.human), ("Pong", -20.7, 14.6));
        assert!(game("Pong").is_none());
    }

    #[test]
    fn paper_has_aggregates_of_ten_agents() {
        assert_eq!(paper_aggregates().len(), 10);
        for column in paper_aggregates() {
            let lengths = [&column.games_above_human, &column.mean, &column.percentile_5].map(Vec::len);
            assert!(lengths == [1; 3] || lengths == [3; 3], "{column:?}");
        }
        assert!(human_level().speedups.keys().all(|rom| game(rom).is_some()));
    }

    #[test]
    fn paper_uses_another_random_score_for_one_game() {
        let others = games().iter().filter_map(|game| Some((game.rom.as_str(), game.random_in_paper?)));
        assert_eq!(others.collect::<Vec<_>>(), [("video_pinball", 0.0)]);
    }
}
