#!/usr/bin/env bash
# Measures the PyTorch peer and `meme` in turns on the GPU and prints a Markdown table with the ratios; progress goes
# to stderr. Works in a checkout and in the bundle of `make bundle`; takes a few minutes.
#
# MEME=...     the binary (default: target/release/meme, or meme in the bundle)
# ROUNDS=2     how often to measure each
# PROGRAMS=... what to measure besides peer-compile: any of peer-eager, meme-every-branch, meme-paper, meme-flat and
#              meme-inference (default: all of them)
# PYTHON=...   a Python with torch for CUDA and numpy (default: MEME_PYTHON, .venv/bin/python or python3)
set -euo pipefail
bench=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$bench")
rounds=${ROUNDS:-2}
all="peer-eager meme-every-branch meme-paper meme-flat meme-inference"
programs=${PROGRAMS:-$all}

say() { printf 'compare: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# The first of the given commands that can be run.
first_command() { command -v "$@" 2>/dev/null | head -n 1; }

MEME=${MEME:-$(first_command "$root/target/release/meme" "$root/meme" || true)}
PYTHON=${PYTHON:-${MEME_PYTHON:-$(first_command "$root/.venv/bin/python" python3 || true)}}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "ROUNDS must be an integer of at least 1, not $rounds."
for program in $programs; do
    [[ " $all " == *" $program "* ]] || fail "unknown program $program in PROGRAMS; choose from $all."
done
command -v "$PYTHON" >/dev/null || fail "Python not found${PYTHON:+ at $PYTHON}; set PYTHON to one with torch."
command -v "$MEME" >/dev/null || fail "meme not found${MEME:+ at $MEME}; run make build, or set MEME to the binary."
"$PYTHON" - <<'PREFLIGHT' || exit 1
import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"compare: {sys.executable} cannot import torch ({error}); set PYTHON to one with torch for CUDA.")
if not torch.cuda.is_available():
    sys.exit(f"compare: torch {torch.__version__} of {sys.executable} sees no GPU.")
PREFLIGHT
# The bundle's launcher uses the libtorch of this Python.
export MEME_PYTHON=$PYTHON
meme_version=$("$MEME" --version) || fail "$MEME --version failed, see above."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# measure NAME COMMAND...: stores the output of a selected program as ROUND.NAME.json.
measure() {
    local name=$1
    shift
    [[ " peer-compile $programs " == *" $name "* ]] || return 0
    say "round $round of $rounds: $name"
    "$@" >"$work/$round.$name.json" || fail "$name failed, see above; the command was: $*"
}

learner() { measure "$1" "$MEME" bench learner --preset paper --device cuda --json "${@:2}"; }

depth=agent.network.torso.stochastic_depth
for round in $(seq "$rounds"); do
    measure peer-eager "$PYTHON" -B "$bench/torch_peer.py" --mode eager --json
    measure peer-compile "$PYTHON" -B "$bench/torch_peer.py" --mode compile --json
    learner meme-every-branch --set "$depth.rate=0.0"
    learner meme-paper
    learner meme-flat --set "$depth.schedule=flat"
    measure meme-inference "$MEME" bench inference --preset paper --device cuda --json
done
"$PYTHON" -B "$bench/comparison.py" "$work" "$meme_version"
