#!/usr/bin/env python3
"""Prints the table of `compare.sh` from the measurements: `comparison.py DIRECTORY MEME_VERSION`.

DIRECTORY holds ROUND.NAME.json for the names below, the same names in every round.
"""

import datetime
import json
import sys
from pathlib import Path
from statistics import mean

PEERS = {"peer-eager": "PyTorch, eager", "peer-compile": "PyTorch, torch.compile"}
LEARNERS = {
    **PEERS,
    "meme-every-branch": "meme, every residual branch computed",
    "meme-paper": "meme, paper preset: drop rate growing to 25 %",
    "meme-flat": "meme, flat drop rate of 25 %, dropped branches skipped",
}
INFERENCE = "meme-inference"
BASELINE = "peer-compile"
# Emulator frames per action.
FRAMES_PER_STEP = 4


class Missing(Exception):
    """A missing or invalid file or field."""


def read_rounds(directory):
    """One dictionary from name to document per round, in order."""
    rounds = {}
    for path in sorted(Path(directory).glob("*.json")):
        number, name, _ = path.name.split(".")
        try:
            rounds.setdefault(int(number), {})[name] = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise Missing(f"{path.name} is not valid JSON: {error}") from error
    if not rounds:
        raise Missing(f"no measurements in {directory}")
    measured = {name for documents in rounds.values() for name in documents}
    for number, documents in rounds.items():
        for name in (*LEARNERS, INFERENCE):
            if name not in documents and name in {BASELINE, *measured}:
                raise Missing(f"round {number} has no measurement {name}")
    return [rounds[number] for number in sorted(rounds)]


def number(document, name, field):
    value = document.get(field) if isinstance(document, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise Missing(f"{name} has an invalid {field}: {value!r}")
    return value


def inference_times(documents, name):
    """Milliseconds on the device and of the round trip, by number of environments."""
    document = documents[name]
    rows = document.get("inference") if name in PEERS else document
    if not isinstance(rows, list) or not rows:
        raise Missing(f"{name} has no list of inference times")
    fields = ("environments", "milliseconds", "round_trip_milliseconds")
    rows = [[number(row, name, field) for field in fields] for row in rows]
    return {environments: times for environments, *times in rows}


def learner_rows(rounds):
    labels = {name: label for name, label in LEARNERS.items() if name in rounds[0]}
    rates = {name: [number(r[name], name, "updates_per_second") for r in rounds] for name in labels}
    for name, label in labels.items():
        rate = mean(rates[name])
        each = ", ".join(f"{x:.3f}" for x in rates[name])
        yield f"| {label} | {1e3 / rate:.1f} | {rate:.2f} | {each} | {rate / mean(rates[BASELINE]):.3f} |"


def inference_rows(rounds):
    labels = {name: label for name, label in {**PEERS, INFERENCE: "meme"}.items() if name in rounds[0]}
    times = {name: [inference_times(r, name) for r in rounds] for name in labels}
    for environments in times[BASELINE][0]:
        for name, label in labels.items():
            if any(environments not in x for x in times[name]):
                raise Missing(f"{name} has no inference times for {environments} environments")
        means = {name: [mean(x[environments][i] for x in times[name]) for i in range(2)] for name in labels}
        for name, label in labels.items():
            device, trip = means[name]
            ratios = [f"{base / own:.2f}" for base, own in zip(means[BASELINE], means[name])]
            frames = round(environments * FRAMES_PER_STEP * 1e3 / trip)
            yield f"| {environments} | {label} | {device:.3f} | {trip:.3f} | {frames} | {' / '.join(ratios)} |"


def table(rounds, meme, date):
    """The Markdown text."""
    peer = rounds[0][BASELINE]
    for field in ("device", "torch"):
        if not peer.get(field):
            raise Missing(f"{BASELINE} has no {field}")
    return "\n".join([
        f"`bench/compare.sh`, {date}, {peer['device']}, PyTorch {peer['torch']}, {meme}. Medians after",
        f"warm-up; means of {len(rounds)} rounds, in which every program ran once, one after another.",
        "",
        "| learner, 64 x 160 frames | ms per update | updates/s | updates/s of each round | times torch.compile |",
        "|---|---:|---:|---|---:|",
        *learner_rows(rounds),
        "",
        "| environments | inference, 18 actions | ms on the GPU | ms round trip | frames/s of round trips "
        "| times torch.compile (GPU / trip) |",
        "|---:|---|---:|---:|---:|---:|",
        *inference_rows(rounds),
    ])  # fmt: skip


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: comparison.py DIRECTORY MEME_VERSION")
    try:
        print(table(read_rounds(sys.argv[1]), sys.argv[2], datetime.date.today().isoformat()))
    except Missing as missing:
        sys.exit(f"comparison: {missing}.")


if __name__ == "__main__":
    main()
