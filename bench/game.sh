#!/usr/bin/env bash
# Trains on one game from scratch for a fixed time and evaluates the result, as for most runs in docs/results/games.md.
# Works in a checkout and in the bundle of `make bundle`.
#
#   bench/game.sh GAME SEED [ARGS...]     ARGS are further options of `meme train`
#   PRESET=quick MINUTES=10               preset and total time, including starts and stops
#   STOPS=0                               how often to stop and resume, at equal intervals
#   RUNS=runs NAME=GAME-PRESET-SEED       the run; it must not exist yet
#   EPISODES=10 PARAMETERS="ema online"   how many episodes to evaluate, with which parameters
#   MEME=path/to/meme                     the binary (default: the checkout's or the bundle's)
#
# Writes evaluation-ema.json and evaluation-online.json to the run, for bench/result.py.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
MEME=${MEME:-$(command -v "$root/target/release/meme" "$root/meme" 2>/dev/null | head -n 1 || true)}
say() { printf 'game: %s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
fail() { printf 'game: %s\n' "$*" >&2; exit 1; }
[ -n "$MEME" ] || fail "meme not found; run make build, or set MEME to the binary."
[ $# -ge 2 ] || fail "game and seed are missing; for example: bench/game.sh pong 1"
game=$1 seed=$2
shift 2
preset=${PRESET:-quick}
runs=${RUNS:-runs}
name=${NAME:-$game-$preset-$seed}
parts=$((${STOPS:-0} + 1))
part=$((${MINUTES:-10} * 60 / parts))
[ ! -e "$runs/$name" ] || fail "the run $runs/$name already exists; set NAME to another."

# Trains until the time is up: SIGINT ends training cleanly. Returns the status of `meme`.
train() {
    timeout --preserve-status --signal=INT "$part" "$MEME" train "$game" --preset "$preset" --seed "$seed" \
        --name "$name" --runs "$runs" --frames 1000000000 "$@"
}

for i in $(seq "$parts"); do
    say "training $name for $part s, $i of $parts"
    train "$@"
done
for parameters in ${PARAMETERS:-ema online}; do
    say "evaluating with $parameters parameters"
    "$MEME" eval "$name" --runs "$runs" --episodes "${EPISODES:-10}" --parameters "$parameters" --json \
        >"$runs/$name/evaluation-$parameters.json"
done
say "done: $runs/$name"
