"""Tests of `result.py` on a made-up run: `python -m unittest discover -s bench`."""

import argparse
import json
import tempfile
import unittest
from pathlib import Path

import result

DESCRIPTION = {"task": "pong", "preset": "paper", "seed": 2, "created_unix": 1794700800}


def facts(name="pong-paper-2", mean=15.5, frames=20_000_000):
    others = {"random": -20.7, "human": 14.6}
    others |= {key: {"mean": 20.0 + i, "std": 1.0} for i, key in enumerate(["meme_200m", "meme_1b", "agent57_1b"])}
    atari = {"noop_max": 30, "sticky_probability": 0.0, "action_set": "full", "action_repeat": 4, "frame_cap": 108_000}
    protocol = {"episodes": 2, "checkpoint_frames": frames, "parameters": "ema", "policy": 3, "policies": 16}
    protocol |= {"epsilon": 0.0, "seed": 2, "atari": atari}
    scores = {"mean": mean, "std": 0.5, "human_normalised": 1.025, "scores": [15.0, 16.0]}
    return {
        "name": name,
        "command": "meme train pong",
        "commit": "abc",
        "machine": "one H200",
        "date": "2026-11-15",
        "frames": frames,
        "updates": 30_000,
        "seconds": 1260.0,
        "game": {"rom": "pong", **others},
        "evaluation": {**scores, "protocol": protocol},
    }


class Result(unittest.TestCase):
    def test_command_reproduces_the_run(self):
        changed = {"run.frames": 20_000_000, "run.seed": 2, "env.ram": [3, 42], "replay.minimum_fill": 2000}
        changed |= {"run.lockstep": True, "run.device": "cpu", "agent.x": [{"stride": 2, "rate": 5e-05}]}
        differences = [{"path": path, "left": 1, "right": value} for path, value in changed.items()]
        expected = (
            "meme train pong --preset paper --seed 2 --frames 20000000 --set 'env.ram=[3, 42]' "
            "--set replay.minimum_fill=2000 --set run.lockstep=true --set 'run.device=\"cpu\"' "
            "--set 'agent.x=[{ stride = 2, rate = 5e-05 }]'"
        )
        self.assertEqual(result.command(DESCRIPTION, differences), expected)

    def test_thinning_keeps_even_spacing_and_the_last_row(self):
        rows = [{"frames": i, "a": 1 / 3, "b": [2 / 3, None]} for i in range(1, 1001)]
        kept = result.thinned(rows)
        self.assertLessEqual(len(kept), result.ROWS)
        self.assertEqual(kept[-1], {"frames": 1000, "a": 0.333, "b": [0.667, None]})
        self.assertEqual(kept[1]["frames"] - kept[0]["frames"], 17)
        self.assertEqual(len(result.thinned(rows[:5])), 5)

    def test_page_names_everything_the_score_depends_on(self):
        findings = "pong: 3 rows\n  the learner waits for data 40 % of its time\n27 charts in x.svg\n"
        page = result.page(facts(), findings)
        for expected in [
            "meme train pong\n",
            "| 20 000 000, 30 000 |",
            "| 21.0 min |",
            "| 15.50 ± 0.50, 2 episodes |",
            "| 15 16 |",
            "ema parameters, policy 3 of 16, epsilon 0, seed 2, up to 30 no-ops, sticky actions 0, full action set",
            "```\n  the learner waits for data 40 % of its time\n```",
            "![curves](pong-paper-2.svg)",
            "| with online parameters | not evaluated |",
        ]:
            self.assertIn(expected, page)
        page = result.page({**facts(), "online": {"mean": 14.0, "std": None}}, findings)
        self.assertIn("| with online parameters | 14.00 |", page)

    def test_rebuilds_tables_and_keeps_the_text_around_them(self):
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "games"
            out.mkdir()
            for made in [facts(), facts("breakout-1", 31.25)]:
                (out / f"{made['name']}.json").write_text(json.dumps(made))
            result.update_tables(out)
            index = out.with_suffix(".md")
            run = "| pong | [breakout-1](games/breakout-1.md) | 31.25 ± 0.50 | 1.02 | 14.6 | 20 000 000 | 21.0 min | one H200 | 2 | abc |"
            published = "| pong | -20.7 | 14.6 | 20.0 | 21.0 | 22.0 |"
            curves = "![curves of breakout-1](games/breakout-1.svg)"
            for row in [run, published, curves]:
                self.assertEqual(index.read_text().count(row + "\n"), 1)
            index.write_text(index.read_text() + "What was learned.\n")
            (out / "breakout-1.json").unlink()
            result.update_tables(out)
            text = index.read_text()
            self.assertTrue(text.endswith("What was learned.\n"))
            self.assertNotIn("breakout", text)
            self.assertIn("[pong-paper-2](games/pong-paper-2.md)", text)
            index.write_text("# Another page\n")
            with self.assertRaises(SystemExit) as refused:
                result.update_tables(out)
            self.assertIn("needs exactly one line", str(refused.exception))

    def test_figure_shows_scores_only(self):
        kept = {"frames": 4, "actor/score": 1.5, "actor/score_by_policy": [1.0], "evaluation/score": 2.0}
        self.assertEqual(result.curves([{**kept, "learner/loss": 0.1}]), [kept])

    def test_explains_bad_input(self):
        with tempfile.TemporaryDirectory() as directory:
            run, report = Path(directory) / "pong", Path(directory) / "report.json"
            arguments = argparse.Namespace(run=run, out=Path(directory) / "games", meme="no-such-meme", evaluation=report)

            def refusal(call, *given):
                with self.assertRaises(SystemExit) as refused:
                    call(*given)
                return str(refused.exception)

            missing = f"{run}/run.json can't be read: No such file or directory"
            self.assertEqual(refusal(result.write, arguments), missing)
            run.mkdir()
            (run / "run.json").write_text("{")
            self.assertIn("run.json is damaged: Expecting property name", refusal(result.write, arguments))
            (run / "run.json").write_text(json.dumps(DESCRIPTION))
            (run / "metrics.jsonl").write_text('{"frames": 4}\n{"fra')
            nothing = f"{run}/metrics.jsonl has no row with learner/updates: the run has not started to learn"
            self.assertEqual(refusal(result.write, arguments), nothing)
            (run / "metrics.jsonl").write_text('{"frames": 4, "learner/updates": 1}\n')
            no_binary = "no-such-meme can't be run (No such file or directory): run `make build`, or set"
            self.assertIn(no_binary, refusal(result.write, arguments))
            report.write_text("[]")
            damaged = f"{report} is damaged: not a JSON object"
            self.assertEqual(refusal(result.evaluated, report, "pong", "ema"), damaged)
            report.write_text("{}")
            none = f"{report} is not a report of `meme eval --json`"
            self.assertEqual(refusal(result.evaluated, report, "pong", "ema"), none)
            report.write_text('{"scores": [], "protocol": {"environment": "breakout"}}')
            other = f"{report} is an evaluation of breakout, not of pong"
            self.assertEqual(refusal(result.evaluated, report, "pong", "ema"), other)
            report.write_text('{"scores": [], "protocol": {"environment": "pong", "parameters": "ema"}}')
            mixed_up = f"{report} is an evaluation of ema parameters, not of online ones"
            self.assertEqual(refusal(result.evaluated, report, "pong", "online"), mixed_up)
            self.assertFalse(arguments.out.exists())


if __name__ == "__main__":
    unittest.main()
