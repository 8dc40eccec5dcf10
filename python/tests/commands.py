"""Runs the `meme` command as pip installs it, without a compiler or anything else of the system on the path."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

BIN = Path(sys.executable).parent


def ended(*arguments, **variables):
    """Runs the installed command and returns how it ended."""
    environment = {"PATH": str(BIN), "HOME": os.environ.get("HOME", "/tmp")} | variables
    return subprocess.run([BIN / "meme", *arguments], env=environment, capture_output=True, text=True)


def meme(*arguments):
    """Runs the installed command, which must succeed, and returns what it printed."""
    done = ended(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def runs():
    """Short runs of catch, pong and CartPole, and an episode of each that has pictures, for all tests."""
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory)
    for task, name, preset in (
        ("catch", "catch", "tiny"),
        ("pong", "pong", "cpu"),
        ("gym:CartPole-v1", "cart_pole", "tiny"),
    ):
        options = ["--frames", "3000", "--set", "replay.minimum_fill=10", "--runs", str(directory)]
        meme("train", task, "--name", name, "--preset", preset, *options)
        if not task.startswith("gym:"):
            data = str(directory / f"{name}.safetensors")
            meme("record", name, "--data", data, "--runs", str(directory))
    return directory
