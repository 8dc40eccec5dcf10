#!/usr/bin/env python3
"""Compares settings on a MinAtar game: a cheap proxy for what an Atari game would show in hours of GPU time.

    python/examples/minatar_proxy.py baseline separate tau=agent.returns.temperature=1.0 --seeds 1 2

A setting is a name of SETTINGS, or NAME=FIELD=VALUE[,FIELD=VALUE...]. Runs take turns on `--jobs` processes and resume
when the same command is given again. The table has the mean score of the actors, of the evaluators, and of the actors'
recent episodes with each of the first four policies, as they stood at `--frames`.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parent
MEME = EXAMPLES.parents[1] / "target/release/meme"
SETTINGS = {
    "baseline": [],
    "no_exploration": ["agent.policies.beta_max=0.0"],
    "separate": ["agent.loss.q_heads=separate"],
    "returns": ["agent.loss.q_combination=returns"],
    "no_distillation": ["agent.loss.distillation=false"],
    "four_policies": ["agent.policies.count=4"],
    "no_depth": ["agent.network.torso.stochastic_depth.rate=0.0"],
}


def parse_setting(text):
    name, _, changes = text.partition("=")
    if changes:
        return name, changes.split(",")
    if name not in SETTINGS:
        raise argparse.ArgumentTypeError(f"unknown setting {name!r}; choose from {', '.join(SETTINGS)}")
    return name, SETTINGS[name]


def train(options, name, changes, seed):
    """Trains one run to the end and returns the last row of its metrics."""
    run = f"{options.game}-{name}-{seed}"
    command = [MEME, "train", f"gym:minatar_games:{options.game}-v0", "--preset", options.preset, "--name", run]
    command += ["--runs", options.runs.resolve(), "--seed", str(seed), "--frames", str(options.frames)]
    for change in changes:
        command += ["--set", change]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{run}: {done.stderr.strip().splitlines()[-1]}")
    rows = (options.runs / run / "metrics.jsonl").read_text().splitlines()
    return json.loads(rows[-1])


def cells(row):
    """The scores of a row of metrics, as text."""
    by_policy = row.get("actor/score_by_policy") or []
    scores = [row.get("actor/score"), row.get("evaluation/score"), *by_policy[:4]]
    return ["-" if score is None else f"{score:.1f}" for score in scores]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", type=parse_setting, metavar="SETTING")
    parser.add_argument("--game", default="SpaceInvaders", help="Asterix, Breakout, Freeway, Seaquest or SpaceInvaders; with 18 behind it for 18 actions")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--frames", type=int, default=43_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/minatar"))
    options = parser.parse_args()

    print("| setting | seed | actors | evaluation | policy 0 | 1 | 2 | 3 |\n|---|---:|---:|---:|---:|---:|---:|---:|")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [
            (name, seed, pool.submit(train, options, name, changes, seed))
            for name, changes in options.settings
            for seed in options.seeds
        ]
        for name, seed, run in runs:
            print("|", " | ".join([name, str(seed), *cells(run.result())]), "|", flush=True)


if __name__ == "__main__":
    main()
