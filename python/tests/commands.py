"""Runs the `meme` command as pip installs it, without a compiler or anything else of the system on the path."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[1] / "examples"


def ended(*arguments, **variables):
    """Runs the installed command, which finds the example environments, and returns how it ended."""
    environment = {"PATH": str(BIN), "HOME": os.environ.get("HOME", "/tmp"), "PYTHONPATH": str(EXAMPLES)} | variables
    return subprocess.run([BIN / "meme", *arguments], env=environment, capture_output=True, text=True)


def meme(*arguments):
    """Runs the installed command, which must succeed, and returns what it printed."""
    done = ended(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def observations(episode):
    """The observations of a recorded episode, dictionaries of parts if there are several."""
    parts = {name.partition(".")[2]: x for name, x in episode.items() if name.split(".")[0] == "observation"}
    if "" in parts:
        return list(parts[""])
    return [{name: x[t] for name, x in parts.items()} for t in range(len(episode["action"]))]


def each_part(observation):
    """The parts of an observation with their names; a single array has none."""
    return observation.items() if isinstance(observation, dict) else [("", observation)]


def tensors(observation):
    """An observation as a batch of one."""
    if isinstance(observation, dict):
        return {name: torch.as_tensor(x)[None] for name, x in observation.items()}
    return torch.as_tensor(observation)[None]


def is_greedy(action, episode, step):
    """Whether an action is the recorded one, or one whose value is the same but for rounding: 100 times less than the
    values themselves may differ."""
    values, recorded = episode["q"][step], episode["action"][step]
    return action == recorded or bool(values[recorded] - values[action] < 1e-6)


@cache
def runs():
    """Short runs of catch, pong, the compass and CartPole, and an episode of each that has pictures, for all tests."""
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory)
    for task, name, preset in (
        ("catch", "catch", "tiny"),
        ("pong", "pong", "cpu"),
        ("gym:compass:Compass-v0", "compass", "tiny"),
        ("gym:CartPole-v1", "cart_pole", "tiny"),
    ):
        options = ["--frames", "3000", "--set", "replay.minimum_fill=10", "--runs", str(directory)]
        meme("train", task, "--name", name, "--preset", preset, *options)
        if name != "cart_pole":
            data = str(directory / f"{name}.safetensors")
            meme("record", name, "--data", data, "--runs", str(directory))
    return directory
