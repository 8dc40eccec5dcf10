"""The `meme` command as pip installs it."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import meme_rl.launcher

from commands import BIN, ended, meme


class Command(unittest.TestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)

    def test_is_the_program_of_the_package(self):
        package = Path(meme_rl.launcher.__file__).parent
        self.assertIn(BIN.parent, package.parents, "these tests are for the installed package")
        self.assertRegex(meme("--version"), r"^meme \d+\.\d+\.\d+$")
        same = subprocess.run([sys.executable, "-m", "meme_rl", "--version"], capture_output=True, text=True)
        self.assertEqual(same.stdout, meme("--version"))

    def test_doctor_finds_this_python_and_its_libtorch(self):
        findings = {finding["name"]: finding for finding in json.loads(meme("doctor", "--json"))}
        self.assertEqual(findings["libtorch"]["verdict"], "found")
        self.assertTrue(findings["libtorch"]["what"].startswith(meme_rl.launcher.TORCH))
        self.assertIn(str(BIN), findings["Python"]["what"])

    def test_trains_resumes_evaluates_and_records(self):
        runs = ["--runs", str(self.directory)]
        for frames in ("1000", "2000"):
            meme("train", "catch", "--name", "first", "--frames", frames, *runs)
        report = json.loads(meme("eval", "first", "--episodes", "2", "--json", *runs))
        self.assertEqual(len(report["scores"]), 2)
        meme("record", "first", "--out", str(self.directory / "first.gif"), *runs)
        self.assertEqual((self.directory / "first.gif").read_bytes()[:6], b"GIF89a")

    def test_plays_an_atari_game_in_a_worker(self):
        meme("play", "pong", "--seed", "1")

    def test_says_what_is_missing(self):
        failed = ended("--version", MEME_PROGRAM=str(self.directory / "nothing"))
        self.assertEqual(failed.returncode, 1)
        self.assertEqual(
            failed.stderr, f"error: {self.directory}/nothing is missing or not a program; reinstall the package meme-rl\n"
        )


if __name__ == "__main__":
    unittest.main()
