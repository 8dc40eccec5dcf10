"""Compares two directories of golden files, one line per file: `python compare_golden.py WANT GOT`.

Integers must be equal, real numbers equal to TOLERANCE relative to the largest of their tensor: processors differ in
the order of additions.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

TOLERANCE = 2e-5


def difference(want, got):
    """max|got - want| / max|want| for real numbers, 0 or infinity for integers."""
    if not np.issubdtype(want.dtype, np.floating):
        return 0.0 if np.array_equal(want, got) else np.inf
    scale = np.abs(want.astype(np.float64)).max(initial=0.0)
    distance = np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0.0)
    return distance / scale if scale > 0 else (0.0 if distance == 0 else np.inf)


def compare_tensors(want, got):
    """Problems found, and the largest difference."""
    problems, worst = [], 0.0
    for name in sorted(want.keys() | got.keys()):
        if name not in got:
            problems.append(f"{name} is missing")
        elif name not in want:
            problems.append(f"{name} is new")
        elif want[name].shape != got[name].shape or want[name].dtype != got[name].dtype:
            problems.append(
                f"{name} was {want[name].dtype} {list(want[name].shape)}, is {got[name].dtype} {list(got[name].shape)}"
            )
        else:
            found = difference(want[name], got[name])
            worst = max(worst, found)
            if not found <= TOLERANCE:
                problems.append(f"{name} differs by {found:.1e}")
    return problems, worst


def main(want_directory, got_directory):
    failed = False
    names = {path.name for directory in (want_directory, got_directory) for path in directory.glob("*.safetensors")}
    for name in sorted(names):
        want, got = want_directory / name, got_directory / name
        if not want.exists() or not got.exists():
            problems, worst = ["only in the " + ("regenerated" if got.exists() else "committed") + " files"], 0.0
        else:
            problems, worst = compare_tensors(load_file(want), load_file(got))
        failed = failed or bool(problems)
        print(f"{name:<40} {'differs: ' + '; '.join(problems[:5]) if problems else f'ok, to {worst:.1e}'}")

    want, got = want_directory / "cases.json", got_directory / "cases.json"
    same = want.exists() and json.loads(want.read_text()) == json.loads(got.read_text())
    print(f"{'cases.json':<40} {'ok' if same else 'differs'}")
    return 0 if same and not failed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
