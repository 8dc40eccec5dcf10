//! `meme games`: the 57 Atari games and their reference scores.

use anyhow::Result;
use clap::Args;
use envs::games::{Game, games};

use crate::output;

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
    let heading = ["game", "title", "actions", "random", "human", "MEME 200M", "MEME 1B"].map(str::to_owned);
    let row = |game: &Game| {
        let score = |score: f64| format!("{score:.1}");
        let [random, human, meme_200m, meme_1b] =
            [game.random, game.human, game.meme_200m.mean, game.meme_1b.mean].map(score);
        [game.rom.clone(), game.title.clone(), game.minimal_actions.to_string(), random, human, meme_200m, meme_1b]
    };
    let rows: Vec<[String; 7]> = [heading].into_iter().chain(games.iter().map(row)).collect();
    let mut text = output::table(&rows, &[0, 1]);
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
