"""Tests of `aggregate.py`: `python -m unittest discover -s bench`."""

import json
import tempfile
import unittest
from pathlib import Path

import aggregate

BASELINES = Path(__file__).resolve().parent.parent / "crates/envs/data/atari57.json"


def games():
    return {game["rom"]: game for game in json.loads(BASELINES.read_text())["games"]}


def facts(game, scores):
    return {"game": game, "evaluation": {"scores": scores}}


class Aggregate(unittest.TestCase):
    def test_reproduces_the_papers_table_from_its_scores(self):
        found = {
            key: aggregate.statistics(games(), {rom: game[key]["mean"] for rom, game in games().items()})
            for key in aggregate.OTHERS
        }
        early, late = found["meme_200m"], found["meme_1b"]
        self.assertEqual((early["games above human"], late["games above human"]), (54, 57))
        self.assertEqual((round(early["capped mean"]), round(late["capped mean"])), (98, 100))
        self.assertEqual((round(early[aggregate.PAPERS_MEAN]), round(late["5th percentile"])), (3305, 119))
        # The paper averages over subsets of its seeds, so the others are only close.
        self.assertAlmostEqual(late[aggregate.PAPERS_MEAN], 4087, delta=10)
        for name, value in {"median": 848, "25th percentile": 282, "5th percentile": 100}.items():
            self.assertAlmostEqual(early[name], value, delta=0.05 * value)

    def test_intervals_resample_runs_and_their_episodes(self):
        pong = games()["pong"]
        runs = {"pong": [[14.6, 14.6], [14.6, 14.6]]}
        low, high = aggregate.intervals({"pong": pong}, runs)
        self.assertAlmostEqual(low["mean"], 100)
        self.assertAlmostEqual(high["mean"], 100)
        # One run of two episodes, at 50 % and 150 % of human: a quarter of the draws holds one of them twice.
        low, high = aggregate.intervals({"pong": pong}, {"pong": [[-3.05, 32.25]]})
        self.assertAlmostEqual(low["mean"], 50)
        self.assertAlmostEqual(high["mean"], 150)
        # Two different runs, each of equal episodes.
        low, high = aggregate.intervals({"pong": pong}, {"pong": [[-3.05] * 3, [32.25] * 3]})
        self.assertAlmostEqual(low["mean"], 50)
        self.assertAlmostEqual(high["mean"], 150)

    def test_counts_a_game_once_regardless_of_its_number_of_runs(self):
        every = games()
        all_facts = [facts(every["pong"], [14.6]), facts(every["pong"], [14.6]), facts(every["breakout"], [1.7])]
        table = aggregate.table(all_facts)
        self.assertIn("| 2 of 57 games |", table)
        self.assertIn("| mean | 50 (50, 50) |", table)
        self.assertIn("| games above human | 0 (0, 0) |", table)
        self.assertNotIn(aggregate.PAPERS_MEAN, table)
        pinball = [facts(every["video_pinball"], [17667.9])]
        self.assertIn(f"| {aggregate.PAPERS_MEAN} | 100 (100, 100) |", aggregate.table(pinball))

    def test_explains_bad_input(self):
        def refusal(directory):
            with self.assertRaises(SystemExit) as refused:
                aggregate.results(directory)
            return str(refused.exception)

        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            self.assertEqual(refusal(directory), f"no results of bench/result.py in {directory}")
            (directory / "pong.json").write_text("{")
            self.assertIn(f"{directory}/pong.json is damaged: ", refusal(directory))
            for other in [{}, {"game": games()["pong"]}, facts(games()["pong"], [])]:
                (directory / "pong.json").write_text(json.dumps(other))
                self.assertIn("pong.json is not a result of bench/result.py", refusal(directory))
            (directory / "pong.json").write_text(json.dumps(facts(games()["pong"], [1.0])))
            self.assertEqual(len(aggregate.results(directory)), 1)


if __name__ == "__main__":
    unittest.main()
