//! `meme games`: the 57 Atari games and their reference scores.

use anyhow::Result;
use clap::Args;
use envs::games::{Game, games};

use crate::output::{self, Column};

/// Arguments of `meme games`.
#[derive(Args)]
pub struct GamesArgs {
    /// Print one JSON document with all reference scores instead of a table
    #[arg(long)]
    json: bool,
}

/// Prints the games.
pub fn run(args: &GamesArgs) -> Result<()> {
    output::print_report(args.json, &games(), |games| table(games))
}

fn table(games: &[Game]) -> String {
    let columns: [Column<Game>; 7] = [
        ("game", |game| game.rom.clone()),
        ("title", |game| game.title.clone()),
        ("actions", |game| game.minimal_actions.to_string()),
        ("random", |game| format!("{:.1}", game.random)),
        ("human", |game| format!("{:.1}", game.human)),
        ("MEME 200M", |game| format!("{:.1}", game.meme_200m.mean)),
        ("MEME 1B", |game| format!("{:.1}", game.meme_1b.mean)),
    ];
    let mut text = output::table_of(games, &columns, &[0, 1]);
    for (game, random) in games.iter().filter_map(|game| Some((game, game.random_in_paper?))) {
        text += &format!(
            "The paper's means use {random:.1} instead of {:.1} as the random score of {}.\n",
            game.random, game.rom
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_aligned_line_per_game() {
        let text = table(games());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 57 + 1);
        let last = "The paper's means use 0.0 instead of 16256.9 as the random score of video_pinball.";
        assert_eq!(lines[58], last);
        let widths: Vec<usize> = lines[..58].iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{widths:?}");
    }
}
