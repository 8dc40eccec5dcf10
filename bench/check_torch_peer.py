#!/usr/bin/env python3
"""Compares the PyTorch peer with the golden files: `.venv-python/bin/python bench/check_torch_peer.py`.

Gives the peer the parameters and the batch of tests/golden, on the CPU in f32, and compares loss, priorities, moments
and every gradient. `make golden` runs it; `--mode compile` takes minutes to compile.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.numpy import load_file

from torch_peer import Learner

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
FILE = "loss_soft_watkins_online.safetensors"
TOLERANCE = 1e-4  # of max|got - want| / max|want|, as in the Rust tests


def load(file):
    return {name: torch.from_numpy(x) for name, x in load_file(GOLDEN / file).items()}


def part(tensors, prefix):
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    mode = parser.parse_args().mode
    cases = json.loads((GOLDEN / "cases.json").read_text())["files"]
    case = next(case for case in cases if case["file"] == FILE)
    given, want = load(case["inputs"]), load(FILE)
    learner = Learner(case["learner"], case["network"], part(given, "online."), part(given, "target."), "cpu", mode)
    learner.moments = {**part(given, "moments."), "count": given["moments.count"].item()}
    loss, priorities = learner.gradients(part(given, "batch."), given["keep"])

    pairs = {
        "loss": (loss, want["loss_total"]),
        "priorities": (priorities, want["priority"]),
        "first moments": (learner.moments["first"], want["moments_after.first"]),
        "second moments": (learner.moments["second"], want["moments_after.second"]),
    }
    pairs |= {f"gradient of {name}": (x.grad, want[f"gradient.{name}"]) for name, x in learner.online.items()}
    errors = {name: ((x - y).abs().max() / y.abs().max()).item() for name, (x, y) in pairs.items()}
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCE}
    for name, error in wrong.items():
        print(f"{name} differs from the golden file by {error:.1e}")
    if wrong:
        sys.exit(1)
    worst = max(errors, key=errors.get)
    print(f"PyTorch peer, {mode}: {len(pairs)} quantities agree with the golden file to {errors[worst]:.1e} ({worst})")


if __name__ == "__main__":
    main()
