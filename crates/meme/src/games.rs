//! `meme games`: the 57 games and the scores that an agent's are compared with.

use anyhow::Result;
use clap::Args;
use envs::games::{Game, games};

use crate::output;

/// Options of `meme games`.
#[derive(Args)]
pub struct GamesArgs {
    /// Print one JSON document with all scores instead of a table
    #[arg(long)]
    json: bool,
}

/// Prints the games.
pub fn run(args: &GamesArgs) -> Result<()> {
    if args.json { output::print_json(&games()) } else { output::print(&table(games())) }
}

fn table(games: &[Game]) -> String {
    let mut text = format!(
        "{:<18} {:<19} {:>7} {:>11} {:>11} {:>12} {:>12}\n",
        "game", "title", "actions", "random", "human", "MEME 200M", "MEME 1B"
    );
    for game in games {
        text += &format!(
            "{:<18} {:<19} {:>7} {:>11.1} {:>11.1} {:>12.1} {:>12.1}\n",
            game.rom, game.title, game.minimal_actions, game.random, game.human, game.meme_200m.mean, game.meme_1b.mean
        );
    }
    for (game, random) in games.iter().filter_map(|game| Some((game, game.random_in_paper?))) {
        text += &format!(
            "The paper's own means take {random:.1}, not {:.1}, for random play of {}.\n",
            game.random, game.rom
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_a_game_and_its_columns_line_up() {
        let text = table(games());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 57 + 1);
        let last = "The paper's own means take 0.0, not 16256.9, for random play of video_pinball.";
        assert_eq!(lines[58], last);
        let widths: Vec<usize> = lines[..58].iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{widths:?}");
    }
}
