"""Aggregate scores over many games, as in the paper's first table.

    python bench/aggregate.py [docs/results/games]

Reads the NAME.json files that bench/result.py wrote and prints, for the games found: how many are above human, and
the capped mean, mean, median, 25th and 5th percentile of the human-normalised scores in percent, beside those of the
paper's agents on the same games.

A game's score is the mean of its runs. Brackets hold 95 % bootstrap intervals: 10 000 times, the runs of each game are
resampled with replacement, and so are the episodes of each resampled run. The paper's mean assumes a random score of 0
for video_pinball, where published tables have 16 256.9: with that game, two means are printed.
"""

import argparse
import sys
from pathlib import Path

import numpy

from result import OTHERS, parsed, read

DRAWS = 10_000
STATISTICS = ("games above human", "capped mean", "mean", "median", "25th percentile", "5th percentile")
PAPERS_MEAN = "mean with the paper's random play"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", default=Path("docs/results/games"))
    print(table(results(parser.parse_args().directory)), end="")


def results(directory):
    """Reads every result of bench/result.py in a directory."""
    found = {path: parsed(path, read(path)) for path in sorted(directory.glob("*.json"))}
    if not found:
        sys.exit(f"no results of bench/result.py in {directory}")
    for path, facts in found.items():
        if "game" not in facts or not facts.get("evaluation", {}).get("scores"):
            sys.exit(f"{path} is not a result of bench/result.py: it has no game or no scores")
    return list(found.values())


def table(all_facts):
    """The statistics of all runs, one per row."""
    games = {facts["game"]["rom"]: facts["game"] for facts in all_facts}
    runs = {rom: [facts["evaluation"]["scores"] for facts in all_facts if facts["game"]["rom"] == rom] for rom in games}
    found = statistics(games, {rom: numpy.mean([numpy.mean(run) for run in runs[rom]]) for rom in games})
    low, high = intervals(games, runs)
    columns = [statistics(games, {rom: game[key]["mean"] for rom, game in games.items()}) for key in OTHERS]
    lines = [
        f"| {len(games)} of 57 games | `meme` | " + " | ".join(OTHERS.values()) + " |",
        "|---|---:|" + "---:|" * len(OTHERS),
    ]
    for name, value in found.items():
        cells = [name, f"{value:.0f} ({low[name]:.0f}, {high[name]:.0f})"]
        cells += [f"{column[name]:.0f}" for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def statistics(games, scores):
    """Each statistic of the games' scores; arrays of scores give arrays of statistics."""

    def normalised(random):
        each = [(scores[rom] - random(game)) / (game["human"] - random(game)) for rom, game in games.items()]
        return 100 * numpy.stack(each)

    all_scores = normalised(lambda game: game["random"])
    values = (
        (all_scores > 100).sum(0),
        all_scores.clip(0, 100).mean(0),
        all_scores.mean(0),
        *numpy.percentile(all_scores, [50, 25, 5], axis=0),
    )
    found = dict(zip(STATISTICS, values))
    if any("random_in_paper" in game for game in games.values()):
        found[PAPERS_MEAN] = normalised(lambda game: game.get("random_in_paper", game["random"])).mean(0)
    return found


def intervals(games, runs):
    """The lower and upper ends of each statistic's 95 % interval."""
    source = numpy.random.default_rng(0)
    drawn = {}
    for rom, of_game in runs.items():
        means = numpy.stack([source.choice(scores, (DRAWS, len(of_game), len(scores))).mean(-1) for scores in of_game])
        chosen = source.integers(len(of_game), size=(DRAWS, len(of_game)))
        # For each draw and place: the mean of the episodes resampled from the run chosen for that place.
        drawn[rom] = means[chosen, numpy.arange(DRAWS)[:, None], numpy.arange(len(of_game))].mean(-1)
    found = statistics(games, drawn)
    ends = {name: numpy.percentile(values, [2.5, 97.5]) for name, values in found.items()}
    return {name: end[0] for name, end in ends.items()}, {name: end[1] for name, end in ends.items()}


if __name__ == "__main__":
    main()
