#!/usr/bin/env bash
# Trains on one game from nothing for a fixed time, stopped on the way and gone on with, and evaluates what came out: how
# the results in docs/results were made. Works in a checkout and in the folder that `make bundle` makes.
#
#   bench/game.sh GAME SEED [ARGS...]     ARGS are more options of `meme train`
#   PRESET=quick MINUTES=24               what to train with, and how long, starts and stops included
#   STOPS=1                               how often to stop and go on, at equal distances
#   RUNS=runs NAME=GAME-PRESET-SEED       the run; it must not exist yet
#   EPISODES=10 PARAMETERS="ema online"   how often to play with which parameters
#   MEME=path/to/meme                     the program, else the checkout's or the bundle's
#
# Leaves evaluation-ema.json and evaluation-online.json in the run, which bench/result.py takes.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
MEME=${MEME:-$(command -v "$root/target/release/meme" "$root/meme" 2>/dev/null | head -n 1 || true)}
say() { printf 'game: %s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
fail() { printf 'game: %s\n' "$*" >&2; exit 1; }
[ -n "$MEME" ] || fail "there is no meme beside this script; build it with make build, or set MEME to its path."
[ $# -ge 2 ] || fail "tell the game and the seed, such as: bench/game.sh pong 1"
game=$1 seed=$2
shift 2
preset=${PRESET:-quick}
runs=${RUNS:-runs}
name=${NAME:-$game-$preset-$seed}
parts=$((${STOPS:-1} + 1))
part=$((${MINUTES:-24} * 60 / parts))
[ ! -e "$runs/$name" ] || fail "there is a run $runs/$name already; set NAME to another."

# Until its time is over; SIGINT ends training in order. The status is that of `meme`.
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
