"""Tests of `comparison.py` and `compare.sh` on made-up measurements: `python -m unittest discover -s bench`."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import comparison

BENCH = Path(__file__).resolve().parent


def inference(*times):
    return [
        {"environments": environments, "milliseconds": device, "round_trip_milliseconds": trip}
        for environments, device, trip in times
    ]


def measurements():
    """One round."""
    peer = {"device": "NVIDIA H200", "torch": "2.11.0"}
    return {
        "peer-eager": {**peer, "updates_per_second": 2.5, "inference": inference((128, 2.0, 2.5), (512, 5.6, 6.0))},
        "peer-compile": {**peer, "updates_per_second": 4.0, "inference": inference((128, 1.25, 1.5), (512, 3.4, 3.8))},
        "meme-every-branch": {"updates_per_second": 4.8, "milliseconds": 208.3},
        "meme-paper": {"updates_per_second": 5.0, "milliseconds": 200.0},
        "meme-flat": {"updates_per_second": 5.6, "milliseconds": 178.6},
        "meme-inference": inference((128, 1.0, 1.2), (512, 3.4, 3.8)),
    }


class Table(unittest.TestCase):
    def lines(self, rounds):
        return comparison.table(rounds, "meme 0.1.0", "2026-11-15").splitlines()

    def test_ratios_compare_means_over_rounds(self):
        second = measurements()
        second["meme-every-branch"]["updates_per_second"] = 5.2
        second["peer-compile"]["inference"] = inference((128, 1.75, 2.1), (512, 3.4, 3.8))
        lines = self.lines([measurements(), second])
        self.assertIn("| PyTorch, torch.compile | 250.0 | 4.00 | 4.000, 4.000 | 1.000 |", lines)
        self.assertIn("| meme, every residual branch computed | 200.0 | 5.00 | 4.800, 5.200 | 1.250 |", lines)
        self.assertIn("| 128 | meme | 1.000 | 1.200 | 426667 | 1.50 / 1.50 |", lines)
        self.assertIn("| 512 | PyTorch, eager | 5.600 | 6.000 | 341333 | 0.61 / 0.63 |", lines)

    def test_names_device_versions_and_date(self):
        head = " ".join(self.lines([measurements()])[:2])
        for part in ("2026-11-15", "NVIDIA H200", "PyTorch 2.11.0", "meme 0.1.0", "1 rounds"):
            self.assertIn(part, head)

    def test_every_row_has_as_many_columns_as_its_table(self):
        rows = [line.count("|") for line in self.lines([measurements()]) if line.startswith("|")]
        self.assertEqual(rows, [6] * 7 + [7] * 8)

    def test_names_a_missing_or_invalid_field(self):
        for value in (None, 0, -1.0, "4.0", True, float("nan")):
            broken = measurements()
            broken["meme-flat"]["updates_per_second"] = value
            with self.assertRaisesRegex(comparison.Missing, "meme-flat .*updates_per_second"):
                self.lines([broken])

    def test_names_a_batch_size_that_only_the_peer_has(self):
        broken = measurements()
        broken["meme-inference"].pop()
        with self.assertRaisesRegex(comparison.Missing, "meme-inference .* 512"):
            self.lines([measurements(), broken])


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def write(self, number):
        for name, document in measurements().items():
            (self.directory / f"{number}.{name}.json").write_text(json.dumps(document, indent=2))

    def test_sorts_rounds_by_number(self):
        for number in (2, 10, 1):
            self.write(number)
        (self.directory / "10.meme-paper.json").write_text('{"updates_per_second": 9}')
        rates = [r["meme-paper"]["updates_per_second"] for r in comparison.read_rounds(self.directory)]
        self.assertEqual(rates, [5.0, 5.0, 9])

    def test_names_missing_and_torn_files(self):
        with self.assertRaisesRegex(comparison.Missing, "no measurements"):
            comparison.read_rounds(self.directory)
        self.write(1)
        (self.directory / "1.meme-flat.json").write_text('{"updates')
        with self.assertRaisesRegex(comparison.Missing, "1.meme-flat.json is not valid JSON"):
            comparison.read_rounds(self.directory)
        self.write(2)
        for name in ("meme-flat", "peer-compile"):
            (self.directory / f"1.{name}.json").unlink()
            with self.assertRaisesRegex(comparison.Missing, f"round 1 has no measurement {name}"):
                comparison.read_rounds(self.directory)
            self.write(1)


# Stands in for both programs: answers from a directory of canned documents and records its calls.
PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >>"{directory}/calls"
case "$*" in
    --version) echo "meme 0.1.0" ;;
    -) {preflight} ;;
    *"--mode eager"*) cat "{directory}/peer-eager" ;;
    *"--mode compile"*) cat "{directory}/peer-compile" ;;
    *"bench inference"*) cat "{directory}/meme-inference" ;;
    *"rate=0.0"*) cat "{directory}/meme-every-branch" ;;
    *"schedule=flat"*) cat "{directory}/meme-flat" ;;
    *"bench learner"*) cat "{directory}/meme-paper" ;;
    *) exec "{python}" "$@" ;;
esac
"""


class Script(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        for name, document in measurements().items():
            (self.directory / name).write_text(json.dumps(document))
        self.install("cat >/dev/null")

    def install(self, preflight):
        for name in ("meme", "python"):
            path = self.directory / name
            path.write_text(PROGRAM.format(directory=self.directory, python=sys.executable, preflight=preflight))
            path.chmod(0o755)

    def compare(self, **environment):
        environment = {"MEME": f"{self.directory}/meme", "PYTHON": f"{self.directory}/python", **environment}
        return subprocess.run(
            [BENCH / "compare.sh"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )

    def assert_fails(self, done, sentence):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr.splitlines()[-1], sentence)

    def test_runs_every_program_twice_in_turns_and_prints_only_the_table(self):
        done = self.compare()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("`bench/compare.sh`"), done.stdout)
        self.assertIn("| meme, every residual branch computed | 208.3 | 4.80 | 4.800, 4.800 | 1.200 |", done.stdout)
        calls = (self.directory / "calls").read_text().splitlines()
        runs = [call for call in calls if "--json" in call]
        self.assertEqual(len(runs), 12)
        self.assertEqual(runs[:6], runs[6:])

    def test_runs_only_the_selected_programs(self):
        done = self.compare(PROGRAMS="meme-flat meme-inference", ROUNDS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = (self.directory / "calls").read_text()
        self.assertEqual(calls.count("--json"), 3)
        rows = [line.split(" | ")[0] for line in done.stdout.splitlines() if line.startswith("| ")]
        flat = "| meme, flat drop rate of 25 %, dropped branches skipped"
        self.assertEqual(rows[1:3], ["| PyTorch, torch.compile", flat])
        self.assertEqual(rows[4:], ["| 128", "| 128", "| 512", "| 512"])
        self.assert_fails(self.compare(PROGRAMS="meme"), "compare: unknown program meme in PROGRAMS; choose from peer-")

    def test_names_a_failing_program_and_its_command(self):
        (self.directory / "meme-flat").unlink()
        self.assert_fails(self.compare(), r"compare: meme-flat failed, .*bench learner .*schedule=flat")

    def test_explains_a_missing_program_torch_or_gpu(self):
        self.assert_fails(self.compare(MEME="/nowhere/meme"), r"compare: meme not found at /nowhere/meme;")
        self.assert_fails(self.compare(PYTHON="/nowhere/python"), r"compare: Python not found at /nowhere/python;")
        self.install('exec "{}" -S -I -'.format(sys.executable))  # a Python without any package
        self.assert_fails(self.compare(), r"compare: .* cannot import torch .*set PYTHON")
        torch = 'class cuda: is_available = lambda: False\n__version__ = "2.11.0"\n'
        (self.directory / "torch.py").write_text(torch)
        self.install('PYTHONPATH="{}" exec "{}" -'.format(self.directory, sys.executable))
        self.assert_fails(self.compare(), r"compare: torch 2.11.0 of .* sees no GPU")


if __name__ == "__main__":
    unittest.main()
